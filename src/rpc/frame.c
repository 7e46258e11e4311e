// SPDX-License-Identifier: Apache-2.0
// The bytes of a frame.
#include "rpc.h"

#include <assert.h>

// `reader` is the side that receives the kind, where `both` is false.
static const struct {
    size_t max;
    enum rpc_side reader;
    bool both;
} kinds[FRAME_N_KINDS] = {
    [FRAME_REQUEST] = {FRAME_REQUEST_MAX, RPC_AGENT, false},
    [FRAME_DATA] = {FRAME_DATA_MAX, RPC_GATEWAY, true},
    [FRAME_HEAD] = {FRAME_HEAD_MAX, RPC_GATEWAY, false},
    [FRAME_RESULT] = {FRAME_RESULT_MAX, RPC_GATEWAY, false},
    [FRAME_ERROR] = {FRAME_ERROR_MAX, RPC_GATEWAY, false},
};

void
frame_header(enum frame_kind kind, size_t len, unsigned char ret[FRAME_HEADER_LEN])
{
    assert(len <= kinds[kind].max);
    ret[0] = (unsigned char)kind;
    ret[1] = (unsigned char)(len >> 16);
    ret[2] = (unsigned char)(len >> 8);
    ret[3] = (unsigned char)len;
}

int
frame_read(enum rpc_side reader, const char *data, size_t len, struct frame *ret)
{
    const unsigned char *bytes = (const unsigned char *)data;

    if (len == 0)
        return 0;
    unsigned kind = bytes[0];
    if (kind == 0 || kind >= FRAME_N_KINDS || (!kinds[kind].both && kinds[kind].reader != reader))
        return -1;
    if (len < FRAME_HEADER_LEN)
        return 0;
    size_t content = (size_t)bytes[1] << 16 | (size_t)bytes[2] << 8 | bytes[3];
    if (content > kinds[kind].max)
        return -1;
    if (len - FRAME_HEADER_LEN < content)
        return 0;
    *ret = (struct frame){(enum frame_kind)kind, data + FRAME_HEADER_LEN, content};
    return (int)(FRAME_HEADER_LEN + content);
}
