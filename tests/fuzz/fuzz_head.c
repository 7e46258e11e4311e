// SPDX-License-Identifier: Apache-2.0
// The head of a request and the chunks of its body, as anybody may send them. First byte: how long
// the pieces are in which the chunks come.
#include <assert.h>
#include <event2/event.h>
#include <string.h>

#include "http_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_head(const char *text, size_t len)
{
    struct kg_error err = {0};
    struct http_head head;
    if (head_parse(text, len, &head, &err) < 0) {
        assert(err.code == KG_INVALID && err.message[0]);
        head_fini(&head);
        return;
    }
    assert(*head.method && *head.target && head.content_length >= -1);
    assert(head.n_hosts <= 1 && head.n_framings <= 1 && !memchr(text, '\0', len));
    assert(!head.authority || (*head.authority && *head.target == '/'));
    assert(!(head.is_1_0 && head.chunked));
    assert(head.n_headers == 0 || head_find(&head, head.headers[0].name));
    (void)head_has_token(&head, "Connection", "close");
    head_fini(&head);
}

// Takes a body of chunks that comes in pieces. The caller frees what is left, and the body.
static bool
take_chunks(struct http_framing *framing, const char *text, size_t len, size_t piece,
            struct evbuffer *input, struct evbuffer *body)
{
    framing_init(framing, true, 0);
    bool good = true;
    for (size_t i = 0; i < len && good; i += piece) {
        evbuffer_add(input, text + i, i + piece < len ? piece : len - i);
        good = framing_take(framing, input, body);
    }
    return good;
}

static bool
is_same(struct evbuffer *one, struct evbuffer *other)
{
    size_t len = evbuffer_get_length(one);
    return evbuffer_get_length(other) == len &&
           (len == 0 || memcmp(evbuffer_pullup(one, -1), evbuffer_pullup(other, -1), len) == 0);
}

// However they are cut, the body is the same, and what follows it is left.
static void
check_chunks(const char *text, size_t len, size_t piece)
{
    struct http_framing whole, cut;
    struct evbuffer *buffers[4];
    for (size_t i = 0; i < 4; i++)
        assert((buffers[i] = evbuffer_new()));
    bool good = take_chunks(&whole, text, len, len + 1, buffers[0], buffers[1]);
    bool cut_good = take_chunks(&cut, text, len, piece, buffers[2], buffers[3]);
    assert(good == cut_good);
    if (good) {
        assert(whole.state == cut.state && whole.left == cut.left);
        assert(is_same(buffers[0], buffers[2]) && is_same(buffers[1], buffers[3]));
        assert(evbuffer_get_length(buffers[1]) <= len);
    }
    for (size_t i = 0; i < 4; i++)
        evbuffer_free(buffers[i]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const char *text = (const char *)data + 1;
    size_t len = size - 1, end = 0;
    size_t whole_end = head_end(text, len, 0);
    for (size_t n = 1; n <= len && end == 0; n++) // found where the last byte of it comes
        end = head_end(text, n, n - 1);
    assert(end == whole_end && end <= len);
    if (end > 0)
        check_head(text, end);
    check_chunks(text + end, len - end, (size_t)data[0] % 16 + 1);
    return 0;
}
