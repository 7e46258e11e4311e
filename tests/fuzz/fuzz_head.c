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
    // Without its body it is a head again, of the same request.
    struct evbuffer *out = evbuffer_new();
    assert(out);
    head_write_without_body(&head, out);
    size_t out_len = evbuffer_get_length(out);
    const char *again_text = (const char *)evbuffer_pullup(out, -1);
    assert(head_end(again_text, out_len, 0) == out_len);
    struct http_head again;
    int failed = head_parse(again_text, out_len, &again, &err);
    assert(!failed && again.content_length == 0 && !again.chunked);
    assert(strcmp(again.method, head.method) == 0 && strcmp(again.target, head.target) == 0);
    head_fini(&again);
    head_fini(&head);
    evbuffer_free(out);
}

// However they are cut, the chunks are the same.
static void
check_chunks(const char *text, size_t len, size_t piece)
{
    struct http_chunks whole = {0}, cut = {0};
    bool good = chunks_scan(&whole, text, len);
    bool cut_good = true;
    for (size_t i = 0; i < len && cut_good; i += piece)
        cut_good = chunks_scan(&cut, text + i, i + piece < len ? piece : len - i);
    assert(good == cut_good);
    assert(!good || (whole.state == cut.state && whole.left == cut.left));
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
