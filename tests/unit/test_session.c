// SPDX-License-Identifier: Apache-2.0
// Sessions over fake sandboxes: opening, sharing, owners, expiry, ends of every kind.

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <event2/event.h>

#include "fake_sandbox.h"
#include "jupyter.h"
#include "session.h"

enum { DEADLINE_MS = 40 * 1000, MAX_SESSIONS = 3, N_SPECS = 9 };

struct fixture {
    struct loop *loop;
    struct loop_timer *deadline;
    bool timed_out;
    char dir[32];
    struct kernelspecs *specs; // k0 to k8; k0 alone takes variables
    struct sandbox_context sandboxes;
    struct kernel_context kernels;
    struct sessions *sessions;
    int ended, restarted;
    struct kg_error restart_err;
};

// Somebody who opens a session.
struct opener {
    struct fixture *f;
    struct session_open *open;
    struct session *session;
    struct kernel *kernel;
    struct kg_error err;
    int answers;
    const char *code; // to run at once
    struct execution *execution;
    struct opener *then; // opens when this one is answered
};

// ---- The fixture ----------------------------------------------------------------------------

static void
on_deadline(void *arg)
{
    struct fixture *f = arg;
    f->timed_out = true;
}

static void
turn(struct fixture *f)
{
    event_base_loop(loop_event_base(f->loop), EVLOOP_ONCE);
    assert_false(f->timed_out);
}

#define RUN_UNTIL(f, condition)                                                                    \
    while (!(condition))                                                                           \
    turn(f)

static void
write_specs(const char *dir)
{
    for (int i = 0; i < N_SPECS; i++) {
        KG_AUTO_FREE char *folder = kg_asprintf("%s/k%d", dir, i);
        KG_AUTO_FREE char *path = kg_asprintf("%s/kernel.json", folder);
        KG_AUTO_FREE char *json =
            kg_asprintf("{\"argv\":[\"k\"],\"language\":\"k\",\"metadata\":{\"kernelgate\":{%s}}}",
                        i == 0 ? "\"variables\":\"set {json}\"" : "");
        assert_int_equal(dir_make(folder, 0700, NULL), 0);
        assert_int_equal(file_write_atomic(path, json, strlen(json), 0600, NULL), 0);
    }
}

