// SPDX-License-Identifier: Apache-2.0
// What is kept of a command's output.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "replay.h"
#include "test_agent.h"

// All that is kept, with a digit for the stream in front of each part.
static void
read_kept(const struct replay *replay, size_t max, struct buf *ret)
{
    KG_AUTO_FREE char *part = kg_calloc(max, 1);
    uint64_t at = replay_start(replay);
    char stream;
    size_t n;

    ret->len = 0;
    while ((n = replay_read(replay, at, max, part, &stream)) > 0) {
        buf_printf(ret, "%d", stream);
        buf_append(ret, part, n);
        at += n;
    }
    assert_int_equal(at, replay->end);
}

static void
add(struct replay *replay, int stream, const char *text)
{
    replay_add(replay, (char)stream, text, strlen(text));
}

void
test_replay(void **state)
{
    (void)state;
    struct replay replay = {.is_text = true};
    KG_AUTO_BUF kept = {0};

    read_kept(&replay, 16, &kept);
    assert_int_equal(kept.len, 0);
    add(&replay, 1, "one ");
    add(&replay, 1, "two");
    add(&replay, 2, "");
    add(&replay, 2, "err");
    add(&replay, 1, "\xe2\x82\xac\xe2\x82\xac");
    read_kept(&replay, 16, &kept);
    assert_string_equal(kept.data, "1one two2err1\xe2\x82\xac\xe2\x82\xac");
    read_kept(&replay, 4, &kept); // parts are whole characters
    assert_string_equal(kept.data, "1one 1two2err1\xe2\x82\xac"
                                   "1\xe2\x82\xac");
    replay_fini(&replay);
}

// Whatever is added in whatever parts, the end of it is kept, in bounds.
void
test_replay_bounds(void **state)
{
    (void)state;
    enum { N = 3 * REPLAY_BYTES };
    KG_AUTO_BUF kept = {0};
    KG_AUTO_FREE char *text = kg_calloc(N + 4, 1);

    for (size_t i = 0; i < N; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 3);
    for (size_t part = 3; part < N; part = part * 5 / 3 / 3 * 3 + 3) {
        struct replay replay = {.is_text = true};
        for (size_t at = 0; at < N; at += part)
            replay_add(&replay, 1, text + at, N - at < part ? N - at : part);
        assert_int_equal(replay.end, N);
        assert_int_equal(replay.len, REPLAY_BYTES / 3 * 3);
        assert_int_equal(replay.cap, REPLAY_BYTES);
        read_kept(&replay, N, &kept);
        assert_int_equal(kept.len, replay.len + 1);
        assert_memory_equal(kept.data + 1, text, replay.len);
        replay_fini(&replay);
    }
    // Two streams in turns, byte by byte.
    struct replay replay = {.is_text = false};
    for (int i = 0; i < N; i++)
        replay_add(&replay, (char)(1 + i % 2), "\x80", 1);
    assert_int_equal(replay.runs_cap, REPLAY_RUNS);
    assert_int_equal(replay.n_runs, REPLAY_RUNS);
    assert_int_equal(replay.len, REPLAY_RUNS);
    read_kept(&replay, 4, &kept);
    assert_int_equal(kept.len, 2 * REPLAY_RUNS);
    replay_fini(&replay);
}
