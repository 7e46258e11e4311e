// SPDX-License-Identifier: Apache-2.0
// A session's commands: what they wait for, their environment, what keeps a session; and what those
// for packages say, which is untrusted.

#include "test_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fake_command.h"
#include "packages_priv.h"
#include "session_commands.h"
#include "session_packages.h"
#include "session_watch.h"
#include "sessions_priv.h"

// Somebody who runs a command.
struct caller {
    struct session_command *command;
    int n_started, n_outputs, n_ends;
    struct sandbox_command_result result;
    struct kg_error err;
};

static void
on_started(const struct sandbox_command_start *start, void *arg)
{
    (void)start;
    struct caller *caller = arg;
    caller->n_started++;
}

static void
on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct caller *caller = arg;
    caller->n_outputs++;
    assert_int_equal(stream, SANDBOX_STDERR);
    assert_int_equal(len, strlen(text));
}

static void
on_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    struct caller *caller = arg;
    caller->n_ends++;
    caller->command = NULL;
    assert_int_equal(result == NULL, err != NULL);
    if (result)
        caller->result = *result;
    if (err)
        caller->err = *err;
}

static const struct sandbox_command_events events = {
    .on_started = on_started, .on_output = on_output, .on_end = on_end};

static void
run(struct session *session, struct caller *caller, const char *command, const json_t *env)
{
    const struct sandbox_command_spec spec = {
        .command = command, .cwd = "sub", .env = env, .timeout_ms = 1234};
    caller->command = session_command_start(session, &spec, &events, caller, &caller->err);
    assert_int_equal(caller->n_ends, 0);
}

static const char *
env_of(const struct sandbox_command *command, const char *name)
{
    return json_string_value(
        json_object_get(json_object_get(fake_command_request(command), "env"), name));
}

static void
test_run(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct caller caller = {0};
    open_named(f, &opener, "s1");
    json_auto_t *env = json_pack("{s:s}", "B", "2");
    run(opener.session, &caller, "ls", env);
    struct sandbox_command *command = fake_command_last();
    const json_t *request = fake_command_request(command);
    assert_string_equal(json_string_value(json_object_get(request, "command")), "ls");
    assert_string_equal(json_string_value(json_object_get(request, "cwd")), "sub");
    assert_int_equal(json_integer_value(json_object_get(request, "timeout_ms")), 1234);
    assert_true(sessions_are_busy(f->sessions));
    session_command_pause(caller.command, true);
    assert_true(fake_command_paused(command));
    fake_command_start_and_print(command, "text");
    assert_int_equal(caller.n_started, 1);
    assert_int_equal(caller.n_outputs, 1);
    fake_command_end(command, &(const struct sandbox_command_result){.exit_code = 3}, NULL);
    assert_int_equal(caller.n_ends, 1);
    assert_int_equal(caller.result.exit_code, 3);
    assert_false(sessions_are_busy(f->sessions));
}

static void
test_environment(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct caller caller = {0};
    json_auto_t *all = json_pack("{s:s, s:s, s:s}", "A", "all", "B", "all", "C", "all");
    json_auto_t *sessions = json_pack("{s:s, s:s}", "B", "session", "C", "session");
    json_auto_t *own = json_pack("{s:s}", "C", "own");
    f->kernels.env = all;
    struct session_request request = named(f, "s1");
    request.env = sessions;
    open_request(f, &opener, &request);
    run(opener.session, &caller, "env", own);
    assert_string_equal(env_of(fake_command_last(), "A"), "all");
    assert_string_equal(env_of(fake_command_last(), "B"), "session");
    assert_string_equal(env_of(fake_command_last(), "C"), "own");
    // The kernelspecs' folders, each once: the default one's first.
    assert_string_equal(env_of(fake_command_last(), "PATH"), "/k0/bin:/bin:/k1/bin");
    session_command_cancel(caller.command);
    assert_int_equal(fake_commands_count(), 0);
    assert_int_equal(caller.n_ends, 0);
    RUN_UNTIL(f, !sessions_are_busy(f->sessions));
    f->kernels.env = NULL;
}

