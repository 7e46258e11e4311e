// SPDX-License-Identifier: Apache-2.0
// Bodies that a handler reads as they come.

#include <string.h>
#include <sys/socket.h>

#include "test_http_util.h"
#include "virtual_clock.h"

enum { BODY = 900 << 10, PIECE = 64 << 10 };

#define WITH_KEY "Authorization: Bearer ka\r\n"
#define HEAD "PUT /upload HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY "Content-Length: 921600\r\n"

static struct {
    size_t announced;
    size_t seen;
    int n_calls;
} upload;

static void
upload_on_gone(void *arg)
{
    (void)arg;
    bench.n_gone++;
}

static void
upload_on_data(void *arg)
{
    char piece[10000];
    struct http_request *request = arg;
    upload.n_calls++;
    for (size_t n; (n = http_request_body_read(request, piece, sizeof piece)) > 0;)
        upload.seen += n;
    assert_int_equal(http_request_body_len(request), upload.announced - upload.seen);
    if (upload.seen == upload.announced) {
        bench.held = NULL;
        http_reply(request, 200, "text/plain", "whole", 5);
    }
}

static void
handle_upload(struct http_request *request, void *arg)
{
    (void)arg;
    bench.held = request;
    upload.announced = http_request_body_len(request);
    upload.seen = 0;
    http_request_on_gone(request, upload_on_gone, NULL);
    http_request_on_body(request, upload_on_data, request);
}

static void
add_routes(void)
{
    static const struct http_route routes[] = {
        {HTTP_PUT, "/upload", handle_upload, HTTP_LARGE_BODY | HTTP_STREAMED_BODY, NULL}};
    http_server_add_routes(bench.server, routes, KG_ARRAY_LEN(routes), NULL);
}

static int
body_set_up(void **state)
{
    memset(&upload, 0, sizeof upload);
    int failed = bench_set_up(state);
    bench_add_key("alice", "ka");
    add_routes();
    return failed;
}

// Sends the next `len` bytes of a body, in turns of the loop.
static void
send_body(const struct raw *raw, size_t len)
{
    static const char bytes[PIECE];
    while (len > 0) {
        size_t want = len < sizeof bytes ? len : sizeof bytes;
        ssize_t n = send(raw->fd, bytes, want, MSG_NOSIGNAL | MSG_DONTWAIT);
        len -= n > 0 ? (size_t)n : 0;
        bench_turn();
    }
}

static void
open_upload(struct raw *raw, const char *head)
{
    raw_ask(raw, head);
    WAIT(bench.held);
}

static void
test_a_body_is_read_as_it_comes(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    open_upload(&raw, HEAD "\r\n");
    assert_int_equal(upload.announced, BODY);
    send_body(&raw, BODY / 2);
    WAIT(upload.seen == BODY / 2);
    assert_true(upload.n_calls > 1);
    send_body(&raw, BODY - BODY / 2);
    WAIT(raw_has(&raw, "whole"));
    // The connection goes on with the next request.
    raw_send(&raw, HELLO);
    WAIT(raw_has(&raw, "hello"));
    assert_false(raw_has(&raw, "Connection: close"));
}

static void
test_a_client_that_waits_to_be_told(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    open_upload(&raw, HEAD "Expect: 100-continue\r\n\r\n");
    WAIT(raw_has(&raw, "HTTP/1.1 100 Continue\r\n\r\n"));
    send_body(&raw, BODY);
    WAIT(raw_has(&raw, "whole"));
}

// What follows the body is the next request, and none of the body.
static void
test_a_request_behind_the_body(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    open_upload(&raw, HEAD "\r\n");
    send_body(&raw, BODY - 1);
    raw_send(&raw, "x" HELLO);
    WAIT(raw_has(&raw, "hello"));
    assert_true(raw_has(&raw, "whole"));
    assert_int_equal(upload.seen, BODY);
}

