// SPDX-License-Identifier: Apache-2.0
// Sessions: further kernels, restarts and removals of one kernel, folders.

#include "test_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "session_kernels.h"
#include "sessions_priv.h"
#include "virtual_clock.h"

// What a call has led to.
struct answer {
    int n;
    struct kernel *kernel;
    struct kg_error err;
};

static void
on_answer(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct answer *answer = arg;
    answer->n++;
    answer->kernel = kernel;
    answer->err = err ? *err : (struct kg_error){0};
}

static struct session_kernel_call *
ask_for(struct fixture *f, struct opener *opener, size_t spec, const char *name, const char *cwd,
        struct answer *answer)
{
    const struct session_kernel_request request = {kernelspecs_at(f->specs, spec), name, cwd, NULL};
    return session_kernel_open(opener->session, &request, on_answer, answer, &answer->err);
}

static struct kernel *
add(struct fixture *f, struct opener *opener, size_t spec, const char *name, const char *cwd)
{
    struct answer answer = {0};
    assert_non_null(ask_for(f, opener, spec, name, cwd, &answer));
    assert_int_equal(answer.n, 0);
    RUN_UNTIL(f, answer.n > 0);
    assert_int_equal(answer.err.code, KG_OK);
    assert_true(kernel_has_started(answer.kernel));
    return answer.kernel;
}

static void
assert_refused(struct fixture *f, struct opener *opener, const char *name, const char *cwd,
               enum kg_code code)
{
    struct answer answer = {0};
    assert_null(ask_for(f, opener, 0, name, cwd, &answer));
    assert_int_equal(answer.err.code, code);
    assert_int_equal(answer.n, 0);
}

static void
remove_kernel(struct fixture *f, struct opener *opener, const char *name)
{
    struct answer answer = {0};
    assert_non_null(session_kernel_remove(opener->session, name, on_answer, &answer, &answer.err));
    assert_int_equal(answer.n, 0);
    RUN_UNTIL(f, answer.n > 0);
    assert_int_equal(answer.err.code, KG_OK);
    assert_null(answer.kernel);
}

// ---- Opening --------------------------------------------------------------------------------

static void
test_further_kernels(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    open_named(f, &opener, "s1");
    struct kernel *a = add(f, &opener, 0, "a", NULL);
    struct kernel *random = add(f, &opener, 1, NULL, "/tmp");
    assert_string_equal(kernel_name(a), "a");
    assert_int_equal(strlen(kernel_name(random)), 12);
    assert_string_equal(kernel_spec(random)->name, "k1");
    assert_string_equal(session_kernel_cwd(opener.session, a), "/mnt/data");
    assert_string_equal(session_kernel_cwd(opener.session, random), "/tmp");
    assert_ptr_equal(session_kernel_at(opener.session, 0), opener.kernel);
    assert_ptr_equal(session_kernel_at(opener.session, 2), random);
    assert_null(session_kernel_at(opener.session, 3));
    assert_ptr_equal(session_kernel_find(opener.session, "a", &err), a);
    assert_null(session_kernel_find(opener.session, "k1", &err));
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_true(session_kernel_is_default(opener.kernel));
    assert_false(session_kernel_is_default(a));

    json_auto_t *description = session_describe(opener.session);
    json_auto_t *expected =
        json_loads("{\"k0\":{\"state\":\"ready\",\"execution_count\":0},\"a\":{\"state\":\"ready\","
                   "\"execution_count\":0,\"kernel\":\"k0\",\"cwd\":\"/mnt/data\"}}",
                   0, NULL);
    json_object_del(json_object_get(description, "kernels"), kernel_name(random));
    assert_true(json_equal(json_object_get(description, "kernels"), expected));
    assert_non_null(strstr(fake_journal(), "\"kernels\":[{\"kernel\":\"k0\",\"name\":\"a\"},"
                                           "{\"cwd\":\"/tmp\",\"kernel\":\"k1\",\"name\":\""));
    assert_string_equal(fake_sandbox_cwd(fake_sandboxes_last(), kernel_name(random)), "/tmp");
}

