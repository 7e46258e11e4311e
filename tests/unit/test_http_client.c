// SPDX-License-Identifier: Apache-2.0
// The HTTP client: answers, timeouts, limits, and cancelling within callbacks.

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "test_http_util.h"

static struct http_call *
start(struct call *call, const char *path, http_call_data_fn on_data, int64_t timeout_ms)
{
    KG_AUTO_FREE char *url = kg_asprintf("%s%s", bench.url, path);
    struct http_call_spec spec = {.method = "GET", .url = url, .timeout_ms = timeout_ms};
    struct kg_error err;
    *call = (struct call){0};
    call->handle = http_call_start(bench.client, &spec, on_data, call_on_done, call, &err);
    assert_non_null(call->handle);
    assert_false(call->done);
    return call->handle;
}

static void
test_transport_failures(void **state)
{
    (void)state;
    static const char *const urls[] = {"http://127.0.0.1:1/", "file:///etc/passwd", "nonsense://x"};
    for (size_t i = 0; i < KG_ARRAY_LEN(urls); i++) {
        struct http_call_spec spec = {.method = "GET", .url = urls[i]};
        KG_AUTO_CALL call = {0};
        struct kg_error err;
        assert_non_null(http_call_start(bench.client, &spec, NULL, call_on_done, &call, &err));
        assert_false(call.done);
        WAIT(call.done);
        assert_int_equal(call.status, 0);
        assert_int_not_equal(strlen(call.error), 0);
    }
}

static void
test_timeout(void **state)
{
    (void)state;
    KG_AUTO_CALL call;
    start(&call, "/hold", NULL, 100);
    WAIT(call.done);
    assert_int_equal(call.status, 0);
    assert_string_equal(call.error, "timed out");
    WAIT(bench.n_gone == 1);
}

static void
test_cancel_closes_the_connection(void **state)
{
    (void)state;
    struct call call;
    start(&call, "/hold", NULL, 0);
    WAIT(bench.held);
    http_call_cancel(call.handle);
    WAIT(bench.n_gone == 1);
    assert_false(call.done);
}

static void
test_body_bound(void **state)
{
    (void)state;
    KG_AUTO_FREE char *url = kg_asprintf("%s/echo", bench.url);
    for (size_t max = 4; max <= 5; max++) {
        struct http_call_spec spec = {
            .method = "POST", .url = url, .body = "abcde", .body_len = 5, .max_body_bytes = max};
        KG_AUTO_CALL call = {0};
        struct kg_error err;
        assert_non_null(http_call_start(bench.client, &spec, NULL, call_on_done, &call, &err));
        WAIT(call.done);
        assert_int_equal(call.status, max == 5 ? 200 : 0);
        assert_string_equal(call.error, max == 5 ? "" : "the answer is too large");
    }
}

// ---- Streams and cancelling within callbacks ------------------------------------------------

static struct {
    struct buf seen;
    struct call *victim; // cancelled by on_data
    bool cancel_self;
    bool cut;
    bool free_client;
    struct call second;
    bool start_second;
} script;

static bool
on_data(int status, const void *data, size_t len, void *arg)
{
    struct call *call = arg;
    assert_int_equal(status, 200);
    buf_append(&script.seen, data, len);
    if (script.victim)
        http_call_cancel(KG_STEAL(script.victim)->handle);
    if (script.cancel_self)
        http_call_cancel(call->handle);
    if (script.start_second)
        start(&script.second, "/hello", NULL, 0);
    if (script.free_client)
        http_client_free(KG_STEAL(bench.client));
    script.start_second = false;
    return !script.cut;
}

static int
script_set_up(void **state)
{
    memset(&script, 0, sizeof script);
    return bench_set_up(state);
}

static int
script_tear_down(void **state)
{
    buf_fini(&script.seen);
    return bench_tear_down(state);
}

static void
test_streamed_answer(void **state)
{
    (void)state;
    KG_AUTO_CALL call;
    start(&call, "/stream", on_data, 0);
    WAIT(bench.held);
    http_stream_write(bench.held, "one", 3);
    WAIT(script.seen.len == 3);
    assert_false(call.done);
    http_stream_write(bench.held, "two", 3);
    WAIT(script.seen.len == 6);
    http_stream_end(KG_STEAL(bench.held));
    WAIT(call.done);
    assert_int_equal(call.status, 200);
    assert_int_equal(call.body.len, 0);
    assert_memory_equal(script.seen.data, "onetwo", 6);
}

