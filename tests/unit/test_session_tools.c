// SPDX-License-Identifier: Apache-2.0
// Code of a session that calls tools: its pace, its queue, large results, its end.

#include "test_session.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "session_tools.h"
#include "sessions_priv.h"
#include "tool_link.h"
#include "tool_list.h"
#include "tool_results.h"
#include "virtual_clock.h"

enum { WAITING_MAX = TOOL_RESULTS_MAX };

// A connection of code: its side.
struct code {
    struct fixture *f;
    int fd;
    struct buf got;
};

static struct code
connect_code(struct fixture *f, struct session *session)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    session_tools_take(session, fds[0]);
    return (struct code){.f = f, .fd = fds[1]};
}

static void
code_close(struct code *code)
{
    if (code->fd >= 0)
        close(code->fd);
    buf_fini(&code->got);
}

// Says a line, for as long as the session reads.
static bool
say(struct code *code, const char *line)
{
    ssize_t n = send(code->fd, line, strlen(line), MSG_NOSIGNAL);
    assert_true(n == (ssize_t)strlen(line) || (n < 0 && errno == EAGAIN));
    return n > 0;
}

static void
call(struct code *code, int id)
{
    KG_AUTO_FREE char *line = kg_asprintf(
        "{\"id\":%d,\"method\":\"call\",\"name\":\"echo\",\"arguments\":{\"n\":%d}}\n", id, id);
    assert_true(say(code, line));
    virtual_clock_advance(code->f->loop, 0);
}

// The lines that have come until now.
static size_t
count_answers(struct code *code)
{
    size_t n_lines = 0;
    virtual_clock_advance(code->f->loop, 0);
    for (ssize_t n = 1; n > 0;) {
        n = recv(code->fd, buf_reserve(&code->got, 1 << 16), 1 << 16, 0);
        code->got.len += n > 0 ? (size_t)n : 0;
        virtual_clock_advance(code->f->loop, 0);
    }
    buf_append(&code->got, "", 0);
    for (const char *at = code->got.data; (at = strchr(at, '\n')); at++)
        n_lines++;
    return n_lines;
}

static bool
is_closed(const struct code *code)
{
    char byte;
    return recv(code->fd, &byte, 1, MSG_PEEK) == 0;
}

// Code that has the tool `echo`, and runs.
static struct execution *
run_with_tools(struct fixture *f, struct opener *opener)
{
    struct kg_error err;
    open_named(f, opener, "s1");
    json_auto_t *value = json_pack("[{s:s}]", "name", "echo");
    KG_AUTO(tool_list) tools = tool_list_new(value, &err);
    const struct session_code code = {.code = "hang", .timeout_ms = DEADLINE_MS, .tools = tools};
    struct execution *execution = session_execute(opener->session, opener->kernel, &code, &err);
    assert_non_null(execution);
    RUN_UNTIL(f, kernel_execution(opener->kernel));
    return execution;
}

static size_t
waiting(const struct execution *execution)
{
    json_auto_t *calls = execution_waiting_calls(execution);
    return json_array_size(calls);
}

static void
give(struct fixture *f, struct execution *execution, int number, size_t len)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *text = kg_calloc(len + 1, 1);
    memset(text, 'x', len);
    json_auto_t *list =
        json_pack("[{s:o, s:s}]", "call_id", json_sprintf("%s-%d", execution_id(execution), number),
                  "result", text);
    KG_AUTO(tool_results) results = tool_results_new(list, &err);
    assert_int_equal(execution_give_results(execution, results, &err), 0);
    virtual_clock_advance(f->loop, 0);
}

// As many calls as the connection takes now.
static void
flood(struct code *code)
{
    for (int n = 0; say(code, "{\"id\":1,\"method\":\"call\",\"name\":\"x\"}\n"); n++)
        assert_true(n < 100 * 1000);
}

