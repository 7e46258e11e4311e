// SPDX-License-Identifier: Apache-2.0
// Messages of iopub, recognized by their topics.
#include "link_iopub.h"

#include <string.h>

enum { FLAG_MORE = 1, FLAG_LONG = 2 };

struct piece {
    const char *data;
    size_t len;
};

static bool
ends_with(const struct piece *piece, const char *end)
{
    size_t len = strlen(end);
    return piece->len >= len && memcmp(piece->data + piece->len - len, end, len) == 0;
}

static enum iopub_kind
kind_of(const struct piece *topic, const struct piece *content)
{
    static const char busy[] = "{\"execution_state\": \"busy\"}";
    if (ends_with(topic, ".status"))
        return content->len == strlen(busy) && ends_with(content, busy) ? IOPUB_NEEDLESS
                                                                        : IOPUB_OTHER;
    if (ends_with(topic, ".execute_input"))
        return IOPUB_NEEDLESS;
    if (ends_with(topic, ".execute_result") || ends_with(topic, ".error"))
        return IOPUB_LAST;
    return IOPUB_OTHER;
}

// Reads a frame. Returns its length; 0 if it is not complete, or is a command.
static size_t
read_frame(const char *data, size_t len, bool *ret_more, struct piece *ret)
{
    const unsigned char *bytes = (const unsigned char *)data;
    uint64_t size = 0;

    if (len == 0 || bytes[0] > (FLAG_MORE | FLAG_LONG))
        return 0;
    size_t head = (bytes[0] & FLAG_LONG) != 0 ? 9 : 2;
    if (len < head)
        return 0;
    for (size_t i = 1; i < head; i++)
        size = size << 8 | bytes[i];
    if (size > len - head)
        return 0;
    *ret_more = (bytes[0] & FLAG_MORE) != 0;
    *ret = (struct piece){data + head, (size_t)size};
    return head + (size_t)size;
}

size_t
iopub_message(const char *data, size_t len, enum iopub_kind *ret_kind)
{
    struct piece topic = {0}, last = {0};
    bool more = true;
    size_t at = 0;

    while (more) {
        size_t n = read_frame(data + at, len - at, &more, &last);
        if (n == 0)
            return 0;
        if (at == 0)
            topic = last;
        at += n;
    }
    *ret_kind = kind_of(&topic, &last);
    return at;
}

bool
iopub_can_linger(const char *data, size_t len)
{
    enum iopub_kind kind;
    size_t n;

    for (size_t at = 0; at < len; at += n) {
        n = iopub_message(data + at, len - at, &kind);
        if (n == 0 || kind == IOPUB_OTHER)
            return false;
    }
    return len > 0;
}

size_t
iopub_sift(char *data, size_t len)
{
    enum iopub_kind kind;
    size_t n, kept = 0;

    for (size_t at = 0; at < len; at += n) {
        n = iopub_message(data + at, len - at, &kind);
        if (n == 0)
            return len;
    }
    for (size_t at = 0; at < len; at += n) {
        n = iopub_message(data + at, len - at, &kind);
        if (kind == IOPUB_NEEDLESS)
            continue;
        memmove(data + kept, data + at, n);
        kept += n;
    }
    return kept;
}
