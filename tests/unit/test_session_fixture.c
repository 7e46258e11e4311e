// SPDX-License-Identifier: Apache-2.0
// A registry over fake sandboxes.

#include "test_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "sessions_priv.h"
#include "virtual_clock.h"

// ---- The fixture ----------------------------------------------------------------------------

void
session_turn(struct fixture *f)
{
    virtual_clock_turn(f->loop);
    assert_true(wait_now_ms() < f->give_up_ms);
}

static void
write_specs(const char *dir)
{
    for (int i = 0; i < N_SPECS; i++) {
        KG_AUTO_FREE char *folder = kg_asprintf("%s/k%d", dir, i);
        KG_AUTO_FREE char *path = kg_asprintf("%s/kernel.json", folder);
        KG_AUTO_FREE char *json = kg_asprintf("{\"argv\":[\"k\"],\"language\":\"k\",\"env\":{%s},"
                                              "\"metadata\":{\"kernelgate\":{%s}}}",
                                              i == 0   ? "\"PATH\":\"/k0/bin:/bin\""
                                              : i == 1 ? "\"PATH\":\"/k1/bin::/bin\""
                                                       : "",
                                              i == 0 ? "\"variables\":\"set {json}\","
                                                       "\"folder\":\"go {json}\""
                                                     : "");
        assert_int_equal(dir_make(folder, 0700, NULL), 0);
        assert_int_equal(file_write_atomic(path, json, strlen(json), 0600, NULL), 0);
    }
}

static int
setup(void **state, int64_t pool_size, int64_t n_bare, bool evict_idle)
{
    struct fixture *f = KG_NEW(struct fixture);
    f->loop = loop_new();
    f->give_up_ms = wait_now_ms() + PATIENCE_MS;
    fake_sandboxes_init(f->loop);
    strcpy(f->dir, "/tmp/kg-session-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    write_specs(f->dir);
    f->specs = kernelspecs_load(f->dir, NULL);
    assert_non_null(f->specs);
    f->sandboxes = (struct sandbox_context){.loop = f->loop};
    f->kernels = (struct kernel_context){
        .loop = f->loop,
        .executions = executions_new(
            f->loop, &(const struct executions_settings){.max_log_bytes = 1 << 20,
                                                         .max_live_bytes = 1 << 30,
                                                         .max_replay_bytes = 1 << 20,
                                                         .max_timeout_ms = 3600 * 1000,
                                                         .tool_call_timeout_ms = 60 * 1000,
                                                         .max_tool_calls = 5000}),
        .start_timeout_ms = DEADLINE_MS,
    };
    f->settings = (struct sessions_settings){
        .sandboxes = &f->sandboxes,
        .kernels = &f->kernels,
        .specs = f->specs,
        .pooled_spec = kernelspecs_at(f->specs, 0),
        .pool_size = pool_size,
        .pool_bare = n_bare,
        .pool_max_forks = n_bare > 0,
        .max_sessions = n_bare > 0 ? 2 * MAX_SESSIONS : MAX_SESSIONS, // more than bare ones
        .evict_idle = evict_idle,
        .idle_timeout_s = 1800,
        .sandbox_start_timeout_ms = DEADLINE_MS,
        .adopt_timeout_ms = DEADLINE_MS,
        .max_further_kernels = 40,
        .max_tool_result_bytes = MAX_TOOL_RESULT,
    };
    f->sessions = sessions_new(f->loop, &f->settings);
    sessions_start(f->sessions);
    *state = f;
    return 0;
}

int
session_setup(void **state)
{
    return setup(state, 0, 0, false);
}

int
session_setup_evicting(void **state)
{
    return setup(state, 0, 0, true);
}

int
session_setup_with_pool(void **state)
{
    return setup(state, 2, 0, false);
}

int
session_setup_with_bare(void **state)
{
    return setup(state, 1, 2, false);
}

void
on_ended(void *arg)
{
    struct fixture *f = arg;
    f->ended++;
}

int
session_teardown(void **state)
{
    struct fixture *f = *state;
    f->ended = 0;
    f->give_up_ms = wait_now_ms() + PATIENCE_MS;
    sessions_end_all(f->sessions, "the test is over", on_ended, f);
    RUN_UNTIL(f, f->ended > 0);
    assert_int_equal(fake_sandboxes_count(), 0);
    sessions_free(f->sessions);
    package_sets_free(f->packages.sets);
    executions_free(f->kernels.executions);
    kernelspecs_free(f->specs);
    fake_sandboxes_fini();
    loop_free(f->loop);
    int removed = path_remove_tree(f->dir, NULL);
    free(f);
    return removed;
}

// Only what a session takes from it. The folders are not beside the kernelspecs.
void
give_packages(struct fixture *f)
{
    static const char *const names[] = {"", "/incoming", "/shared"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        KG_AUTO_FREE char *folder = kg_asprintf("%s/packages%s", f->dir, names[i]);
        assert_int_equal(dir_make(folder, 0700, NULL), 0);
    }
    KG_AUTO_FREE char *dir = kg_asprintf("%s/packages", f->dir);
    f->packages =
        (struct packages){.python = (char *)(uintptr_t) "/bin/python",
                          .sandboxes = &f->sandboxes,
                          .sets = package_sets_new(f->loop, dir, &package_set_limits_default, NULL),
                          .jobs = TAILQ_HEAD_INITIALIZER(f->packages.jobs)};
    assert_non_null(f->packages.sets);
    f->sessions->settings.packages = &f->packages;
}

// ---- Opening --------------------------------------------------------------------------------

struct session_request
named(struct fixture *f, const char *id)
{
    return (struct session_request){
        .owner = "me", .session_id = id, .kernelspec = kernelspecs_at(f->specs, 0)};
}

static void on_open(struct session *session, struct kernel *kernel, const struct kg_error *err,
                    void *arg);

void
start(struct fixture *f, struct opener *opener, const struct session_request *request)
{
    opener->f = f;
    opener->open = session_open_start(f->sessions, request, on_open, opener, &opener->err);
    assert_int_equal(opener->answers, 0);
}

struct execution *
execute(struct opener *opener, const char *code, const json_t *variables, struct kg_error *err)
{
    KG_AUTO_FREE char *text = variables ? json_dumps(variables, JSON_ENSURE_ASCII) : NULL;
    const struct session_code request = {
        .code = code, .variables = text, .timeout_ms = DEADLINE_MS};
    return session_execute(opener->session, opener->kernel, &request, err);
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
    if (opener->cancels)
        session_open_cancel(KG_STEAL(opener->cancels->open));
    if (opener->ends)
        session_end(session, NULL, on_ended, opener->f);
}

void
open_request(struct fixture *f, struct opener *opener, const struct session_request *request)
{
    start(f, opener, request);
    assert_non_null(opener->open);
    RUN_UNTIL(f, opener->answers > 0);
}

void
open_named(struct fixture *f, struct opener *opener, const char *id)
{
    const struct session_request request = named(f, id);
    open_request(f, opener, &request);
}
