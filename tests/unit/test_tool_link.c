// SPDX-License-Identifier: Apache-2.0
// The connection of code that calls tools, whose other side is the test.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_tools.h"
#include "tool_link.h"
#include "virtual_clock.h"

enum { BUDGET_BYTES = 64 << 20 };

struct fixture {
    struct loop *loop;
    struct budget budget;
    struct tool_link *link; // NULL: it has ended
    int code;               // the code's side
    struct buf journal;     // what the link has reported
    int n_work;
    bool refuses; // each request
    bool pauses;  // after each request
    int takes_ms; // each request
};

static void
on_request(struct tool_link *link, int64_t id, const char *name, const json_t *arguments, void *arg)
{
    struct fixture *f = arg;
    struct kg_error err;
    KG_AUTO_FREE char *text = json_dumps(arguments, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_ptr_equal(link, f->link);
    if (text && strlen(text) > 100)
        text[100] = '\0';
    buf_printf(&f->journal, "%s%lld %s %s\n", name ? "call " : "list ", (long long)id,
               name ? name : "-", text ? text : "-");
    if (f->refuses) {
        (void)kg_error_set(&err, KG_NOT_FOUND, 0, "none");
        tool_link_refuse(link, id, &err);
    }
    if (f->pauses)
        tool_link_pause(link, true);
    virtual_clock_move(f->takes_ms);
}

static void
on_list(struct tool_link *link, int64_t id, const char *server, void *arg)
{
    assert_null(server);
    on_request(link, id, NULL, NULL, arg);
}

static void
on_cancel(struct tool_link *link, int64_t id, void *arg)
{
    struct fixture *f = arg;
    (void)link;
    buf_printf(&f->journal, "cancel %lld\n", (long long)id);
}

static void
on_work(struct tool_link *link, int64_t us, void *arg)
{
    struct fixture *f = arg;
    (void)link;
    assert_true(us >= 0);
    f->n_work++;
}

static void
on_end(struct tool_link *link, void *arg)
{
    struct fixture *f = arg;
    assert_ptr_equal(link, f->link);
    buf_append_str(&f->journal, "end\n");
    f->link = NULL;
}

static const struct tool_link_events events = {on_list, on_request, on_cancel, on_work, on_end};

static int
setup(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    int fds[2];
    f->loop = loop_new();
    budget_init(&f->budget, "test", BUDGET_BYTES, BUDGET_BYTES);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0)
        return -1;
    f->code = fds[1];
    f->link = tool_link_new(f->loop, fds[0], &f->budget, "me", &events, f);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    tool_link_free(f->link);
    int left = f->budget.held > 0;
    if (f->code >= 0)
        close(f->code);
    budget_fini(&f->budget);
    buf_fini(&f->journal);
    loop_free(f->loop);
    free(f);
    return left;
}

// Sends bytes; the loop makes room for them, unless the link does not read.
static size_t
say_bytes(struct fixture *f, const char *data, size_t len)
{
    size_t sent = 0;
    for (int idle = 0; sent < len && idle < 50;) {
        ssize_t n = send(f->code, data + sent, len - sent, MSG_NOSIGNAL);
        idle = n > 0 ? 0 : idle + 1;
        sent += n > 0 ? (size_t)n : 0;
        virtual_clock_advance(f->loop, 0);
    }
    virtual_clock_advance(f->loop, 0);
    return sent;
}

static void
say(struct fixture *f, const char *text)
{
    (void)say_bytes(f, text, strlen(text));
}

// What the link has reported since the last time.
static void
expect(struct fixture *f, const char *journal)
{
    virtual_clock_advance(f->loop, 0);
    const char *has = f->journal.data ? f->journal.data : "";
    if (strcmp(has, journal) != 0)
        fail_msg("\"%s\" instead of \"%s\"", has, journal);
    buf_fini(&f->journal);
}

// What the code has got since the last time.
static void
read_answers(struct fixture *f, struct buf *ret)
{
    for (ssize_t n = 1; n > 0;) {
        n = recv(f->code, buf_reserve(ret, 1 << 16), 1 << 16, 0);
        ret->len += n > 0 ? (size_t)n : 0;
        virtual_clock_advance(f->loop, 0);
    }
    buf_append(ret, "", 0);
}

