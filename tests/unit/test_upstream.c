// SPDX-License-Identifier: Apache-2.0
// The client of MCP servers: the greeting, calls, lists, ends and new beginnings, with the test in
// the place of a server that speaks on a socket; and the keeper of a program.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server_keeper.h"
#include "server_process.h"
#include "test_upstream.h"
#include "upstreams.h"
#include "virtual_clock.h"

struct fixture {
    struct loop *loop;
    struct servers_file *file;
    struct upstreams *upstreams;
    int fd;       // the server's end; -1: none
    int n_starts; // of the program
    bool refuses; // to start
    struct loop_timer *started;
    void (*fn)(int fd, const struct kg_error *err, void *arg);
    void *fn_arg;
    struct buf in;
};

// What a call has ended with.
struct ended {
    int n;
    char *value, *error;
    char code[32], status[16];
};

static void
on_ended(const struct upstream_result *result, void *arg)
{
    struct ended *ended = arg;
    ended->n++;
    free(ended->value);
    free(ended->error);
    ended->value = result->value ? json_dumps(result->value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    ended->error = result->error ? kg_strdup(result->error) : NULL;
    snprintf(ended->code, sizeof ended->code, "%s", result->code ? result->code : "");
    snprintf(ended->status, sizeof ended->status, "%s", result->status);
}

static void
ended_fini(struct ended *ended)
{
    free(ended->value);
    free(ended->error);
}

// ---- The program ----------------------------------------------------------------------------

static void
on_started(void *arg)
{
    static const struct kg_error refused = {.code = KG_INTERNAL, .message = "no such program"};
    struct fixture *f = arg;
    int ends[2];
    f->n_starts++;
    if (f->refuses) {
        f->fn(-1, &refused, f->fn_arg);
        return;
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    if (f->fd >= 0)
        close(f->fd);
    f->fd = ends[0];
    buf_fini(&f->in);
    f->fn(ends[1], NULL, f->fn_arg);
}

static void *
program_start(size_t number, void (*fn)(int fd, const struct kg_error *err, void *arg),
              void *fn_arg, void *arg, struct kg_error *err)
{
    struct fixture *f = arg;
    (void)err;
    assert_int_equal(number, 0);
    f->fn = fn;
    f->fn_arg = fn_arg;
    loop_timer_start(f->started, 0);
    return f;
}

static void
program_stop(void *start, void *arg)
{
    struct fixture *f = arg;
    (void)start;
    loop_timer_stop(f->started);
}

static bool
has_line(struct fixture *f)
{
    char *at = buf_reserve(&f->in, 65536);
    ssize_t n = f->fd >= 0 ? recv(f->fd, at, 65536, MSG_DONTWAIT) : -1;
    if (n > 0)
        f->in.len += (size_t)n;
    return f->in.len > 0 && memchr(f->in.data, '\n', f->in.len);
}

// The next message that the server gets.
static json_t *
hear(struct fixture *f)
{
    WAIT_FOR(f, has_line(f));
    size_t len = (size_t)((char *)memchr(f->in.data, '\n', f->in.len) - f->in.data);
    json_t *message = json_loadb(f->in.data, len, 0, NULL);
    assert_non_null(message);
    buf_consume(&f->in, len + 1);
    return message;
}

// The next message must have that method; returns its id, 0: it has none.
static int64_t
hear_method(struct fixture *f, const char *method)
{
    json_auto_t *message = hear(f);
    assert_string_equal(json_string_value(json_object_get(message, "method")), method);
    return json_integer_value(json_object_get(message, "id"));
}

static void
say(struct fixture *f, const char *fmt, ...)
{
    va_list args;
    char text[4096];
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    strcat(text, "\n");
    ssize_t n = send(f->fd, text, strlen(text), MSG_NOSIGNAL);
    if (n < 0)
        print_error("cannot say %s: %s\n", text, strerror(errno));
    assert_int_equal(n, (int)strlen(text));
}

static void
answer(struct fixture *f, int64_t id, const char *result)
{
    say(f, "{\"jsonrpc\": \"2.0\", \"id\": %lld, \"result\": %s}", (long long)id, result);
}

#define TOOL(name) "{\"name\": \"" name "\", \"annotations\": {\"readOnlyHint\": true}}"

// The greeting, and a list with the tool `read`.
static void
greet(struct fixture *f)
{
    answer(f, hear_method(f, "initialize"),
           "{\"protocolVersion\": \"2025-06-18\", \"capabilities\": {\"tools\": {}}}");
    assert_int_equal(hear_method(f, "notifications/initialized"), 0);
    virtual_clock_advance(f->loop, 0);
    answer(f, hear_method(f, "tools/list"), "{\"tools\": [" TOOL("read") "]}");
    WAIT_FOR(f, upstreams_state(f->upstreams, 0).listed);
}

// ---- The fixture ----------------------------------------------------------------------------

static bool
is_operators(const char *owner, const void *arg)
{
    (void)arg;
    return strcmp(owner, "alice") == 0;
}

static void
start_with(struct fixture *f, const char *fields)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *text =
        kg_asprintf("{\"mcpServers\": {\"s\": {\"command\": \"x\"%s}}}", fields);
    f->file = servers_file_parse(text, strlen(text), NULL, &err);
    assert_non_null(f->file);
    const struct upstreams_settings settings = {
        .loop = f->loop,
        .file = f->file,
        .call_timeout_ms = 5000,
        .is_operators = is_operators,
        .start = program_start,
        .stop = program_stop,
        .start_arg = f,
    };
    f->upstreams = upstreams_new(&settings);
    virtual_clock_advance(f->loop, 0);
}

static int
set_up(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    log_setup(LOG_LEVEL_ERROR + 1, LOG_FORMAT_CONSOLE);
    f->loop = loop_new();
    f->fd = -1;
    f->started = loop_timer_new(f->loop, on_started, f);
    *state = f;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;
    upstreams_free(f->upstreams);
    servers_file_free(f->file);
    loop_timer_free(f->started);
    loop_free(f->loop);
    if (f->fd >= 0)
        close(f->fd);
    buf_fini(&f->in);
    free(f);
    return 0;
}

static struct upstream_call *
call(struct fixture *f, const char *owner, const char *name, struct ended *ended,
     struct kg_error *err)
{
    json_auto_t *arguments = json_pack("{s:i}", "x", 1);
    const struct upstream_call_spec spec = {
        .owner = owner, .session = f, .session_id = "s", .name = name, .arguments = arguments};
    return upstream_call_start(f->upstreams, &spec, on_ended, ended, err);
}

static void
start_call(struct fixture *f, struct ended *ended)
{
    struct kg_error err = {0};
    assert_non_null(call(f, "alice", "s.read", ended, &err));
    virtual_clock_advance(f->loop, 0);
}

// ---- Calls ----------------------------------------------------------------------------------

static void
test_the_greeting(void **state)
{
    struct fixture *f = *state;
    start_with(f, "");
    json_auto_t *message = hear(f);
    json_auto_t *expected =
        json_pack("{s:s, s:i, s:s, s:{s:s, s:{}, s:{s:s, s:s}}}", "jsonrpc", "2.0", "id", 1,
                  "method", "initialize", "params", "protocolVersion", "2025-11-25", "capabilities",
                  "clientInfo", "name", "kernelgate", "version", KG_VERSION);
    assert_true(json_equal(message, expected));
    answer(f, 1, "{\"protocolVersion\": \"2025-03-26\", \"capabilities\": {\"tools\": {}}}");
    hear_method(f, "notifications/initialized");
}

static void
test_a_call(void **state)
{
    struct fixture *f = *state;
    struct ended ended = {0};
    start_with(f, "");
    greet(f);
    start_call(f, &ended);
    json_auto_t *message = hear(f);
    int64_t id = json_integer_value(json_object_get(message, "id"));
    KG_AUTO_FREE char *params =
        json_dumps(json_object_get(message, "params"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(params, "{\"arguments\":{\"x\":1},\"name\":\"read\"}");
    say(f, "not JSON, but a banner");
    say(f, "{\"jsonrpc\": \"2.0\", \"id\": 4711, \"result\": {\"content\": []}}");
    say(f, "{\"jsonrpc\": \"2.0\", \"id\": %lld}", (long long)id);
    say(f, "{\"jsonrpc\": \"2.0\", \"id\": \"%lld\", \"result\": {}}", (long long)id);
    answer(f, id, "{\"content\": [{\"type\": \"text\", \"text\": \"yes\"}]}");
    WAIT_FOR(f, ended.n == 1);
    assert_string_equal(ended.value, "\"yes\"");
    assert_string_equal(ended.status, "ok");
    answer(f, id, "{\"content\": []}"); // once more
    virtual_clock_advance(f->loop, 10);
    assert_int_equal(ended.n, 1);
    ended_fini(&ended);
}

static void
test_errors_of_a_tool(void **state)
{
    struct fixture *f = *state;
    struct ended ended = {0};
    start_with(f, "");
    greet(f);
    start_call(f, &ended);
    answer(f, hear_method(f, "tools/call"),
           "{\"isError\": true, \"content\": [{\"type\": \"text\", \"text\": \"no\"}]}");
    WAIT_FOR(f, ended.n == 1);
    assert_string_equal(ended.error, "no");
    assert_string_equal(ended.code, "tool_error");
    start_call(f, &ended);
    say(f, "{\"id\": %lld, \"error\": {\"code\": -1, \"message\": \"never\"}}",
        (long long)hear_method(f, "tools/call"));
    WAIT_FOR(f, ended.n == 2);
    assert_string_equal(ended.error, "s.read: never");
    start_call(f, &ended);
    answer(f, hear_method(f, "tools/call"), "7"); // it is no result of a tool
    WAIT_FOR(f, ended.n == 3);
    assert_string_equal(ended.status, "error");
    ended_fini(&ended);
}

static void
test_a_call_that_takes_too_long(void **state)
{
    struct fixture *f = *state;
    struct ended ended = {0};
    start_with(f, ", \"timeout\": 2");
    greet(f);
    start_call(f, &ended);
    int64_t id = hear_method(f, "tools/call");
    virtual_clock_advance(f->loop, 1999);
    assert_int_equal(ended.n, 0);
    virtual_clock_advance(f->loop, 1);
    assert_int_equal(ended.n, 1);
    assert_string_equal(ended.status, "timeout");
    json_auto_t *message = hear(f);
    assert_string_equal(json_string_value(json_object_get(message, "method")),
                        "notifications/cancelled");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(message, "params"), "requestId")), id);
    answer(f, id, "{\"content\": []}"); // too late
    virtual_clock_advance(f->loop, 10);
    assert_int_equal(ended.n, 1);
    ended_fini(&ended);
}

