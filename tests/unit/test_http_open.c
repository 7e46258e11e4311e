// SPDX-License-Identifier: Apache-2.0
// Bodies of unknown length that a handler reads as they come, and how they are forwarded.

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_priv.h"
#include "pump.h"
#include "test_http_util.h"
#include "virtual_clock.h"

#define WITH_KEY "Authorization: Bearer ka\r\n"
#define CHUNKED                                                                                    \
    "POST /open HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY "Transfer-Encoding: chunked\r\n"

static struct {
    struct buf seen;
    int n_calls;
    bool slow;   // it has its own idle time
    bool passes; // it reads nothing by itself
} reader;

static void
reader_on_data(void *arg)
{
    char piece[100];
    struct http_request *request = arg;
    reader.n_calls++;
    for (size_t n; (n = http_request_body_read(request, piece, sizeof piece)) > 0;)
        buf_append(&reader.seen, piece, n);
    if (!http_request_body_ended(request))
        return;
    bench.held = NULL;
    http_reply(request, 200, "text/plain", reader.seen.data, reader.seen.len);
}

static void
reader_on_end(void *arg)
{
    (void)arg;
    bench.held = NULL;
    bench.n_gone++;
}

static void
handle_open(struct http_request *request, void *arg)
{
    (void)arg;
    bench.held = request;
    buf_fini(&reader.seen);
    reader.n_calls = 0;
    http_request_own(request, request, reader_on_end);
    http_request_on_body(request, reader_on_data, request);
    if (reader.slow)
        http_request_body_idle(request, 60 * 1000);
    if (!reader.passes)
        reader_on_data(request);
}

static int
open_set_up(void **state)
{
    static const struct http_route routes[] = {
        {HTTP_POST, "/open", handle_open, HTTP_OPEN_BODY, NULL}};
    int failed = bench_set_up(state);
    reader.slow = reader.passes = false;
    bench_add_key("alice", "ka");
    http_server_add_routes(bench.server, routes, KG_ARRAY_LEN(routes), NULL);
    return failed;
}

static int
open_tear_down(void **state)
{
    int failed = bench_tear_down(state);
    buf_fini(&reader.seen);
    return failed;
}

static bool
has_seen(const char *text)
{
    return reader.seen.len == strlen(text) && memcmp(reader.seen.data, text, strlen(text)) == 0;
}

static void
test_chunks_come_one_by_one(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, CHUNKED "\r\n");
    WAIT(bench.held);
    raw_send(&raw, "5\r\nfirst\r\n");
    WAIT(has_seen("first"));
    raw_send(&raw, "3\r\n-");
    WAIT(has_seen("first-"));
    raw_send(&raw, "-2\r\n");
    WAIT(has_seen("first--2"));
    assert_false(http_request_body_ended(bench.held));
    raw_send(&raw, "0\r\n\r\n" HELLO);
    WAIT(raw_has(&raw, "first--2"));
    // The connection goes on.
    WAIT(raw_has(&raw, "hello"));
    assert_false(raw_has(&raw, "Connection: close"));
    assert_true(reader.n_calls >= 4);
}

static void
test_bodies_with_a_length(void **state)
{
    (void)state;
    KG_AUTO_RAW raw, empty;
    raw_ask(&raw, "POST /open HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY
                  "Content-Length: 6\r\nExpect: 100-continue\r\n\r\n");
    WAIT(bench.held && raw_has(&raw, "100 Continue"));
    raw_send(&raw, "abc");
    WAIT(has_seen("abc"));
    raw_send(&raw, "def" HELLO);
    WAIT(raw_has(&raw, "abcdef") && raw_has(&raw, "hello"));
    raw_ask(&empty, "POST /open HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY
                    "Content-Length: 0\r\n\r\n" HELLO);
    WAIT(raw_has(&empty, "Content-Length: 0\r\n") && raw_has(&empty, "hello"));
}

