// SPDX-License-Identifier: Apache-2.0
// How a kernel gets ready, or does not.

#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "virtual_clock.h"

static void
test_ready(void **state)
{
    struct fixture *f = *state;
    start_kernel(f);
    assert_int_equal(kernel_state(f->kernel), KERNEL_STARTING);
    assert_false(kernel_has_started(f->kernel));
    RUN_UNTIL(f, f->started > 0);
    assert_int_equal(f->start_err.code, KG_OK);
    assert_int_equal(kernel_state(f->kernel), KERNEL_READY);
    assert_true(kernel_has_started(f->kernel));
    assert_false(kernel_is_busy(f->kernel));
    assert_string_equal(fake_journal(), "start python\n");

    json_auto_t *expected = json_pack("{s:s, s:s, s:s}", "A", "every kernel's", "B",
                                      "the kernelspec's", "C", "the session's");
    assert_true(json_equal(fake_sandbox_env(f->sandbox, "python"), expected));
}

static void
assert_failed(struct fixture *f, const char *message_part)
{
    RUN_UNTIL(f, f->started > 0);
    assert_int_equal(f->start_err.code, KG_KERNEL_START_TIMEOUT);
    if (!strstr(f->start_err.message, message_part))
        fail_msg("\"%s\" lacks \"%s\"", f->start_err.message, message_part);
    assert_int_equal(kernel_state(f->kernel), KERNEL_DEAD);
    assert_int_equal(f->started, 1);
}

static void
test_the_agent_refuses(void **state)
{
    struct fixture *f = *state;
    fake_script.refuse_start = true;
    start_kernel(f);
    KG_AUTO(execution) execution = execute(f, "print");
    assert_failed(f, "the agent has no program for it");
    assert_done(execution, "died", false);
    assert_last_error(execution, "KernelDied", "no program");
}

static void
test_the_agent_cannot_be_asked(void **state)
{
    struct fixture *f = *state;
    fake_script.refuse_calls = true;
    start_kernel(f);
    assert_int_equal(f->started, 0);
    assert_failed(f, "the agent cannot be asked");
}

static void
test_it_never_answers(void **state)
{
    struct fixture *f = *state;
    fake_script.mute = true;
    fake_script.log_tail = "first line\nModuleNotFoundError: \x1b[31mipykernel\n\n";
    f->context.start_timeout_ms = 300;
    start_kernel(f);
    assert_failed(f, "did not get ready");
    assert_non_null(strstr(f->start_err.message, "; it said: ModuleNotFoundError: ?[31mipykernel"));
}

// What this side cannot do is not tried again and again.
static void
test_no_channel_can_be_made(void **state)
{
    struct fixture *f = *state;
    start_kernel(f);
    RUN_UNTIL(f, f->kernel->process.channels);
    assert_int_equal(path_remove_tree(f->kernel->process.dir, NULL), 0);
    assert_failed(f, "cannot listen");
}

static void
test_it_ends_before_it_is_ready(void **state)
{
    struct fixture *f = *state;
    fake_script.refuse_links = true;
    start_kernel(f);
    RUN_UNTIL(f, f->kernel->process.pid > 0);
    fake_sandbox_kill(f->sandbox, "python");
    fake_sandbox_tell_exit(f->sandbox, "python", f->kernel->process.pid, 3, 0, false);
    assert_failed(f, "ended before it was ready (code 3, signal 0)");
}

static void
test_links_are_tried_again(void **state)
{
    struct fixture *f = *state;
    fake_script.refuse_links = true;
    start_kernel(f);
    RUN_UNTIL(f, loop_timer_active(f->kernel->process.start.retry));
    RUN_UNTIL(f, !loop_timer_active(f->kernel->process.start.retry));
    fake_script.refuse_links = false;
    RUN_UNTIL(f, f->started > 0);
    assert_int_equal(f->start_err.code, KG_OK);
}

static void
test_a_dead_kernel_is_started_by_the_next_execution(void **state)
{
    struct fixture *f = *state;
    fake_script.refuse_start = true;
    start_kernel(f);
    RUN_UNTIL(f, f->started > 0);
    fake_script.refuse_start = false;
    KG_AUTO(execution) execution = execute(f, "print");
    assert_true(kernel_is_busy(f->kernel));
    run_until_done(f, execution);
    assert_done(execution, "ok", false);
    assert_int_equal(f->started, 1);
    assert_true(kernel_has_started(f->kernel));
}

// Every turn of the loop is one more step; the fake sandbox keeps the processes of the earlier
// ones.
static void
test_free_at_every_step_of_the_start(void **state)
{
    struct fixture *f = *state;
    for (int turns = 0; turns < 8; turns++) {
        start_kernel(f);
        KG_AUTO(execution) execution = execute(f, "hang");
        for (int i = 0; i < turns; i++)
            fixture_turn(f);
        kernel_free(KG_STEAL(f->kernel), "the test is over");
        assert_done(execution, "died", false);
        assert_last_error(execution, "KernelDied", "the test is over");
    }
}

// ---- Adopted ones ---------------------------------------------------------------------------

static void
assert_replaced(struct fixture *f)
{
    KG_AUTO(execution) execution = execute(f, "print");
    run_until_done(f, execution);
    assert_done(execution, "ok", false);
    assert_string_equal(fake_journal(), "stop python\nstart python\nrun print\n");
    assert_false(kernel_is_busy(f->kernel));
}

static void
test_an_adopted_one_ends_before_it_answers(void **state)
{
    struct fixture *f = *state;
    adopt_busy_kernel(f, DEADLINE_MS);
    int pid = fake_sandbox_pid(f->sandbox, "python");
    fake_sandbox_kill(f->sandbox, "python");
    fake_sandbox_tell_exit(f->sandbox, "python", pid, 1, 0, false);
    RUN_UNTIL(f, kernel_state(f->kernel) == KERNEL_READY);
    assert_false(kernel_is_busy(f->kernel));
    assert_string_equal(fake_journal(), "stop python\nstart python\n");
}

static void
test_an_adopted_one_whose_channels_are_lost(void **state)
{
    struct fixture *f = *state;
    adopt_busy_kernel(f, DEADLINE_MS);
    RUN_UNTIL(f, f->kernel->process.start.channel == JUPYTER_STDIN);
    fake_sandbox_kill(f->sandbox, "python");
    RUN_UNTIL(f, loop_timer_active(f->kernel->process.ending));
    virtual_clock_advance(f->loop, 1000);
    assert_replaced(f);
}

// As where it has ended between what the agent told of it and its events.
static void
test_an_adopted_one_cannot_be_reached(void **state)
{
    struct fixture *f = *state;
    f->context.start_timeout_ms = 300;
    adopt_busy_kernel(f, DEADLINE_MS);
    fake_sandbox_kill(f->sandbox, "python");
    f->context.start_timeout_ms = DEADLINE_MS;
    assert_replaced(f);
}

static void
test_an_adopted_one_takes_too_long(void **state)
{
    struct fixture *f = *state;
    adopt_busy_kernel(f, 300);
    assert_replaced(f);
}

int
test_kernel_start(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ready, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_the_agent_refuses, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_the_agent_cannot_be_asked, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_it_never_answers, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_no_channel_can_be_made, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_it_ends_before_it_is_ready, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_links_are_tried_again, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_dead_kernel_is_started_by_the_next_execution,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_an_adopted_one_ends_before_it_answers, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_an_adopted_one_whose_channels_are_lost, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_an_adopted_one_cannot_be_reached, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_an_adopted_one_takes_too_long, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_free_at_every_step_of_the_start, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("kernel: start", tests, NULL, NULL);
}
