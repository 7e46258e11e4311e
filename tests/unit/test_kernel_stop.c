// SPDX-License-Identifier: Apache-2.0
// Timeouts, interrupts, restarts, deaths.

#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "virtual_clock.h"

// ---- Timeout --------------------------------------------------------------------------------

static void
test_timeout_interrupts(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute_for(f, "hang", 60 * 1000);
    KG_AUTO(execution) next = execute(f, "print");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    virtual_clock_advance(f->loop, 59 * 1000);
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
    virtual_clock_advance(f->loop, 1000);
    run_until_done(f, execution);
    assert_done(execution, "timeout", false);
    assert_last_error(execution, "TimeoutError", "longer than 60 s");
    run_until_done(f, next);
    assert_done(next, "ok", false);
    assert_string_equal(fake_journal(), "run hang\nsignal python\nrun print\n");
}

static void
test_timeout_kills_what_cannot_be_interrupted(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute_for(f, "stubborn", 500);
    KG_AUTO(execution) next = execute(f, "print");
    RUN_UNTIL(f, execution_state(execution) == EXECUTION_INTERRUPTING);
    int64_t interrupted_ms = clock_mono_ms();
    RUN_UNTIL(f, fake_journal_count("signal python") == 1);
    virtual_clock_advance(f->loop, interrupted_ms + 2999 - clock_mono_ms()); // its grace
    assert_int_equal(execution_state(execution), EXECUTION_INTERRUPTING);
    virtual_clock_advance(f->loop, 1);
    assert_int_not_equal(execution_state(execution), EXECUTION_INTERRUPTING);
    run_until_done(f, execution);
    assert_done(execution, "timeout", true);
    assert_last_error(execution, "TimeoutError", "longer than 0.5 s");
    json_auto_t *description = kernel_describe(f->kernel);
    const json_t *replaced = json_object_get(description, "replaced");
    assert_non_null(strstr(json_string_value(json_object_get(replaced, "reason")),
                           "did not react to an interrupt"));
    run_until_done(f, next);
    assert_done(next, "ok", false);
    assert_string_equal(fake_journal(), "run stubborn\nsignal python\nstop python\nstart python\n"
                                        "run print\n");
    assert_int_equal(f->started, 1);
}

// The reply alone is no end: output may follow it.
static void
test_reply_without_idle(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute_for(f, "no idle", 60 * 1000);
    RUN_UNTIL(f, f->kernel->runner.run.cell.reply != CELL_NO_REPLY);
    fake_kernel_print(fake_sandbox_kernel(f->sandbox, "python"), "after the reply");
    RUN_UNTIL(f, execution->log.last_seq == 1);
    virtual_clock_advance(f->loop, 59 * 1000);
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
    virtual_clock_advance(f->loop, 1000);
    assert_int_equal(execution_state(execution), EXECUTION_INTERRUPTING);
    kernel_free(KG_STEAL(f->kernel), NULL);
    assert_done(execution, "died", false);
}

// ---- Interrupt ------------------------------------------------------------------------------

static void
test_interrupt(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    assert_false(kernel_interrupt(f->kernel));
    KG_AUTO(execution) running = execute(f, "hang");
    KG_AUTO(execution) queued = execute(f, "print");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    assert_true(kernel_interrupt(f->kernel));
    assert_done(queued, "interrupted", false);
    assert_int_equal(kernel_state(f->kernel), KERNEL_INTERRUPTING);
    execution_interrupt(running); // once is enough
    run_until_done(f, running);
    assert_done(running, "interrupted", false);
    assert_last_error(running, "KeyboardInterrupt", "");
    execution_interrupt(running);
    assert_string_equal(fake_journal(), "run hang\nsignal python\n");
    assert_int_equal(kernel_state(f->kernel), KERNEL_READY);
}

// A kernel that has just begun misses an interrupt.
static void
test_an_interrupt_that_is_missed(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "deaf");
    RUN_UNTIL(f, fake_journal_count("run deaf") == 1);
    execution_interrupt(execution);
    RUN_UNTIL(f, loop_timer_active(f->kernel->runner.run.again));
    virtual_clock_advance(f->loop, 1000);
    run_until_done(f, execution);
    assert_done(execution, "interrupted", false);
    assert_string_equal(fake_journal(), "run deaf\nsignal python\nsignal python\n");
}

static void
test_interrupt_by_message(void **state)
{
    struct fixture *f = *state;
    f->spec.interrupt_by_message = true;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "hang");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    execution_interrupt(execution);
    run_until_done(f, execution);
    assert_done(execution, "interrupted", false);
    assert_string_equal(fake_journal(), "run hang\ninterrupt_request\n");
}

// A signal under way must not hit the next execution.
static void
test_nothing_starts_while_a_signal_is_under_way(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    fake_script.hold_signal = true;
    KG_AUTO(execution) execution = execute(f, "hang");
    KG_AUTO(execution) next = execute(f, "print");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    execution_interrupt(execution);
    fake_kernel_interrupt(fake_sandbox_kernel(f->sandbox, "python")); // it ends at this very moment
    run_until_done(f, execution);
    assert_int_equal(kernel_state(f->kernel), KERNEL_READY);
    for (int i = 0; loop_timer_active(f->kernel->runner.next); i++)
        fixture_turn(f);
    assert_int_equal(execution_state(next), EXECUTION_QUEUED);
    fake_sandboxes_release();
    run_until_done(f, next);
    assert_done(next, "ok", false);
}