// A body may be longer than a body that is read whole; one whose length is given may not.
static void
test_the_handler_counts(void **state)
{
    (void)state;
    enum { N = 40, LEN = 32 << 10 };
    KG_AUTO_FREE char *chunk = repeated('x', LEN);
    KG_AUTO_RAW raw, large;
    raw_ask(&raw, CHUNKED "\r\n");
    for (int i = 0; i < N; i++) {
        raw_send(&raw, "8000\r\n");
        raw_send(&raw, chunk);
        raw_send(&raw, "\r\n");
    }
    WAIT(reader.seen.len == (size_t)N * LEN);
    assert_true(reader.seen.len > bench_settings().max_body_bytes);
    raw_send(&raw, "0\r\n\r\n");
    WAIT(raw_has(&raw, "Content-Length: 1310720\r\n"));
    raw_ask(&large, "POST /open HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY
                    "Content-Length: 2000000\r\nExpect: 100-continue\r\n\r\n");
    WAIT(raw_has(&large, "HTTP/1.1 413 "));
}

// What nobody reads holds the client back.
static void
test_a_client_waits_for_the_reader(void **state)
{
    (void)state;
    static char bytes[64 << 10];
    KG_AUTO_RAW raw;
    reader.passes = true;
    raw_ask(&raw, CHUNKED "\r\n4000000\r\n");
    WAIT(bench.held);
    http_request_on_body(bench.held, NULL, NULL);
    size_t sent = 0;
    for (int quiet = 0; quiet < 100;) {
        ssize_t n = send(raw.fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        quiet = n > 0 ? 0 : quiet + 1;
        sent += n > 0 ? (size_t)n : 0;
        bench_turn();
    }
    assert_true(sent < 32 << 20); // in the buffers of two sockets, and in the server's 64 KiB
    virtual_clock_advance(bench.loop, 100 * 1000);
    assert_int_equal(bench.n_gone, 0);
}

static void
test_a_silent_client(void **state)
{
    (void)state;
    KG_AUTO_RAW raw, patient;
    raw_ask(&raw, CHUNKED "\r\n3\r\nabc\r\n");
    WAIT(has_seen("abc"));
    virtual_clock_advance(bench.loop, 14 * 1000);
    assert_int_equal(bench.n_gone, 0);
    PASS_TIME_UNTIL(&bench, bench.n_gone == 1); // after the head timeout
    WAIT(raw.closed);
    reader.slow = true;
    raw_ask(&patient, CHUNKED "\r\n3\r\nabc\r\n");
    WAIT(bench.held && has_seen("abc"));
    virtual_clock_advance(bench.loop, 50 * 1000);
    raw_send(&patient, "1\r\nd\r\n");
    WAIT(has_seen("abcd"));
    virtual_clock_advance(bench.loop, 50 * 1000);
    assert_int_equal(bench.n_gone, 1);
    virtual_clock_advance(bench.loop, 11 * 1000);
    WAIT(patient.closed);
    assert_int_equal(bench.n_gone, 2);
}

static void
test_malformed_chunks(void **state)
{
    (void)state;
    static const char *const bad[] = {"x\r\n", "3\r\nabcd", "0\r\nTrailer: x\r\n\r\n", "3;a=b\r\n"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        KG_AUTO_RAW raw;
        bench.n_gone = 0;
        raw_ask(&raw, CHUNKED "\r\n");
        WAIT(bench.held);
        raw_send(&raw, bad[i]);
        WAIT(raw.closed);
        assert_true(raw_has(&raw, "HTTP/1.1 400 ") && raw_has(&raw, "sequence of chunks"));
        assert_int_equal(bench.n_gone, 1);
        assert_int_equal(http_server_open_requests(bench.server), 0);
    }
}

// It is too late for another answer.
static void
test_malformed_behind_the_answers_head(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, CHUNKED "\r\n");
    WAIT(bench.held);
    http_stream_start(bench.held, 200, "text/plain");
    http_stream_write(bench.held, "begun", 5);
    WAIT(raw_has(&raw, "begun"));
    raw_send(&raw, "x\r\n");
    WAIT(raw.closed);
    assert_false(raw_has(&raw, " 400 "));
    assert_int_equal(bench.n_gone, 1);
    assert_int_equal(http_server_open_requests(bench.server), 0);
}

