// SPDX-License-Identifier: Apache-2.0
// Streamed answers: chunks, slow readers, clients that disconnect, a server that is freed.

#include <string.h>
#include <sys/socket.h>

#include "test_http_util.h"

#define STREAM GET("/stream")
#define HOLD GET("/hold")

static void
test_chunks_come_as_written(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, STREAM);
    WAIT(raw_has(&raw, "\r\n\r\n"));
    assert_true(raw_has(&raw, "\r\nTransfer-Encoding: chunked\r\n"));
    assert_true(raw_has(&raw, "\r\nCache-Control: no-cache\r\n"));
    assert_true(raw_has(&raw, "\r\nX-Accel-Buffering: no\r\n"));
    http_stream_write(bench.held, "first", 5);
    WAIT(raw_has(&raw, "5\r\nfirst\r\n"));
    http_stream_write(bench.held, "", 0);
    http_stream_write(bench.held, "second", 6);
    WAIT(raw_has(&raw, "6\r\nsecond\r\n"));
    assert_int_equal(http_server_open_requests(bench.server), 1);
    http_stream_end(KG_STEAL(bench.held));
    WAIT(raw_has(&raw, "second\r\n0\r\n\r\n"));
    // The connection stays open.
    raw_send(&raw, HELLO);
    WAIT(raw_has(&raw, "hello"));
    assert_int_equal(bench.n_gone, 0);
}

static void
test_head_of_a_stream(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, "HEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    WAIT(bench.held);
    http_stream_write(bench.held, "body", 4);
    WAIT(raw_has(&raw, "\r\n\r\n"));
    http_stream_end(KG_STEAL(bench.held));
    raw_send(&raw, HELLO);
    WAIT(raw_has(&raw, "hello"));
    assert_false(raw_has(&raw, "body"));
}

static void
test_http_1_0_stream_ends_by_closing(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, "GET /stream HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
    WAIT(bench.held);
    http_stream_write(bench.held, "plain", 5);
    WAIT(raw_has(&raw, "\r\n\r\nplain"));
    http_stream_end(KG_STEAL(bench.held));
    WAIT(raw.closed);
    assert_false(raw_has(&raw, "chunked"));
}

static void
test_backlog_and_drain(void **state)
{
    (void)state;
    enum { CHUNK = 64 * 1024 };
    KG_AUTO_FREE char *chunk = kg_calloc(CHUNK, 1);
    memset(chunk, 'x', CHUNK);
    KG_AUTO_RAW raw;
    raw_open_small(&raw, 4096);
    raw_pause(&raw, true);
    raw_send(&raw, STREAM);
    WAIT(bench.held);
    // Until the buffers of the sockets are full and there is a backlog.
    size_t written = 0;
    while (http_stream_backlog(bench.held) < 16 * CHUNK) {
        http_stream_write(bench.held, chunk, CHUNK);
        written += CHUNK;
        round_trip();
    }
    int before = bench.n_drained;
    round_trip();
    assert_int_equal(bench.n_drained, before);
    raw_pause(&raw, false);
    WAIT(bench.n_drained == before + 1);
    WAIT(http_stream_backlog(bench.held) == 0);
    http_stream_write(bench.held, chunk, 1000);
    WAIT(http_stream_backlog(bench.held) == 0);
    round_trip();
    assert_int_equal(bench.n_drained, before + 1);
    http_stream_write(bench.held, chunk, 2048);
    WAIT(bench.n_drained == before + 2);
    http_stream_end(KG_STEAL(bench.held));
    WAIT(raw_has(&raw, "\r\n0\r\n\r\n"));
    assert_true(raw.in.len > written);
}

static void
test_client_leaves_before_the_answer(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, HOLD);
    WAIT(bench.held);
    assert_int_equal(bench.n_gone, 0);
    raw_close(&raw);
    WAIT(bench.n_gone == 1);
    assert_int_equal(http_server_open_requests(bench.server), 0);
    // Calls for the request are still allowed.
    assert_string_equal(http_request_header(bench.held, "Host"), "localhost");
    http_reply_json(KG_STEAL(bench.held), 200, json_object());
    assert_int_equal(bench.n_gone, 1);
}