static void
expect_answers(struct fixture *f, const char *answers)
{
    KG_AUTO_BUF got = {0};
    read_answers(f, &got);
    if (strcmp(got.data, answers) != 0)
        fail_msg("\"%s\" instead of \"%s\"", got.data, answers);
}

static bool
has_ended(const struct fixture *f)
{
    char byte;
    return recv(f->code, &byte, 1, MSG_PEEK) == 0 || errno == ECONNRESET;
}

// ---- Lines ----------------------------------------------------------------------------------

static void
test_requests(void **state)
{
    struct fixture *f = *state;
    say(f, "{\"kernel\":\"python\"}\n{\"id\":1,\"met");
    assert_string_equal(tool_link_kernel(f->link), "python");
    expect(f, "");
    say(f,
        "hod\":\"list\"}\n{\"id\":2,\"method\":\"call\",\"name\":\"a b\",\"arguments\":{\"x\":[1]}}"
        "\n{\"id\":2,\"method\":\"cancel\"}\n{\"id\":-3,\"method\":\"call\",\"name\":\"\"}\n");
    expect(f, "list 1 - -\ncall 2 a b {\"x\":[1]}\ncancel 2\ncall -3  -\n");
    tool_link_answer(f->link, 1, json_pack("{s:[]}", "tools"));
    tool_link_give(f->link, 2, "[\"ä\",1.0]", strlen("[\"ä\",1.0]"));
    expect_answers(f, "{\"tools\":[],\"id\":1}\n{\"id\":2,\"result\":[\"ä\",1.0]}\n");
    assert_true(f->n_work > 0);
    // Byte by byte.
    static const char line[] = "{\"id\":9,\"method\":\"list\"}\n";
    for (const char *c = line; *c; c++)
        (void)say_bytes(f, c, 1);
    expect(f, "list 9 - -\n");
    close(KG_STEAL_FD(f->code));
    expect(f, "end\n");
}

static void
check_first_line(struct fixture *f, const char *line, const char *kernel)
{
    say(f, line);
    if (kernel)
        assert_string_equal(tool_link_kernel(f->link), kernel);
    expect(f, kernel ? "" : "end\n");
}

static void
test_first_line(void **state)
{
    check_first_line(*state, "{\"kernel\":null}\n", "");
}

static void
test_first_line_of_another(void **state)
{
    check_first_line(*state, "{\"kernel\":7}\n", "");
}

static void
test_first_line_that_is_none(void **state)
{
    check_first_line(*state, "[]\n", NULL);
}

static void
test_first_line_too_long(void **state)
{
    KG_AUTO_FREE char *line = kg_asprintf("{\"kernel\":\"%065d\"}\n", 1);
    check_first_line(*state, line, NULL);
}

static void
test_silence(void **state)
{
    struct fixture *f = *state;
    say(f, "{\"kernel\"");
    virtual_clock_advance(f->loop, 10 * 1000 - 1);
    expect(f, "");
    virtual_clock_advance(f->loop, 1);
    expect(f, "end\n");
    assert_true(has_ended(f));
}

static void
test_refusals(void **state)
{
    struct fixture *f = *state;
    say(f, "{\"kernel\":null}\n");
    say(f, "{\"id\":5,\"method\":\"call\",\"name\":\"a\",\"arguments\":{\"x\":1,\"x\":2}}\n");
    expect_answers(
        f, "{\"error\":\"the call is not valid JSON: duplicate object key near '\\\"x\\\"'\","
           "\"code\":\"invalid_request\",\"id\":5}\n");
    static const char *const refused[] = {"{\"id\":5,\"method\":\"x\"}",
                                          "{\"id\":5}",
                                          "{\"id\":5,\"method\":\"call\"}",
                                          "{\"id\":5,\"method\":\"list\"}x",
                                          "{\"method\":\"call\",\"id\":5,\"name\":\"\\u0000\"}",
                                          "{\"id\":5,\"x\":184467440737095516160}",
                                          "{\"id\":5,\"x\":\"\xff\"}"};
    for (size_t i = 0; i < KG_ARRAY_LEN(refused); i++) {
        KG_AUTO_BUF got = {0};
        say(f, refused[i]);
        say(f, "\n");
        read_answers(f, &got);
        if (!strstr(got.data, "\"id\":5}\n"))
            fail_msg("%s: %s", refused[i], got.data);
    }
    KG_AUTO_BUF deep = {0};
    buf_append_str(&deep, "{\"id\":6,\"method\":\"call\",\"name\":\"a\",\"arguments\":");
    for (int i = 0; i < 100 * 1000; i++)
        buf_append_str(&deep, "[");
    buf_append_str(&deep, "\n");
    say(f, deep.data);
    expect_answers(f,
                   "{\"error\":\"the arguments nest too deeply: write them to a file, and pass its "
                   "name\",\"code\":\"invalid_request\",\"id\":6}\n");
    expect(f, "");
    // Without an id it is not known whose answer it would be.
    say(f, "{\"id\":\"5\",\"method\":\"list\"}\n{\"id\":1,\"method\":\"list\"}\n");
    expect(f, "end\n");
    KG_AUTO_BUF last = {0};
    read_answers(f, &last);
    assert_int_equal(strncmp(last.data, "{\"error\":\"a request is ", 23), 0);
    assert_null(strstr(last.data, "\"id\":1"));
    assert_true(has_ended(f));
}