static int
setup(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    f->loop = loop_new();
    f->deadline = loop_timer_new(f->loop, on_deadline, f);
    loop_timer_start(f->deadline, DEADLINE_MS);
    fake_sandboxes_init(f->loop);
    strcpy(f->dir, "/tmp/kg-session-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    write_specs(f->dir);
    f->specs = kernelspecs_load(f->dir, NULL);
    assert_non_null(f->specs);
    f->sandboxes = (struct sandbox_context){.loop = f->loop};
    f->kernels = (struct kernel_context){
        .loop = f->loop,
        .executions = executions_new(f->loop, 1 << 20, 1 << 20),
        .start_timeout_ms = DEADLINE_MS,
    };
    const struct sessions_settings settings = {
        .sandboxes = &f->sandboxes,
        .kernels = &f->kernels,
        .specs = f->specs,
        .pooled_spec = kernelspecs_at(f->specs, 0),
        .max_sessions = MAX_SESSIONS,
        .idle_timeout_s = 1800,
        .sandbox_start_timeout_ms = DEADLINE_MS,
    };
    f->sessions = sessions_new(f->loop, &settings);
    sessions_start(f->sessions);
    *state = f;
    return 0;
}

static void
on_ended(void *arg)
{
    struct fixture *f = arg;
    f->ended++;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    f->ended = 0;
    f->timed_out = false;
    loop_timer_start(f->deadline, DEADLINE_MS);
    sessions_end_all(f->sessions, "the test is over", on_ended, f);
    RUN_UNTIL(f, f->ended > 0);
    assert_int_equal(fake_sandboxes_count(), 0);
    sessions_free(f->sessions);
    executions_free(f->kernels.executions);
    kernelspecs_free(f->specs);
    fake_sandboxes_fini();
    loop_timer_free(f->deadline);
    loop_free(f->loop);
    int removed = path_remove_tree(f->dir, NULL);
    free(f);
    return removed;
}

// ---- Opening --------------------------------------------------------------------------------

static struct session_request
named(struct fixture *f, const char *id)
{
    return (struct session_request){
        .owner = "me", .session_id = id, .kernelspec = kernelspecs_at(f->specs, 0)};
}

static void on_open(struct session *session, struct kernel *kernel, const struct kg_error *err,
                    void *arg);

static void
start(struct fixture *f, struct opener *opener, const struct session_request *request)
{
    opener->f = f;
    opener->open = session_open_start(f->sessions, request, on_open, opener, &opener->err);
    assert_int_equal(opener->answers, 0);
}

static struct execution *
execute(struct opener *opener, const char *code, const json_t *variables, struct kg_error *err)
{
    const struct execution_request request = {
        .owner = "me",
        .session_id = session_id(opener->session),
        .code = code,
        .variables = variables,
        .timeout_ms = DEADLINE_MS,
    };
    return kernel_execute(opener->kernel, &request, err);
}

static void
on_open(struct session *session, struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct opener *opener = arg;
    opener->answers++;
    opener->open = NULL;
    opener->session = session;
    opener->kernel = kernel;
    opener->err = err ? *err : (struct kg_error){0};
    assert_int_equal(session == NULL, err != NULL);
    assert_int_equal(kernel == NULL, err != NULL);
    if (opener->code && session)
        opener->execution = execute(opener, opener->code, NULL, &opener->err);
    if (opener->then) {
        struct session_request request = named(opener->f, "s1");
        request.kernelspec = kernelspecs_at(opener->f->specs, 1);
        start(opener->f, opener->then, &request);
    }
}

// Opens and waits for the answer.
static void
open_request(struct fixture *f, struct opener *opener, const struct session_request *request)
{
    start(f, opener, request);
    assert_non_null(opener->open);
    RUN_UNTIL(f, opener->answers > 0);
}

static void
open_named(struct fixture *f, struct opener *opener, const char *id)
{
    const struct session_request request = named(f, id);
    open_request(f, opener, &request);
}

static void
test_open_and_open_again(void **state)
{
    struct fixture *f = *state;
    struct opener first = {0}, second = {0};
    struct session_request request = named(f, "s1");
    json_auto_t *env = json_pack("{s:s}", "A", "1");
    request.env = env;
    open_request(f, &first, &request);
    assert_int_equal(first.err.code, KG_OK);
    assert_string_equal(session_id(first.session), "s1");
    assert_int_equal(fake_journal_count("claim"), 1);
    assert_int_equal(fake_journal_count("start k0"), 1);
    const json_t *kernel_env = fake_sandbox_env(session_sandbox(first.session), "k0");
    assert_string_equal(json_string_value(json_object_get(kernel_env, "A")), "1");

    open_named(f, &second, "s1");
    assert_ptr_equal(second.session, first.session);
    assert_ptr_equal(second.kernel, first.kernel);
    assert_int_equal(fake_sandboxes_count(), 1);

    struct opener unnamed = {0};
    open_named(f, &unnamed, NULL);
    assert_int_equal(strncmp(session_id(unnamed.session), "sess_", 5), 0);
    assert_int_equal(sessions_count(f->sessions), 2);
}

static void
test_concurrent_opens_share(void **state)
{
    struct fixture *f = *state;
    struct opener openers[3] = {0};
    const struct session_request request = named(f, "s1");
    for (size_t i = 0; i < 3; i++)
        start(f, &openers[i], &request);
    session_open_cancel(openers[1].open);
    RUN_UNTIL(f, openers[0].answers > 0 && openers[2].answers > 0);
    assert_int_equal(openers[1].answers, 0);
    assert_ptr_equal(openers[0].session, openers[2].session);
    assert_ptr_equal(openers[0].kernel, openers[2].kernel);
    assert_int_equal(fake_sandboxes_count(), 1);
    assert_int_equal(fake_journal_count("claim"), 1);
    assert_int_equal(fake_journal_count("start k0"), 1);
}

static void
test_session_ids(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "",
        "a b",
        "../x",
        "a/b",
        "\xc3\xa4",
        "a\n",
        "12345678901234567890123456789012345678901234567890123456789012345",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        struct kg_error err = {0};
        struct opener opener = {0};
        const struct session_request request = named(f, bad[i]);
        start(f, &opener, &request);
        assert_null(opener.open);
        assert_int_equal(opener.err.code, KG_INVALID_SESSION_ID);
        assert_null(sessions_find(f->sessions, "me", bad[i], &err));
        assert_int_equal(err.code, KG_INVALID_SESSION_ID);
    }
    struct opener longest = {0};
    open_named(f, &longest, "1234567890123456789012345678901234567890123456789012345678-_AZaz");
    assert_int_equal(longest.err.code, KG_OK);
}

