// SPDX-License-Identifier: Apache-2.0
// The executions of taps: what is logged of them, how they end, and how they are found.

#include "tap_client.h"
#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "virtual_clock.h"

static struct tap_client *
start_with_client(struct fixture *f)
{
    start_ready_kernel(f);
    return tap_client_new(f->kernel, "alice", 0);
}

static json_t *
described(struct fixture *f, size_t i)
{
    json_auto_t *all = executions_describe(f->context.executions, "me", "s1");
    return json_incref(json_array_get(json_object_get(all, "executions"), i));
}

static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

// A new reference.
static struct execution *
newest(struct fixture *f)
{
    struct kg_error err;
    json_auto_t *body = described(f, 0);
    struct execution *found =
        executions_find(f->context.executions, text_of(body, "execution_id"), "me", &err);
    assert_non_null(found);
    return execution_ref(found);
}

// Sends code; returns its execution, which the kernel has not begun yet.
static struct execution *
run_by_tap(struct fixture *f, struct tap_client *client, const char *code)
{
    json_auto_t *before = executions_describe(f->context.executions, "me", "s1");
    json_int_t n = json_integer_value(json_object_get(before, "total"));
    virtual_clock_move(1); // executions are ordered by their times
    tap_client_execute(client, code);
    for (bool is_there = false; !is_there;) {
        json_auto_t *now = executions_describe(f->context.executions, "me", "s1");
        is_there = json_integer_value(json_object_get(now, "total")) > n;
        if (!is_there)
            fixture_turn(f);
    }
    return newest(f);
}

static void
test_what_a_tap_runs_is_logged(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    KG_AUTO(tap_client) client = start_with_client(f);
    KG_AUTO(execution) execution = run_by_tap(f, client, "print");
    assert_int_equal(execution_state(execution), EXECUTION_QUEUED);
    run_until_done(f, execution);
    assert_done(execution, "ok", false);
    json_auto_t *lines = all_lines(execution);
    assert_int_equal(json_array_size(lines), 2);
    assert_string_equal(text_of(json_array_get(lines, 0), "text"), "hello\n");
    const json_t *done = json_array_get(lines, 1);
    assert_int_equal(json_integer_value(json_object_get(done, "execution_count")), 1);
    assert_string_equal(text_of(done, "session_id"), "s1");
    RUN_UNTIL(f, tap_client_find(client, KERNEL_IOPUB, "stream")); // as before
    const char *id = execution_id(execution);
    assert_null(executions_find(f->context.executions, id, "somebody else", &err));
    assert_int_equal(err.code, KG_NOT_FOUND);
}

static void
test_executions_are_described(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    KG_AUTO(execution) first = run_by_tap(f, client, "raise");
    run_until_done(f, first);
    KG_AUTO(execution) second = run_by_tap(f, client, "hang");
    RUN_UNTIL(f, execution_state(second) == EXECUTION_RUNNING);
    KG_AUTO(execution) third = execute(f, "print"); // waits for the tap's
    json_auto_t *waits = described(f, 0), *runs = described(f, 1), *ended = described(f, 2);
    assert_string_equal(text_of(waits, "state"), "queued");
    assert_string_equal(text_of(waits, "kernel"), "python");
    assert_null(json_object_get(waits, "msg_id"));
    assert_true(json_is_null(json_object_get(waits, "started_at")));
    assert_string_equal(text_of(runs, "state"), "running");
    assert_string_equal(text_of(runs, "msg_id"), "alice-2");
    assert_true(json_is_string(json_object_get(runs, "started_at")));
    assert_true(json_is_null(json_object_get(runs, "ended_at")));
    assert_null(json_object_get(runs, "status"));
    assert_string_equal(text_of(ended, "state"), "done");
    assert_string_equal(text_of(ended, "status"), "error");
    assert_string_equal(text_of(ended, "msg_id"), "alice-1");
    assert_true(json_is_string(json_object_get(ended, "ended_at")));
    json_auto_t *other = executions_describe(f->context.executions, "bob", "s1");
    assert_int_equal(json_integer_value(json_object_get(other, "total")), 0);
    json_auto_t *elsewhere = executions_describe(f->context.executions, "me", "another");
    assert_int_equal(json_integer_value(json_object_get(elsewhere, "total")), 0);
    fake_kernel_interrupt(fake_sandbox_kernel(f->sandbox, "python"));
    run_until_done(f, third);
}

static void
test_a_description_is_bounded(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    for (int i = 0; i < EXECUTIONS_DESCRIBED_MAX + 10; i++) {
        KG_AUTO(execution) execution = run_by_tap(f, client, "print");
        run_until_done(f, execution);
    }
    json_auto_t *all = executions_describe(f->context.executions, "me", "s1");
    const json_t *list = json_object_get(all, "executions");
    assert_int_equal(json_array_size(list), EXECUTIONS_DESCRIBED_MAX);
    assert_int_equal(json_integer_value(json_object_get(all, "total")),
                     EXECUTIONS_DESCRIBED_MAX + 10);
    assert_string_equal(text_of(json_array_get(list, 0), "msg_id"), "alice-110");
}