static void
test_they_run_at_the_same_time(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    open_named(f, &opener, "s1");
    struct kernel *a = add(f, &opener, 0, "a", NULL);
    const struct session_code hang = {.code = "hang", .timeout_ms = DEADLINE_MS};
    const struct session_code print = {.code = "print", .timeout_ms = DEADLINE_MS};
    KG_AUTO(execution) hanging = session_execute(opener.session, a, &hang, &err);
    KG_AUTO(execution) other = session_execute(opener.session, opener.kernel, &print, &err);
    RUN_UNTIL(f, execution_state(other) == EXECUTION_DONE);
    RUN_UNTIL(f, execution_state(hanging) == EXECUTION_RUNNING);
    bool busy = true;
    assert_int_equal(session_kernel_interrupt(opener.session, "k0", &busy, &err), 0);
    assert_false(busy);
    assert_int_equal(execution_state(hanging), EXECUTION_RUNNING);
    assert_int_equal(session_kernel_interrupt(opener.session, "a", &busy, &err), 0);
    assert_true(busy);
    RUN_UNTIL(f, execution_state(hanging) == EXECUTION_DONE);
    assert_int_equal(session_kernel_interrupt(opener.session, "b", NULL, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
}

static void
test_what_is_refused(void **state)
{
    static const char *const names[] = {
        "", "a/b", "a.b", "ä", "k1", "K1", "a234567890123456789012345678901234"};
    static const char *const folders[] = {"", "tmp", "/tmp/../etc", "/proc/1", "/a\nb", "/\xff"};
    struct fixture *f = *state;
    struct opener opener = {0};
    struct answer first = {0};
    open_named(f, &opener, "s1");
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        assert_refused(f, &opener, names[i], NULL, KG_INVALID);
    for (size_t i = 0; i < KG_ARRAY_LEN(folders); i++)
        assert_refused(f, &opener, "a", folders[i], KG_INVALID);
    assert_non_null(ask_for(f, &opener, 0, "a", NULL, &first));
    assert_refused(f, &opener, "a", NULL, KG_NAME_EXISTS);
    RUN_UNTIL(f, first.n > 0);
    assert_refused(f, &opener, "a", NULL, KG_NAME_EXISTS);
    f->sessions->further_kernels.max = 1;
    assert_refused(f, &opener, "b", NULL, KG_SESSION_BUSY);
    f->sessions->further_kernels.max = 40;
    for (size_t i = 2; i < SESSION_MAX_KERNELS; i++)
        add(f, &opener, 0, NULL, NULL);
    assert_refused(f, &opener, "b", NULL, KG_INVALID);
    remove_kernel(f, &opener, "a");
    assert_int_equal(f->sessions->further_kernels.held, SESSION_MAX_KERNELS - 2);
    add(f, &opener, 0, "a", NULL);
}

static void
test_a_folder_that_is_missing(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct answer missing = {0}, file = {0};
    open_named(f, &opener, "s1");
    assert_non_null(ask_for(f, &opener, 0, "a", "/missing", &missing));
    assert_non_null(ask_for(f, &opener, 0, "b", "/file", &file));
    RUN_UNTIL(f, missing.n + file.n == 2);
    assert_int_equal(missing.err.code, KG_NOT_FOUND);
    assert_int_equal(file.err.code, KG_INVALID);
    RUN_UNTIL(f, fake_journal_count("remove a") + fake_journal_count("remove b") == 2);
    assert_null(session_kernel_at(opener.session, 1));
}

static void
test_one_that_cannot_be_started(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct answer answer = {0};
    open_named(f, &opener, "s1");
    fake_script.refuse_start = true;
    assert_non_null(ask_for(f, &opener, 0, "a", NULL, &answer));
    RUN_UNTIL(f, answer.n > 0);
    assert_int_equal(answer.err.code, KG_KERNEL_START_TIMEOUT);
    assert_null(answer.kernel);
    fake_script.refuse_start = false;
    RUN_UNTIL(f, session_is_idle(opener.session));
    assert_int_equal(fake_journal_count("remove a"), 1);
    add(f, &opener, 0, "a", NULL);
}

static void
test_who_has_left(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct answer answer = {0};
    open_named(f, &opener, "s1");
    session_kernel_call_cancel(ask_for(f, &opener, 0, "a", "/tmp", &answer));
    assert_null(session_kernel_find(opener.session, "a", &answer.err));
    RUN_UNTIL(f, fake_journal_count("remove a") == 1);
    add(f, &opener, 1, "b", NULL);
    struct session_kernel_call *call =
        session_kernel_restart(opener.session, "b", on_answer, &answer, &answer.err);
    assert_non_null(call);
    session_kernel_call_cancel(call);
    RUN_UNTIL(f, fake_journal_count("start b") == 2);
    RUN_UNTIL(f, session_is_idle(opener.session));
    assert_int_equal(answer.n, 0);
}

// ---- Restarting and removing ----------------------------------------------------------------

static void
test_a_restart_of_one(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct answer answer = {0}, second = {0};
    open_named(f, &opener, "s1");
    struct kernel *a = add(f, &opener, 1, "a", "/tmp");
    assert_non_null(session_kernel_restart(opener.session, "a", on_answer, &answer, &answer.err));
    assert_null(session_kernel_restart(opener.session, "a", on_answer, &second, &second.err));
    assert_int_equal(second.err.code, KG_SESSION_BUSY);
    assert_false(session_is_idle(opener.session));
    RUN_UNTIL(f, answer.n > 0);
    assert_int_equal(answer.err.code, KG_OK);
    assert_ptr_equal(answer.kernel, a);
    assert_int_equal(fake_journal_count("start a"), 2);
    assert_int_equal(fake_journal_count("start k0"), 1);
    assert_string_equal(fake_sandbox_cwd(fake_sandboxes_last(), "a"), "/tmp");
    assert_null(session_kernel_restart(opener.session, "b", on_answer, &second, &second.err));
    assert_int_equal(second.err.code, KG_NOT_FOUND);
}

static void
test_removing_one(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    open_named(f, &opener, "s1");
    struct kernel *a = add(f, &opener, 0, "a", NULL);
    const struct session_code hang = {.code = "hang", .timeout_ms = DEADLINE_MS};
    KG_AUTO(execution) hanging = session_execute(opener.session, a, &hang, &err);
    RUN_UNTIL(f, fake_journal_count("run hang") == 1);
    fake_journal_clear();
    remove_kernel(f, &opener, "a");
    assert_int_equal(execution_state(hanging), EXECUTION_DONE);
    assert_int_equal(fake_journal_count("remove a"), 1);
    assert_null(strstr(fake_journal(), "\"kernels\""));
    assert_null(session_kernel_remove(opener.session, "a", on_answer, NULL, &err));
    assert_int_equal(err.code, KG_NOT_FOUND);
    assert_ptr_equal(session_kernel_at(opener.session, 0), opener.kernel);
}

// A kernel that is being started ends when it has started.
static void
test_removing_one_that_starts(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct answer opened = {0}, removed = {0};
    open_named(f, &opener, "s1");
    assert_non_null(ask_for(f, &opener, 0, "a", NULL, &opened));
    assert_non_null(session_kernel_remove(opener.session, "a", on_answer, &removed, &removed.err));
    RUN_UNTIL(f, opened.n + removed.n == 2);
    assert_int_equal(opened.err.code, KG_NOT_FOUND);
    assert_int_equal(removed.err.code, KG_OK);
    assert_int_equal(fake_journal_count("remove a"), 1);
}

static void
test_the_last_kernel_is_removed(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0}, again = {0};
    struct answer answer = {0};
    struct kg_error err = {0};
    open_named(f, &opener, "s1");
    remove_kernel(f, &opener, "k0");
    assert_null(session_first_kernel(opener.session));
    assert_non_null(strstr(fake_journal(), "\"outlives_kernels\":true"));
    assert_true(session_is_idle(opener.session));
    assert_int_equal(session_restart(opener.session, NULL, NULL, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
    open_named(f, &again, "s1");
    assert_ptr_equal(again.session, opener.session);

    // While its old process is being killed there is no new one.
    fake_script.hold_stop = true;
    assert_non_null(session_kernel_remove(opener.session, "k0", on_answer, &answer, &answer.err));
    struct opener third = {0};
    const struct session_request request = named(f, "s1");
    start(f, &third, &request);
    RUN_UNTIL(f, fake_journal_count("remove k0") == 2);
    assert_int_equal(fake_journal_count("start k0"), 2);
    fake_sandboxes_release();
    RUN_UNTIL(f, third.answers == 1 && answer.n == 1);
    assert_int_equal(third.err.code, KG_OK);
    assert_int_equal(fake_journal_count("start k0"), 3);
}

static void
test_an_older_agent(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    fake_script.is_old = true;
    open_named(f, &opener, "s1");
    add(f, &opener, 0, "a", NULL);
    fake_journal_clear();
    remove_kernel(f, &opener, "a");
    assert_int_equal(fake_journal_count("stop a"), 1);
}

static void
test_the_session_ends_meanwhile(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct answer answers[3] = {0};
    open_named(f, &opener, "s1");
    add(f, &opener, 0, "a", NULL);
    assert_non_null(ask_for(f, &opener, 0, "b", "/tmp", &answers[0]));
    assert_non_null(
        session_kernel_restart(opener.session, "a", on_answer, &answers[1], &answers[1].err));
    assert_non_null(
        session_kernel_remove(opener.session, "k0", on_answer, &answers[2], &answers[2].err));
    session_end(opener.session, NULL, on_ended, f);
    for (size_t i = 0; i < KG_ARRAY_LEN(answers); i++) {
        assert_int_equal(answers[i].n, 1);
        assert_int_equal(answers[i].err.code, KG_SESSION_NOT_FOUND);
    }
    RUN_UNTIL(f, f->ended > 0);
    assert_int_equal(f->sessions->further_kernels.held, 0);
}

// ---- Folders --------------------------------------------------------------------------------

static const char go_home[] =
    "silent go \"{\\\"folder\\\": \\\"/home/user\\\", \\\"home\\\": \\\"/home/user\\\"}\"";

// The pool's kernel gets there before its first code, and once; so does the one that replaces it.
static void
test_a_home(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {.code = "print"};
    struct answer answer = {0};
    struct session_request request = named(f, "s1");
    request.home = "/home/user";
    fake_journal_clear();
    open_request(f, &opener, &request);
    RUN_UNTIL(f, execution_state(opener.execution) == EXECUTION_DONE);
    execution_unref(opener.execution);
    KG_AUTO(execution) again = execute(&opener, "print", NULL, &answer.err);
    RUN_UNTIL(f, execution_state(again) == EXECUTION_DONE);
    assert_int_equal(fake_journal_count(go_home), 1);
    assert_string_equal(session_home(opener.session), "/home/user");
    assert_non_null(session_kernel_restart(opener.session, "k0", on_answer, &answer, &answer.err));
    RUN_UNTIL(f, answer.n > 0);
    KG_AUTO(execution) third = execute(&opener, "print", NULL, &answer.err);
    RUN_UNTIL(f, execution_state(third) == EXECUTION_DONE);
    assert_int_equal(fake_journal_count(go_home), 2);
    assert_string_equal(fake_sandbox_cwd(fake_sandboxes_last(), "k0"), "/mnt/data");
}

// A kernelspec without code for it starts its processes there.
static void
test_a_home_by_exec(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0}, own = {0}, bad = {0};
    struct session_request request = named(f, "s1");
    request.home = "/home/user";
    request.kernelspec = kernelspecs_at(f->specs, 1);
    open_request(f, &opener, &request);
    const struct sandbox *sandbox = session_sandbox(opener.session);
    assert_string_equal(fake_sandbox_cwd(sandbox, "k1"), "/home/user");
    assert_string_equal(json_string_value(json_object_get(fake_sandbox_env(sandbox, "k1"), "HOME")),
                        "/home/user");
    add(f, &opener, 1, "a", "/tmp");
    assert_string_equal(fake_sandbox_cwd(sandbox, "a"), "/tmp");

    json_auto_t *env = json_pack("{s:s}", "HOME", "/opt");
    request.session_id = "s2";
    request.env = env;
    open_request(f, &own, &request);
    sandbox = session_sandbox(own.session);
    assert_string_equal(json_string_value(json_object_get(fake_sandbox_env(sandbox, "k1"), "HOME")),
                        "/opt");

    // One that has code for it is started by exec, too, where the session has an environment.
    struct opener both = {.code = "print"};
    json_auto_t *other_env = json_pack("{s:s}", "A", "1");
    request.session_id = "s3";
    request.env = other_env;
    request.kernelspec = kernelspecs_at(f->specs, 0);
    open_request(f, &both, &request);
    RUN_UNTIL(f, execution_state(both.execution) == EXECUTION_DONE);
    execution_unref(both.execution);
    json_auto_t *merged =
        json_pack("{s:s, s:s, s:s}", "A", "1", "HOME", "/home/user", "PATH", "/k0/bin:/bin");
    sandbox = session_sandbox(both.session);
    assert_true(json_equal(fake_sandbox_env(sandbox, "k0"), merged));
    assert_int_equal(fake_journal_count(go_home), 1);

    request.session_id = "s4";
    request.home = "home";
    start(f, &bad, &request);
    assert_null(bad.open);
    assert_int_equal(bad.err.code, KG_INVALID);
}

// ---- Adoption -------------------------------------------------------------------------------

static void
test_the_next_gateway_finds_them(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    json_auto_t *meta = json_loads(
        "{\"session_id\":\"s1\",\"owner\":\"me\",\"created_ms\":1,\"idle_timeout_ms\":1800000,"
        "\"one_shot\":false,\"env\":{},\"home\":\"/home/user\",\"kernels\":["
        "{\"name\":\"a\",\"kernel\":\"k0\",\"cwd\":\"/tmp\"},{\"name\":\"b\",\"kernel\":\"k1\"},"
        "{\"name\":\"k2\",\"kernel\":\"k1\"},{\"name\":\"c\",\"kernel\":\"no\"},7,{}]}",
        0, NULL);
    assert_non_null(meta);
    fake_script.hold_ready = true;
    assert_int_equal(sessions_adopt(f->sessions, "adopted", meta, &err), 0);
    struct sandbox *sandbox = fake_sandboxes_last();
    fake_sandbox_run(sandbox, "a");
    fake_sandbox_run(sandbox, "stranger");
    fake_journal_clear();
    fake_sandbox_ready(sandbox);
    opener.session = sessions_find(f->sessions, "me", "s1", &err);
    RUN_UNTIL(f, session_is_idle(opener.session));
    assert_string_equal(session_home(opener.session), "/home/user");
    assert_string_equal(kernel_name(session_kernel_at(opener.session, 0)), "a");
    assert_string_equal(kernel_folder(session_kernel_at(opener.session, 0)), "/tmp");
    assert_string_equal(kernel_name(session_kernel_at(opener.session, 1)), "b");
    assert_null(session_kernel_at(opener.session, 2));
    assert_int_equal(fake_journal_count("start a"), 0);
    assert_int_equal(fake_journal_count("start b"), 1);
    assert_int_equal(fake_journal_count("remove stranger"), 1);
    assert_int_equal(f->sessions->further_kernels.held, 2);
    assert_string_equal(fake_sandbox_cwd(sandbox, "b"), "/home/user");
}

// Whether it answers is not known yet, and need not be: it runs.
static void
test_removing_one_that_is_adopted(void **state)
{
    struct fixture *f = *state;
    struct opener opener = {0};
    struct kg_error err = {0};
    json_auto_t *meta = json_loads(
        "{\"session_id\":\"s1\",\"owner\":\"me\",\"created_ms\":1,\"idle_timeout_ms\":1800000,"
        "\"one_shot\":false,\"env\":{},\"kernels\":[{\"name\":\"a\",\"kernel\":\"k0\"}]}",
        0, NULL);
    fake_script.hold_ready = fake_script.mute = true;
    assert_int_equal(sessions_adopt(f->sessions, "adopted", meta, &err), 0);
    fake_sandbox_run(fake_sandboxes_last(), "a");
    fake_sandbox_ready(fake_sandboxes_last());
    opener.session = sessions_find(f->sessions, "me", "s1", &err);
    RUN_UNTIL(f, session_kernel_at(opener.session, 0));
    assert_true(session_is_busy(opener.session));
    fake_journal_clear();
    remove_kernel(f, &opener, "a");
    assert_int_equal(fake_journal_count("remove a"), 1);
    assert_int_equal(fake_journal_count("start a"), 0);
    assert_true(session_is_idle(opener.session));
}

// A session without kernels gets none from the next gateway.
static void
test_the_next_gateway_starts_none(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    json_auto_t *meta = json_loads(
        "{\"session_id\":\"s1\",\"owner\":\"me\",\"created_ms\":1,\"idle_timeout_ms\":1800000,"
        "\"one_shot\":false,\"env\":{},\"outlives_kernels\":true}",
        0, NULL);
    assert_int_equal(sessions_adopt(f->sessions, "adopted", meta, &err), 0);
    struct session *session = sessions_find(f->sessions, "me", "s1", &err);
    RUN_UNTIL(f, session_is_idle(session));
    assert_null(session_kernel_at(session, 0));
    struct opener opener = {0};
    open_named(f, &opener, "s1");
    assert_int_equal(opener.err.code, KG_OK);
}

int
test_session_kernels(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, session_setup, session_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_further_kernels),
        TEST(test_they_run_at_the_same_time),
        TEST(test_what_is_refused),
        TEST(test_a_folder_that_is_missing),
        TEST(test_one_that_cannot_be_started),
        TEST(test_who_has_left),
        TEST(test_a_restart_of_one),
        TEST(test_removing_one),
        TEST(test_removing_one_that_starts),
        TEST(test_the_last_kernel_is_removed),
        TEST(test_an_older_agent),
        TEST(test_the_session_ends_meanwhile),
        cmocka_unit_test_setup_teardown(test_a_home, session_setup_with_pool, session_teardown),
        TEST(test_a_home_by_exec),
        TEST(test_the_next_gateway_finds_them),
        TEST(test_removing_one_that_is_adopted),
        TEST(test_the_next_gateway_starts_none),
    };
    return cmocka_run_group_tests_name("session: kernels", tests, NULL, NULL);
}