static void
test_waits_for_the_sandbox(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct caller first = {0}, second = {0}, refused = {0};
    fake_script.hold_ready = true;
    const struct session_request request = named(f, "s1");
    start(f, &opener, &request);
    RUN_UNTIL(f, fake_sandboxes_count() == 1);
    struct session *session = sessions_find(f->sessions, "me", "s1", NULL);
    run(session, &refused, "never", NULL);
    run(session, &first, "one", NULL);
    run(session, &second, "two", NULL);
    assert_int_equal(fake_commands_count(), 0);
    session_command_pause(first.command, true);
    session_command_cancel(second.command);
    fake_command_refuse();
    fake_sandbox_ready(fake_sandboxes_last());
    RUN_UNTIL(f, refused.n_ends == 1);
    assert_int_equal(refused.err.code, KG_PROVISIONER_UNAVAILABLE);
    RUN_UNTIL(f, fake_commands_count() == 1);
    struct sandbox_command *command = fake_command_last();
    assert_string_equal(
        json_string_value(json_object_get(fake_command_request(command), "command")), "one");
    assert_true(fake_command_paused(command));
    fake_command_end(command, NULL, &(const struct kg_error){.code = KG_SESSION_BUSY});
    assert_int_equal(first.err.code, KG_SESSION_BUSY);
    assert_int_equal(second.n_ends, 0);
    RUN_UNTIL(f, opener.answers == 1);
}

static void
test_ends_with_the_session(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0}, waiting = {0};
    struct caller running = {0}, early = {0};
    open_named(f, &opener, "s1");
    run(opener.session, &running, "sleep", NULL);
    fake_script.hold_ready = true;
    const struct session_request request = named(f, "s2");
    start(f, &waiting, &request);
    run(sessions_find(f->sessions, "me", "s2", NULL), &early, "sleep", NULL);
    session_end(opener.session, NULL, on_ended, f);
    assert_int_equal(running.n_ends, 1);
    assert_int_equal(running.err.code, KG_SESSION_NOT_FOUND);
    assert_int_equal(fake_commands_count(), 0);
    session_end(sessions_find(f->sessions, "me", "s2", NULL), NULL, on_ended, f);
    assert_int_equal(early.n_ends, 1);
    RUN_UNTIL(f, f->ended == 2);
}

static void
test_keeps_a_session(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {.code = "print"};
    struct caller caller = {0};
    struct session_request request = named(f, "s1");
    request.one_shot = true;
    open_request(f, &opener, &request);
    run(opener.session, &caller, "sleep", NULL);
    RUN_UNTIL(f, execution_state(opener.execution) == EXECUTION_DONE);
    execution_unref(opener.execution);
    struct opener other = {0}; // whose leaving makes the session look whether it is over
    start(f, &other, &request);
    session_open_cancel(other.open);
    assert_int_equal(sessions_count(f->sessions), 1);
    fake_command_end(fake_command_last(), &(const struct sandbox_command_result){0}, NULL);
    RUN_UNTIL(f, sessions_count(f->sessions) == 0);
}

// ---- Packages -------------------------------------------------------------------------------

// Somebody who lists or installs packages.
struct packager {
    int n_ends;
    json_t *result;
    struct kg_error err;
};

static void
on_packages(const json_t *result, const struct kg_error *err, void *arg)
{
    struct packager *packager = arg;
    packager->n_ends++;
    packager->result = json_incref((json_t *)(uintptr_t)result);
    packager->err = err ? *err : (struct kg_error){0};
}

// Ends the newest command, which has printed `text`.
static void
say(const char *text)
{
    struct sandbox_command *command = fake_command_last();
    fake_command_print(command, text);
    fake_command_end(command, &(const struct sandbox_command_result){0}, NULL);
}

// {"packages": {"p0": "1", …}}, or "satisfied", which is as heavy.
static char *
say_many(const char *name, int n)
{
    KG_AUTO_BUF text = {0};
    buf_printf(&text, "{\"%s\":{", name);
    for (int i = 0; i < n; i++)
        buf_printf(&text, "%s\"p%d\":\"1\"", i ? "," : "", i);
    buf_append_str(&text, "}}");
    return buf_take(&text);
}

