// SPDX-License-Identifier: Apache-2.0
// Sessions: restarts, ends of every kind, expiry.

#include "test_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "virtual_clock.h"

// ---- Restart --------------------------------------------------------------------------------

static void
on_restarted(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->restarted++;
    f->restart_err = err ? *err : (struct kg_error){0};
}

static void
test_restart(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    struct opener opener = {.code = "stubborn"}, second = {0};
    open_named(f, &opener, "s1");
    struct session_request request = named(f, "s1");
    request.kernelspec = kernelspecs_at(f->specs, 1);
    open_request(f, &second, &request);
    RUN_UNTIL(f, fake_journal_count("run stubborn") == 1);
    assert_int_equal(session_restart(opener.session, on_restarted, f, &err), 0);
    assert_int_equal(session_restart(opener.session, on_restarted, f, &err), -1);
    assert_int_equal(err.code, KG_SESSION_BUSY);
    RUN_UNTIL(f, f->restarted > 0);
    assert_int_equal(f->restart_err.code, KG_OK);
    assert_int_equal(execution_state(opener.execution), EXECUTION_DONE);
    execution_unref(opener.execution);
    assert_int_equal(fake_journal_count("start k0"), 2);
    assert_int_equal(fake_journal_count("start k1"), 2);
    assert_int_equal(f->restarted, 1);
}

static void
test_end_during_a_restart(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    struct opener opener = {0};
    open_named(f, &opener, "s1");
    fake_script.hold_stop = true;
    assert_int_equal(session_restart(opener.session, on_restarted, f, &err), 0);
    session_end(opener.session, NULL, on_ended, f);
    RUN_UNTIL(f, f->ended > 0);
    assert_int_equal(f->restarted, 1);
    assert_int_equal(f->restart_err.code, KG_SESSION_NOT_FOUND);
}

// The only kernel is being replaced already. Whoever was refused is not told of anything later.
static void
test_end_after_a_refused_restart(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    struct opener opener = {.code = "die"};
    fake_script.hold_stop = true;
    open_named(f, &opener, "s1");
    RUN_UNTIL(f, kernel_state(opener.kernel) == KERNEL_RESTARTING);
    assert_int_equal(session_restart(opener.session, on_restarted, f, &err), -1);
    assert_int_equal(err.code, KG_SESSION_BUSY);
    session_end(opener.session, NULL, on_ended, f);
    RUN_UNTIL(f, f->ended > 0);
    assert_int_equal(f->restarted, 0);
    execution_unref(opener.execution);
}

// ---- One-shot sessions ----------------------------------------------------------------------

static struct session_request
one_shot(struct fixture *f)
{
    struct session_request request = named(f, NULL);
    request.one_shot = true;
    return request;
}

static void
test_one_shot_ends_with_its_execution(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {.code = "print"};
    const struct session_request request = one_shot(f);
    open_request(f, &opener, &request);
    assert_int_equal(sessions_count(f->sessions), 1);
    RUN_UNTIL(f, fake_sandboxes_count() == 0);
    assert_int_equal(execution_state(opener.execution), EXECUTION_DONE);
    execution_unref(opener.execution);
    assert_int_equal(sessions_count(f->sessions), 0);
    assert_int_equal(fake_journal_count("run print"), 1);
}

// At every step of the way.
static void
test_one_shot_ends_when_nobody_waits(void **state)
{
    struct fixture *f = *state;
    for (int turns = 0, answered = 0; !answered; turns++) {
        struct opener opener = {0};
        const struct session_request request = one_shot(f);
        start(f, &opener, &request);
        for (int i = 0; i < turns && opener.open; i++)
            session_turn(f);
        answered = opener.answers;
        if (opener.open)
            session_open_cancel(opener.open);
        // A session that has just been handed out ends in a later turn.
        for (int i = 0; i < 100 && sessions_count(f->sessions) > 0; i++)
            session_turn(f);
        assert_int_equal(sessions_count(f->sessions), 0);
    }
}

static void
on_open_refused(struct session *session, struct kernel *kernel, const struct kg_error *err,
                void *arg)
{
    struct opener *opener = arg;
    json_auto_t *variables = json_pack("{s:i}", "x", 1);
    assert_null(err);
    opener->answers++;
    opener->session = session;
    opener->kernel = kernel;
    assert_null(execute(opener, "print", variables, &opener->err));
}

// k1 takes no variables: the code never runs, and the session has nothing to live for.
static void
test_one_shot_whose_execution_is_refused(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {.f = f};
    struct session_request request = one_shot(f);
    request.kernelspec = kernelspecs_at(f->specs, 1);
    assert_non_null(
        session_open_start(f->sessions, &request, on_open_refused, &opener, &opener.err));
    RUN_UNTIL(f, opener.answers > 0);
    assert_int_equal(opener.err.code, KG_INVALID);
    RUN_UNTIL(f, sessions_count(f->sessions) == 0);
}

