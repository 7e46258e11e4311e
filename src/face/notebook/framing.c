// SPDX-License-Identifier: Apache-2.0
// The two framings. What is read comes from untrusted clients, and parts of it may be anything: the
// tap checks that they are JSON.

#include "framing_priv.h"

#include <endian.h>
#include <string.h>

static const char *const channel_names[] = {
    [KERNEL_SHELL] = "shell",
    [KERNEL_IOPUB] = "iopub",
    [KERNEL_CONTROL] = "control",
    [KERNEL_STDIN] = "stdin",
};

static int
find_channel(const char *name, size_t len, enum kernel_channel *ret, struct kg_error *err)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(channel_names); i++) {
        if (strlen(channel_names[i]) == len && memcmp(channel_names[i], name, len) == 0) {
            *ret = (enum kernel_channel)i;
            return 0;
        }
    }
    return kg_error_set(err, KG_INVALID, 0, "channel: must be shell, control or stdin");
}

static int
add_buffer(struct framed *framed, const char *data, size_t len, struct kg_error *err)
{
    struct kernel_message *message = &framed->message;
    if (message->n_buffers == JUPYTER_MAX_BUFFERS)
        return kg_error_set(err, KG_INVALID, 0, "buffers: more than %d", JUPYTER_MAX_BUFFERS);
    framed->buffers[message->n_buffers++] = (struct kernel_bytes){data, len};
    return 0;
}

// ---- v1 -------------------------------------------------------------------------------------

enum { V1_CHANNEL, V1_HEADER, V1_PARENT, V1_METADATA, V1_CONTENT, V1_BUFFERS };