static void
test_owners_do_not_meet(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    struct opener mine = {0}, other = {0};
    open_named(f, &mine, "s1");
    struct session_request request = named(f, "s1");
    request.owner = "other";
    open_request(f, &other, &request);
    assert_ptr_not_equal(mine.session, other.session);
    assert_int_equal(fake_sandboxes_count(), 2);
    assert_ptr_equal(sessions_find(f->sessions, "me", "s1", &err), mine.session);
    assert_ptr_equal(sessions_find(f->sessions, "other", "s1", &err), other.session);
    assert_null(sessions_find(f->sessions, "third", "s1", &err));
    assert_int_equal(err.code, KG_SESSION_NOT_FOUND);
    json_auto_t *all = sessions_describe(f->sessions, "me");
    assert_int_equal(json_object_size(all), 1);
    json_auto_t *none = sessions_describe(f->sessions, "third");
    assert_int_equal(json_object_size(none), 0);
}

static void
test_max_sessions(void **state)
{
    struct fixture *f = *state;
    struct opener openers[MAX_SESSIONS] = {0};
    for (size_t i = 0; i < MAX_SESSIONS; i++) {
        const char id[] = {(char)('a' + i), '\0'};
        open_named(f, &openers[i], id);
    }
    struct opener refused = {0}, again = {0}, next = {0};
    const struct session_request request = named(f, NULL);
    start(f, &refused, &request);
    assert_null(refused.open);
    assert_int_equal(refused.err.code, KG_MAX_SESSIONS);
    open_named(f, &again, "a");
    assert_int_equal(again.err.code, KG_OK);

    session_end(openers[0].session, NULL, NULL, NULL);
    open_named(f, &next, NULL);
    assert_int_equal(next.err.code, KG_OK);
}

// ---- What cannot be opened ------------------------------------------------------------------