// Interrupted while its variables are set: the code must not run after that.
static void
test_interrupt_before_the_code(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    json_auto_t *slow = json_pack("{s:i}", "slow", 1);
    KG_AUTO(execution) execution = execute_with(f, "stubborn", slow, NULL, &err);
    RUN_UNTIL(f, strstr(fake_journal(), "slow"));
    execution_interrupt(execution);
    run_until_done(f, execution);
    assert_done(execution, "interrupted", false);
    assert_int_equal(fake_journal_count("run stubborn"), 0);
}

// ---- Restart --------------------------------------------------------------------------------

static void
test_restart(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    int old_pid = f->kernel->process.pid;
    KG_AUTO(execution) running = execute(f, "stubborn");
    KG_AUTO(execution) queued = execute(f, "print");
    RUN_UNTIL(f, fake_journal_count("run stubborn") == 1);
    fake_script.hold_stop = true;
    assert_int_equal(restart(f, &err), 0);
    assert_int_equal(kernel_state(f->kernel), KERNEL_RESTARTING);
    assert_int_equal(restart(f, &err), -1);
    assert_int_equal(err.code, KG_SESSION_BUSY);
    fake_sandbox_tell_exit(f->sandbox, "python", old_pid, -1, 9, false); // as expected
    fake_sandboxes_release();
    run_until_done(f, running);
    assert_done(running, "interrupted", true);
    assert_int_equal(f->restarted, 0);

    // News of the old process do not touch the new one, at no step of its start.
    while (f->restarted == 0) {
        fake_sandbox_tell_exit(f->sandbox, "python", old_pid, -1, 9, false);
        fixture_turn(f);
    }
    assert_int_equal(f->restart_err.code, KG_OK);
    fake_sandbox_tell_exit(f->sandbox, "python", old_pid, -1, 9, false);
    run_until_done(f, queued);
    assert_done(queued, "ok", false);
    assert_int_not_equal(f->kernel->process.pid, old_pid);
    assert_string_equal(fake_journal(), "run stubborn\nstop python\nstart python\nrun print\n");
}

static void
test_restart_that_fails(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    fake_script.refuse_start = true;
    assert_int_equal(restart(f, &err), 0);
    KG_AUTO(execution) queued = execute(f, "print");
    RUN_UNTIL(f, f->restarted > 0);
    assert_int_equal(f->restart_err.code, KG_KERNEL_START_TIMEOUT);
    assert_done(queued, "died", false);
    assert_int_equal(kernel_state(f->kernel), KERNEL_DEAD);
    assert_true(kernel_has_started(f->kernel));

    fake_script.refuse_start = false;
    assert_int_equal(restart(f, &err), 0);
    RUN_UNTIL(f, f->restarted > 1);
    assert_int_equal(f->restart_err.code, KG_OK);
    assert_int_equal(f->started, 1);
}

static void
test_restart_without_an_agent(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_ready_kernel(f);
    KG_AUTO(execution) running = execute(f, "hang");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    KG_AUTO(execution) queued = execute(f, "print");
    fake_script.refuse_calls = true;
    assert_int_equal(restart(f, &err), 0);
    assert_int_equal(f->restarted + f->broken, 0);
    RUN_UNTIL(f, f->broken > 0);
    assert_int_equal(f->restarted, 1);
    assert_int_not_equal(f->restart_err.code, KG_OK);
    assert_int_equal(kernel_state(f->kernel), KERNEL_DEAD);
    assert_done(running, "interrupted", false);
    assert_done(queued, "died", false);
    assert_int_equal(f->broken, 1);
}

static void
test_restart_while_it_starts(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    start_kernel(f);
    RUN_UNTIL(f, f->kernel->process.channels);
    assert_int_equal(restart(f, &err), 0);
    RUN_UNTIL(f, f->restarted > 0);
    assert_int_equal(f->started, 1);
    assert_int_equal(f->start_err.code, KG_OK);
    assert_string_equal(fake_journal(), "start python\nstop python\nstart python\n");
}

// ---- Death ----------------------------------------------------------------------------------

static void
check_death(struct fixture *f, const char *code, const char *ename, const char *evalue)
{
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, code);
    KG_AUTO(execution) next = execute(f, "print");
    run_until_done(f, execution);
    assert_done(execution, "died", true);
    assert_last_error(execution, ename, evalue);
    run_until_done(f, next);
    assert_done(next, "ok", false);
}

static void
test_killed(void **state)
{
    check_death(*state, "die", "KernelDied", "ended by signal 9 (KILL)");
}

static void
test_out_of_memory(void **state)
{
    check_death(*state, "oom", "OutOfMemory", "more memory");
}

