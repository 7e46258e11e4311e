// SPDX-License-Identifier: Apache-2.0
// One kernel in a fake sandbox.

#include "test_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "virtual_clock.h"

// ---- Lines ----------------------------------------------------------------------------------

json_t *
take_line(struct subscription *reader)
{
    size_t len;
    const char *text = subscription_next(reader, &len);
    if (!text)
        return NULL;
    json_t *line = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    assert_non_null(line);
    return line;
}

static void
on_ready_ignored(void *arg)
{
    (void)arg;
}

json_t *
all_lines(struct execution *execution)
{
    KG_AUTO(subscription) reader = execution_subscribe(execution, 0, on_ready_ignored, NULL);
    json_t *lines = json_array();
    for (json_t *line; (line = take_line(reader));)
        json_array_append_new(lines, line);
    return lines;
}

static const char *
text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

void
assert_done(struct execution *execution, const char *status, bool restarted)
{
    json_auto_t *lines = all_lines(execution);
    const json_t *done = json_array_get(lines, json_array_size(lines) - 1);
    assert_string_equal(text_of(done, "type"), "done");
    assert_string_equal(text_of(done, "status"), status);
    assert_string_equal(text_of(done, "session_id"), "s1");
    assert_int_equal(json_is_true(json_object_get(done, "kernel_restarted")), restarted);
}

void
assert_last_error(struct execution *execution, const char *ename, const char *evalue_part)
{
    json_auto_t *lines = all_lines(execution);
    assert_true(json_array_size(lines) >= 2);
    const json_t *error = json_array_get(lines, json_array_size(lines) - 2);
    assert_string_equal(text_of(error, "type"), "error");
    assert_string_equal(text_of(error, "ename"), ename);
    assert_non_null(strstr(text_of(error, "evalue"), evalue_part));
}

// ---- What sandbox and kernel tell -----------------------------------------------------------

static void
on_sandbox_ready(struct sandbox *sandbox, void *arg)
{
    (void)sandbox;
    (void)arg;
}

static void
on_sandbox_gone(struct sandbox *sandbox, const struct kg_error *reason, void *arg)
{
    (void)sandbox;
    (void)arg;
    fail_msg("%s", reason->message);
}

static void
on_kernel_exit(struct sandbox *sandbox, const char *name, int pid, int exit_code, int signal,
               bool oom, void *arg)
{
    struct fixture *f = arg;
    (void)sandbox;
    assert_string_equal(name, f->spec.name);
    kernel_on_exit(f->kernel, pid, exit_code, signal, oom);
}

static const struct sandbox_events sandbox_events = {on_sandbox_ready, on_sandbox_gone,
                                                     on_kernel_exit, NULL, NULL, NULL};

static void
on_started(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    assert_true(kernel == f->kernel); // so kernel_new() has returned
    f->started++;
    f->start_err = err ? *err : (struct kg_error){0};
}

static void
on_execution_done(struct kernel *kernel, struct execution *execution, void *arg)
{
    struct fixture *f = arg;
    (void)kernel;
    assert_int_equal(execution_state(execution), EXECUTION_DONE);
    f->done++;
}

static void
on_broken(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    (void)kernel;
    assert_int_not_equal(err->code, KG_OK);
    f->broken++;
}

static const struct kernel_events kernel_events = {
    .on_started = on_started,
    .on_execution_done = on_execution_done,
    .on_broken = on_broken,
};

static void
on_restarted(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->restarted++;
    f->restart_err = err ? *err : (struct kg_error){0};
}

int
restart(struct fixture *f, struct kg_error *err)
{
    return kernel_restart(f->kernel, on_restarted, f, err);
}

// ---- The fixture ----------------------------------------------------------------------------

void
fixture_turn(struct fixture *f)
{
    virtual_clock_turn(f->loop);
    assert_true(wait_now_ms() < f->give_up_ms);
}

void
make_sandbox(struct fixture *f, struct kg_error *err)
{
    static const struct sandbox_spec sandbox_spec = {.ready_timeout_ms = 1000};
    f->sandbox = sandbox_create(NULL, &sandbox_spec, &sandbox_events, f, err);
    assert_non_null(f->sandbox);
    RUN_UNTIL(f, sandbox_state(f->sandbox) == SANDBOX_READY);
}

