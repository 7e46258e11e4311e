// SPDX-License-Identifier: Apache-2.0
// Executions on a ready kernel: what is set before, the queue, ends of every kind, readers.

#include "metrics.h"
#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "virtual_clock.h"

static bool
is_counted(const char *sample)
{
    KG_AUTO_BUF text = {0};
    metrics_write(&text);
    return strstr(text.data, sample) != NULL;
}

static void
test_output_then_done(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "print");
    assert_int_equal(execution_state(execution), EXECUTION_QUEUED);
    assert_true(kernel_is_busy(f->kernel));
    run_until_done(f, execution);
    assert_int_equal(f->done, 1);
    assert_int_equal(kernel_state(f->kernel), KERNEL_READY);
    assert_int_equal(kernel_execution_count(f->kernel), 1);
    assert_done(execution, "ok", false);
    json_auto_t *lines = all_lines(execution);
    json_auto_t *expected =
        json_pack("{s:s, s:i, s:s}", "type", "stdout", "seq", 1, "text", "hello\n");
    assert_int_equal(json_array_size(lines), 2);
    assert_true(json_equal(json_array_get(lines, 0), expected));

    // What a child writes after the end belongs to nothing.
    fake_kernel_print(fake_sandbox_kernel(f->sandbox, "python"), "late");
    RUN_UNTIL(f, is_counted("kernelgate_kernel_late_messages_total 1\n"));
    assert_int_equal(execution->log.last_seq, 2);
}

static void
test_error(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "raise");
    run_until_done(f, execution);
    assert_done(execution, "error", false);
    assert_last_error(execution, "NameError", "name 'x' is not defined");
}

// Code says how many pages its reply has.
static void
test_only_some_pages_are_shown(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "pages");
    run_until_done(f, execution);
    assert_done(execution, "ok", false);
    json_auto_t *lines = all_lines(execution);
    json_auto_t *expected =
        json_pack("{s:s, s:i, s:s, s:{}}", "type", "display", "seq", 100, "text", "a page", "data");
    assert_int_equal(json_array_size(lines), 100 + 1);
    assert_true(json_equal(json_array_get(lines, 99), expected));
}

static void
test_idle_without_a_reply(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) fine = execute(f, "no reply");
    KG_AUTO(execution) failed = execute(f, "error, no reply");
    RUN_UNTIL(f, f->kernel->runner.run.cell.idle);
    assert_int_equal(execution_state(fine), EXECUTION_RUNNING);
    virtual_clock_advance(f->loop, 1000); // the kernel is asked
    run_until_done(f, fine);
    assert_done(fine, "error", false); // nobody has said that it ran to its end
    assert_last_error(fine, "KernelError", "did not say");
    RUN_UNTIL(f, f->kernel->runner.run.cell.idle && f->kernel->runner.run.execution == failed);
    virtual_clock_advance(f->loop, 1000);
    run_until_done(f, failed);
    assert_done(failed, "error", false);
    assert_last_error(failed, "UnicodeError", "");
}

// In a kernel with busy threads, a reply may be much later than what is published.
static void
test_a_late_reply(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) late = execute(f, "late reply");
    RUN_UNTIL(f, f->kernel->runner.run.cell.idle);
    virtual_clock_advance(f->loop, 1000);
    run_until_done(f, late);
    assert_done(late, "ok", false);
    KG_AUTO(execution) next = execute(f, "print");
    run_until_done(f, next);
    assert_done(next, "ok", false);
}

static void
test_no_answer_at_all(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) silent = execute_for(f, "no reply", 60 * 1000);
    RUN_UNTIL(f, f->kernel->runner.run.cell.idle);
    fake_kernel_mute(fake_sandbox_kernel(f->sandbox, "python"));
    int64_t idle_ms = clock_mono_ms();
    run_until_done(f, silent);
    assert_in_range(clock_mono_ms() - idle_ms, PROBE_MS, 2 * PROBE_MS);
    assert_done(silent, "error", false);
    assert_last_error(silent, "KernelError", "did not say");
}

static void
test_a_message_that_answers_nothing(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    char type[] = "kernel_info_reply", nothing[] = "";
    struct jupyter_message message = {.msg_type = type, .parent_id = nothing};
    KG_AUTO(execution) execution = execute_for(f, "hang", 60 * 1000);
    RUN_UNTIL(f, strstr(fake_journal(), "run hang"));
    runner_on_message(&f->kernel->runner, JUPYTER_SHELL, &message);
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
    assert_true(kernel_interrupt(f->kernel));
    run_until_done(f, execution);
    assert_done(execution, "interrupted", false);
    runner_on_message(&f->kernel->runner, JUPYTER_SHELL, &message); // nothing runs
}

// ---- Variables and environment --------------------------------------------------------------