static void
test_who_may_call(void **state)
{
    struct fixture *f = *state;
    struct ended ended = {0};
    struct kg_error err = {0};
    start_with(f, "");
    assert_null(call(f, "alice", "s.read", &ended, &err));
    assert_int_equal(err.code, KG_SERVER_DOWN); // nothing is listed yet
    greet(f);
    assert_null(call(f, "bob", "s.read", &ended, &err));
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_null(call(f, "alice", "s.write", &ended, &err));
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_null(call(f, "alice", "t.read", &ended, &err));
    assert_null(call(f, "alice", "read", &ended, &err));
    assert_true(upstreams_have(f->upstreams, "alice", "s.anything"));
    assert_false(upstreams_have(f->upstreams, "bob", "s.read"));
    json_auto_t *list = upstreams_list_tools(f->upstreams, "bob", NULL);
    assert_int_equal(json_array_size(list), 0);
}

static void
test_calls_wait_for_a_place(void **state)
{
    struct fixture *f = *state;
    struct ended ended = {0};
    struct kg_error err = {0};
    enum { N = 80 };
    struct upstream_call *calls[N];
    start_with(f, ", \"owners\": [\"*\"]");
    greet(f);
    for (int i = 0; i < N; i++) {
        calls[i] = call(f, i < 60 ? "alice" : "bob", "s.read", &ended, &err);
        assert_non_null(calls[i]);
    }
    for (int i = 0; i < 5; i++)
        virtual_clock_advance(f->loop, 1);
    int64_t first = hear_method(f, "tools/call");
    for (int i = 1; i < 32 + 20; i++) // of one owner 32 at most, so the other's are not behind them
        hear_method(f, "tools/call");
    assert_false(has_line(f));
    answer(f, first, "{\"content\": []}");
    WAIT_FOR(f, ended.n == 1);
    virtual_clock_advance(f->loop, 1);
    hear_method(f, "tools/call");
    assert_false(has_line(f));
    for (int i = 1; i < N; i++)
        upstream_call_cancel(calls[i]);
    ended_fini(&ended);
}