static void
test_pace(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    open_named(f, &opener, "s1");
    struct code one = connect_code(f, opener.session), two = connect_code(f, opener.session);
    // All connections of a session share one pace, and wait in their own writes.
    say(&one, "{\"kernel\":null}\n");
    say(&two, "{\"kernel\":null}\n");
    flood(&one);
    flood(&two);
    virtual_clock_advance(f->loop, 0);
    size_t before = count_answers(&one) + count_answers(&two);
    assert_in_range(before, 256, 257);
    for (int ms = 0; ms < 500; ms++) {
        flood(&one);
        flood(&two);
        virtual_clock_advance(f->loop, 1);
    }
    assert_in_range(count_answers(&one) + count_answers(&two) - before, 480, 502);
    // What it has not used is saved, up to a bound.
    code_close(&one);
    code_close(&two);
    RUN_UNTIL(f, opener.session->n_tool_callers == 0);
    virtual_clock_advance(f->loop, 60 * 1000);
    struct code later = connect_code(f, opener.session);
    say(&later, "{\"kernel\":null}\n");
    flood(&later);
    assert_in_range(count_answers(&later), 256, 257);
    assert_non_null(strstr(later.got.data, "no code that has tools runs now"));
    code_close(&later);
}

static void
test_queue(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    KG_AUTO(execution) execution = run_with_tools(f, &opener);
    struct code one = connect_code(f, opener.session), two = connect_code(f, opener.session);
    say(&one, "{\"kernel\":null}\n");
    say(&two, "{\"kernel\":null}\n");
    virtual_clock_advance(f->loop, 0);
    for (int id = 1; id <= WAITING_MAX; id++)
        call(&one, id);
    virtual_clock_advance(f->loop, 1000);
    for (int id = WAITING_MAX + 1; id <= WAITING_MAX + 3; id++)
        call(&one, id);
    call(&two, 1);
    assert_int_equal(waiting(execution), WAITING_MAX);
    assert_int_equal(opener.session->n_tools_queued, 4);
    // A cancel behind them is heard.
    KG_AUTO_FREE char *cancel = kg_asprintf("{\"id\":%d,\"method\":\"cancel\"}\n", WAITING_MAX + 2);
    say(&one, cancel);
    virtual_clock_advance(f->loop, 0);
    assert_int_equal(opener.session->n_tools_queued, 3);
    // One starts where one has ended, by an answer or a cancel.
    give(f, execution, 1, 1);
    assert_int_equal(opener.session->n_tools_queued, 2);
    assert_int_equal(waiting(execution), WAITING_MAX);
    say(&one, "{\"id\":2,\"method\":\"cancel\"}\n");
    virtual_clock_advance(f->loop, 10);
    assert_int_equal(opener.session->n_tools_queued, 1);
    assert_int_equal(waiting(execution), WAITING_MAX);
    // Who leaves takes its calls along.
    code_close(&two);
    virtual_clock_advance(f->loop, 0);
    assert_int_equal(opener.session->n_tools_queued, 0);
    call(&one, 999);
    assert_int_equal(opener.session->n_tools_queued, 1);
    assert_true(f->sessions->tool_bytes.held > 0);
    // The end of the code answers all.
    assert_int_equal(count_answers(&one), 1);
    execution_interrupt(execution);
    virtual_clock_advance(f->loop, 10);
    assert_int_equal(opener.session->n_tools_queued, 0);
    assert_int_equal(count_answers(&one), 1 + WAITING_MAX + 1);
    assert_non_null(strstr(one.got.data, "\"cancelled\""));
    assert_int_equal(f->sessions->tool_bytes.held, 0);
    code_close(&one);
}

static void
test_queue_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    KG_AUTO(execution) execution = run_with_tools(f, &opener);
    struct code code = connect_code(f, opener.session);
    say(&code, "{\"kernel\":null}\n");
    for (int i = 0; i < 3000; i++) {
        (void)say(&code, "{\"id\":1,\"method\":\"call\",\"name\":\"echo\",\"arguments\":{}}\n");
        virtual_clock_advance(f->loop, 1);
    }
    assert_int_equal(waiting(execution), WAITING_MAX);
    assert_in_range(opener.session->n_tools_queued, 1024, 1025);
    virtual_clock_advance(f->loop, 1000);
    assert_in_range(opener.session->n_tools_queued, 1024, 1025);
    code_close(&code);
    give(f, execution, 1, 1); // the connection goes on, and notices that its code has left
    virtual_clock_advance(f->loop, 10 * 1000);
    assert_int_equal(opener.session->n_tool_callers, 0);
    assert_int_equal(waiting(execution), 0);
}