static void
test_stream_that_breaks_is_a_failure(void **state)
{
    (void)state;
    KG_AUTO_CALL call;
    start(&call, "/stream", on_data, 0);
    WAIT(bench.held);
    http_stream_write(bench.held, "one", 3);
    WAIT(script.seen.len == 3);
    http_stream_abort(KG_STEAL(bench.held));
    WAIT(call.done);
    assert_int_equal(call.status, 0);
    assert_int_not_equal(strlen(call.error), 0);
}

static void
test_reader_cuts(void **state)
{
    (void)state;
    script.cut = true;
    KG_AUTO_CALL call;
    start(&call, "/stream", on_data, 0);
    WAIT(bench.held);
    http_stream_write(bench.held, "one", 3);
    WAIT(call.done);
    assert_string_equal(call.error, "the answer was not read to its end");
    WAIT(bench.n_gone == 1);
}

static void
test_cancel_itself_in_on_data(void **state)
{
    (void)state;
    script.cancel_self = true;
    struct call call;
    start(&call, "/stream", on_data, 0);
    WAIT(bench.held);
    http_stream_write(bench.held, "one", 3);
    WAIT(bench.n_gone == 1);
    assert_int_equal(script.seen.len, 3);
    assert_false(call.done);
}

static void
test_cancel_another_and_start_one_in_on_data(void **state)
{
    (void)state;
    struct call victim;
    start(&victim, "/hold", NULL, 0);
    WAIT(bench.held);
    struct http_request *victims = KG_STEAL(bench.held);
    script.victim = &victim;
    script.start_second = true;
    KG_AUTO_CALL call;
    start(&call, "/stream", on_data, 0);
    WAIT(bench.held);
    http_stream_write(bench.held, "one", 3);
    WAIT(bench.n_gone == 1);
    http_reply(victims, 200, NULL, NULL, 0);
    WAIT(script.second.done);
    assert_int_equal(script.second.status, 200);
    buf_fini(&script.second.body);
    http_stream_end(KG_STEAL(bench.held));
    WAIT(call.done);
    assert_int_equal(call.status, 200);
    assert_false(victim.done);
}

static void
test_client_freed_in_on_data(void **state)
{
    (void)state;
    script.free_client = true;
    struct call call;
    struct call other;
    start(&other, "/hello", NULL, 0);
    start(&call, "/stream", on_data, 0);
    WAIT(bench.held);
    http_stream_write(bench.held, "one", 3);
    WAIT(bench.n_gone == 1);
    assert_false(call.done);
    buf_fini(&other.body);
}

static void
on_done_restart(const struct http_call_result *result, void *arg)
{
    struct call *call = arg;
    assert_int_equal(result->status, 200);
    http_call_cancel(call->handle);
    start(&script.second, "/hello", NULL, 0);
}

static void
test_cancel_and_start_in_on_done(void **state)
{
    (void)state;
    KG_AUTO_FREE char *url = kg_asprintf("%s/hello", bench.url);
    struct http_call_spec spec = {.method = "GET", .url = url};
    struct call call = {0};
    struct kg_error err;
    call.handle = http_call_start(bench.client, &spec, NULL, on_done_restart, &call, &err);
    WAIT(script.second.done);
    assert_int_equal(script.second.status, 200);
    buf_fini(&script.second.body);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, script_set_up, script_tear_down)

const struct CMUnitTest http_client_tests[] = {
    TEST(test_transport_failures),
    TEST(test_timeout),
    TEST(test_cancel_closes_the_connection),
    TEST(test_body_bound),
    TEST(test_streamed_answer),
    TEST(test_stream_that_breaks_is_a_failure),
    TEST(test_reader_cuts),
    TEST(test_cancel_itself_in_on_data),
    TEST(test_cancel_another_and_start_one_in_on_data),
    TEST(test_client_freed_in_on_data),
    TEST(test_cancel_and_start_in_on_done),
};
const size_t n_http_client_tests = KG_ARRAY_LEN(http_client_tests);