// ---- The connection -------------------------------------------------------------------------

static void
test_a_program_that_ends(void **state)
{
    struct fixture *f = *state;
    struct ended ended = {0};
    struct kg_error err = {0};
    start_with(f, "");
    greet(f);
    start_call(f, &ended);
    hear_method(f, "tools/call");
    f->refuses = true;
    close(KG_STEAL_FD(f->fd));
    WAIT_FOR(f, ended.n == 1);
    assert_string_equal(ended.error, "the MCP server s is down: its process has ended; it is not "
                                     "known whether the tool has run");
    assert_string_equal(ended.code, "server_down");
    json_auto_t *list = upstreams_list_tools(f->upstreams, "alice", "s");
    assert_int_equal(json_array_size(list), 1); // it is kept
    start_call(f, &ended);
    WAIT_FOR(f, ended.n == 2); // refused at once
    assert_int_equal(f->n_starts, 1);
    for (int64_t wait_ms = 1000, n = 2; wait_ms <= 60000; wait_ms *= 2, n++) {
        virtual_clock_advance(f->loop, wait_ms - 1);
        assert_int_equal(f->n_starts, n - 1);
        virtual_clock_advance(f->loop, 1);
        assert_int_equal(f->n_starts, n);
    }
    int n = f->n_starts;
    virtual_clock_advance(f->loop, 60000);
    assert_int_equal(f->n_starts, n + 1); // no longer than that
    // A call does not wait for the next attempt, but makes it.
    virtual_clock_advance(f->loop, 1000);
    f->refuses = false;
    assert_non_null(call(f, "alice", "s.read", &ended, &err));
    virtual_clock_advance(f->loop, 0);
    answer(f, hear_method(f, "initialize"),
           "{\"protocolVersion\": \"2025-06-18\", \"capabilities\": {\"tools\": {}}}");
    hear_method(f, "notifications/initialized");
    answer(f, hear_method(f, "tools/call"), "{\"content\": [], \"structuredContent\": 1}");
    WAIT_FOR(f, ended.n == 3);
    assert_string_equal(ended.value, "1");
    ended_fini(&ended);
}