struct ending {
    const char *code;
    const char *status;
    const char *ename; // of the error line before `done`; NULL: none
    bool kernel_restarted;
};

static void
test_how_they_end(void **state)
{
    static const struct ending endings[] = {
        {"raise", "error", "NameError", false},
        {"no reply", "error", "KernelError", false}, // after a second and a question
        {"late reply", "ok", NULL, false},
        {"error, no reply", "error", "UnicodeError", false},
        {"abort", "ok", NULL, false}, // makes the kernel abort the next one
        {"skipped", "interrupted", "ExecutionAborted", false},
        {"die", "died", "KernelDied", true},
        {"print", "ok", NULL, false},
    };
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    for (size_t i = 0; i < KG_ARRAY_LEN(endings); i++) {
        RUN_UNTIL(f, kernel_state(f->kernel) == KERNEL_READY);
        KG_AUTO(execution) execution = run_by_tap(f, client, endings[i].code);
        if (strstr(endings[i].code, " reply")) {
            RUN_UNTIL(f, tap_client_is_idle(client));
            assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
            virtual_clock_advance(f->loop, 1000);
        }
        run_until_done(f, execution);
        assert_done(execution, endings[i].status, endings[i].kernel_restarted);
        if (endings[i].ename)
            assert_last_error(execution, endings[i].ename, "");
    }
}

// One that the kernel never calls idle ends when a later one begins.
static void
test_a_later_answer_ends_an_earlier_one(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    KG_AUTO(execution) first = run_by_tap(f, client, "no idle");
    RUN_UNTIL(f, tap_client_find(client, KERNEL_SHELL, "execute_reply"));
    execution_interrupt(first); // it would hit another one
    assert_int_equal(execution_state(first), EXECUTION_RUNNING);
    assert_null(f->kernel->process.interrupting);
    KG_AUTO(execution) second = run_by_tap(f, client, "print");
    run_until_done(f, second);
    assert_done(first, "ok", false);
}

static void
test_what_is_not_answered_is_bounded(void **state)
{
    enum { MAX_RUNS = 512 };
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    KG_AUTO(execution) first = run_by_tap(f, client, "quiet"); // replies, and publishes nothing
    for (int n = 2; n <= MAX_RUNS; n++) {
        tap_client_execute(client, "quiet");
        RUN_UNTIL(f, f->kernel->hub.runs.n == n);
    }
    assert_true(execution_state(first) != EXECUTION_DONE);
    execution_unref(run_by_tap(f, client, "quiet"));
    assert_done(first, "ok", false);
    assert_int_equal(f->kernel->hub.runs.n, MAX_RUNS);
}

static void
test_interrupts(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(tap_client) client = start_with_client(f);
    KG_AUTO(execution) running = run_by_tap(f, client, "hang");
    RUN_UNTIL(f, execution_state(running) == EXECUTION_RUNNING);
    execution_interrupt(running);
    assert_int_equal(execution_state(running), EXECUTION_INTERRUPTING);
    run_until_done(f, running);
    assert_done(running, "interrupted", false);
    assert_last_error(running, "KeyboardInterrupt", "");

    KG_AUTO(execution) queued = run_by_tap(f, client, "hang");
    execution_interrupt(queued); // when it begins
    assert_int_equal(execution_state(queued), EXECUTION_QUEUED);
    run_until_done(f, queued);
    assert_done(queued, "interrupted", false);

    KG_AUTO(execution) of_session = run_by_tap(f, client, "hang");
    RUN_UNTIL(f, execution_state(of_session) == EXECUTION_RUNNING);
    assert_true(kernel_interrupt(f->kernel));
    run_until_done(f, of_session);
    assert_done(of_session, "interrupted", false);
}

// Neither its tap nor a reader that leaves ends it, but the kernel's end does.
static void
test_what_does_not_end_one(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    struct tap_client *client = start_with_client(f);
    KG_AUTO(execution) execution = run_by_tap(f, client, "hang");
    RUN_UNTIL(f, execution_state(execution) == EXECUTION_RUNNING);
    subscription_abandon(execution_subscribe(execution, 0, NULL, NULL));
    tap_client_free(client);
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
    assert_int_equal(restart(f, &err), 0);
    run_until_done(f, execution);
    assert_done(execution, "interrupted", true);
    RUN_UNTIL(f, f->restarted == 1);

    KG_AUTO(tap_client) again = tap_client_new(f->kernel, "alice", 0);
    KG_AUTO(execution) last = run_by_tap(f, again, "hang");
    kernel_free(KG_STEAL(f->kernel), "no reason");
    assert_done(last, "died", false);
    assert_last_error(last, "KernelDied", "no reason");
}

int
test_kernel_tap_runs(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_what_a_tap_runs_is_logged),
        TEST(test_executions_are_described),
        TEST(test_a_description_is_bounded),
        TEST(test_how_they_end),
        TEST(test_a_later_answer_ends_an_earlier_one),
        TEST(test_what_is_not_answered_is_bounded),
        TEST(test_interrupts),
        TEST(test_what_does_not_end_one),
    };
    return cmocka_run_group_tests_name("kernel: executions of taps", tests, NULL, NULL);
}
