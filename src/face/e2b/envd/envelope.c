// SPDX-License-Identifier: Apache-2.0
// Envelopes, read and written.
#include "envelope.h"

enum envelope_state
envelope_read(const char *bytes, size_t len, size_t max, struct envelope *ret)
{
    const unsigned char *head = (const unsigned char *)bytes;
    if (len < ENVELOPE_HEAD_BYTES)
        return ENVELOPE_CUT;
    size_t size = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
    if (head[0] == ENVELOPE_COMPRESSED)
        return ENVELOPE_IS_COMPRESSED;
    if (head[0] != 0)
        return ENVELOPE_BAD_FLAGS;
    if (size > max)
        return ENVELOPE_TOO_LARGE;
    if (len - ENVELOPE_HEAD_BYTES < size)
        return ENVELOPE_CUT;
    *ret = (struct envelope){
        .data = bytes + ENVELOPE_HEAD_BYTES, .len = size, .taken = ENVELOPE_HEAD_BYTES + size};
    return ENVELOPE_WHOLE;
}

void
envelope_write(struct buf *ret, int flags, const char *data, size_t len)
{
    const unsigned char head[ENVELOPE_HEAD_BYTES] = {
        (unsigned char)flags, (unsigned char)(len >> 24), (unsigned char)(len >> 16),
        (unsigned char)(len >> 8), (unsigned char)len};
    buf_append(ret, head, sizeof head);
    buf_append(ret, data, len);
}