static void
test_a_server_that_does_not_greet(void **state)
{
    struct fixture *f = *state;
    start_with(f, "");
    hear_method(f, "initialize");
    virtual_clock_advance(f->loop, 29999);
    assert_false(upstreams_state(f->upstreams, 0).has_failed);
    virtual_clock_advance(f->loop, 1);
    assert_true(upstreams_state(f->upstreams, 0).has_failed);
    assert_non_null(strstr(upstreams_state(f->upstreams, 0).error, "does not answer"));
}

static void
test_greetings_that_are_refused(void **state)
{
    static const struct {
        const char *result, *words;
    } cases[] = {
        {"{}", "protocolVersion"},
        {"{\"protocolVersion\": \"2030-01-01\", \"capabilities\": {\"tools\": {}}}", "2025-11-25"},
        {"{\"protocolVersion\": \"2025-06-18\", \"capabilities\": {}}", "it offers no tools"},
        {"1", "protocolVersion"},
    };
    struct fixture *f = *state;
    start_with(f, "");
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        answer(f, hear_method(f, "initialize"), cases[i].result);
        WAIT_FOR(f, upstreams_state(f->upstreams, 0).error &&
                        strstr(upstreams_state(f->upstreams, 0).error, cases[i].words));
        virtual_clock_advance(f->loop, INT64_C(1000) << i);
    }
}