static void
test_client_leaves_mid_stream(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, STREAM);
    WAIT(bench.held);
    http_stream_write(bench.held, "first", 5);
    WAIT(raw_has(&raw, "first"));
    raw_close(&raw);
    WAIT(bench.n_gone == 1);
    http_stream_write(bench.held, "more", 4);
    assert_int_equal(http_stream_backlog(bench.held), 0);
    http_stream_end(KG_STEAL(bench.held));
}

static void
test_client_resets_with_a_backlog(void **state)
{
    (void)state;
    KG_AUTO_FREE char *chunk = kg_calloc(8, 1024 * 1024);
    KG_AUTO_RAW raw;
    raw_open_small(&raw, 4096);
    raw_pause(&raw, true);
    raw_send(&raw, STREAM);
    WAIT(bench.held);
    http_stream_write(bench.held, chunk, 8 * 1024 * 1024);
    struct linger linger = {.l_onoff = 1};
    setsockopt(raw.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    raw_close(&raw);
    WAIT(bench.n_gone == 1);
    http_stream_abort(KG_STEAL(bench.held));
}

static void
test_garbage_during_a_stream(void **state)
{
    (void)state;
    KG_AUTO_FREE char *garbage = repeated('%', 1000000);
    KG_AUTO_RAW raw;
    raw_ask(&raw, STREAM);
    WAIT(bench.held);
    // Sent without waiting: the server reads 64 KiB of it, the rest stays in the sockets.
    ssize_t sent = send(raw.fd, garbage, 1000000, MSG_NOSIGNAL);
    assert_true(sent > 64 * 1024);
    http_stream_write(bench.held, "first", 5);
    WAIT(raw_has(&raw, "first"));
    http_stream_write(bench.held, "second", 6);
    WAIT(raw_has(&raw, "second"));
    http_stream_end(KG_STEAL(bench.held));
    WAIT(raw_has(&raw, "\r\n0\r\n\r\n"));
    // Then the garbage is read as the next request, which is malformed.
    WAIT(raw.closed);
    assert_int_equal(bench.n_gone, 0);
    round_trip();
}

// Above the watermark the server does not read the end of the connection, but writes fail (EPIPE).
static void
test_client_sends_too_much_and_leaves(void **state)
{
    (void)state;
    KG_AUTO_FREE char *garbage = repeated('%', 100000);
    KG_AUTO_RAW raw;
    raw_ask(&raw, STREAM);
    WAIT(bench.held);
    raw_send(&raw, garbage);
    round_trip();
    raw_close(&raw);
    while (bench.n_gone == 0) {
        http_stream_write(bench.held, "more", 4);
        round_trip();
    }
    http_stream_end(KG_STEAL(bench.held));
}

static void
test_abort_cuts_the_answer(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, STREAM);
    WAIT(bench.held);
    http_stream_write(bench.held, "first", 5);
    WAIT(raw_has(&raw, "first"));
    http_stream_abort(KG_STEAL(bench.held));
    WAIT(raw.closed);
    assert_false(raw_has(&raw, "0\r\n\r\n"));
    assert_int_equal(bench.n_gone, 0);
    assert_int_equal(http_server_open_requests(bench.server), 0);
}

static void
test_server_freed_with_a_stream_open(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    KG_AUTO_RAW idle;
    raw_open(&raw);
    raw_open(&idle);
    raw_send(&raw, STREAM);
    WAIT(bench.held);
    http_server_free(KG_STEAL(bench.server));
    assert_int_equal(bench.n_gone, 1);
    WAIT(raw.closed && idle.closed);
    http_stream_write(bench.held, "late", 4);
    http_stream_end(KG_STEAL(bench.held));
}

