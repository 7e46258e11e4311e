// SPDX-License-Identifier: Apache-2.0
// What code in a session's sandbox asks for: packages, refusals, bounds, its end.

#include "test_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fake_command.h"
#include "packages_priv.h"
#include "session_commands.h"
#include "session_requests.h"
#include "sessions_priv.h"

static void
on_command_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    (void)result;
    (void)err;
    (void)arg;
}

static void
on_command_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    (void)stream;
    (void)text;
    (void)len;
    (void)arg;
}

// Opens a session in which a client's command runs, with packages.
static struct sandbox *
open_used(struct fixture *f, struct opener *opener)
{
    static const struct sandbox_command_events events = {.on_output = on_command_output,
                                                         .on_end = on_command_end};
    static const struct sandbox_command_spec spec = {.command = "pip", .timeout_ms = 1000};
    struct kg_error err;
    open_named(f, opener, "s1");
    give_packages(f);
    f->sessions->settings.install_from_code = true;
    struct session_command *command =
        session_command_start(opener->session, &spec, &events, NULL, &err);
    assert_non_null(command);
    session_command_attend(command);
    fake_journal_clear();
    return session_sandbox(opener->session);
}

// The answers to a request, as fake_journal() has them: whether one contains `text`.
static bool
was_answered(const char *text)
{
    return strstr(fake_journal(), text) != NULL;
}

// Ends the command that looks what is missing: nothing.
static void
say_satisfied(const char *name)
{
    struct sandbox_command *command = fake_command_last();
    KG_AUTO_FREE char *text = kg_asprintf(
        "{\"satisfied\":[{\"requirement\":\"%s\",\"version\":\"1.0\"}],\"missing\":[]}", name);
    fake_command_print(command, text);
    fake_command_end(command, &(const struct sandbox_command_result){0}, NULL);
}

static void
test_packages(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct sandbox *sandbox = open_used(f, &opener);
    assert_true(fake_sandbox_ask(sandbox, 7, "packages", "{\"packages\":[\"Foo_Bar\"]}"));
    assert_string_equal(fake_journal(), "");
    RUN_UNTIL(f, fake_commands_count() == 2);
    fake_script.hold_answers = true;
    fake_command_start_and_print(fake_command_last(), "one");
    fake_command_start_and_print(fake_command_last(), "two");
    fake_command_start_and_print(fake_command_last(), "three");
    say_satisfied("foo-bar");
    assert_string_equal(fake_journal(), "");
    fake_sandboxes_release();
    RUN_UNTIL(f, was_answered("result"));
    // One answer at a time: what came meanwhile is in the next one.
    assert_string_equal(
        fake_journal(),
        "answer {\"id\":7,\"last\":false,\"lines\":[{\"text\":\"one\",\"type\":\"stdout\"}]}\n"
        "answer {\"id\":7,\"last\":true,\"lines\":[{\"text\":\"two\",\"type\":\"stdout\"},"
        "{\"text\":\"three\",\"type\":\"stdout\"},{\"packages\":[{\"name\":\"foo-bar\","
        "\"status\":\"installed\",\"version\":\"1.0\"}],\"status\":\"ok\",\"type\":\"result\"}]}"
        "\n");
    RUN_UNTIL(f, LIST_EMPTY(&opener.session->requests));
}