// Somebody else knows its id, and loses patience.
static void
test_one_shot_outlives_a_second_opener(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {.code = "hang"}, second = {0};
    const struct session_request request = one_shot(f);
    open_request(f, &opener, &request);
    fake_script.mute = true;
    struct session_request other = named(f, session_id(opener.session));
    other.kernelspec = kernelspecs_at(f->specs, 1);
    start(f, &second, &other);
    session_open_cancel(second.open);
    assert_int_equal(sessions_count(f->sessions), 1);
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    assert_int_equal(execution_state(opener.execution), EXECUTION_RUNNING);
    session_interrupt(opener.session);
    RUN_UNTIL(f, sessions_count(f->sessions) == 0);
    execution_unref(opener.execution);
}

// ---- Ends -----------------------------------------------------------------------------------

static void
test_end(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {.code = "hang"};
    open_named(f, &opener, "s1");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    session_end(opener.session, NULL, on_ended, f);
    assert_null(sessions_find(f->sessions, "me", "s1", NULL));
    assert_int_equal(execution_state(opener.execution), EXECUTION_DONE);
    execution_unref(opener.execution);
    assert_int_equal(f->ended, 0);

    // The name is free at once.
    struct opener next = {0};
    open_named(f, &next, "s1");
    assert_int_equal(next.err.code, KG_OK);
    assert_int_equal(f->ended, 1);
}

static void
check_end_while_opening(struct fixture *f, int turns)
{
    struct opener openers[2] = {0};
    const struct session_request request = named(f, "s1");
    start(f, &openers[0], &request);
    start(f, &openers[1], &request);
    for (int i = 0; i < turns; i++)
        session_turn(f);
    assert_int_equal(openers[0].answers, 0);
    session_end(sessions_find(f->sessions, "me", "s1", NULL), NULL, on_ended, f);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(openers[i].answers, 1);
        assert_int_equal(openers[i].err.code, KG_SESSION_NOT_FOUND);
    }
    RUN_UNTIL(f, f->ended > 0);
    f->ended = 0;
}

static void
test_end_while_opening(void **state)
{
    struct fixture *f = *state;
    fake_script.mute = true;
    for (int turns = 0; turns < 8; turns++)
        check_end_while_opening(f, turns);
    fake_script.hold_ready = true;
    check_end_while_opening(f, 0);
}

static void
test_release_leaves_nothing_behind(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {.code = "hang"}, waiting = {0};
    open_named(f, &opener, "s1");
    fake_script.hold_ready = true;
    const struct session_request request = named(f, "s2");
    start(f, &waiting, &request);
    fake_journal_clear();
    sessions_release(f->sessions);
    assert_int_equal(sessions_count(f->sessions), 0);
    assert_int_equal(waiting.answers, 1);
    assert_int_equal(execution_state(opener.execution), EXECUTION_DONE);
    execution_unref(opener.execution);
    assert_int_equal(fake_journal_count("destroy"), 0);
}

// ---- Expiry ---------------------------------------------------------------------------------

static void
open_for_a_second(struct fixture *f, struct opener *opener, const char *id)
{
    struct session_request request = named(f, id);
    request.idle_timeout_s = 1;
    open_request(f, opener, &request);
}

static void
assert_expires_after_a_second(struct fixture *f, const char *id)
{
    virtual_clock_advance(f->loop, 900);
    assert_non_null(sessions_find(f->sessions, "me", id, NULL));
    virtual_clock_advance(f->loop, 100);
    assert_null(sessions_find(f->sessions, "me", id, NULL));
}

static void
test_expiry(void **state)
{
    struct fixture *f = *state;
    struct opener idle = {0}, touched = {0}, busy = {.code = "hang"};
    open_for_a_second(f, &busy, "busy");
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    open_for_a_second(f, &idle, "idle");
    assert_expires_after_a_second(f, "idle");

    open_for_a_second(f, &touched, "touched");
    virtual_clock_advance(f->loop, 900);
    session_touch(touched.session);
    assert_expires_after_a_second(f, "touched");

    // A running execution keeps its session, which is idle from its end on.
    virtual_clock_advance(f->loop, 10 * 1000);
    assert_non_null(sessions_find(f->sessions, "me", "busy", NULL));
    assert_int_equal(execution_state(busy.execution), EXECUTION_RUNNING);
    session_interrupt(busy.session);
    RUN_UNTIL(f, execution_state(busy.execution) == EXECUTION_DONE);
    execution_unref(busy.execution);
    assert_expires_after_a_second(f, "busy");
    RUN_UNTIL(f, fake_sandboxes_count() == 0);
}

