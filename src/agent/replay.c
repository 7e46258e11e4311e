// SPDX-License-Identifier: Apache-2.0
// Two rings that grow up to their bounds: of bytes, and of runs of one stream.
#include "replay.h"

#include <assert.h>
#include <string.h>

enum {
    RUN_LEN_BITS = 24,
    FIRST_CAP = 1024,
    FIRST_RUNS = 16,
};

static uint32_t *
replay_run(const struct replay *replay, size_t i)
{
    return &replay->runs[(replay->first_run + i) % replay->runs_cap];
}

static size_t
run_len(uint32_t run)
{
    return run & ((1U << RUN_LEN_BITS) - 1);
}

static char
run_stream(uint32_t run)
{
    return (char)(run >> RUN_LEN_BITS);
}

// Copies `len` bytes from `offset` on.
static void
replay_copy(const struct replay *replay, size_t offset, char *ret, size_t len)
{
    if (len == 0 || replay->cap == 0)
        return;
    size_t from = (replay->first + offset) % replay->cap;
    size_t straight = len < replay->cap - from ? len : replay->cap - from;

    memcpy(ret, replay->bytes + from, straight);
    memcpy(ret + straight, replay->bytes, len - straight);
}

static bool
begins_character(const struct replay *replay, size_t offset)
{
    char byte = replay->bytes[(replay->first + offset) % replay->cap];
    return ((unsigned char)byte & 0xC0) != 0x80;
}

static void
replay_grow(struct replay *replay, size_t needed)
{
    size_t cap = replay->cap ? replay->cap : FIRST_CAP;

    while (cap < needed)
        cap *= 2;
    if (cap == replay->cap)
        return;
    char *bytes = kg_calloc(cap, 1);
    replay_copy(replay, 0, bytes, replay->len);
    free(replay->bytes);
    replay->bytes = bytes;
    replay->cap = cap;
    replay->first = 0;
}

static void
replay_grow_runs(struct replay *replay)
{
    if (replay->n_runs < replay->runs_cap)
        return;
    size_t cap = replay->runs_cap ? replay->runs_cap * 2 : FIRST_RUNS;
    uint32_t *runs = kg_calloc(cap, sizeof *runs);
    for (size_t i = 0; i < replay->n_runs; i++)
        runs[i] = *replay_run(replay, i);
    free(replay->runs);
    replay->runs = runs;
    replay->runs_cap = cap;
    replay->first_run = 0;
}

// Drops the oldest `n` bytes, or more of the first run that is left: up to the start of a
// character.
static void
replay_drop(struct replay *replay, size_t n)
{
    while (n > 0) {
        uint32_t *run = replay_run(replay, 0);
        size_t len = run_len(*run);
        size_t part = n < len ? n : len;
        while (replay->is_text && part < len && !begins_character(replay, part))
            part++;
        *run -= (uint32_t)part;
        if (part == len) {
            replay->first_run = (replay->first_run + 1) % replay->runs_cap;
            replay->n_runs--;
        }
        replay->first = (replay->first + part) % replay->cap;
        replay->len -= part;
        n -= n < part ? n : part;
    }
}

static void
replay_add_run(struct replay *replay, char stream, size_t len)
{
    uint32_t *last = replay->n_runs > 0 ? replay_run(replay, replay->n_runs - 1) : NULL;

    if (last && run_stream(*last) == stream) {
        *last += (uint32_t)len;
        return;
    }
    replay_grow_runs(replay);
    replay->n_runs++;
    *replay_run(replay, replay->n_runs - 1) =
        (uint32_t)(unsigned char)stream << RUN_LEN_BITS | (uint32_t)len;
}

void
replay_add(struct replay *replay, char stream, const char *data, size_t len)
{
    replay->end += len;
    if (len == 0)
        return;
    if (len > REPLAY_BYTES) {
        size_t skip = len - REPLAY_BYTES;
        while (replay->is_text && skip < len && ((unsigned char)data[skip] & 0xC0) == 0x80)
            skip++;
        data += skip;
        len -= skip;
    }
    if (replay->n_runs == REPLAY_RUNS)
        replay_drop(replay, run_len(*replay_run(replay, 0)));
    if (replay->len + len > REPLAY_BYTES)
        replay_drop(replay, replay->len + len - REPLAY_BYTES);
    replay_grow(replay, replay->len + len);
    size_t to = (replay->first + replay->len) % replay->cap;
    size_t straight = len < replay->cap - to ? len : replay->cap - to;
    memcpy(replay->bytes + to, data, straight);
    memcpy(replay->bytes, data + straight, len - straight);
    replay->len += len;
    replay_add_run(replay, stream, len);
}

uint64_t
replay_start(const struct replay *replay)
{
    return replay->end - replay->len;
}

size_t
replay_read(const struct replay *replay, uint64_t at, size_t max, char *ret, char *ret_stream)
{
    assert(at >= replay_start(replay) && at <= replay->end);
    size_t offset = (size_t)(at - replay_start(replay));
    size_t run_end = 0, i = 0;

    if (offset == replay->len)
        return 0;
    while ((run_end += run_len(*replay_run(replay, i))) <= offset)
        i++;
    size_t n = run_end - offset;
    if (n > max) {
        n = max;
        while (replay->is_text && n > 0 && !begins_character(replay, offset + n))
            n--;
    }
    replay_copy(replay, offset, ret, n);
    *ret_stream = run_stream(*replay_run(replay, i));
    return n;
}

void
replay_fini(struct replay *replay)
{
    free(replay->bytes);
    free(replay->runs);
    *replay = (struct replay){0};
}