static void
test_refusals(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct sandbox *sandbox = open_used(f, &opener);
    static const struct {
        const char *method, *params, *why;
    } requests[] = {
        {"exec", "{}", "unknown method exec"},
        {"packages", "{}", "the parameters must be"},
        {"packages", "{\"packages\":[\"x\"],\"index\":\"y\"}", "the parameters must be"},
        {"packages", "{\"packages\":\"x\"}", "packages must be a list"},
        {"packages", "{\"packages\":[]}", "packages must be a list"},
        {"packages", "{\"packages\":[7]}", "packages must be a list"},
        {"packages", "{\"packages\":[\"--index-url=http://x\"]}", "is not a requirement"},
        {"packages", "{\"packages\":[\"x @ http://x/y\"]}", "is not a requirement"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(requests); i++) {
        fake_journal_clear();
        assert_true(
            fake_sandbox_ask(sandbox, (int64_t)i + 1, requests[i].method, requests[i].params));
        RUN_UNTIL(f, was_answered("\"last\":true"));
        assert_true(was_answered(requests[i].why));
        assert_true(was_answered("\"code\":\"invalid_request\""));
        RUN_UNTIL(f, LIST_EMPTY(&opener.session->requests));
    }
    f->sessions->settings.install_from_code = false;
    fake_journal_clear();
    assert_true(fake_sandbox_ask(sandbox, 20, "packages", "{\"packages\":[\"x\"]}"));
    RUN_UNTIL(f, was_answered("install-from-code"));
    assert_true(was_answered("POST /api/v1/sessions/s1/packages"));
    f->sessions->settings.install_from_code = true;
    f->sessions->settings.packages = NULL;
    assert_true(fake_sandbox_ask(sandbox, 21, "packages", "{\"packages\":[\"x\"]}"));
    RUN_UNTIL(f, was_answered("no kernelspec of this gateway takes packages"));
}

// Installing counts as activity: what nobody has asked for must not keep a session.
static void
test_code_does_not_keep_its_session(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct sandbox *sandbox = open_used(f, &opener);
    fake_command_end(fake_command_last(), &(const struct sandbox_command_result){0}, NULL);
    int64_t active_ms = opener.session->active_ms;
    assert_true(fake_sandbox_ask(sandbox, 1, "packages", "{\"packages\":[\"x\"]}"));
    RUN_UNTIL(f, was_answered("while a cell or a command"));
    assert_int_equal(opener.session->active_ms, active_ms);
    assert_true(session_is_idle(opener.session));
    KG_AUTO(session_client) client = session_client_new(opener.session);
    assert_true(fake_sandbox_ask(sandbox, 2, "packages", "{\"packages\":[\"x\"]}"));
    assert_false(TAILQ_EMPTY(&opener.session->installs));
}

static void
test_requests_are_bounded(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct sandbox *sandbox = open_used(f, &opener);
    fake_script.hold_answers = true;
    for (int64_t id = 1; id <= 8; id++)
        assert_true(fake_sandbox_ask(sandbox, id, "nothing", "{}"));
    assert_false(fake_sandbox_ask(sandbox, 9, "nothing", "{}"));
    assert_true(fake_sandbox_ask(sandbox, 77, NULL, NULL)); // of a request that nobody knows
    fake_sandboxes_release();
    RUN_UNTIL(f, LIST_EMPTY(&opener.session->requests));
    assert_true(fake_sandbox_ask(sandbox, 9, "packages", "{\"packages\":[\"x\"]}"));
    assert_false(fake_sandbox_ask(sandbox, 9, "packages", "{\"packages\":[\"x\"]}"));
    // pip's words are left out where the agent does not take them, its result is not.
    RUN_UNTIL(f, fake_commands_count() == 2);
    fake_script.hold_answers = true;
    KG_AUTO_FREE char *words = kg_calloc(1, 40 * 1024);
    memset(words, 'x', 40 * 1024 - 1);
    for (int i = 0; i < 10; i++)
        fake_command_start_and_print(fake_command_last(), words);
    say_satisfied("x");
    const struct code_request *request = LIST_FIRST(&opener.session->requests);
    assert_non_null(request);
    fake_journal_clear();
    fake_sandboxes_release();
    RUN_UNTIL(f, LIST_EMPTY(&opener.session->requests));
    assert_true(was_answered("\"result\""));
    assert_in_range(strlen(fake_journal()), 2 * 40 * 1024, 3 * 40 * 1024);
}

static void
test_code_leaves(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct sandbox *sandbox = open_used(f, &opener);
    // It says so: its place is freed by an answer, and the installation goes on.
    assert_true(fake_sandbox_ask(sandbox, 1, "packages", "{\"packages\":[\"x\"]}"));
    RUN_UNTIL(f, fake_commands_count() == 2);
    assert_true(fake_sandbox_ask(sandbox, 1, NULL, NULL));
    assert_true(fake_sandbox_ask(sandbox, 1, NULL, NULL));
    RUN_UNTIL(f, was_answered("answer {\"id\":1,\"last\":true,\"lines\":[]}"));
    RUN_UNTIL(f, LIST_EMPTY(&opener.session->requests));
    say_satisfied("x");
    RUN_UNTIL(f, TAILQ_EMPTY(&opener.session->installs));
    // Or the agent does, when it is told something.
    fake_script.code_gone = true;
    assert_true(fake_sandbox_ask(sandbox, 2, "packages", "{\"packages\":[\"x\"]}"));
    RUN_UNTIL(f, fake_commands_count() == 2);
    fake_command_start_and_print(fake_command_last(), "one");
    RUN_UNTIL(f, LIST_EMPTY(&opener.session->requests));
    say_satisfied("x");
    // An agent that cannot be asked is told nothing.
    RUN_UNTIL(f, TAILQ_EMPTY(&opener.session->installs));
    fake_script.refuse_calls = true;
    assert_true(fake_sandbox_ask(sandbox, 3, "nothing", "{}"));
    assert_true(LIST_EMPTY(&opener.session->requests));
    fake_script.refuse_calls = false;
}

static void
test_the_session_ends_meanwhile(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct sandbox *sandbox = open_used(f, &opener);
    fake_script.hold_answers = true;
    assert_true(fake_sandbox_ask(sandbox, 1, "nothing", "{}"));
    assert_true(fake_sandbox_ask(sandbox, 2, "packages", "{\"packages\":[\"x\"]}"));
    RUN_UNTIL(f, fake_commands_count() == 2);
    assert_true(fake_sandbox_ask(sandbox, 3, "packages", "{\"packages\":[\"y\"]}"));
    session_end(opener.session, NULL, on_ended, f);
    RUN_UNTIL(f, f->ended > 0);
    assert_int_equal(fake_commands_count(), 0);
}

int
test_session_requests(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, session_setup, session_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_packages),
        TEST(test_refusals),
        TEST(test_code_does_not_keep_its_session),
        TEST(test_requests_are_bounded),
        TEST(test_code_leaves),
        TEST(test_the_session_ends_meanwhile),
    };
    return cmocka_run_group_tests_name("session: requests of code", tests, NULL, NULL);
}
