// SPDX-License-Identifier: Apache-2.0
// The ZMTP follower: however a stream is cut into pieces, it must see the same messages in it, let
// the same bytes pass and find the same offence. What passes has no message above the bound:
// followed once more, it passes as it is. The first byte of the input is the size of the pieces,
// and the place at which a message is abandoned.

#include <assert.h>
#include <string.h>

#include "zmtp_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MAX_MESSAGE_BYTES = 4096,
    MAX_FRAMES = 4,
    REPLACEMENTS = MAX_FRAMES * (ZMTP_FRAME_OVERHEAD + 10),
    LEAST_REPLACED = MAX_MESSAGE_BYTES - MAX_FRAMES * ZMTP_FRAME_OVERHEAD,
};

// A replacement is a byte longer than an empty frame, and 3 than a head whose body has not come. A
// message that has some is large.
static size_t
longest(size_t size)
{
    return size + MAX_FRAMES * (size / LEAST_REPLACED + 2);
}

struct outcome {
    int result;
    uint64_t cost;
    struct buf passed;
    struct kg_error err;
};

static struct outcome
follow(const uint8_t *data, size_t size, size_t piece, size_t max_bytes)
{
    struct outcome outcome = {0};
    struct zmtp_follower follower;

    zmtp_init(&follower, max_bytes, MAX_FRAMES);
    for (size_t pos = 0; pos < size && outcome.result == 0; pos += piece) {
        size_t len = size - pos < piece ? size - pos : piece;
        uint64_t cost;
        outcome.result =
            zmtp_follow(&follower, data + pos, len, &outcome.passed, &cost, &outcome.err);
        outcome.cost += cost;
        assert(outcome.passed.len <= longest(size));
        assert(follower.message_cost <= MAX_MESSAGE_BYTES + REPLACEMENTS &&
               follower.head_len <= follower.head_want);
    }
    return outcome;
}

// A message may be abandoned after any byte: what passes then is well-formed, and costs what is
// said.
static void
abandon(const uint8_t *data, size_t size, size_t at)
{
    struct zmtp_follower follower;
    struct kg_error err;
    struct buf passed = {0};
    uint64_t cost, rest = 0, abandoned = 0, nuls = 0;

    zmtp_init(&follower, MAX_MESSAGE_BYTES, MAX_FRAMES);
    int result = zmtp_follow(&follower, data, at, &passed, &cost, &err);
    if (result == 0 && zmtp_is_inside_message(&follower))
        result = zmtp_abandon(&follower, &nuls, &abandoned, &err);
    for (assert(nuls <= MAX_MESSAGE_BYTES + 2); nuls > 0; nuls--)
        buf_append(&passed, "", 1);
    if (result == 0)
        result = zmtp_follow(&follower, data + at, size - at, &passed, &rest, &err);
    if (result == 0) {
        // The empty frame that ends it may be one too many.
        struct buf again = {0};
        uint64_t seen;
        zmtp_init(&follower, MAX_MESSAGE_BYTES + REPLACEMENTS, MAX_FRAMES + 1);
        assert(zmtp_follow(&follower, passed.data, passed.len, &again, &seen, &err) == 0);
        assert(seen == cost + abandoned + rest && again.len == passed.len);
        buf_fini(&again);
    }
    buf_fini(&passed);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    abandon(data + 1, size - 1, (size_t)data[0] * (size - 1) / 255);
    struct outcome whole = follow(data + 1, size - 1, size, MAX_MESSAGE_BYTES);
    struct outcome pieces = follow(data + 1, size - 1, (size_t)data[0] % 32 + 1, MAX_MESSAGE_BYTES);
    assert(whole.result == pieces.result && whole.cost == pieces.cost);
    assert(whole.passed.len == pieces.passed.len &&
           (whole.passed.len == 0 ||
            memcmp(whole.passed.data, pieces.passed.data, whole.passed.len) == 0));
    if (whole.result != 0)
        assert(whole.err.code == KG_INVALID_CONTENT &&
               strcmp(whole.err.message, pieces.err.message) == 0);
    struct outcome again = {0};
    if (whole.result == 0) {
        again = follow((const uint8_t *)whole.passed.data, whole.passed.len, whole.passed.len + 1,
                       MAX_MESSAGE_BYTES + REPLACEMENTS);
        assert(again.result == 0 && again.cost == whole.cost);
        assert(again.passed.len == whole.passed.len);
    }
    buf_fini(&whole.passed);
    buf_fini(&pieces.passed);
    buf_fini(&again.passed);
    return 0;
}
