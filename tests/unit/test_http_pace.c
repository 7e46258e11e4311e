// SPDX-License-Identifier: Apache-2.0
// Clients that read too slowly: which ticks count, and what ends the looks.

#include "pace.h"
#include "test_http_util.h"
#include "virtual_clock.h"

enum { TICK_MS = 50, CHUNK = 1024 * 1024 };

struct paced {
    struct http_pace *pace;
    bool counts;
    int n_ticks;
    int n_slow;
};

static bool
paced_counts(const void *arg)
{
    const struct paced *paced = arg;
    return paced->counts;
}

static void
paced_on_tick(size_t backlog, void *arg)
{
    (void)backlog;
    struct paced *paced = arg;
    paced->n_ticks++;
}

static void
paced_on_slow(void *arg)
{
    struct paced *paced = arg;
    paced->n_slow++;
    http_pace_free(KG_STEAL(paced->pace));
}

// A stream whose client reads nothing.
static void
paced_open(struct raw *raw, struct paced *paced, struct http_pace_rule rule)
{
    raw_open_small(raw, 256 * 1024);
    raw_send(raw, GET("/stream"));
    WAIT(bench.held);
    raw_pause(raw, true);
    rule.tick_ms = TICK_MS;
    rule.counts = paced_counts;
    rule.on_tick = paced_on_tick;
    rule.on_slow = paced_on_slow;
    paced->counts = true;
    paced->pace = http_pace_new(bench.loop, bench.held, &rule, paced);
}

static void
paced_close(struct paced *paced)
{
    http_pace_free(paced->pace);
    http_stream_abort(KG_STEAL(bench.held));
}

// Until the sockets' buffers are full and bytes stay behind.
static void
fill(void)
{
    KG_AUTO_FREE char *chunk = kg_calloc(CHUNK, 1);
    for (size_t before = 0; before < CHUNK || http_stream_backlog(bench.held) != before;) {
        if (http_stream_backlog(bench.held) < CHUNK)
            http_stream_write(bench.held, chunk, CHUNK);
        before = http_stream_backlog(bench.held);
        virtual_clock_advance(bench.loop, 10);
    }
}

static void
test_slow_ticks_in_a_row(void **state)
{
    (void)state;
    struct paced paced = {0};
    KG_AUTO_RAW raw;
    paced_open(&raw, &paced, (struct http_pace_rule){.max_ticks = 3, .min_bytes = 1});
    fill();
    http_pace_start(paced.pace);
    virtual_clock_advance(bench.loop, 3 * TICK_MS + 10); // the first one only has the backlog
    assert_int_equal(paced.n_ticks, 3);
    paced.counts = false; // one that does not count ends the row
    virtual_clock_advance(bench.loop, TICK_MS);
    paced.counts = true;
    virtual_clock_advance(bench.loop, 2 * TICK_MS);
    assert_int_equal(paced.n_ticks, 6);
    assert_int_equal(paced.n_slow, 0);
    PASS_TIME_UNTIL(&bench, paced.n_slow == 1);
    assert_int_equal(paced.n_ticks, 6);
    paced_close(&paced);
}

static void
test_reading_too_little_is_slow(void **state)
{
    (void)state;
    struct paced paced = {0};
    KG_AUTO_RAW raw;
    paced_open(&raw, &paced, (struct http_pace_rule){.max_ticks = 1, .min_bytes = 64 * CHUNK});
    fill();
    http_pace_start(paced.pace);
    virtual_clock_advance(bench.loop, TICK_MS + 10);
    size_t before = http_stream_backlog(bench.held);
    raw_pause(&raw, false);
    WAIT(http_stream_backlog(bench.held) < before);
    raw_pause(&raw, true);
    PASS_TIME_UNTIL(&bench, paced.n_slow == 1);
    paced_close(&paced);
}

static void
test_it_rests_when_all_is_read(void **state)
{
    (void)state;
    struct paced paced = {0};
    KG_AUTO_RAW raw;
    paced_open(&raw, &paced,
               (struct http_pace_rule){.max_ticks = 2, .min_bytes = 1, .rests = true});
    http_pace_start(paced.pace);
    virtual_clock_advance(bench.loop, 4 * TICK_MS);
    assert_int_equal(paced.n_ticks, 1);
    http_pace_start(paced.pace);
    fill();
    PASS_TIME_UNTIL(&bench, paced.n_slow == 1);
    paced_close(&paced);
}

static void
test_a_client_that_owes_an_answer(void **state)
{
    (void)state;
    struct paced paced = {0};
    KG_AUTO_RAW raw;
    paced_open(&raw, &paced,
               (struct http_pace_rule){.max_ticks = 2, .min_bytes = 1, .owes_answer = true});
    http_pace_start(paced.pace);
    virtual_clock_advance(bench.loop, TICK_MS + 10);
    http_stream_write(bench.held, "more", 4); // says nothing of the client
    PASS_TIME_UNTIL(&bench, paced.n_slow == 1);
    assert_int_equal(paced.n_ticks, 1);
    paced_close(&paced);
}

static void
test_a_client_that_is_too_far_behind(void **state)
{
    (void)state;
    struct paced paced = {0};
    KG_AUTO_RAW raw;
    paced_open(&raw, &paced, (struct http_pace_rule){0});
    fill();
    size_t backlog = http_stream_backlog(bench.held);
    http_pace_limit(paced.pace, backlog);
    assert_false(http_pace_is_behind(paced.pace));
    http_pace_limit(paced.pace, backlog - 1);
    assert_true(http_pace_is_behind(paced.pace));
    raw_pause(&raw, false); // too late
    assert_int_equal(paced.n_slow, 0);
    PASS_TIME_UNTIL(&bench, paced.n_slow == 1);
    paced_close(&paced);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_set_up, bench_tear_down)

const struct CMUnitTest http_pace_tests[] = {
    TEST(test_slow_ticks_in_a_row),
    TEST(test_reading_too_little_is_slow),
    TEST(test_it_rests_when_all_is_read),
    TEST(test_a_client_that_owes_an_answer),
    TEST(test_a_client_that_is_too_far_behind),
};
const size_t n_http_pace_tests = KG_ARRAY_LEN(http_pace_tests);