static char *
line_of(size_t len)
{
    static const char start[] =
        "{\"id\":1,\"method\":\"call\",\"name\":\"a\",\"arguments\":{\"x\":\"";
    char *line = kg_calloc(1, len + 2);
    memset(line, 'x', len);
    memcpy(line, start, sizeof start - 1);
    memcpy(line + len - 3, "\"}}\n", 4);
    return line;
}

static void
test_longest_line(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *longest = line_of(TOOL_LINE_MAX), *longer = line_of(TOOL_LINE_MAX + 1);
    say(f, "{\"kernel\":null}\n");
    say(f, longest);
    assert_int_equal(strncmp(f->journal.data, "call 1 a {\"x\":\"xxx", 18), 0);
    buf_fini(&f->journal);
    assert_int_equal(f->budget.held, 0);
    (void)say_bytes(f, longest, TOOL_LINE_MAX - 4);
    assert_true(f->budget.held >= TOOL_LINE_MAX);
    (void)say_bytes(f, longest + TOOL_LINE_MAX - 4, 5);
    assert_int_equal(f->budget.held, 0);
    buf_fini(&f->journal);
    (void)say_bytes(f, longer, strlen(longer));
    KG_AUTO_BUF got = {0};
    read_answers(f, &got);
    assert_non_null(strstr(got.data, "a call has at most 512 KiB of JSON"));
    assert_non_null(strstr(got.data, "\"id\":1}"));
}

// It is not kept until its end comes.
static void
test_endless_line(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *bytes = kg_calloc(1, 1 << 20);
    memset(bytes, '{', 1 << 20);
    say(f, "{\"kernel\":null}\n");
    assert_true(say_bytes(f, bytes, 1 << 20) < 1 << 20);
    expect(f, "end\n");
    KG_AUTO_BUF got = {0};
    read_answers(f, &got);
    assert_non_null(strstr(got.data, "a call has at most 512 KiB of JSON"));
}

// ---- Pauses ---------------------------------------------------------------------------------

static void
test_pause(void **state)
{
    struct fixture *f = *state;
    f->pauses = true;
    say(f, "{\"kernel\":null}\n{\"id\":1,\"method\":\"list\"}\n{\"id\":2,\"method\":\"list\"}\n");
    expect(f, "list 1 - -\n");
    say(f, "{\"id\":3,\"method\":\"list\"}\n{\"id\":4");
    expect(f, "");
    tool_link_pause(f->link, false);
    expect(f, "list 2 - -\n");
    tool_link_pause(f->link, false);
    expect(f, "list 3 - -\n");
    // That the code has left is noticed when it goes on, after what it has said.
    say(f, ",\"method\":\"list\"}\n");
    close(KG_STEAL_FD(f->code));
    virtual_clock_advance(f->loop, 1000);
    expect(f, "");
    tool_link_pause(f->link, false);
    expect(f, "list 4 - -\n");
    tool_link_pause(f->link, false);
    expect(f, "end\n");
}

// Code that says more waits in its own writes.
static void
test_pause_is_bounded(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *bytes = kg_calloc(1, 4 << 20);
    memset(bytes, '\n', 4 << 20);
    f->pauses = true;
    say(f, "{\"kernel\":null}\n{\"id\":1,\"method\":\"list\"}\n");
    expect(f, "list 1 - -\n");
    assert_true(say_bytes(f, bytes, 4 << 20) < 1 << 20);
    assert_true(f->budget.held < 1 << 20);
}