static void
test_variables_and_env(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    json_auto_t *variables = json_pack("{s:s}", "x", "\"\\\n\xe2\x82\xac{json}");
    json_auto_t *env = json_pack("{s:s}", "KEY", "value");
    KG_AUTO(execution) execution = execute_with(f, "print", variables, env, &err);
    run_until_done(f, execution);
    assert_done(execution, "ok", false);
    RUN_UNTIL(f, strstr(fake_journal(), "restore"));
    assert_string_equal(fake_journal(),
                        "silent set \"{\\\"x\\\":\\\"\\\\\\\"\\\\\\\\\\\\n\\\\u20AC{json}\\\"}\"\n"
                        "silent env \"{\\\"KEY\\\":\\\"value\\\"}\"\n"
                        "run print\n"
                        "silent restore \"{\\\"KEY\\\":\\\"value\\\"}\"\n");
    // Silent requests count for nothing.
    assert_int_equal(kernel_execution_count(f->kernel), 1);
}

static void
test_empty_ones_are_not_set(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    json_auto_t *empty = json_object();
    KG_AUTO(execution) execution = execute_with(f, "print", empty, empty, &err);
    KG_AUTO(execution) next = execute(f, "raise");
    run_until_done(f, next);
    assert_string_equal(fake_journal(), "run print\nrun raise\n");
}

static void
test_startup_code(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    f->spec.startup_code = kg_strdup("begin");
    start_ready_kernel(f);
    json_auto_t *variables = json_pack("{s:i}", "x", 1);
    KG_AUTO(execution) first = execute_with(f, "print", variables, NULL, &err);
    KG_AUTO(execution) second = execute(f, "die");
    KG_AUTO(execution) third = execute(f, "print");
    run_until_done(f, third);
    assert_done(second, "died", true);
    // Once in each process.
    assert_string_equal(fake_journal(), "silent begin\n"
                                        "silent set \"{\\\"x\\\":1}\"\n"
                                        "run print\n"
                                        "run die\n"
                                        "stop python\n"
                                        "start python\n"
                                        "silent begin\n"
                                        "run print\n");
}

static void
test_variables_that_cannot_be_set(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    json_auto_t *bad = json_pack("{s:i}", "bad", 1);
    KG_AUTO(execution) execution = execute_with(f, "print", bad, NULL, &err);
    KG_AUTO(execution) next = execute(f, "print");
    run_until_done(f, next);
    assert_done(execution, "error", false);
    assert_last_error(execution, "ValueError", "bad value");
    assert_done(next, "ok", false);
    assert_int_equal(fake_journal_count("run print"), 1);
}

static void
test_a_kernelspec_that_cannot_set_them(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    free(KG_STEAL(f->spec.variables_code));
    json_auto_t *some = json_pack("{s:i}", "x", 1);
    json_auto_t *none = json_object();
    assert_null(execute_with(f, "print", some, NULL, &err));
    assert_int_equal(err.code, KG_INVALID);
    assert_false(kernel_is_busy(f->kernel));
    KG_AUTO(execution) env_only = execute_with(f, "print", none, some, &err);
    assert_non_null(env_only);
    run_until_done(f, env_only);
}

// ---- The queue ------------------------------------------------------------------------------

static void
test_the_queue_keeps_its_order_and_its_bound(void **state)
{
    struct fixture *f = *state;
    start_kernel(f); // it need not be ready
    struct execution *executions[KERNEL_MAX_QUEUE];
    KG_AUTO_BUF expected = {0};
    for (int i = 0; i < KERNEL_MAX_QUEUE; i++) {
        KG_AUTO_FREE char *code = kg_asprintf("word %d", i);
        executions[i] = execute(f, code);
        buf_printf(&expected, "run %s\n", code);
    }
    struct kg_error err = {0};
    assert_null(execute_with(f, "print", NULL, NULL, &err));
    assert_int_equal(err.code, KG_SESSION_BUSY);
    run_until_done(f, executions[0]);
    assert_int_equal(execution_state(executions[2]), EXECUTION_QUEUED);
    run_until_done(f, executions[KERNEL_MAX_QUEUE - 1]);
    assert_int_equal(f->done, KERNEL_MAX_QUEUE);
    assert_string_equal(strchr(fake_journal(), '\n') + 1, expected.data); // after the start
    for (int i = 0; i < KERNEL_MAX_QUEUE; i++) {
        assert_done(executions[i], "ok", false);
        assert_int_equal(executions[i]->count, i + 1);
        execution_unref(executions[i]);
    }
}

// Of code with `len` bytes.
static struct execution *
execute_long(struct fixture *f, size_t len)
{
    KG_AUTO_FREE char *code = kg_calloc(1, len + 1);
    memset(code, '#', len);
    return execute(f, code);
}

