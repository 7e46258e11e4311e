// SPDX-License-Identifier: Apache-2.0
// Messages of a tap's client: what is taken has the header that kernels need, never the gateway's
// session, and parts that are JSON objects.
//
// The input is cut into header, parent header, metadata, content and buffers at each 0xfe.

#include <assert.h>
#include <string.h>

#include "tap_header_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { END_OF_PART = 0xfe, MAX_PARTS = 4 + JUPYTER_MAX_BUFFERS + 1 };
#define OWN_SESSION "0123456789abcdef"

static size_t
cut(const uint8_t *data, size_t size, struct kernel_bytes parts[MAX_PARTS])
{
    size_t n = 0;
    while (n < MAX_PARTS) {
        const uint8_t *end = size > 0 ? memchr(data, END_OF_PART, size) : NULL;
        size_t len = end ? (size_t)(end - data) : size;
        parts[n++] = (struct kernel_bytes){data, len};
        if (!end)
            break;
        data = end + 1;
        size -= len + 1;
    }
    return n;
}

static void
check_header(const json_t *header)
{
    static const char *const keys[] = {"msg_id",   "session", "msg_type",
                                       "username", "date",    "version"};
    for (size_t i = 0; i < KG_ARRAY_LEN(keys); i++)
        assert(json_is_string(json_object_get(header, keys[i])));
    const char *session = json_string_value(json_object_get(header, "session"));
    assert(*session && strcmp(session, OWN_SESSION) != 0);
}

static void
check_parts(const struct jupyter_raw *raw)
{
    size_t bytes = 0;
    for (size_t i = 0; i < JUPYTER_N_PARTS; i++) {
        const struct jupyter_frame *part = &raw->parts[i];
        json_auto_t *value = json_loadb(part->data, part->len, JSON_ALLOW_NUL, NULL);
        assert(json_is_object(value));
        bytes += part->len;
    }
    for (size_t i = 0; i < raw->n_buffers; i++)
        bytes += raw->buffers[i].len;
    assert(bytes == raw->bytes);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kernel_bytes parts[MAX_PARTS] = {0};
    struct kg_error err = {0};
    size_t n = cut(data, size, parts);
    const struct kernel_message message = {
        .header = parts[0],
        .parent_header = parts[1],
        .metadata = parts[2],
        .content = parts[3],
        .n_buffers = n > 4 ? n - 4 : 0,
        .buffers = parts + 4,
    };
    json_auto_t *header = tap_header_read(&message.header, OWN_SESSION, &err);
    if (!header) {
        assert(err.code == KG_INVALID);
        return 0;
    }
    check_header(header);
    KG_AUTO(jupyter_raw) raw = tap_raw_new(&message, header, &err);
    if (!raw)
        assert(err.code == KG_INVALID);
    else if (jupyter_raw_repair(raw, &err) == 0)
        check_parts(raw);
    else
        assert(err.code == KG_INVALID_CONTENT || err.code == KG_ARTIFACT_TOO_LARGE);
    return 0;
}
