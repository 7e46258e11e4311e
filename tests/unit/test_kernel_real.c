// SPDX-License-Identifier: Apache-2.0
// Real ipykernels, which are children of this test. Taps: comm messages with buffers, input,
// completion and inspection, beside executions. Two kernels of one kernelspec, in folders of their
// own.

#include "child_sandbox.h"
#include "jupyter.h"
#include "kernel.h"
#include "tap_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <event2/event.h>

enum { DEADLINE_MS = 150 * 1000 };

struct fixture {
    struct loop *loop;
    struct loop_timer *deadline;
    bool timed_out;
    struct kernel_context context;
    struct kernelspec spec;
    struct sandbox *sandbox;
    struct kernel *kernel;
    struct tap_client *client;
    bool started, restarted;
};

static void
on_deadline(void *arg)
{
    struct fixture *f = arg;
    f->timed_out = true;
}

#define RUN_UNTIL(f, condition)                                                                    \
    while (!(condition)) {                                                                         \
        event_base_loop(loop_event_base((f)->loop), EVLOOP_ONCE);                                  \
        if ((f)->timed_out)                                                                        \
            fail_msg("too long: " #condition);                                                     \
    }

static void
on_started(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    (void)kernel;
    if (err)
        fail_msg("%s; script/setup makes build/kernels/python", err->message);
    f->started = true;
}

static void
on_execution_done(struct kernel *kernel, struct execution *execution, void *arg)
{
    (void)kernel;
    (void)execution;
    (void)arg;
}

static void
on_broken(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    (void)kernel;
    (void)arg;
    fail_msg("%s", err->message);
}

static const struct kernel_events kernel_events = {
    .on_started = on_started, .on_execution_done = on_execution_done, .on_broken = on_broken};

static int
setup(void **state)
{
    static const struct executions_settings settings = {
        .max_log_bytes = 1 << 20, .max_live_bytes = 64 << 20, .max_replay_bytes = 1 << 20};
    struct fixture *f = KG_NEW(struct fixture);
    f->loop = loop_new();
    f->deadline = loop_timer_new(f->loop, on_deadline, f);
    loop_timer_start(f->deadline, DEADLINE_MS);
    f->context = (struct kernel_context){.loop = f->loop,
                                         .executions = executions_new(f->loop, &settings),
                                         .start_timeout_ms = DEADLINE_MS};
    f->spec = (struct kernelspec){
        .name = (char *)(uintptr_t) "python",
        .argv = json_pack("[s,s,s,s,s]", KERNEL_PYTHON, "-m", "ipykernel_launcher", "-f",
                          "{connection_file}"),
        .env = json_object(),
        .transport = (char *)(uintptr_t) "ipc",
        .folder_code = (char *)(uintptr_t) "__import__('kernelgate_kernel').set_folder({json})",
    };
    f->sandbox = child_sandbox_new(f->loop);
    const struct kernel_settings for_python = {.spec = &f->spec};
    f->kernel = kernel_new(&f->context, f->sandbox, &for_python, &kernel_events, f);
    f->client = tap_client_new(f->kernel, "notebook", 0);
    *state = f;
    RUN_UNTIL(f, f->started && tap_client_find_event(f->client, KERNEL_TAP_READY));
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    tap_client_free(f->client);
    kernel_free(f->kernel, NULL);
    child_sandbox_free(f->sandbox);
    executions_free(f->context.executions);
    json_decref(f->spec.argv);
    json_decref(f->spec.env);
    loop_timer_free(f->deadline);
    loop_free(f->loop);
    free(f);
    return 0;
}

static struct execution *
execute_in(struct kernel *kernel, const char *code)
{
    struct kg_error err = {0};
    const struct execution_request request = {
        .owner = "me", .session_id = "s", .code = code, .timeout_ms = DEADLINE_MS};
    struct execution *execution = kernel_execute(kernel, &request, &err);
    assert_non_null(execution);
    return execution;
}

static struct execution *
execute(struct fixture *f, const char *code)
{
    return execute_in(f->kernel, code);
}

static void
on_line(void *arg)
{
    (void)arg;
}

// The stdout of an execution, and the status of its `done` line.
static char *
outcome_of(struct execution *execution)
{
    KG_AUTO_BUF text = {0};
    size_t len;
    KG_AUTO(subscription) reader = execution_subscribe(execution, 0, on_line, NULL);
    for (const char *line; (line = subscription_next(reader, &len));) {
        json_auto_t *members = json_loadb(line, len, 0, NULL);
        const char *type = json_string_value(json_object_get(members, "type"));
        const char *key = strcmp(type, "done") == 0 ? "status" : "text";
        const char *value = json_string_value(json_object_get(members, key));
        buf_append_str(&text, value ? value : type);
    }
    return buf_take(&text);
}

static void
assert_outcome(struct fixture *f, struct execution *execution, const char *expected)
{
    RUN_UNTIL(f, execution_state(execution) == EXECUTION_DONE);
    KG_AUTO_FREE char *outcome = outcome_of(execution);
    assert_string_equal(outcome, expected);
}

static const struct tap_got *
wait_for(struct fixture *f, enum kernel_channel channel, const char *type)
{
    RUN_UNTIL(f, tap_client_find(f->client, channel, type));
    return tap_client_find(f->client, channel, type);
}

static void
touch(struct fixture *f, const char *name)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sandbox_dir(f->sandbox), name);
    assert_int_equal(file_write_atomic(path, "", 0, 0600, NULL), 0);
}