// The news of the exit comes by another way than the output, and may be faster.
static void
test_last_output(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "hang");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    fake_sandbox_tell_exit(f->sandbox, "python", f->kernel->process.pid, 3, 0, false);
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
    fake_kernel_print(fake_sandbox_kernel(f->sandbox, "python"), "last words");
    RUN_UNTIL(f, execution->log.last_seq == 1);
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
    fake_sandbox_kill(f->sandbox, "python");
    run_until_done(f, execution);
    assert_done(execution, "died", true);
    assert_last_error(execution, "KernelDied", "ended with code 3");
}

// Something else holds the sockets of a process that has ended, and goes on printing.
static void
test_links_that_do_not_end(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "hang");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    fake_sandbox_tell_exit(f->sandbox, "python", f->kernel->process.pid, 3, 0, false);
    for (int i = 1; i <= 8; i++) {
        virtual_clock_advance(f->loop, 1900);
        if (f->kernel->process.state != PROCESS_ENDING)
            break;
        fake_kernel_print(fake_sandbox_kernel(f->sandbox, "python"), "more");
        RUN_UNTIL(f, execution->log.last_seq == i);
    }
    run_until_done(f, execution);
    assert_done(execution, "died", true);
    assert_in_range(execution->log.last_seq, 5, 9);
}

// No execution begins on a process whose channel is gone.
static void
test_execution_after_the_last_output(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    fake_sandbox_kill(f->sandbox, "python");
    RUN_UNTIL(f, f->kernel->process.state == PROCESS_ENDING);
    KG_AUTO(execution) execution = execute(f, "print");
    fake_sandbox_tell_exit(f->sandbox, "python", f->kernel->process.pid, 1, 0, false);
    run_until_done(f, execution);
    assert_done(execution, "ok", false);
}

static void
test_it_ends_while_idle(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    fake_sandbox_kill(f->sandbox, "python");
    fake_sandbox_tell_exit(f->sandbox, "python", f->kernel->process.pid, 1, 0, false);
    assert_int_equal(kernel_state(f->kernel), KERNEL_RESTARTING);
    KG_AUTO(execution) execution = execute(f, "print");
    run_until_done(f, execution);
    assert_done(execution, "ok", false);
}

static void
test_code_that_exits(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "exit");
    RUN_UNTIL(f, f->kernel->runner.run.cell.exits && f->kernel->runner.run.cell.idle);
    assert_int_equal(execution_state(execution), EXECUTION_RUNNING);
    fake_sandbox_kill(f->sandbox, "python");
    fake_sandbox_tell_exit(f->sandbox, "python", f->kernel->process.pid, 0, 0, false);
    run_until_done(f, execution);
    assert_done(execution, "ok", true);
    assert_int_equal(execution->log.last_seq, 1);
}

static void
test_code_that_only_says_that_it_exits(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "exit");
    RUN_UNTIL(f, f->kernel->runner.run.cell.exits);
    virtual_clock_advance(f->loop, 2000);
    assert_done(execution, "ok", false);
    assert_int_equal(kernel_state(f->kernel), KERNEL_READY);
}

static void
test_channels_are_lost(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) execution = execute(f, "hang");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    fake_sandbox_kill(f->sandbox, "python"); // and nobody says so
    RUN_UNTIL(f, loop_timer_active(f->kernel->process.ending));
    virtual_clock_advance(f->loop, 1000);
    run_until_done(f, execution);
    assert_done(execution, "died", true);
    assert_last_error(execution, "KernelDied", "lost the kernel's channels");
}

static void
test_free_while_it_runs(void **state)
{
    struct fixture *f = *state;
    start_ready_kernel(f);
    KG_AUTO(execution) running = execute(f, "hang");
    KG_AUTO(execution) queued = execute(f, "print");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    kernel_free(KG_STEAL(f->kernel), NULL);
    assert_int_equal(f->done, 2);
    assert_done(running, "died", false);
    assert_last_error(running, "KernelDied", "the session was ended");
    assert_done(queued, "died", false);
    assert_last_error(queued, "KernelDied", "the session was ended");
    execution_interrupt(running);
}

int
test_kernel_stop(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_timeout_interrupts),
        TEST(test_timeout_kills_what_cannot_be_interrupted),
        TEST(test_reply_without_idle),
        TEST(test_interrupt),
        TEST(test_an_interrupt_that_is_missed),
        TEST(test_interrupt_by_message),
        TEST(test_nothing_starts_while_a_signal_is_under_way),
        TEST(test_interrupt_before_the_code),
        TEST(test_restart),
        TEST(test_restart_that_fails),
        TEST(test_restart_without_an_agent),
        TEST(test_restart_while_it_starts),
        TEST(test_killed),
        TEST(test_out_of_memory),
        TEST(test_last_output),
        TEST(test_links_that_do_not_end),
        TEST(test_execution_after_the_last_output),
        TEST(test_it_ends_while_idle),
        TEST(test_code_that_exits),
        TEST(test_code_that_only_says_that_it_exits),
        TEST(test_channels_are_lost),
        TEST(test_free_while_it_runs),
    };
    return cmocka_run_group_tests_name("kernel: stop", tests, NULL, NULL);
}