// What runs without a client keeps its session, but for a day only, and no shutdown waits for it.
static void
test_what_runs_alone(void **state)
{
    struct fixture *f = *state;
    struct opener alone = {0}, again = {0};
    open_for_a_second(f, &alone, "alone");
    fake_script.activity = (struct sandbox_activity){.n_running = 1, .working = true};
    assert_false(sessions_are_busy(f->sessions));
    assert_false(session_is_idle(alone.session));
    virtual_clock_advance(f->loop, 24 * 3600 * 1000 - 1000);
    assert_non_null(sessions_find(f->sessions, "me", "alone", NULL));
    virtual_clock_advance(f->loop, 3 * 1000);
    assert_null(sessions_find(f->sessions, "me", "alone", NULL));

    // Nor does it keep the session once it has ended.
    open_for_a_second(f, &again, "again");
    virtual_clock_advance(f->loop, 10 * 1000);
    assert_non_null(sessions_find(f->sessions, "me", "again", NULL));
    fake_script.activity = (struct sandbox_activity){.n_terminals = 1};
    virtual_clock_advance(f->loop, 2 * 1000);
    assert_null(sessions_find(f->sessions, "me", "again", NULL));
    RUN_UNTIL(f, fake_sandboxes_count() == 0);
}

// ---- Callbacks that change the session they are called for -----------------------------------

static void
test_an_answer_cancels_the_next_open(void **state)
{
    struct fixture *f = *state;
    struct opener first = {0}, second = {0}, third = {0};
    const struct session_request request = named(f, "s1");
    first.cancels = &second;
    start(f, &first, &request);
    start(f, &second, &request);
    start(f, &third, &request);
    RUN_UNTIL(f, third.answers > 0);
    assert_int_equal(first.answers, 1);
    assert_int_equal(second.answers, 0);
    assert_ptr_equal(third.session, first.session);
}

static void
test_a_failure_cancels_the_next_open(void **state)
{
    struct fixture *f = *state;
    struct opener first = {0}, second = {0}, third = {0};
    const struct session_request request = named(f, "s1");
    fake_script.refuse_start = true;
    first.cancels = &second;
    start(f, &first, &request);
    start(f, &second, &request);
    start(f, &third, &request);
    RUN_UNTIL(f, third.answers > 0);
    assert_int_equal(first.err.code, third.err.code);
    assert_int_not_equal(third.err.code, KG_OK);
    assert_int_equal(first.answers, 1);
    assert_int_equal(second.answers, 0);
    fake_script.refuse_start = false;
}

static void
test_an_answer_ends_the_session(void **state)
{
    struct fixture *f = *state;
    struct opener first = {.ends = true}, second = {0};
    const struct session_request request = named(f, "s1");
    start(f, &first, &request);
    start(f, &second, &request);
    RUN_UNTIL(f, f->ended > 0);
    assert_int_equal(first.answers, 1);
    assert_int_equal(second.answers, 1);
    assert_int_equal(second.err.code, KG_SESSION_NOT_FOUND);
    assert_int_equal(sessions_count(f->sessions), 0);
}

static void
test_a_failed_one_shot_is_ended_once(void **state)
{
    struct fixture *f = *state;
    struct opener first = {0}, second = {0};
    struct session_request request = named(f, "s1");
    request.one_shot = true;
    fake_script.hold_ready = true;
    first.cancels = &second;
    start(f, &first, &request);
    start(f, &second, &request);
    session_end(sessions_find(f->sessions, "me", "s1", NULL), NULL, on_ended, f);
    assert_int_equal(first.answers, 1);
    assert_int_equal(second.answers, 0);
    assert_int_equal(f->ended, 1);
}

int
test_session_end(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, session_setup, session_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_restart),
        TEST(test_end_during_a_restart),
        TEST(test_end_after_a_refused_restart),
        TEST(test_one_shot_ends_with_its_execution),
        TEST(test_one_shot_ends_when_nobody_waits),
        TEST(test_one_shot_whose_execution_is_refused),
        TEST(test_one_shot_outlives_a_second_opener),
        TEST(test_end),
        TEST(test_end_while_opening),
        TEST(test_release_leaves_nothing_behind),
        TEST(test_expiry),
        TEST(test_what_runs_alone),
        TEST(test_an_answer_cancels_the_next_open),
        TEST(test_a_failure_cancels_the_next_open),
        TEST(test_an_answer_ends_the_session),
        TEST(test_a_failed_one_shot_is_ended_once),
    };
    return cmocka_run_group_tests_name("session: end", tests, NULL, NULL);
}