static uint64_t
read_le64(const char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static void
append_le64(struct buf *out, uint64_t value)
{
    value = htole64(value);
    buf_append(out, &value, sizeof value);
}

static int
v1_add(struct framed *framed, size_t i, const char *data, size_t len, struct kg_error *err)
{
    struct kernel_message *message = &framed->message;
    const struct kernel_bytes bytes = {data, len};
    switch (i) {
    case V1_CHANNEL:
        return find_channel(data, len, &message->channel, err);
    case V1_HEADER:
        message->header = bytes;
        return 0;
    case V1_PARENT:
        message->parent_header = bytes;
        return 0;
    case V1_METADATA:
        message->metadata = bytes;
        return 0;
    case V1_CONTENT:
        message->content = bytes;
        return 0;
    default:
        return add_buffer(framed, data, len, err);
    }
}

int
framing_read_v1(const void *data, size_t len, struct framed *ret, struct kg_error *err)
{
    const char *text = data;
    *ret = (struct framed){.message.buffers = ret->buffers};
    uint64_t n = len >= 8 ? read_le64(text) : 0;
    if (n < V1_BUFFERS + 1 || n > len / 8 - 1)
        return kg_error_set(err, KG_INVALID, 0, "message: the number of offsets is wrong");
    uint64_t begin = read_le64(text + 8);
    if (begin < 8 * (n + 1))
        return kg_error_set(err, KG_INVALID, 0, "message: an offset is within the offsets");
    for (size_t i = 0; i + 1 < n; i++) {
        uint64_t end = read_le64(text + 8 * (i + 2));
        if (end < begin || end > len)
            return kg_error_set(err, KG_INVALID, 0, "message: an offset is beyond the next part");
        if (v1_add(ret, i, text + begin, (size_t)(end - begin), err) < 0)
            return -1;
        begin = end;
    }
    return 0;
}

static void
add_part(struct framed_out *out, const struct kernel_bytes *part)
{
    out->parts[out->n_parts++] = *part;
    out->len += part->len;
}

void
framing_write_v1(const struct kernel_message *message, struct framed_out *ret)
{
    const struct kernel_bytes own[] = {message->header, message->parent_header, message->metadata,
                                       message->content};
    const char *channel = channel_names[message->channel];
    size_t n = V1_BUFFERS + message->n_buffers + 1;
    uint64_t at = 8 * (n + 1);
    *ret = (struct framed_out){0};
    append_le64(&ret->head, n);
    append_le64(&ret->head, at);
    append_le64(&ret->head, at += strlen(channel));
    for (size_t i = 0; i < KG_ARRAY_LEN(own); i++) {
        append_le64(&ret->head, at += own[i].len);
        add_part(ret, &own[i]);
    }
    for (size_t i = 0; i < message->n_buffers; i++) {
        append_le64(&ret->head, at += message->buffers[i].len);
        add_part(ret, &message->buffers[i]);
    }
    buf_append_str(&ret->head, channel);
    ret->len += ret->head.len;
}

// ---- Legacy ---------------------------------------------------------------------------------

// The object is read on the loop.
enum { MAX_OBJECT_BYTES = 1 << 20 };

// A member of the object; an absent one and null are empty.
static struct kernel_bytes
member(const char *text, size_t len, const char *name)
{
    size_t n;
    const char *value = json_member(text, len, name, &n);
    if (!value || (n == 4 && memcmp(value, "null", 4) == 0))
        return (struct kernel_bytes){"", 0};
    return (struct kernel_bytes){value, n};
}

int
framing_read_text(const void *data, size_t len, struct framed *ret, struct kg_error *err)
{
    static const struct kernel_bytes none = {"{}", 2};
    *ret = (struct framed){.message.buffers = ret->buffers};
    struct kernel_message *message = &ret->message;
    if (len > MAX_OBJECT_BYTES)
        return kg_error_set(err, KG_INVALID, 0,
                            "message: more than %d bytes, use v1.kernel.websocket.jupyter.org",
                            MAX_OBJECT_BYTES);
    message->header = member(data, len, "header");
    message->parent_header = member(data, len, "parent_header");
    message->metadata = member(data, len, "metadata");
    message->content = member(data, len, "content");
    if (message->header.len == 0)
        return kg_error_set(err, KG_INVALID, 0, "message: not a JSON object with a header");
    if (message->content.len == 0)
        message->content = none;
    struct kernel_bytes channel = member(data, len, "channel");
    if (channel.len == 0) {
        message->channel = KERNEL_SHELL; // what jupyter_server assumes
        return 0;
    }
    const char *name = channel.data;
    if (channel.len < 2 || name[0] != '"')
        return kg_error_set(err, KG_INVALID, 0, "channel: must be a string");
    return find_channel(name + 1, channel.len - 2, &message->channel, err);
}

static uint32_t
read_be32(const char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return be32toh(value);
}

static void
append_be32(struct buf *out, size_t value)
{
    uint32_t big = htobe32((uint32_t)value);
    buf_append(out, &big, sizeof big);
}

int
framing_read_binary(const void *data, size_t len, struct framed *ret, struct kg_error *err)
{
    const char *text = data;
    size_t n = len >= 8 ? read_be32(text) : 0;
    if (n < 1 || n > len / 4 - 1)
        return kg_error_set(err, KG_INVALID, 0, "message: the number of offsets is wrong");
    size_t begin = read_be32(text + 4);
    if (begin < 4 * (n + 1))
        return kg_error_set(err, KG_INVALID, 0, "message: an offset is within the offsets");
    for (size_t i = 0; i < n; i++) {
        size_t end = i + 1 < n ? read_be32(text + 4 * (i + 2)) : len;
        if (end < begin || end > len)
            return kg_error_set(err, KG_INVALID, 0, "message: an offset is beyond the next part");
        int result = i == 0 ? framing_read_text(text + begin, end - begin, ret, err)
                            : add_buffer(ret, text + begin, end - begin, err);
        if (result < 0)
            return -1;
        begin = end;
    }
    return 0;
}

static void
add_literal(struct framed_out *out, const char *text)
{
    add_part(out, &(const struct kernel_bytes){text, strlen(text)});
}

static void
add_member(struct framed_out *out, const char *name, struct kernel_bytes value)
{
    add_literal(out, name);
    if (value.len > 0)
        add_part(out, &value);
    else
        add_literal(out, "null");
}

// The offsets need the length of the object, so they are written last.
void
framing_write_legacy(const struct kernel_message *message, struct framed_out *ret)
{
    const struct kernel_bytes *header = &message->header;
    size_t n_buffers = message->n_buffers;
    *ret = (struct framed_out){.is_text = n_buffers == 0};
    add_member(ret, "{\"header\":", *header);
    // Clients read these two here.
    add_member(ret, ",\"msg_id\":", member(header->data, header->len, "msg_id"));
    add_member(ret, ",\"msg_type\":", member(header->data, header->len, "msg_type"));
    add_member(ret, ",\"parent_header\":", message->parent_header);
    add_member(ret, ",\"metadata\":", message->metadata);
    add_member(ret, ",\"content\":", message->content);
    add_literal(ret, n_buffers ? ",\"channel\":\"" : ",\"buffers\":[],\"channel\":\"");
    add_literal(ret, channel_names[message->channel]);
    add_literal(ret, "\"}");
    if (n_buffers == 0)
        return;
    size_t at = 4 * (n_buffers + 2);
    append_be32(&ret->head, n_buffers + 1);
    append_be32(&ret->head, at);
    at += ret->len;
    for (size_t i = 0; i < n_buffers; i++) {
        append_be32(&ret->head, at);
        at += message->buffers[i].len;
        add_part(ret, &message->buffers[i]);
    }
    ret->len += ret->head.len;
}