static void
test_lists_of_packages(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    open_named(f, &opener, "s1");
    give_packages(f);
    const struct {
        const char *name;
        int n;
        const char *refused; // or NULL
    } lists[] = {
        {"packages", 0, NULL},
        {"packages", 5000, NULL},
        {"packages", 20000, "pip's result has too many values"},
        {NULL, 0, "pip's result is not a JSON object"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(lists); i++) {
        struct packager packager = {0};
        assert_non_null(session_packages_list(opener.session, NULL, on_packages, &packager, &err));
        KG_AUTO_FREE char *text =
            lists[i].name ? say_many(lists[i].name, lists[i].n) : kg_strdup("[]");
        say(text);
        json_auto_t *result = packager.result;
        assert_int_equal(packager.n_ends, 1);
        assert_true((result != NULL) == (lists[i].refused == NULL));
        assert_string_equal(packager.err.message, lists[i].refused ? lists[i].refused : "");
    }
}

static void
test_an_installation_that_finds_too_much(void **state)
{
    static const struct session_install_events install_events = {.on_end = on_packages};
    struct fixture *f = *state;
    struct opener opener = {0};
    struct packager packager = {0};
    json_auto_t *names = json_pack("[s]", "foo");
    struct kg_error err = {0};
    open_named(f, &opener, "s1");
    give_packages(f);
    assert_non_null(session_install_start(opener.session, names, &install_events, &packager, &err));
    RUN_UNTIL(f, fake_command_last());
    KG_AUTO_FREE char *text = say_many("satisfied", 20000);
    say(text);
    assert_int_equal(packager.n_ends, 1);
    json_auto_t *result = packager.result;
    const json_t *foo = json_array_get(json_object_get(result, "packages"), 0);
    assert_string_equal(json_string_value(json_object_get(result, "status")), "error");
    assert_string_equal(json_string_value(json_object_get(foo, "message")),
                        "pip's result has too many values");
}

// ---- Watches of folders ---------------------------------------------------------------------

static void
watch_on_end(const struct kg_error *err, void *arg)
{
    (void)err;
    ++*(int *)arg;
}

static const struct session_watch_events watch_events = {.on_end = watch_on_end};

// Of all sessions; where there are several owners, half of them are one owner's.
static void
test_watches_are_bounded(void **state)
{
    enum { ALL = 1024 };
    struct fixture *f = *state;
    struct opener mine = {0}, other = {0};
    struct kg_error err = {0};
    int n_ends = 0;
    open_named(f, &mine, "mine");
    struct session_request request = named(f, "other");
    request.owner = "somebody else";
    open_request(f, &other, &request);
    fake_script.flood = true; // then streams are accepted
    sessions_set_several_owners(f->sessions, true);
    for (int i = 0; i < ALL / 2; i++)
        assert_non_null(
            session_watch_start(mine.session, NULL, true, &watch_events, &n_ends, &err));
    assert_null(session_watch_start(mine.session, NULL, true, &watch_events, &n_ends, &err));
    assert_int_equal(err.code, KG_RATE_LIMITED);
    struct session_watch *last = NULL;
    for (int i = 0; i < ALL / 2; i++)
        last = session_watch_start(other.session, "a", false, &watch_events, &n_ends, &err);
    assert_non_null(last);
    assert_null(session_watch_start(other.session, "a", true, &watch_events, &n_ends, &err));
    session_watch_cancel(last);
    assert_non_null(session_watch_start(other.session, "a", true, &watch_events, &n_ends, &err));
    sessions_drain_watches(f->sessions);
    assert_int_equal(n_ends, ALL);
}

int
test_session_commands(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, session_setup, session_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_run),
        TEST(test_environment),
        TEST(test_waits_for_the_sandbox),
        TEST(test_ends_with_the_session),
        TEST(test_keeps_a_session),
        TEST(test_lists_of_packages),
        TEST(test_an_installation_that_finds_too_much),
        TEST(test_watches_are_bounded),
    };
    return cmocka_run_group_tests_name("session: commands", tests, NULL, NULL);
}
