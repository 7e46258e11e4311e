// SPDX-License-Identifier: Apache-2.0
// Sessions out of a pool of two.

#include "pool.h"
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
    assert_int_equal(sessions_check_ready(f->sessions, NULL), 0);
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
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 1);
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

// Another gateway keeps sandboxes ready for all.
static void
test_a_pool_that_is_not_filled_here(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    sessions_set_pool_filling(f->sessions, false);
    assert_int_equal(sessions_pool_target(f->sessions), 0);
    RUN_UNTIL(f, fake_journal_count("hand over") == 2);
    assert_int_equal(sessions_n_pooled(f->sessions), 0);
    assert_int_equal(sessions_check_ready(f->sessions, NULL), 0);
    fake_script.n_free = 1;
    struct opener opener = {0};
    struct session_request request = named(f, "s1");
    start(f, &opener, &request);
    RUN_UNTIL(f, fake_journal_count("take") == 1);
    fake_sandbox_run(fake_sandboxes_last(), "k0");
    RUN_UNTIL(f, opener.answers == 1);
    assert_int_equal(opener.err.code, KG_OK);
    assert_string_equal(sandbox_id(session_sandbox(opener.session)), "taken");
    assert_int_equal(fake_journal_count("destroy"), 0);
    sessions_set_pool_filling(f->sessions, true);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
}

// Once each, and not what goes to a request.
static void
test_what_is_ready_is_offered(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, fake_script.n_offered == 2);
    assert_int_equal(sessions_n_pooled(f->sessions), 2);
    struct opener opener = {0};
    open_named(f, &opener, "s1");
    assert_int_equal(opener.err.code, KG_OK);
    RUN_UNTIL(f, fake_script.n_offered == 3);
    assert_int_equal(sessions_n_pooled(f->sessions), 2);
}

// As long as the engine's sandboxes are not what they must be.
static void
test_it_is_not_ready(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    fake_script.is_open = true;
    assert_int_equal(sessions_check_ready(f->sessions, &err), -1);
    assert_string_equal(err.message, "sandboxes reach the API server");
    struct opener first = {0}, second = {0}, refused = {0}, later = {0};
    open_named(f, &first, "s1"); // from the pool, which is not filled again
    open_named(f, &second, "s2");
    assert_true(first.err.code == KG_OK && second.err.code == KG_OK);
    open_named(f, &refused, "s3");
    assert_string_equal(refused.err.message, "sandboxes reach the API server");
    assert_int_equal(fake_sandboxes_count(), 2);
    fake_script.is_open = false;
    assert_int_equal(sessions_check_ready(f->sessions, &err), 0);
    open_named(f, &later, "s3");
    assert_int_equal(later.err.code, KG_OK);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
}

// What was to be its sandbox is used for the next session.
static void
test_a_name_is_refused(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    fake_script.refuse_name = true;
    struct opener refused = {0}, opener = {0};
    open_named(f, &refused, "s1");
    assert_int_equal(refused.err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(sessions_count(f->sessions), 0);
    assert_int_equal(sessions_n_pooled(f->sessions), 2);
    fake_script.refuse_name = false;
    open_named(f, &opener, "s1");
    assert_int_equal(opener.err.code, KG_OK);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    RUN_UNTIL(f, fake_sandboxes_count() == 3);
}

// It is made up for, and the next start does not wait.
static void
test_a_pooled_sandbox_is_taken(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    fake_script.lost = true;
    fake_sandbox_gone(fake_sandboxes_last());
    assert_int_equal(sessions_check_ready(f->sessions, NULL), 0);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
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
    assert_int_equal(sessions_check_ready(f->sessions, NULL), -1);

    fake_script.refuse_create = false;
    open_named(f, &served, "s1");
    assert_int_equal(served.err.code, KG_OK);
    RUN_UNTIL(f, sessions_n_pooled(f->sessions) == 2);
    assert_int_equal(sessions_check_ready(f->sessions, NULL), 0);
}

// ---- With bare sandboxes, as with kernels by fork -------------------------------------------

// Asks for sessions named s1, s2, …
static void
start_all(struct fixture *f, struct opener *openers, size_t n)
{
    static const char *const names[] = {"s1", "s2", "s3", "s4"};
    assert_true(n <= KG_ARRAY_LEN(names));
    for (size_t i = 0; i < n; i++) {
        struct session_request request = named(f, names[i]);
        start(f, &openers[i], &request);
    }
}

static void
test_bare_ones_wait_beside_it(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, fake_sandboxes_count() == 3 && sessions_n_pooled(f->sessions) == 1);
    assert_int_equal(sessions_n_starting(f->sessions), 0);
    assert_string_equal(fake_journal(), "start k0\n");
}

// No sandbox gets ready any more: what a session waits for is its kernel, at most.
static void
test_a_burst_takes_the_bare_ones(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, fake_sandboxes_count() == 3 && sessions_n_pooled(f->sessions) == 1);
    fake_script.hold_ready = true;
    fake_journal_clear();
    struct opener openers[3] = {0};
    start_all(f, openers, KG_ARRAY_LEN(openers));
    for (size_t i = 0; i < KG_ARRAY_LEN(openers); i++) {
        RUN_UNTIL(f, openers[i].answers > 0);
        assert_int_equal(openers[i].err.code, KG_OK);
    }
    assert_int_equal(fake_journal_count("start k0"), 2);
    assert_int_equal(fake_journal_count("claim"), 3);
}

static void
test_another_language_takes_a_bare_one(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, fake_sandboxes_count() == 3 && sessions_n_pooled(f->sessions) == 1);
    fake_script.hold_ready = true;
    struct opener opener = {0};
    struct session_request request = named(f, "s1");
    request.kernelspec = kernelspecs_at(f->specs, 1);
    open_request(f, &opener, &request);
    assert_int_equal(opener.err.code, KG_OK);
    assert_int_equal(sessions_n_pooled(f->sessions), 1);
}