int
fixture_setup(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    struct kg_error err = {0};
    f->loop = loop_new();
    f->give_up_ms = wait_now_ms() + PATIENCE_MS;
    fake_sandboxes_init(f->loop);
    f->env = json_pack("{s:s, s:s}", "A", "every kernel's", "B", "every kernel's");
    f->context = (struct kernel_context){
        .loop = f->loop,
        .executions = executions_new(
            f->loop, &(const struct executions_settings){.max_log_bytes = 1 << 20,
                                                         .max_live_bytes = 1 << 30,
                                                         .max_replay_bytes = 1 << 20,
                                                         .max_waiting_bytes = 96 << 10,
                                                         .max_timeout_ms = 3600 * 1000,
                                                         .tool_call_timeout_ms = TOOL_CALL_MS,
                                                         .max_tool_calls = TOOL_CALLS_MAX}),
        .start_timeout_ms = DEADLINE_MS,
        .env = f->env,
    };
    f->spec = (struct kernelspec){
        .name = kg_strdup("python"),
        .argv = json_pack("[s]", "python"),
        .env = json_pack("{s:s, s:s}", "B", "the kernelspec's", "C", "the kernelspec's"),
        .transport = kg_strdup("ipc"),
        .variables_code = kg_strdup("set {json}"),
        .env_code = kg_strdup("env {json}"),
        .env_restore_code = kg_strdup("restore {json}"),
    };
    make_sandbox(f, &err);
    *state = f;
    return 0;
}

int
fixture_teardown(void **state)
{
    struct fixture *f = *state;
    kernel_free(f->kernel, NULL);
    sandbox_free(f->sandbox);
    executions_free(f->context.executions);
    fake_sandboxes_fini();
    loop_free(f->loop);
    json_decref(f->env);
    json_decref(f->spec.argv);
    json_decref(f->spec.env);
    free(f->spec.name);
    free(f->spec.transport);
    free(f->spec.startup_code);
    free(f->spec.variables_code);
    free(f->spec.env_code);
    free(f->spec.env_restore_code);
    free(f);
    return 0;
}

void
start_kernel(struct fixture *f)
{
    json_auto_t *env = json_pack("{s:s}", "C", "the session's");
    const struct kernel_settings settings = {.spec = &f->spec, .env = env};
    f->kernel = kernel_new(&f->context, f->sandbox, &settings, &kernel_events, f);
}

void
start_ready_kernel(struct fixture *f)
{
    start_kernel(f);
    RUN_UNTIL(f, f->started > 0);
    assert_int_equal(f->start_err.code, KG_OK);
    fake_journal_clear();
}

void
adopt_busy_kernel(struct fixture *f, int64_t timeout_ms)
{
    fake_script.mute = true;
    start_kernel(f);
    RUN_UNTIL(f, f->kernel->process.channels);
    fake_script.mute = false;
    json_auto_t *process = json_pack("{s:i, s:s, s:s}", "pid", f->kernel->process.pid, "key",
                                     f->kernel->process.key, "state", "running");
    kernel_free(f->kernel, NULL);
    const struct kernel_settings settings = {.spec = &f->spec};
    f->kernel =
        kernel_adopt(&f->context, f->sandbox, &settings, process, timeout_ms, &kernel_events, f);
    assert_non_null(f->kernel);
    assert_true(kernel_is_busy(f->kernel));
    fake_journal_clear();
}

void
run_until_done(struct fixture *f, struct execution *execution)
{
    RUN_UNTIL(f, execution_state(execution) == EXECUTION_DONE);
}

static struct execution *
request(struct fixture *f, const struct execution_request *request, struct kg_error *err)
{
    virtual_clock_move(1); // executions are ordered by their times
    return kernel_execute(f->kernel, request, err);
}

struct execution *
execute_for(struct fixture *f, const char *code, int64_t timeout_ms)
{
    struct kg_error err = {0};
    struct execution *execution =
        request(f,
                &(struct execution_request){
                    .owner = "me", .session_id = "s1", .code = code, .timeout_ms = timeout_ms},
                &err);
    assert_non_null(execution);
    return execution;
}

struct execution *
execute(struct fixture *f, const char *code)
{
    return execute_for(f, code, DEADLINE_MS);
}

static char *
values_text(const json_t *values)
{
    const size_t flags = JSON_COMPACT | JSON_ENSURE_ASCII;
    return json_object_size(values) > 0 ? json_dumps(values, flags) : NULL;
}

struct execution *
execute_with(struct fixture *f, const char *code, const json_t *variables, const json_t *env,
             struct kg_error *err)
{
    KG_AUTO_FREE char *variables_text = values_text(variables);
    KG_AUTO_FREE char *env_text = values_text(env);
    return request(f,
                   &(struct execution_request){.owner = "me",
                                               .session_id = "s1",
                                               .code = code,
                                               .variables = variables_text,
                                               .env = env_text,
                                               .timeout_ms = DEADLINE_MS},
                   err);
}