// An execution that prints, waits for a file, and prints again.
static struct execution *
start_waiting(struct fixture *f, const char *name)
{
    KG_AUTO_FREE char *code = kg_asprintf("import os, time\n"
                                          "print('begin', flush=True)\n"
                                          "while not os.path.exists('%s'): time.sleep(0.01)\n"
                                          "print('end')",
                                          name);
    struct execution *execution = execute(f, code);
    wait_for(f, KERNEL_IOPUB, "stream"); // a tap hears executions, too
    return execution;
}

static void
test_completion_and_inspection_beside_an_execution(void **state)
{
    struct fixture *f = *state;
    tap_client_clear(f->client);
    KG_AUTO(execution) ours = start_waiting(f, "go-complete");
    tap_client_say(f->client, KERNEL_SHELL, "complete_request",
                   json_pack("{s:s, s:i}", "code", "prin", "cursor_pos", 4));
    tap_client_say(f->client, KERNEL_SHELL, "inspect_request",
                   json_pack("{s:s, s:i, s:i}", "code", "len", "cursor_pos", 3, "detail_level", 0));
    assert_int_equal(execution_state(ours), EXECUTION_RUNNING);
    touch(f, "go-complete");
    assert_outcome(f, ours, "begin\nend\nok");

    const struct tap_got *completed = wait_for(f, KERNEL_SHELL, "complete_reply");
    KG_AUTO_FREE char *matches = json_dumps(json_object_get(completed->content, "matches"), 0);
    assert_non_null(strstr(matches, "print"));
    const struct tap_got *inspected = wait_for(f, KERNEL_SHELL, "inspect_reply");
    assert_true(json_is_true(json_object_get(inspected->content, "found")));
    assert_string_equal(json_string_value(json_object_get(inspected->parent, "session")),
                        "notebook");
}

static void
test_input_beside_an_execution(void **state)
{
    struct fixture *f = *state;
    tap_client_clear(f->client);
    KG_AUTO(execution) before = start_waiting(f, "go-input");
    tap_client_execute(f->client, "name = input('who? ')\nprint('hello', name)");
    KG_AUTO(execution) after = execute(f, "print('after', name)");
    assert_int_equal(execution_state(before), EXECUTION_RUNNING);
    touch(f, "go-input");
    assert_outcome(f, before, "begin\nend\nok");
    const struct tap_got *asked = wait_for(f, KERNEL_STDIN, "input_request");
    assert_string_equal(json_string_value(json_object_get(asked->content, "prompt")), "who? ");
    assert_true(kernel_is_busy(f->kernel));
    assert_int_equal(execution_state(after), EXECUTION_QUEUED); // until the tap's has ended
    tap_client_clear(f->client);
    tap_client_say(f->client, KERNEL_STDIN, "input_reply", json_pack("{s:s}", "value", "Ada"));
    const struct tap_got *said = wait_for(f, KERNEL_IOPUB, "stream");
    assert_string_equal(json_string_value(json_object_get(said->content, "text")), "hello Ada\n");
    assert_outcome(f, after, "after Ada\nok");
    RUN_UNTIL(f, !kernel_is_busy(f->kernel));
}