static void
test_server_freed_with_connections_just_accepted(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_open(&raw);
    http_server_free(KG_STEAL(bench.server));
    WAIT(raw.closed);
}

// ---- States that a request owns -------------------------------------------------------------

static void
on_freed(void *arg)
{
    int *n_freed = arg;
    assert_string_equal(http_request_header(bench.held, "Host"), "localhost"); // it can be read
    assert_int_equal(http_stream_backlog(bench.held), 0);
    bench.held = NULL;
    ++*n_freed;
}

// Instead of what the handler has set.
static void
own(int *n_freed)
{
    WAIT(bench.held);
    http_request_on_gone(bench.held, NULL, NULL);
    http_request_own(bench.held, n_freed, on_freed);
}

static void
test_a_state_ends_with_the_answer(void **state)
{
    (void)state;
    int n_freed = 0;
    KG_AUTO_RAW raw;
    raw_ask(&raw, HOLD);
    own(&n_freed);
    http_reply_json(bench.held, 200, json_object());
    assert_int_equal(n_freed, 1);
    raw_send(&raw, STREAM);
    own(&n_freed);
    http_stream_write(bench.held, "more", 4);
    http_stream_end(bench.held);
    assert_int_equal(n_freed, 2);
    raw_send(&raw, STREAM);
    own(&n_freed);
    http_stream_abort(bench.held);
    assert_int_equal(n_freed, 3);
    WAIT(raw.closed);
    assert_int_equal(n_freed, 3);
    assert_int_equal(http_server_open_requests(bench.server), 0);
}

static void
test_a_state_ends_with_the_client(void **state)
{
    (void)state;
    int n_freed = 0;
    KG_AUTO_RAW waiting;
    raw_ask(&waiting, HOLD);
    own(&n_freed);
    raw_close(&waiting);
    WAIT(n_freed == 1);
    assert_int_equal(http_server_open_requests(bench.server), 0);
    KG_AUTO_RAW reading;
    raw_ask(&reading, STREAM);
    own(&n_freed);
    http_stream_write(bench.held, "more", 4);
    raw_close(&reading);
    WAIT(n_freed == 2);
    KG_AUTO_RAW cut;
    raw_ask(&cut, HOLD);
    own(&n_freed);
    http_server_free(KG_STEAL(bench.server));
    assert_int_equal(n_freed, 3);
}

static void
test_a_state_that_is_taken_back(void **state)
{
    (void)state;
    int n_freed = 0;
    KG_AUTO_RAW raw;
    raw_ask(&raw, HOLD);
    own(&n_freed);
    http_request_disown(bench.held);
    raw_close(&raw);
    WAIT(http_server_open_requests(bench.server) == 0);
    assert_int_equal(n_freed, 0);
    http_request_own(bench.held, &n_freed, on_freed); // it waits for something else
    http_reply_json(bench.held, 200, json_object());
    assert_int_equal(n_freed, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_set_up, bench_tear_down)

const struct CMUnitTest http_stream_tests[] = {
    TEST(test_chunks_come_as_written),
    TEST(test_head_of_a_stream),
    TEST(test_http_1_0_stream_ends_by_closing),
    TEST(test_backlog_and_drain),
    TEST(test_client_leaves_before_the_answer),
    TEST(test_client_leaves_mid_stream),
    TEST(test_client_resets_with_a_backlog),
    TEST(test_garbage_during_a_stream),
    TEST(test_client_sends_too_much_and_leaves),
    TEST(test_abort_cuts_the_answer),
    TEST(test_server_freed_with_a_stream_open),
    TEST(test_server_freed_with_connections_just_accepted),
    TEST(test_a_state_ends_with_the_answer),
    TEST(test_a_state_ends_with_the_client),
    TEST(test_a_state_that_is_taken_back),
};
const size_t n_http_stream_tests = KG_ARRAY_LEN(http_stream_tests);
