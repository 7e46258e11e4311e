// SPDX-License-Identifier: Apache-2.0
// Messages of WebSocket clients in both framings: whatever is read points into the input, and what
// was read from v1 is written and read again unchanged.
//
// The first byte chooses: 't' legacy text, 'b' legacy binary, anything else v1.

#include <assert.h>
#include <string.h>

#include "framing_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_inside(const struct kernel_bytes *part, const uint8_t *data, size_t size)
{
    const uint8_t *begin = part->data;
    if (part->len > 0 && part->len <= 2 && memcmp(begin, "{}", part->len) == 0)
        return; // the reader's own
    assert(part->len == 0 ||
           (begin >= data && part->len <= size && (size_t)(begin - data) <= size - part->len));
}

static void
check_framed(const struct framed *framed, const uint8_t *data, size_t size)
{
    const struct kernel_message *message = &framed->message;
    assert(message->channel <= KERNEL_STDIN && message->n_buffers <= JUPYTER_MAX_BUFFERS);
    assert(message->buffers == framed->buffers);
    check_inside(&message->header, data, size);
    check_inside(&message->parent_header, data, size);
    check_inside(&message->metadata, data, size);
    check_inside(&message->content, data, size);
    for (size_t i = 0; i < message->n_buffers; i++)
        check_inside(&message->buffers[i], data, size);
}

static void
join(const struct framed_out *out, struct buf *ret)
{
    if (out->head.len > 0)
        buf_append(ret, out->head.data, out->head.len);
    for (size_t i = 0; i < out->n_parts; i++)
        if (out->parts[i].len > 0)
            buf_append(ret, out->parts[i].data, out->parts[i].len);
    assert(ret->len == out->len);
}

static void
check_same(const struct kernel_bytes *one, const struct kernel_bytes *other)
{
    assert(one->len == other->len && (one->len == 0 || !memcmp(one->data, other->data, one->len)));
}

static void
check_written(const struct kernel_message *message)
{
    KG_AUTO_FRAMED out;
    KG_AUTO_FRAMED legacy;
    KG_AUTO_BUF whole = {0};
    KG_AUTO_BUF text = {0};
    struct framed again;
    struct kg_error err;
    framing_write_v1(message, &out);
    join(&out, &whole);
    assert(framing_read_v1(whole.data, whole.len, &again, &err) == 0);
    assert(again.message.channel == message->channel);
    assert(again.message.n_buffers == message->n_buffers);
    check_same(&again.message.header, &message->header);
    check_same(&again.message.parent_header, &message->parent_header);
    check_same(&again.message.metadata, &message->metadata);
    check_same(&again.message.content, &message->content);
    for (size_t i = 0; i < message->n_buffers; i++)
        check_same(&again.message.buffers[i], &message->buffers[i]);
    framing_write_legacy(message, &legacy);
    join(&legacy, &text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kg_error err = {0};
    struct framed framed;
    if (size == 0)
        return 0;
    int (*read)(const void *, size_t, struct framed *, struct kg_error *) = framing_read_v1;
    if (*data == 't')
        read = framing_read_text;
    else if (*data == 'b')
        read = framing_read_binary;
    if (read(data + 1, size - 1, &framed, &err) < 0) {
        assert(err.code == KG_INVALID && *err.message);
        return 0;
    }
    check_framed(&framed, data + 1, size - 1);
    check_written(&framed.message);
    return 0;
}