static void
test_a_line_that_never_ends(void **state)
{
    struct fixture *f = *state;
    struct ended ended = {0};
    KG_AUTO_FREE char *text = kg_calloc(1, 65536);
    memset(text, 'x', 65536);
    start_with(f, "");
    greet(f);
    start_call(f, &ended);
    hear_method(f, "tools/call");
    for (int i = 0; i < 9 * 16 && ended.n == 0; i++) {
        ssize_t n = send(f->fd, text, 65536, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_true(n > 0 || errno == EAGAIN || errno == EPIPE);
        loop_turn(f->loop);
    }
    WAIT_FOR(f, ended.n == 1);
    assert_non_null(strstr(ended.error, "a line that is too long"));
    ended_fini(&ended);
}

static void
test_a_large_answer(void **state)
{
    struct fixture *f = *state;
    struct ended ended = {0};
    enum { LEN = 100000 };
    KG_AUTO_FREE char *large = kg_calloc(1, LEN + 1);
    memset(large, 'x', LEN);
    start_with(f, "");
    greet(f);
    start_call(f, &ended);
    KG_AUTO_FREE char *text =
        kg_asprintf("{\"id\": %lld, \"result\": {\"content\": [{\"type\": \"text\", \"text\": "
                    "\"%s\"}]}}\n",
                    (long long)hear_method(f, "tools/call"), large);
    assert_int_equal(send(f->fd, text, strlen(text), 0), (int)strlen(text));
    WAIT_FOR(f, ended.n == 1);
    assert_int_equal(strlen(ended.value), LEN + 2);
    ended_fini(&ended);
}

// ---- What the server says by itself ---------------------------------------------------------

static void
test_the_list_changes(void **state)
{
    struct fixture *f = *state;
    start_with(f, "");
    greet(f);
    for (int i = 0; i < 3; i++)
        say(f, "{\"method\": \"notifications/tools/list_changed\"}");
    loop_turn(f->loop);
    virtual_clock_advance(f->loop, 500);
    int64_t id = hear_method(f, "tools/list");
    answer(f, id, "{\"tools\": [" TOOL("one") "], \"nextCursor\": \"c\"}");
    json_auto_t *message = hear(f);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(message, "params"), "cursor")), "c");
    answer(f, json_integer_value(json_object_get(message, "id")), "{\"tools\": [" TOOL("two") "]}");
    WAIT_FOR(f, upstreams_state(f->upstreams, 0).n_offered == 2);
    assert_false(has_line(f));
    say(f, "{\"method\": \"notifications/tools/list_changed\"}");
    loop_turn(f->loop);
    virtual_clock_advance(f->loop, 500);
    say(f, "{\"id\": %lld, \"error\": {\"message\": \"no list\"}}",
        (long long)hear_method(f, "tools/list"));
    loop_turn(f->loop);
    assert_int_equal(upstreams_state(f->upstreams, 0).n_offered, 2); // the last one stays
    virtual_clock_advance(f->loop, 30000);
    hear_method(f, "tools/list");
}

