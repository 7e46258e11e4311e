// SPDX-License-Identifier: Apache-2.0
// Sessions out of a pool of two.

#include "test_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void
test_it_fills_and_is_filled_again(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    assert_true(sessions_can_open(f->sessions));
    assert_int_equal(sessions_count(f->sessions), 0);
    assert_string_equal(fake_journal(), "start k0\nstart k0\n");

    // What is taken was there; another one takes its place.
    struct opener opener = {.code = "print"};
    open_named(f, &opener, "s1");
    assert_int_equal(opener.err.code, KG_OK);
    assert_int_equal(fake_journal_count("claim"), 1);
    RUN_UNTIL(f, execution_state(opener.execution) == EXECUTION_DONE);
    execution_unref(opener.execution);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    assert_int_equal(fake_sandboxes_count(), 3);
    assert_int_equal(fake_journal_count("start k0"), 3);
}

static void
test_a_session_of_its_own_kind_takes_no_pooled_kernel(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    struct opener other = {0}, with_env = {0};
    struct session_request request = named(f, "s1");
    request.kernelspec = kernelspecs_at(f->specs, 1);
    open_request(f, &other, &request);
    assert_int_equal(other.err.code, KG_OK);
    assert_ptr_equal(kernel_spec(other.kernel), request.kernelspec);

    struct session_request own_env = named(f, "s2");
    json_auto_t *env = json_pack("{s:s}", "A", "1");
    own_env.env = env;
    open_request(f, &with_env, &own_env);
    assert_int_equal(with_env.err.code, KG_OK);
    const json_t *given = fake_sandbox_env(session_sandbox(with_env.session), "k0");
    assert_string_equal(json_string_value(json_object_get(given, "A")), "1");
}

// A kernel that ends while it waits is not handed to anybody.
static void
test_a_pooled_kernel_dies(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    struct sandbox *sandbox = fake_sandboxes_last();
    int pid = fake_sandbox_pid(sandbox, "k0");
    fake_sandbox_kill(sandbox, "k0");
    fake_sandbox_tell_exit(sandbox, "k0", pid, -1, 9, false);
    assert_int_equal(sessions_n_pooled(f->sessions), 1);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    RUN_UNTIL(f, fake_sandboxes_count() == 2);
    assert_int_equal(fake_journal_count("destroy"), 1);
}

// Without news of the process: its channels are lost, and the kernel is started anew.
static void
test_a_pooled_kernel_is_lost(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    fake_sandbox_kill(fake_sandboxes_last(), "k0");
    RUN_UNTIL(f, fake_journal_count("destroy") == 1);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    assert_int_equal(fake_sandboxes_count(), 2);
}

static void
test_a_warm_up_that_fails(void **state)
{
    struct fixture *f = *state;
    // It is const for all but this test.
    struct kernelspec *spec = (struct kernelspec *)(uintptr_t)kernelspecs_at(f->specs, 0);
    spec->warmup_code = kg_strdup("slow"); // is never answered
    RUN_UNTIL(f, fake_journal_count("silent slow") == 2);
    assert_int_equal(sessions_n_pooled(f->sessions), 0);
    free(spec->warmup_code);
    spec->warmup_code = NULL;
    fake_sandbox_kill(fake_sandboxes_last(), "k0");
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 1);
    RUN_UNTIL(f, fake_sandboxes_count() == 2);
    assert_int_equal(fake_journal_count("destroy"), 1);
}

static void
test_a_pooled_container_ends(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    fake_sandbox_gone(fake_sandboxes_last());
    assert_int_equal(sessions_n_pooled(f->sessions), 1);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
}

// It has ended while no gateway was there.
static void
test_an_adopted_kernel_that_has_ended(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    assert_int_equal(sessions_adopt(f->sessions, "adopted", NULL, &err), 0);
    fake_sandbox_run(fake_sandboxes_last(), "k0");
    fake_sandbox_kill(fake_sandboxes_last(), "k0");
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    RUN_UNTIL(f, fake_sandboxes_count() == 2);
    assert_int_equal(fake_journal_count("destroy"), 1);
    assert_int_equal(fake_journal_count("start k0"), 2);
}

static void
test_an_adopted_kernel_is_used(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    assert_int_equal(sessions_adopt(f->sessions, "adopted", NULL, &err), 0);
    fake_sandbox_run(fake_sandboxes_last(), "k0");
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    assert_int_equal(fake_journal_count("start k0"), 1);
}

// The gateway ends at every step of taking it up.
static void
test_release_while_one_is_adopted(void **state)
{
    struct fixture *f = *state;
    for (int turns = 0; turns < 6; turns++) {
        struct kg_error err = {0};
        assert_int_equal(sessions_adopt(f->sessions, "adopted", NULL, &err), 0);
        fake_sandbox_run(fake_sandboxes_last(), "k0");
        for (int i = 0; i < turns; i++)
            session_turn(f);
        sessions_release(f->sessions);
        sessions_free(f->sessions);
        f->sessions = sessions_new(f->loop, &f->settings);
        assert_int_equal(fake_sandboxes_count(), 0);
    }
}

// Nobody's code runs in it that would be worth waiting for.
static void
test_an_adopted_kernel_that_does_not_answer(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    f->kernels.start_timeout_ms = 1000;
    assert_int_equal(sessions_adopt(f->sessions, "adopted", NULL, &err), 0);
    fake_script.mute = true;
    fake_sandbox_run(fake_sandboxes_last(), "k0");
    fake_script.mute = false;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    assert_int_equal(fake_journal_count("stop k0"), 1);
    assert_int_equal(fake_journal_count("start k0"), 2);
}

static void
test_it_recovers_when_nothing_can_be_started(void **state)
{
    struct fixture *f = *state;
    fake_script.refuse_create = true;
    struct opener refused = {0}, served = {0};
    open_named(f, &refused, "s1");
    assert_int_equal(refused.err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(sessions_count(f->sessions), 0);
    assert_false(sessions_can_open(f->sessions));

    fake_script.refuse_create = false;
    open_named(f, &served, "s1");
    assert_int_equal(served.err.code, KG_OK);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    assert_true(sessions_can_open(f->sessions));
}

int
test_session_pool(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, session_setup_with_pool, session_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_it_fills_and_is_filled_again),
        TEST(test_a_session_of_its_own_kind_takes_no_pooled_kernel),
        TEST(test_a_pooled_kernel_dies),
        TEST(test_a_pooled_kernel_is_lost),
        TEST(test_a_warm_up_that_fails),
        TEST(test_a_pooled_container_ends),
        TEST(test_an_adopted_kernel_that_has_ended),
        TEST(test_an_adopted_kernel_is_used),
        TEST(test_release_while_one_is_adopted),
        TEST(test_an_adopted_kernel_that_does_not_answer),
        TEST(test_it_recovers_when_nothing_can_be_started),
    };
    return cmocka_run_group_tests_name("session: pool", tests, NULL, NULL);
}