// A kernel that is ready is of no use to these.
static void
test_more_bare_ones_are_made_for_other_languages(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, fake_sandboxes_count() == 3 && sessions_n_pooled(f->sessions) == 1);
    struct opener openers[3] = {0};
    static const char *const names[] = {"s1", "s2", "s3"};
    for (size_t i = 0; i < KG_ARRAY_LEN(openers); i++) {
        struct session_request request = named(f, names[i]);
        request.kernelspec = kernelspecs_at(f->specs, 1);
        start(f, &openers[i], &request);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(openers); i++) {
        RUN_UNTIL(f, openers[i].answers > 0);
        assert_int_equal(openers[i].err.code, KG_OK);
    }
    RUN_UNTIL(f, fake_sandboxes_count() == 6 && sessions_n_pooled(f->sessions) == 1);
}

// Asks for more sessions than there are kernels, while no further kernel gets ready: one fork has
// begun, and all is as it was a while later.
static void
hold_the_first_fork(struct fixture *f, struct opener *openers, size_t n)
{
    RUN_UNTIL(f, fake_sandboxes_count() == 3 && sessions_n_pooled(f->sessions) == 1);
    fake_script.mute = true;
    fake_journal_clear();
    start_all(f, openers, n);
    RUN_UNTIL(f, openers[0].answers > 0 && fake_journal_count("start k0") == 1);
    for (int i = 0; i < 20; i++)
        session_turn(f);
    assert_int_equal(fake_sandboxes_count(), 3);
    assert_int_equal(fake_journal_count("start k0"), 1);
    for (size_t i = 1; i < n; i++) {
        assert_int_equal(openers[i].answers, 0);
        session_open_cancel(openers[i].open);
    }
}

// Nor are the pool's places filled again meanwhile.
static void
test_kernels_start_one_at_a_time(void **state)
{
    struct opener openers[3] = {0};
    hold_the_first_fork(*state, openers, KG_ARRAY_LEN(openers));
}

// The last session has no sandbox yet; it is made when none waits for its fork.
static void
test_forks_come_before_more_sandboxes(void **state)
{
    struct opener openers[4] = {0};
    hold_the_first_fork(*state, openers, KG_ARRAY_LEN(openers));
}

static void
test_bare_ones_that_end_are_replaced(void **state)
{
    struct fixture *f = *state;
    RUN_UNTIL(f, fake_sandboxes_count() == 3 && sessions_n_pooled(f->sessions) == 1);
    fake_sandbox_gone(fake_sandboxes_last());
    RUN_UNTIL(f, fake_sandboxes_count() == 3);
    assert_int_equal(sessions_n_pooled(f->sessions), 1);
}

static void
test_its_size(void **state)
{
    static const int64_t GIB = INT64_C(1) << 30;
    static const struct {
        int64_t size, n_bare, max_sessions, memory, n_processors;
        bool forks;
        struct pool_size found;
    } cases[] = {
        {-1, -1, 10, 8 * GIB, 8, false, {2, 0}},   // by exec, whatever the machine has
        {5, 3, 10, 8 * GIB, 8, false, {5, 0}},     //
        {-1, -1, 10, 2 * GIB, 8, true, {4, 6}},    // one for each 512 MiB
        {-1, -1, 100, 2 * GIB, 8, true, {4, 8}},   // twice as many bare ones
        {-1, -1, 100, 24 * GIB, 2, true, {8, 16}}, // four for each processor
        {-1, -1, 100, 64 * GIB, 1, true, {4, 8}},  //
        {-1, -1, 10, 64 * GIB, 64, true, {10, 0}}, // no more than there can be sessions
        {-1, -1, 10, GIB / 2, 2, true, {2, 4}},    //
        {-1, -1, 1, 8 * GIB, 2, true, {2, 0}},     //
        {3, -1, 10, 8 * GIB, 2, true, {3, 6}},     // what is said wins
        {3, 1, 10, 8 * GIB, 2, true, {3, 1}},      //
        {0, -1, 10, 8 * GIB, 2, true, {0, 0}},     //
        {20, -1, 10, 8 * GIB, 2, true, {20, 0}},   //
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        struct pool_size found =
            pool_size_for(cases[i].size, cases[i].n_bare, cases[i].max_sessions, cases[i].memory,
                          cases[i].n_processors, cases[i].forks);
        assert_int_equal(found.size, cases[i].found.size);
        assert_int_equal(found.n_bare, cases[i].found.n_bare);
    }
}

int
test_session_pool(void)
{
#define BARE(fn) cmocka_unit_test_setup_teardown(fn, session_setup_with_bare, session_teardown)
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, session_setup_with_pool, session_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_it_fills_and_is_filled_again),
        TEST(test_a_session_of_its_own_kind_takes_no_pooled_kernel),
        BARE(test_bare_ones_wait_beside_it),
        BARE(test_a_burst_takes_the_bare_ones),
        BARE(test_another_language_takes_a_bare_one),
        BARE(test_more_bare_ones_are_made_for_other_languages),
        BARE(test_kernels_start_one_at_a_time),
        BARE(test_forks_come_before_more_sandboxes),
        BARE(test_bare_ones_that_end_are_replaced),
        cmocka_unit_test(test_its_size),
        TEST(test_a_pool_that_is_not_filled_here),
        TEST(test_a_pooled_sandbox_is_taken),
        TEST(test_what_is_ready_is_offered),
        TEST(test_it_is_not_ready),
        TEST(test_a_name_is_refused),
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