static void
test_large_results(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    KG_AUTO(execution) execution = run_with_tools(f, &opener);
    struct code code = connect_code(f, opener.session);
    say(&code, "{\"kernel\":null}\n");
    virtual_clock_advance(f->loop, 0);
    fake_script.disk_bytes = 1 << 20;
    for (int id = 1; id <= 4; id++)
        call(&code, id);
    give(f, execution, 1, MAX_TOOL_RESULT - 2);
    assert_int_equal(count_answers(&code), 1);
    assert_non_null(strstr(code.got.data, "{\"id\":1,\"result\":\"xxx"));
    give(f, execution, 2, MAX_TOOL_RESULT - 1);
    RUN_UNTIL(f, count_answers(&code) == 2);
    assert_non_null(strstr(code.got.data, "{\"file\":\"/mnt/data/tool-results/echo-"));
    fake_script.disk_bytes = 100;
    give(f, execution, 3, MAX_TOOL_RESULT - 1);
    RUN_UNTIL(f, count_answers(&code) == 3);
    assert_non_null(strstr(code.got.data, "could not be written to a file: "));
    fake_script.disk_bytes = 1 << 21;
    // Code that leaves while it is written.
    fake_script.hold_writes = true;
    give(f, execution, 4, 1 << 20);
    assert_in_range(f->sessions->tool_bytes.held, 1 << 20, 2 << 20);
    say(&code, "{\"id\":4,\"method\":\"cancel\"}\n");
    virtual_clock_advance(f->loop, 0);
    assert_int_equal(f->sessions->tool_bytes.held, 0);
    call(&code, 5);
    give(f, execution, 5, 1 << 20);
    code_close(&code);
    RUN_UNTIL(f, opener.session->n_tool_callers == 0);
    assert_int_equal(f->sessions->tool_bytes.held, 0);
}

static void
test_number_of_connections(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct code codes[96];
    open_named(f, &opener, "s1");
    for (size_t i = 0; i < KG_ARRAY_LEN(codes); i++)
        codes[i] = connect_code(f, opener.session);
    struct code more = connect_code(f, opener.session);
    assert_true(is_closed(&more));
    code_close(&more);
    assert_false(is_closed(&codes[0]));
    assert_int_equal(f->sessions->tool_bytes.held, 0); // as long as they say nothing
    for (size_t i = 0; i < KG_ARRAY_LEN(codes); i++)
        code_close(&codes[i]);
}

// In the middle of everything.
static void
test_end(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    KG_AUTO(execution) execution = run_with_tools(f, &opener);
    struct session *session = opener.session;
    struct code code = connect_code(f, session), silent = connect_code(f, session);
    say(&code, "{\"kernel\":null}\n");
    virtual_clock_advance(f->loop, 0);
    fake_script.hold_writes = true;
    for (int id = 1; id <= WAITING_MAX; id++)
        call(&code, id);
    virtual_clock_advance(f->loop, 1000);
    for (int id = WAITING_MAX + 1; id < WAITING_MAX + 10; id++)
        call(&code, id);
    give(f, execution, 1, 1 << 20);
    session_end(session, "the test ends it", on_ended, f);
    assert_true(is_closed(&silent));
    assert_int_equal(f->sessions->tool_bytes.held, 0);
    assert_int_equal(execution_state(execution), EXECUTION_DONE);
    struct code late = connect_code(f, session); // its sandbox has not ended yet
    assert_true(is_closed(&late));
    RUN_UNTIL(f, f->ended > 0);
    code_close(&code);
    code_close(&silent);
    code_close(&late);
}

int
test_session_tools(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, session_setup, session_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_pace),
        TEST(test_queue),
        TEST(test_queue_is_bounded),
        TEST(test_large_results),
        TEST(test_number_of_connections),
        TEST(test_end),
    };
#undef TEST
    return cmocka_run_group_tests_name("session: tools", tests, NULL, NULL);
}