static void
test_without_a_key(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, "POST /open HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    WAIT(raw_has(&raw, "HTTP/1.1 401 "));
    assert_null(bench.held);
}

static void
test_an_answer_before_the_end(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, CHUNKED "\r\n3\r\nabc\r\n");
    WAIT(bench.held && has_seen("abc"));
    http_reply(KG_STEAL(bench.held), 409, "text/plain", "no", 2);
    raw_send(&raw, "0\r\n\r\n" HELLO);
    WAIT(raw.closed);
    assert_true(raw_has(&raw, "HTTP/1.1 409 ") && raw_has(&raw, "Connection: close"));
    assert_int_equal(bench.n_handled, 0);
}

// ---- Forwarded ------------------------------------------------------------------------------

static struct {
    struct http_pump *pump;
    int fd; // the other server's
    struct buf got;
    struct loop_fd *watch;
} other;

static bool
other_on_data(const char *data, size_t len, void *arg)
{
    (void)arg;
    http_reply(KG_STEAL(bench.held), 200, "text/plain", data, len); // frees the pump
    return false;
}

static void
other_on_end(const char *why, void *arg)
{
    (void)why;
    (void)arg;
    fail();
}

static void
other_on_readable(int fd, int events, void *arg)
{
    (void)events;
    (void)arg;
    ssize_t n = read(fd, buf_reserve(&other.got, 65536), 65536);
    other.got.len += n > 0 ? (size_t)n : 0;
    other.got.data[other.got.len] = '\0';
}

static void
other_free(void *arg)
{
    (void)arg;
    http_pump_free(other.pump);
}

static bool
forward_all(struct http_request *request, void *arg)
{
    (void)arg;
    static const struct http_pump_events events = {other_on_data, other_on_end};
    const struct http_tunnel_rule rule = {.extra = "X-From: here"};
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    KG_AUTO_FREE char *head = http_tunnel_head(request, &rule);
    bench.held = request;
    other.fd = fds[0];
    other.watch = loop_fd_new(bench.loop, other.fd, LOOP_READ, other_on_readable, NULL);
    http_request_own(request, request, other_free);
    other.pump = http_pump_new(bench.loop, request, fds[1], head, &events, NULL);
    return true;
}

static void
test_forwarded_in_chunks(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    http_server_set_forward(bench.server, forward_all, NULL);
    raw_ask(&raw, CHUNKED "\r\n5\r\nfirst\r\n");
    WAIT(other.got.data && strstr(other.got.data, "\r\n\r\n5\r\nfirst\r\n"));
    assert_non_null(strstr(other.got.data, "Transfer-Encoding: chunked\r\nX-From: here\r\n\r\n"));
    assert_null(strstr(other.got.data, "Content-Length"));
    raw_send(&raw, "a\r\n0123456789\r\n");
    WAIT(strstr(other.got.data, "first\r\na\r\n0123456789\r\n"));
    assert_null(strstr(other.got.data, "0\r\n\r\n"));
    raw_send(&raw, "0\r\n\r\n");
    WAIT(strstr(other.got.data, "9\r\n0\r\n\r\n"));
    assert_int_equal(write(other.fd, "done", 4), 4);
    WAIT(raw_has(&raw, "done"));
    loop_fd_free(other.watch);
    close(other.fd);
    buf_fini(&other.got);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_set_up, open_tear_down)

const struct CMUnitTest http_open_tests[] = {
    TEST(test_chunks_come_one_by_one),
    TEST(test_bodies_with_a_length),
    TEST(test_the_handler_counts),
    TEST(test_a_client_waits_for_the_reader),
    TEST(test_a_silent_client),
    TEST(test_malformed_chunks),
    TEST(test_malformed_behind_the_answers_head),
    TEST(test_without_a_key),
    TEST(test_an_answer_before_the_end),
    TEST(test_forwarded_in_chunks),
};
const size_t n_http_open_tests = KG_ARRAY_LEN(http_open_tests);