static void
test_comm_messages_and_buffers_beside_an_execution(void **state)
{
    struct fixture *f = *state;
    tap_client_clear(f->client);
    tap_client_execute(f->client,
                       "def opened(comm, message):\n"
                       "    def got(message):\n"
                       "        back = [bytes(b)[::-1] for b in message['buffers']]\n"
                       "        comm.send({'got': message['content']['data']}, buffers=back)\n"
                       "    comm.on_msg(got)\n"
                       "get_ipython().kernel.comm_manager.register_target('echo', opened)");
    RUN_UNTIL(f, tap_client_is_idle(f->client));
    KG_AUTO(execution) ours = start_waiting(f, "go-comm");
    tap_client_say(f->client, KERNEL_SHELL, "comm_open",
                   json_pack("{s:s, s:s, s:{}}", "comm_id", "c1", "target_name", "echo", "data"));
    tap_client_say(f->client, KERNEL_SHELL, "comm_msg",
                   json_pack("{s:s, s:{s:i}}", "comm_id", "c1", "data", "x", 7));
    assert_int_equal(execution_state(ours), EXECUTION_RUNNING);
    touch(f, "go-comm");
    assert_outcome(f, ours, "begin\nend\nok");
    const struct tap_got *echoed = wait_for(f, KERNEL_IOPUB, "comm_msg");
    json_auto_t *expected = json_pack("{s:{s:i}}", "got", "x", 7);
    assert_true(json_equal(json_object_get(echoed->content, "data"), expected));
    assert_int_equal(echoed->buffer_len, 8);
    assert_memory_equal(echoed->buffer, "reffub\1\0", 8);
}

// ipykernel aborts what it has queued when code fails, and what comes right behind it. An execution
// is not lost by that.
static void
test_an_execution_after_code_that_fails(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 10; i++) {
        tap_client_clear(f->client);
        tap_client_execute(f->client, "1 / 0");
        tap_client_execute(f->client, "2 / 0");
        KG_AUTO(execution) ours = execute(f, "print('ours')");
        assert_outcome(f, ours, "ours\nok");
        RUN_UNTIL(f, tap_client_is_idle(f->client));
        assert_non_null(tap_client_find(f->client, KERNEL_IOPUB, "error"));
    }
}

static void
on_restarted(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    assert_null(err);
    f->restarted = true;
}

static void
test_a_restart_keeps_the_tap(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    tap_client_clear(f->client);
    tap_client_execute(f->client, "input()");
    wait_for(f, KERNEL_STDIN, "input_request");
    assert_int_equal(kernel_restart(f->kernel, on_restarted, f, &err), 0);
    RUN_UNTIL(f, tap_client_find_event(f->client, KERNEL_TAP_READY));
    assert_true(f->restarted);
    tap_client_clear(f->client);
    tap_client_execute(f->client, "print(input())");
    wait_for(f, KERNEL_STDIN, "input_request");
    tap_client_say(f->client, KERNEL_STDIN, "input_reply", json_pack("{s:s}", "value", "again"));
    const struct tap_got *said = wait_for(f, KERNEL_IOPUB, "stream");
    assert_string_equal(json_string_value(json_object_get(said->content, "text")), "again\n");
}

// ---- Several kernels ------------------------------------------------------------------------

static struct kernel *
start_named(struct fixture *f, const char *name, const char *folder, const char *home)
{
    const struct kernel_settings settings = {
        .spec = &f->spec, .name = name, .folder = folder, .home = home};
    f->started = false;
    struct kernel *kernel = kernel_new(&f->context, f->sandbox, &settings, &kernel_events, f);
    RUN_UNTIL(f, f->started);
    return kernel;
}

