// SPDX-License-Identifier: Apache-2.0
// A body in gzip, as a client may send it. First byte: how long the pieces are in which it comes;
// the second one: how much is read at a time.
#include <assert.h>
#include <event2/event.h>
#include <string.h>

#include "http_priv.h"

enum { DECODED_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Whether it is sound; `ret` gets what it becomes. `ret_whole`: it may end there.
static bool
decode(const uint8_t *data, size_t len, size_t piece, size_t room, struct evbuffer *ret,
       bool *ret_whole)
{
    char to[256];
    struct evbuffer *from = evbuffer_new();
    struct gunzip *gunzip = gunzip_new();
    struct kg_error err = {0};
    bool sound = true;
    for (size_t i = 0; i < len && sound; i += piece) {
        size_t n = 1;
        evbuffer_add(from, data + i, i + piece < len ? piece : len - i);
        while (sound && n > 0 && evbuffer_get_length(ret) < DECODED_MAX) {
            sound = gunzip_take(gunzip, from, to, room, &n, &err) == 0;
            assert(sound ? n <= room : err.code == KG_INVALID && err.message[0]);
            if (sound)
                evbuffer_add(ret, to, n);
        }
    }
    *ret_whole = sound && evbuffer_get_length(from) == 0 && gunzip_is_between(gunzip);
    gunzip_free(gunzip);
    evbuffer_free(from);
    return sound;
}

// However it is cut, it becomes the same.
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct evbuffer *one = evbuffer_new(), *other = evbuffer_new();
    bool whole, cut_whole;
    bool sound = decode(data + 2, size - 2, size, 256, one, &whole);
    bool cut_sound = decode(data + 2, size - 2, (size_t)data[0] % 32 + 1, (size_t)data[1] + 1,
                            other, &cut_whole);
    size_t len = evbuffer_get_length(one), other_len = evbuffer_get_length(other);
    if (len < DECODED_MAX && other_len < DECODED_MAX) {
        assert(sound == cut_sound && whole == cut_whole && (!sound || len == other_len));
        size_t common = len < other_len ? len : other_len;
        assert(common == 0 || memcmp(evbuffer_pullup(one, (ev_ssize_t)common),
                                     evbuffer_pullup(other, (ev_ssize_t)common), common) == 0);
    }
    evbuffer_free(one);
    evbuffer_free(other);
    return 0;
}