// Small bodies, and those whose length nobody knows, are there when the handler is called.
static void
test_other_bodies_are_whole(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    open_upload(&raw, "PUT /upload HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY
                      "Content-Length: 5\r\n\r\n12345");
    assert_int_equal(upload.announced, 5);
    upload_on_data(bench.held);
    WAIT(raw_has(&raw, "whole"));
    KG_AUTO_RAW chunked;
    open_upload(&chunked, "PUT /upload HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY
                          "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
    assert_int_equal(upload.announced, 7);
    upload_on_data(bench.held);
    WAIT(raw_has(&chunked, "whole"));
}

// Nobody without a key reaches the handler, and a body may not be too large.
static void
test_refused_before_the_body(void **state)
{
    (void)state;
    KG_AUTO_RAW stranger, large;
    raw_exchange(&stranger, "PUT /upload HTTP/1.1\r\nHost: localhost\r\n"
                            "Content-Length: 921600\r\n\r\n");
    assert_true(raw_has(&stranger, "HTTP/1.1 401 "));
    raw_ask(&large, "PUT /upload HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY
                    "Content-Length: 2000000\r\nExpect: 100-continue\r\n\r\n");
    WAIT(raw_has(&large, "HTTP/1.1 413 "));
    assert_int_equal(upload.announced, 0);
}

// A client that sends faster than its handler reads waits, and is not taken for a silent one.
static void
test_a_body_that_is_not_read(void **state)
{
    (void)state;
    enum { LEN = 64 << 20 };
    static const char bytes[PIECE];
    struct http_server_settings settings = bench_settings();
    settings.max_body_bytes = LEN;
    bench_restart_server(&settings);
    add_routes();
    KG_AUTO_RAW raw;
    open_upload(&raw, "PUT /upload HTTP/1.1\r\nHost: localhost\r\n" WITH_KEY
                      "Content-Length: 67108864\r\n\r\n");
    http_request_on_body(bench.held, NULL, NULL);
    size_t sent = 0;
    for (int quiet = 0; quiet < 100;) {
        ssize_t n = send(raw.fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        quiet = n > 0 ? 0 : quiet + 1;
        sent += n > 0 ? (size_t)n : 0;
        bench_turn();
    }
    assert_true(sent < LEN / 2); // in the buffers of two sockets, and in the server's 64 KiB
    virtual_clock_advance(bench.loop, 100 * 1000);
    assert_int_equal(bench.n_gone, 0);
    http_request_on_body(bench.held, upload_on_data, bench.held);
    upload_on_data(bench.held);
    send_body(&raw, LEN - sent);
    WAIT(raw_has(&raw, "whole"));
}

// What a client sends ahead of an answer waits, and costs no time meanwhile.
static void
test_what_waits_costs_nothing(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    raw_ask(&raw, "GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
    WAIT(bench.held);
    static const char bytes[4 * PIECE];
    assert_true(send(raw.fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 2 * PIECE);
    int n_idle = 0; // turns in which nothing was ready, which take 20 ms
    for (int i = 0; i < 50; i++) {
        int64_t began_ms = wait_now_ms();
        bench_turn();
        n_idle += wait_now_ms() - began_ms > 10;
    }
    assert_true(n_idle > 10);
}

// When the whole body has come, the handler may take its time.
static void
test_a_body_that_is_here_has_no_timeout(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    open_upload(&raw, HEAD "\r\n");
    send_body(&raw, BODY - 1000);
    WAIT(upload.seen == BODY - 1000);
    http_request_on_body(bench.held, NULL, NULL);
    send_body(&raw, 1000);
    virtual_clock_advance(bench.loop, 100 * 1000);
    assert_int_equal(bench.n_gone, 0);
    upload_on_data(bench.held);
    WAIT(raw_has(&raw, "whole"));
}

static void
test_a_client_that_sends_no_more(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    open_upload(&raw, HEAD "\r\n");
    send_body(&raw, BODY / 2);
    WAIT(upload.seen == BODY / 2);
    PASS_TIME_UNTIL(&bench, bench.n_gone == 1); // after the head timeout
    assert_int_equal(http_request_body_read(bench.held, &(char){0}, 1), 0);
    http_request_abandon(KG_STEAL(bench.held));
    WAIT(raw.closed);
}

static void
test_a_client_that_leaves(void **state)
{
    (void)state;
    struct raw raw;
    open_upload(&raw, HEAD "\r\n");
    send_body(&raw, BODY / 2);
    raw_close(&raw);
    WAIT(bench.n_gone == 1);
    http_request_abandon(KG_STEAL(bench.held));
    assert_int_equal(http_server_open_requests(bench.server), 0);
}

// The rest is read and dropped, so that no reset destroys the answer; it is no request.
static void
test_an_answer_before_the_end_of_the_body(void **state)
{
    (void)state;
    KG_AUTO_RAW raw;
    open_upload(&raw, HEAD "\r\n");
    send_body(&raw, BODY / 2);
    WAIT(upload.seen == BODY / 2);
    http_reply(KG_STEAL(bench.held), 409, "text/plain", "no", 2);
    raw_send(&raw, HELLO);
    WAIT(raw.closed);
    assert_true(raw_has(&raw, "HTTP/1.1 409 Conflict"));
    assert_true(raw_has(&raw, "Connection: close"));
    assert_int_equal(bench.n_handled, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, body_set_up, bench_tear_down)

const struct CMUnitTest http_body_tests[] = {
    TEST(test_a_body_is_read_as_it_comes),
    TEST(test_a_client_that_waits_to_be_told),
    TEST(test_a_request_behind_the_body),
    TEST(test_other_bodies_are_whole),
    TEST(test_refused_before_the_body),
    TEST(test_a_body_that_is_not_read),
    TEST(test_what_waits_costs_nothing),
    TEST(test_a_body_that_is_here_has_no_timeout),
    TEST(test_a_client_that_sends_no_more),
    TEST(test_a_client_that_leaves),
    TEST(test_an_answer_before_the_end_of_the_body),
};
const size_t n_http_body_tests = KG_ARRAY_LEN(http_body_tests);
