// SPDX-License-Identifier: Apache-2.0
// What a watched stream does while nothing is written.

#include "test_api.h"

#include "api_priv.h"
#include "test_http_util.h"
#include "virtual_clock.h"

enum { TICK_MS = 50 };

struct watched {
    struct stream_watch *watch;
    bool waits; // nothing but the client is waited for
    int n_stalled;
    bool paused;
};

static bool
waits_for_client(const void *arg)
{
    const struct watched *watched = arg;
    return watched->waits;
}

// The request has ended.
static void
on_gone(void *arg)
{
    struct watched *watched = arg;
    stream_watch_free(KG_STEAL(watched->watch));
}

static void
on_stalled(void *arg)
{
    struct watched *watched = arg;
    watched->n_stalled++;
    stream_watch_free(KG_STEAL(watched->watch));
    http_stream_abort(KG_STEAL(bench.held));
}

static void
open_stream(struct raw *raw, struct watched *watched, bool of_lines)
{
    raw_open_small(raw, 256 * 1024);
    raw_send(raw, "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    WAIT(bench.held);
    watched->watch = stream_watch_new(&(const struct stream_watch_settings){
        .loop = bench.loop,
        .request = bench.held,
        .tick_ms = TICK_MS,
        .of_lines = of_lines,
        .on_stalled = on_stalled,
        .waits_for_client = waits_for_client,
        .arg = watched,
    });
    stream_watch_start(watched->watch);
}

// Until the sockets' buffers are full and bytes stay behind.
static void
fill(void)
{
    enum { CHUNK = 1024 * 1024 };
    KG_AUTO_FREE char *chunk = kg_calloc(CHUNK, 1);
    for (size_t before = 0; before < CHUNK || http_stream_backlog(bench.held) != before;) {
        if (http_stream_backlog(bench.held) < CHUNK)
            http_stream_write(bench.held, chunk, CHUNK);
        before = http_stream_backlog(bench.held);
        virtual_clock_advance(bench.loop, 10);
    }
}

// Reads until the server has got rid of some more.
static void
read_some(struct raw *raw)
{
    size_t before = http_stream_backlog(bench.held);
    raw_pause(raw, false);
    WAIT(http_stream_backlog(bench.held) < before);
    raw_pause(raw, true);
}

static void
test_a_reader_that_is_slow_is_not_cut(void **state)
{
    (void)state;
    struct watched watched = {.waits = true};
    KG_AUTO_RAW raw;
    open_stream(&raw, &watched, false);
    raw_pause(&raw, true);
    for (int i = 0; i < 4; i++) {
        fill();
        virtual_clock_advance(bench.loop, 2 * TICK_MS);
        assert_int_equal(watched.n_stalled, 0);
        read_some(&raw);
    }
    fill();
    PASS_TIME_UNTIL(&bench, watched.n_stalled == 1); // now it reads nothing any more
}

static void
test_a_reader_that_stops_while_more_comes_is_not_cut(void **state)
{
    (void)state;
    struct watched watched = {.waits = false};
    KG_AUTO_RAW raw;
    open_stream(&raw, &watched, true);
    raw_pause(&raw, true);
    fill();
    // It gets no keepalives, which would add to the backlog for ever; sockets may still take some.
    size_t backlog;
    do {
        backlog = http_stream_backlog(bench.held);
        virtual_clock_advance(bench.loop, 8 * TICK_MS);
        assert_int_equal(watched.n_stalled, 0);
    } while (http_stream_backlog(bench.held) != backlog);
    watched.waits = true;
    PASS_TIME_UNTIL(&bench, watched.n_stalled == 1);
}

static void
on_pause(bool paused, void *arg)
{
    struct watched *watched = arg;
    assert_int_not_equal(paused, watched->paused);
    watched->paused = paused;
}

// Writes lines until the watch is paused.
static void
write_until_paused(struct watched *watched)
{
    json_auto_t *line = json_pack("{s:s}", "type", "a line of a certain length");
    while (!watched->paused) {
        assert_in_range(http_stream_backlog(bench.held), 0, STREAM_HIGH_WATERMARK);
        stream_watch_line(watched->watch, line);
        bench_turn();
    }
    stream_watch_line(watched->watch, line); // what still comes is written, and pauses nothing
}

static void
test_a_slow_reader_pauses_the_source(void **state)
{
    (void)state;
    struct watched watched = {0};
    KG_AUTO_RAW raw;
    raw_open_small(&raw, 256 * 1024);
    raw_send(&raw, "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    WAIT(bench.held);
    watched.watch = stream_watch_new(&(const struct stream_watch_settings){
        .loop = bench.loop,
        .request = bench.held,
        .tick_ms = TICK_MS,
        .on_pause = on_pause,
        .arg = &watched,
    });
    http_request_on_gone(bench.held, NULL, NULL);
    http_request_own(bench.held, &watched, on_gone);
    for (int i = 0; i < 2; i++) { // each time anew
        raw_pause(&raw, true);
        write_until_paused(&watched);
        raw_pause(&raw, false);
        WAIT(!watched.paused);
        assert_in_range(http_stream_backlog(bench.held), 0, STREAM_LOW_WATERMARK);
    }
    // One that reads nothing while the source waits for it is cut.
    raw_pause(&raw, true);
    write_until_paused(&watched);
    PASS_TIME_UNTIL(&bench, !watched.watch);
    bench.held = NULL;
}

static void
test_keepalives(void **state)
{
    (void)state;
    struct watched watched = {.waits = true};
    KG_AUTO_RAW raw;
    open_stream(&raw, &watched, true);
    PASS_TIME_UNTIL(&bench, raw_count(&raw, "{\"type\":\"keepalive\"}\n") == 5);
    assert_int_equal(watched.n_stalled, 0);
    stream_watch_free(watched.watch);
    http_stream_end(KG_STEAL(bench.held));
}

int
test_api_stream(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, bench_set_up, bench_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_reader_that_is_slow_is_not_cut),
        TEST(test_a_reader_that_stops_while_more_comes_is_not_cut),
        TEST(test_a_slow_reader_pauses_the_source),
        TEST(test_keepalives),
    };
    return cmocka_run_group_tests_name("api: streams", tests, NULL, NULL);
}