static void
assert_prints(struct fixture *f, struct kernel *kernel, const char *code, const char *expected)
{
    KG_AUTO(execution) execution = execute_in(kernel, code);
    KG_AUTO_FREE char *outcome = kg_asprintf("%s\nok", expected);
    assert_outcome(f, execution, outcome);
}

static const char where[] = "import os; print(os.getcwd(), os.environ.get('HOME'), _dh[0])";

static void
test_two_of_one_kernelspec(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    KG_AUTO_FREE char *home = kg_asprintf("%s/home \"é\"", sandbox_dir(f->sandbox));
    KG_AUTO_FREE char *folder = kg_asprintf("%s/folder", sandbox_dir(f->sandbox));
    KG_AUTO_FREE char *at_home = kg_asprintf("%s %s %s", home, home, home);
    KG_AUTO_FREE char *in_folder = kg_asprintf("%s %s %s", folder, home, folder);
    KG_AUTO_FREE char *to_go = kg_asprintf("x = 1; open('%s/f', 'w').write('a') and None; "
                                           "print('made')",
                                           folder);
    struct kernel *a = start_named(f, "a", home, home);
    struct kernel *b = start_named(f, "b", folder, home);
    assert_prints(f, b, where, in_folder);
    assert_prints(f, a, where, at_home);
    assert_prints(f, a, to_go, "made");
    assert_prints(f, b, "print('x' in globals(), open('f').read())", "False a");

    // They run at the same time: each waits for what the other one makes.
    KG_AUTO(execution)
    waits = execute_in(a, "import os, time\n"
                          "while not os.path.exists('../folder/b'): "
                          "time.sleep(0.01)\nprint(1)");
    assert_prints(f, b, "os.chdir('..'); open('folder/b', 'w'); x = 2; print(x)", "2");
    assert_outcome(f, waits, "1\nok");

    // One is restarted, back in its folder, which is made again; the other one stays where it is.
    KG_AUTO_FREE char *remove = kg_asprintf("import shutil; shutil.rmtree('%s'); print()", home);
    assert_prints(f, b, remove, "");
    f->restarted = false;
    assert_int_equal(kernel_restart(a, on_restarted, f, &err), 0);
    RUN_UNTIL(f, f->restarted);
    assert_prints(f, a, "print('x' in globals())", "False");
    assert_prints(f, a, where, at_home);
    assert_prints(f, b, "print(os.path.basename(os.getcwd())[:9], x)", "kg-child- 2");
    kernel_free(a, NULL);
    kernel_free(b, NULL);
}

// As one of the pool, and as one that another gateway takes over.
static void
test_a_folder_that_is_set_later(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *folder = kg_asprintf("%s/later", sandbox_dir(f->sandbox));
    KG_AUTO_FREE char *there = kg_asprintf("%s %s %s", folder, folder, folder);
    struct kernel *kernel = start_named(f, "c", NULL, NULL);
    kernel_set_folder(kernel, folder, folder);
    assert_prints(f, kernel, where, there);
    assert_prints(f, kernel, "os.chdir('/'); print()", "");
    kernel_set_folder(kernel, folder, folder);
    assert_prints(f, kernel, "print(os.getcwd())", "/");
    kernel_free(kernel, NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_completion_and_inspection_beside_an_execution),
        cmocka_unit_test(test_input_beside_an_execution),
        cmocka_unit_test(test_comm_messages_and_buffers_beside_an_execution),
        cmocka_unit_test(test_an_execution_after_code_that_fails),
        cmocka_unit_test(test_a_restart_keeps_the_tap),
        cmocka_unit_test(test_two_of_one_kernelspec),
        cmocka_unit_test(test_a_folder_that_is_set_later),
    };
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
    jupyter_init();
    int failed = cmocka_run_group_tests_name("kernel: ipykernel", tests, setup, teardown);
    jupyter_fini();
    return failed;
}