// Code and variables that wait are bounded in all queues together, until they are sent; one owner's
// to half of that.
static void
test_large_requests_wait_within_a_bound(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    char long_text[30 << 10];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    json_auto_t *variables = json_pack("{s:s}", "x", long_text);
    start_ready_kernel(f);
    KG_AUTO(execution) hanging = execute(f, "hang");
    RUN_UNTIL(f, execution_state(hanging) == EXECUTION_RUNNING);
    KG_AUTO(execution) large = execute_with(f, "print", variables, NULL, &err);
    assert_non_null(large);
    assert_null(execute_with(f, "print", variables, NULL, &err));
    assert_int_equal(err.code, KG_SESSION_BUSY);
    assert_non_null(strstr(err.message, "your code and variables wait already"));
    struct execution_request others = {.owner = "another", .code = long_text};
    assert_int_equal(executions_check_room(f->context.executions, &others, &err), 0);
    const size_t left = (48 << 10) - large->waiting.held;
    KG_AUTO(execution) rest = execute_long(f, left);
    KG_AUTO(execution) small = execute(f, "print"); // however much waits
    execution_interrupt(rest);
    execution_interrupt(large);
    KG_AUTO(execution) again = execute_with(f, "print", variables, NULL, &err);
    assert_non_null(again);
    execution_interrupt(hanging);
    run_until_done(f, again);
    KG_AUTO(execution) next = execute_with(f, "hang", variables, NULL, &err);
    RUN_UNTIL(f, next->waiting.held == 0);
    KG_AUTO(execution) behind = execute_with(f, "print", variables, NULL, &err);
    assert_non_null(next);
    assert_non_null(behind);
}

// ---- Readers --------------------------------------------------------------------------------

static void
ignore(void *arg)
{
    (void)arg;
}

static void
test_the_last_reader_interrupts(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) running = execute(f, "hang");
    KG_AUTO(execution) queued = execute(f, "print");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    struct subscription *one = execution_subscribe(running, 0, ignore, NULL);
    struct subscription *other = execution_subscribe(running, 0, ignore, NULL);

    subscription_abandon(execution_subscribe(queued, 0, ignore, NULL));
    assert_done(queued, "interrupted", false);
    subscription_abandon(one);
    assert_int_equal(execution_state(running), EXECUTION_RUNNING);
    subscription_free(other); // a reader that has just read enough
    assert_int_equal(execution_state(running), EXECUTION_RUNNING);
    subscription_abandon(execution_subscribe(running, 0, ignore, NULL));
    assert_int_equal(execution_state(running), EXECUTION_INTERRUPTING);
    run_until_done(f, running);
    assert_done(running, "interrupted", false);
    assert_int_equal(fake_journal_count("run print"), 0);
}

static void
test_keep_running(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    const struct execution_request request = {.owner = "me",
                                              .session_id = "s1",
                                              .code = "hang",
                                              .timeout_ms = 1000 * 1000,
                                              .keep_running = true};
    KG_AUTO(execution) execution = kernel_execute(f->kernel, &request, &err);
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    subscription_abandon(execution_subscribe(execution, 0, ignore, NULL));
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
}

struct leaver {
    struct subscription *subscription;
};

static void
on_ready_leave(void *arg)
{
    struct leaver *leaver = arg;
    if (leaver->subscription)
        subscription_abandon(KG_STEAL(leaver->subscription));
}

// A reader that goes away just when it is told the end.
static void
test_a_reader_leaves_while_its_execution_ends(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) running = execute(f, "hang");
    KG_AUTO(execution) queued = execute(f, "print");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    struct leaver leavers[2] = {0};
    leavers[0].subscription = execution_subscribe(running, 0, on_ready_leave, &leavers[0]);
    leavers[1].subscription = execution_subscribe(queued, 0, on_ready_leave, &leavers[1]);
    kernel_free(KG_STEAL(f->kernel), NULL);
    assert_null(leavers[0].subscription);
    assert_null(leavers[1].subscription);
    assert_done(running, "died", false);
    assert_done(queued, "died", false);
    assert_int_equal(f->done, 2);
}

int
test_kernel_run(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_output_then_done),
        TEST(test_error),
        TEST(test_only_some_pages_are_shown),
        TEST(test_idle_without_a_reply),
        TEST(test_a_late_reply),
        TEST(test_no_answer_at_all),
        TEST(test_a_message_that_answers_nothing),
        TEST(test_variables_and_env),
        TEST(test_empty_ones_are_not_set),
        TEST(test_startup_code),
        TEST(test_variables_that_cannot_be_set),
        TEST(test_a_kernelspec_that_cannot_set_them),
        TEST(test_the_queue_keeps_its_order_and_its_bound),
        TEST(test_large_requests_wait_within_a_bound),
        TEST(test_the_last_reader_interrupts),
        TEST(test_keep_running),
        TEST(test_a_reader_leaves_while_its_execution_ends),
    };
    return cmocka_run_group_tests_name("kernel: run", tests, NULL, NULL);
}