static void
test_requests_of_the_server(void **state)
{
    struct fixture *f = *state;
    start_with(f, "");
    greet(f);
    say(f, "{\"id\": \"a\", \"method\": \"ping\"}");
    json_auto_t *pong = hear(f);
    json_auto_t *expected = json_pack("{s:s, s:s, s:{}}", "jsonrpc", "2.0", "id", "a", "result");
    assert_true(json_equal(pong, expected));
    say(f, "{\"id\": 5, \"method\": \"sampling/createMessage\", \"params\": {}}");
    json_auto_t *refused = hear(f);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(refused, "error"), "code")),
                     -32601);
    say(f, "{\"id\": null, \"method\": \"ping\"}");
    say(f, "{\"id\": [], \"method\": 7}");
    loop_turn(f->loop);
    assert_false(has_line(f));
    for (int i = 0; i < 1100 && !upstreams_state(f->upstreams, 0).error; i++) {
        say(f, "{\"method\": \"notifications/message\"}");
        if (i % 50 == 0 || i >= 1000) // what is not read blocks
            loop_turn(f->loop);
    }
    WAIT_FOR(f, upstreams_state(f->upstreams, 0).error);
    virtual_clock_advance(f->loop, 0);
    assert_non_null(strstr(upstreams_state(f->upstreams, 0).error, "too many messages"));
}

// ---- Programs -------------------------------------------------------------------------------

static void
test_a_programs_keeper(void **state)
{
    struct fixture *f = *state;
    char shell[] = "/bin/sh", option[] = "-c", variable[] = "A=b";
    // Leaves a process that no hang-up ends, says who it is, and then what it reads.
    char script[] = "setsid sleep 1000 & echo $! $A $HOME $(pwd) ${TESTVAR-none}; exec cat";
    char *argv[] = {shell, option, script, NULL};
    char *env[] = {variable, NULL};
    const struct server_spec spec = {.name = "s", .argv = argv, .env = env};
    struct kg_error err = {0};
    char said[512] = "";
    setenv("TESTVAR", "leaks", 1);
    KG_AUTO(server_processes) processes = server_processes_new(f->loop, -1, true);
    int fd = server_process_start(processes, &spec, 0, &err);
    assert_true(fd >= 0);
    assert_true(read(fd, said, sizeof said - 1) > 0);
    char home[256] = "", folder[256] = "", leaked[64] = "", a[16] = "";
    int child = 0;
    assert_int_equal(sscanf(said, "%d %15s %255s %255s %63s", &child, a, home, folder, leaked), 5);
    assert_string_equal(a, "b");
    assert_string_equal(home, folder);
    assert_int_equal(strncmp(home, "/tmp/kernelgate-mcp-", 20), 0);
    assert_string_equal(leaked, "none");
    assert_int_equal(access(home, F_OK), 0);
    assert_int_equal(write(fd, "echo\n", 5), 5);
    assert_int_equal(read(fd, said, sizeof said - 1), 5);
    assert_int_equal(kill(child, 0), 0);
    close(fd);
    WAIT_FOR(f, kill(child, 0) < 0 && access(home, F_OK) < 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], SERVER_KEEPER_COMMAND) == 0)
        return server_keeper_main(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_secrets_are_hidden),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_messages_that_are_refused),
        cmocka_unit_test(test_an_offer),
        cmocka_unit_test(test_an_offer_has_bounds),
        TEST(test_the_greeting),
        TEST(test_a_call),
        TEST(test_errors_of_a_tool),
        TEST(test_a_call_that_takes_too_long),
        TEST(test_who_may_call),
        TEST(test_calls_wait_for_a_place),
        TEST(test_a_program_that_ends),
        TEST(test_a_server_that_does_not_greet),
        TEST(test_greetings_that_are_refused),
        TEST(test_a_line_that_never_ends),
        TEST(test_a_large_answer),
        TEST(test_the_list_changes),
        TEST(test_requests_of_the_server),
        TEST(test_a_programs_keeper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
