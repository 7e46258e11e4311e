// SPDX-License-Identifier: Apache-2.0
// The ZMTP follower: however a stream is cut into pieces, it must see the same messages in it and
// find the same offence. The first byte of the input is the size of the pieces.

#include <assert.h>
#include <string.h>

#include "zmtp_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_MESSAGE_BYTES = 4096, MAX_FRAMES = 4 };

struct outcome {
    int result;
    uint64_t cost;
    struct kg_error err;
};

static struct outcome
follow(const uint8_t *data, size_t size, size_t piece)
{
    struct outcome outcome = {0};
    struct zmtp_follower follower;

    zmtp_init(&follower, MAX_MESSAGE_BYTES, MAX_FRAMES);
    for (size_t pos = 0; pos < size && outcome.result == 0; pos += piece) {
        size_t len = size - pos < piece ? size - pos : piece;
        size_t passed;
        uint64_t cost;
        outcome.result = zmtp_follow(&follower, data + pos, len, &passed, &cost, &outcome.err);
        outcome.cost += cost;
        assert(outcome.result == 0 ? passed == len : passed < len);
        assert(follower.message_cost <= MAX_MESSAGE_BYTES &&
               follower.head_len <= follower.head_want);
    }
    return outcome;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct outcome whole = follow(data + 1, size - 1, size);
    struct outcome pieces = follow(data + 1, size - 1, (size_t)data[0] % 32 + 1);
    assert(whole.result == pieces.result && whole.cost == pieces.cost);
    if (whole.result != 0)
        assert(whole.err.code == KG_INVALID_CONTENT &&
               strcmp(whole.err.message, pieces.err.message) == 0);
    return 0;
}