static void
test_no_sandbox(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    fake_script.refuse_create = true;
    const struct session_request request = named(f, "s1");
    start(f, &opener, &request);
    RUN_UNTIL(f, !opener.open);
    assert_int_equal(opener.err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(sessions_count(f->sessions), 0);
}

static void
check_opening_fails(struct fixture *f, enum kg_code code)
{
    struct opener openers[2] = {0};
    const struct session_request request = named(f, "s1");
    start(f, &openers[0], &request);
    start(f, &openers[1], &request);
    RUN_UNTIL(f, openers[0].answers > 0 && openers[1].answers > 0);
    assert_int_equal(openers[0].err.code, code);
    assert_int_equal(openers[1].err.code, code);
    RUN_UNTIL(f, fake_sandboxes_count() == 0);
    assert_int_equal(sessions_count(f->sessions), 0);
    assert_null(sessions_find(f->sessions, "me", "s1", NULL));
}

static void
test_no_claim(void **state)
{
    fake_script.refuse_claim = true;
    check_opening_fails(*state, KG_DISK_FULL);
}

static void
test_no_kernel(void **state)
{
    fake_script.refuse_start = true;
    check_opening_fails(*state, KG_KERNEL_START_TIMEOUT);
}

static void
test_no_second_kernel(void **state)
{
    struct fixture *f = *state;
    struct opener first = {0}, failing = {0}, again = {0};
    open_named(f, &first, "s1");
    fake_script.refuse_start = true;
    struct session_request request = named(f, "s1");
    request.kernelspec = kernelspecs_at(f->specs, 1);
    failing.then = &again; // while the kernel that failed is still there
    open_request(f, &failing, &request);
    assert_int_equal(failing.err.code, KG_KERNEL_START_TIMEOUT);
    RUN_UNTIL(f, again.answers > 0);
    assert_int_equal(again.err.code, KG_KERNEL_START_TIMEOUT);

    fake_script.refuse_start = false;
    struct opener later = {0};
    open_request(f, &later, &request);
    assert_int_equal(later.err.code, KG_OK);
    assert_ptr_equal(sessions_find(f->sessions, "me", "s1", NULL), first.session);
}

static void
test_the_container_ends(void **state)
{
    struct fixture *f = *state;
    struct opener running = {.code = "hang"}, waiting = {0};
    open_named(f, &running, "s1");
    fake_script.mute = true;
    struct session_request request = named(f, "s1");
    request.kernelspec = kernelspecs_at(f->specs, 1);
    start(f, &waiting, &request);
    RUN_UNTIL(f, fake_journal_count("run hang") == 1 && fake_journal_count("start k1") == 1);
    fake_sandbox_gone(fake_sandboxes_last());
    assert_int_equal(waiting.answers, 1);
    assert_string_equal(waiting.err.message, "the container has ended");
    assert_int_equal(execution_state(running.execution), EXECUTION_DONE);
    execution_unref(running.execution);
    assert_int_equal(sessions_count(f->sessions), 0);
}

// ---- Kernels --------------------------------------------------------------------------------

static void
test_several_kernels(void **state)
{
    struct fixture *f = *state;
    struct opener openers[N_SPECS] = {0};
    struct session_request request = named(f, "s1");
    for (size_t i = 0; i < N_SPECS - 1; i++) {
        request.kernelspec = kernelspecs_at(f->specs, i);
        open_request(f, &openers[i], &request);
        assert_int_equal(openers[i].err.code, KG_OK);
        assert_ptr_equal(openers[i].session, openers[0].session);
        assert_ptr_equal(kernel_spec(openers[i].kernel), request.kernelspec);
    }
    request.kernelspec = kernelspecs_at(f->specs, N_SPECS - 1);
    start(f, &openers[N_SPECS - 1], &request);
    assert_null(openers[N_SPECS - 1].open);
    assert_int_equal(openers[N_SPECS - 1].err.code, KG_INVALID);
    assert_int_equal(fake_sandboxes_count(), 1);

    struct kg_error err = {0};
    KG_AUTO(execution) hanging = execute(&openers[1], "hang", NULL, &err);
    KG_AUTO(execution) other = execute(&openers[2], "print", NULL, &err);
    RUN_UNTIL(f, execution_state(other) == EXECUTION_DONE);
    RUN_UNTIL(f, execution_state(hanging) == EXECUTION_RUNNING);
    json_auto_t *description = session_describe(openers[0].session);
    int busy;
    json_int_t count;
    const char *state_of_k1, *state_of_k2;
    assert_int_equal(json_unpack(description, "{s:b, s:I, s:{s:{s:s}, s:{s:s}}}", "is_busy", &busy,
                                 "execution_count", &count, "kernels", "k1", "state", &state_of_k1,
                                 "k2", "state", &state_of_k2),
                     0);
    assert_true(busy);
    assert_int_equal(count, 1);
    assert_string_equal(state_of_k1, "busy");
    assert_string_equal(state_of_k2, "ready");
    assert_true(sessions_are_busy(f->sessions));
    assert_true(session_interrupt(openers[0].session));
    RUN_UNTIL(f, execution_state(hanging) == EXECUTION_DONE);
    assert_false(session_interrupt(openers[0].session));
    assert_false(sessions_are_busy(f->sessions));
}

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
            turn(f);
        answered = opener.answers;
        if (opener.open)
            session_open_cancel(opener.open);
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
        turn(f);
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
wait_until_ms(struct fixture *f, struct loop_timer *timer, int64_t when_ms)
{
    loop_timer_start(timer, when_ms - clock_mono_ms());
    RUN_UNTIL(f, clock_mono_ms() >= when_ms);
}

static void
ignore(void *arg)
{
    (void)arg;
}

static void
test_expiry(void **state)
{
    struct fixture *f = *state;
    KG_AUTO(loop_timer) timer = loop_timer_new(f->loop, ignore, NULL);
    struct opener idle = {0}, touched = {0}, busy = {.code = "hang"};
    int64_t began_ms = clock_mono_ms();
    open_for_a_second(f, &idle, "idle");
    open_for_a_second(f, &touched, "touched");
    open_for_a_second(f, &busy, "busy");
    wait_until_ms(f, timer, began_ms + 600);
    assert_int_equal(sessions_count(f->sessions), 3);
    session_touch(touched.session);
    int64_t touched_ms = clock_mono_ms();
    RUN_UNTIL(f, !sessions_find(f->sessions, "me", "idle", NULL));
    assert_in_range(clock_mono_ms() - began_ms, 1000, DEADLINE_MS);
    assert_non_null(sessions_find(f->sessions, "me", "touched", NULL));
    RUN_UNTIL(f, !sessions_find(f->sessions, "me", "touched", NULL));
    assert_in_range(clock_mono_ms() - touched_ms, 1000, DEADLINE_MS);

    // What runs keeps its session; from its end on it is idle.
    wait_until_ms(f, timer, began_ms + 2200);
    assert_non_null(sessions_find(f->sessions, "me", "busy", NULL));
    assert_int_equal(execution_state(busy.execution), EXECUTION_RUNNING);
    session_interrupt(busy.session);
    RUN_UNTIL(f, execution_state(busy.execution) == EXECUTION_DONE);
    execution_unref(busy.execution);
    int64_t ended_ms = clock_mono_ms();
    RUN_UNTIL(f, fake_sandboxes_count() == 0);
    assert_in_range(clock_mono_ms() - ended_ms, 990, DEADLINE_MS);
}

int
main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_open_and_open_again),
        TEST(test_concurrent_opens_share),
        TEST(test_session_ids),
        TEST(test_owners_do_not_meet),
        TEST(test_max_sessions),
        TEST(test_no_sandbox),
        TEST(test_no_claim),
        TEST(test_no_kernel),
        TEST(test_no_second_kernel),
        TEST(test_the_container_ends),
        TEST(test_several_kernels),
        TEST(test_restart),
        TEST(test_end_during_a_restart),
        TEST(test_one_shot_ends_with_its_execution),
        TEST(test_one_shot_ends_when_nobody_waits),
        TEST(test_one_shot_whose_execution_is_refused),
        TEST(test_one_shot_outlives_a_second_opener),
        TEST(test_end),
        TEST(test_end_while_opening),
        TEST(test_release_leaves_nothing_behind),
        TEST(test_expiry),
    };
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
    jupyter_init();
    int failed = cmocka_run_group_tests_name("session", tests, NULL, NULL);
    jupyter_fini();
    return failed;
}