// Others have their turns of the loop between requests that take long.
static void
test_a_turn(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_BUF lines = {0};
    KG_AUTO_BUF journal = {0};
    for (int i = 0; i < 10; i++) {
        buf_printf(&lines, "{\"id\":%d,\"method\":\"list\"}\n", i);
        buf_printf(&journal, "list %d - -\n", i);
    }
    buf_append(&lines, "", 1);
    buf_append(&journal, "", 1);
    say(f, "{\"kernel\":null}\n");
    f->n_work = 0;
    f->takes_ms = 1;
    say(f, lines.data);
    expect(f, journal.data);
    assert_int_equal(f->n_work, 5);
}

// ---- Answers --------------------------------------------------------------------------------

static size_t
count_in(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

static void
test_unread_answers(void **state)
{
    struct fixture *f = *state;
    enum { LEN = 1 << 20 };
    KG_AUTO_FREE char *text = kg_calloc(1, LEN);
    memset(text, '1', LEN);
    say(f, "{\"kernel\":null}\n");
    for (int i = 0; i < 48; i++)
        tool_link_give(f->link, i, text, LEN);
    assert_in_range(f->budget.held, 16 << 20, BUDGET_BYTES);
    KG_AUTO_BUF got = {0};
    read_answers(f, &got);
    assert_in_range(count_in(got.data, "\"result\":"), 24, 33);
    assert_int_equal(count_in(got.data, "\"result\":") + count_in(got.data, "\"session_busy\""),
                     48);
    assert_non_null(strstr(got.data, "code does not read what tools answer: "));
    assert_int_equal(f->budget.held, 0);
    // Who never reads is sent away in the end.
    int n = 0;
    for (; f->link && n < 40; n++)
        tool_link_give(f->link, n, text, LEN);
    for (; f->link && n < 30 * 1000; n++) {
        tool_link_refuse(f->link, n, &(const struct kg_error){.code = KG_INVALID});
        if (n % 64 == 0)
            virtual_clock_advance(f->loop, 0);
    }
    expect(f, "end\n");
    assert_in_range(n, 1000, 30 * 1000 - 1);
}

static void
test_no_memory(void **state)
{
    struct fixture *f = *state;
    struct budget_hold hold = {0};
    budget_hold_start(&hold, &f->budget, "me");
    budget_hold_set(&hold, BUDGET_BYTES);
    say(f, "{\"kernel\":null}\n{\"id\":1,\"method\":\"list\"}\n");
    expect(f, "list 1 - -\n"); // whole lines are taken
    KG_AUTO_FREE char *large = kg_asprintf("%05000d", 1);
    tool_link_give(f->link, 1, "1", 1);
    tool_link_give(f->link, 2, large, strlen(large));
    expect_answers(f, "{\"id\":1,\"result\":1}\n"
                      "{\"id\":2,\"error\":\"code does not read what tools answer: 0 MiB wait\","
                      "\"code\":\"session_busy\"}\n");
    say(f, "{\"id\":7,\"method\"");
    expect(f, "end\n");
    KG_AUTO_BUF got = {0};
    read_answers(f, &got);
    assert_non_null(strstr(got.data, "try again later"));
    assert_non_null(strstr(got.data, "\"id\":7"));
    budget_hold_end(&hold);
}

// The link may still be used until its end was reported.
static void
test_the_end_meanwhile(void **state)
{
    struct fixture *f = *state;
    f->refuses = true;
    say(f, "{\"kernel\":null}\n");
    assert_int_equal(shutdown(f->code, SHUT_RD), 0);
    KG_AUTO_BUF lines = {0};
    for (int i = 0; i < 100; i++)
        buf_printf(&lines, "{\"id\":%d,\"method\":\"list\"}\n", i);
    say(f, lines.data);
    expect(f, "list 0 - -\nend\n");
}

int
test_tool_link(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(test_first_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_first_line_of_another, setup, teardown),
        cmocka_unit_test_setup_teardown(test_first_line_that_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_first_line_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_longest_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_endless_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pause, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pause_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unread_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_end_meanwhile, setup, teardown),
    };
    return cmocka_run_group_tests_name("tool_link", tests, NULL, NULL);
}
