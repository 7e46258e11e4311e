// SPDX-License-Identifier: Apache-2.0
// What the engine "docker" does with an engine that answers as a real one seldom does.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_server.h"
#include "test_docker.h"
#include "virtual_clock.h"

// What the engine says to one request.
struct answer {
    int status; // 0: nothing, ever
    const char *body;
};

struct fixture {
    struct loop *loop;
    char dir[32];
    struct fake_server *server;
    struct docker *docker;
    struct answer create, pull, start, list, events;
    int n_creates, n_pulls, n_starts, n_lists, n_events;
    int n_done, n_found, n_exits;
    char ended[SANDBOX_ID_MAX + 1]; // the sandbox that ended last
    struct kg_error err;
};

// ---- The engine -----------------------------------------------------------------------------

static struct answer
choose(struct fixture *f, const char *request)
{
    if (strstr(request, "POST /containers/create")) {
        f->n_creates++;
        return f->create;
    }
    if (strstr(request, "POST /images/create")) {
        f->n_pulls++;
        return f->pull;
    }
    if (strstr(request, "/start ")) {
        f->n_starts++;
        return f->start;
    }
    if (strstr(request, "GET /events")) {
        f->n_events++;
        return f->events;
    }
    if (strstr(request, "GET /containers/json")) {
        f->n_lists++;
        return f->list;
    }
    return (struct answer){404, "{\"message\":\"the script knows it not\"}"};
}

static struct fake_answer
answer(const char *request, void *arg)
{
    const struct answer chosen = choose(arg, request);
    return (struct fake_answer){
        .status = chosen.status,
        .body = chosen.body,
        .in_halves = true,
        .silent = chosen.status == 0,
    };
}

// ---- Fixture --------------------------------------------------------------------------------

static int
set_up(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    struct kg_error err = {0};
    f->loop = loop_new();
    strcpy(f->dir, "/tmp/kg-test-docker-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    KG_AUTO_FREE char *path = kg_asprintf("%s/engine.sock", f->dir);
    KG_AUTO_FREE char *host = kg_asprintf("unix://%s", path);
    f->server = fake_server_new(f->loop, path, answer, f);
    const struct provisioner_settings settings = {
        .engine = "docker",
        .state_dir = f->dir,
        .gateway_id = "abcdefgh",
        .image = "registry/image:1",
        .docker_host = host,
        .limits = {.memory_mb = 64, .disk_mb = 16, .tmp_mb = 16, .cpus = 1, .pids = 16},
    };
    f->docker = docker_open(f->loop, &settings, &err);
    assert_non_null(f->docker);
    assert_int_equal(docker_write_files(f->docker, "/etc/hostname", &err), 0);
    f->create = (struct answer){404, "{\"message\":\"No such image: registry/image:1\"}"};
    f->pull = (struct answer){200, "{\"status\":\"Pulling\"}\r\n{\"status\":\"Done\"}\r\n"};
    f->list = (struct answer){200, "[]"};
    *state = f;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    PASS_TIME_UNTIL(f, provisioner_is_idle(&f->docker->base));
    docker_close(f->docker);
    fake_server_free(f->server);
    loop_free(f->loop);
    assert_int_equal(path_remove_tree(f->dir, &err), 0);
    free(f);
    return 0;
}

static void
on_done(const struct kg_error *err, void *arg)
{
    struct fixture *f = arg;
    f->n_done++;
    f->err = err ? *err : (struct kg_error){0};
}

static void
on_exit_of(const char *id, void *arg)
{
    struct fixture *f = arg;
    f->n_exits++;
    snprintf(f->ended, sizeof f->ended, "%s", id);
}

static struct provisioner_op *
ask_for(struct fixture *f, const char *id)
{
    const struct provisioner_sandbox_spec spec = {.id = id, .agent_idle_timeout_s = 60};
    struct kg_error err = {0};
    struct provisioner_op *op =
        provisioner_create(&f->docker->base, &spec, on_done, on_exit_of, f, &err);
    assert_non_null(op);
    return op;
}

static void
assert_said(const struct fixture *f, const char *words)
{
    if (!strstr(f->err.message, words))
        fail_msg("\"%s\" says nothing of \"%s\"", f->err.message, words);
}

// ---- Pulls ----------------------------------------------------------------------------------

static void
test_an_image_that_stays_missing(void **state)
{
    struct fixture *f = *state;
    (void)ask_for(f, "a");
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_said(f, "No such image");
    assert_int_equal(f->n_pulls, 1);
    assert_int_equal(f->n_creates, 2);
}

static void
test_why_a_pull_failed(void **state)
{
    static const struct {
        struct answer answer;
        const char *words;
    } cases[] = {
        {{200, "{\"errorDetail\":{\"message\":\"the reason\"},\"error\":\"an old one\"}\r\n"},
         "the reason"},
        {{200, "{\"error\":\"an old one\"}\r\n"}, "an old one"},
        {{500, "{\"message\":\"refused, for reasons that take their time\"}"},
         "refused, for reasons that take their time"},
        {{500, "<html>"}, "refused"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        f->pull = cases[i].answer;
        (void)ask_for(f, "a");
        PASS_TIME_UNTIL(f, f->n_done == (int)i + 1);
        assert_said(f, cases[i].words);
        assert_said(f, "registry/image:1");
    }
}

static void
test_a_pull_that_goes_silent(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    f->docker->pull.silence_ms = 1000;
    f->pull = (struct answer){0};
    struct provisioner_op *op = ask_for(f, "a");
    PASS_TIME_UNTIL(f, f->n_pulls == 1);
    assert_true(provisioner_op_explain(op, &err));
    assert_non_null(strstr(err.message, "registry/image:1 is being pulled"));
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_said(f, "no progress");
    // The next one is not kept by it.
    (void)ask_for(f, "b");
    PASS_TIME_UNTIL(f, f->n_done == 2 && f->n_pulls == 2);
}

// ---- Creates --------------------------------------------------------------------------------

static void
test_warnings_and_a_container_that_runs_already(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    f->create = (struct answer){201, "{\"Id\":\"c0ffee\",\"Warnings\":[\"no swap limit\"]}"};
    f->start = (struct answer){304, ""};
    struct provisioner_op *op = ask_for(f, "a");
    assert_false(provisioner_op_explain(op, &err));
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_OK);
    assert_true(f->docker->warned);
    assert_non_null(watch_find(&f->docker->base, "a"));
}

// ---- Events ---------------------------------------------------------------------------------

static void
listen_in_vain(struct fixture *f, struct answer events)
{
    int64_t began_ms = clock_mono_ms();
    f->events = events;
    docker_monitor_start(f->docker);
    PASS_TIME_UNTIL(f, f->n_events == 3);
    assert_true(clock_mono_ms() - began_ms >= 2000); // a second between two
    assert_true(f->n_lists <= f->n_events + 1);
}

static void
test_events_that_end_at_once(void **state)
{
    listen_in_vain(*state, (struct answer){200, ""});
    assert_false((*(struct fixture **)state)->docker->monitor.no_events);
}

static void
test_events_that_are_refused(void **state)
{
    struct fixture *f = *state;
    listen_in_vain(f, (struct answer){500, "{\"message\":\"not today\"}"});
    assert_true(f->docker->monitor.no_events);
    assert_false(f->docker->monitor.down); // nor said to be back each time
}

#define LABELS(sandbox) "\"kernelgate.gateway\":\"abcdefgh\",\"kernelgate.sandbox\":\"" sandbox "\""
#define RUNS(container, sandbox)                                                                   \
    "{\"Id\":\"" container "\",\"State\":\"running\",\"Names\":[\"/kg-abcdefgh-" sandbox "\"],"    \
    "\"Labels\":{" LABELS(sandbox) "}}"
#define DIED(container, sandbox)                                                                   \
    "{\"Action\":\"die\",\"Actor\":{\"ID\":\"" container "\",\"Attributes\":{"                     \
    "\"name\":\"kg-abcdefgh-" sandbox "\"," LABELS(sandbox) "}}}\n"

// A container that had the name of sandbox "a" was removed for it, and the report of its end comes
// late. That of the container of sandbox "b" comes after it.
static void
set_late_report(struct fixture *f)
{
    f->list = (struct answer){200, "[" RUNS("new", "a") "," RUNS("other", "b") "]"};
    f->events = (struct answer){200, DIED("old", "a") DIED("other", "b")};
}

static void
assert_only_b_ends(struct fixture *f)
{
    PASS_TIME_UNTIL(f, f->n_exits > 0);
    assert_int_equal(f->n_exits, 1);
    assert_string_equal(f->ended, "b");
    assert_non_null(watch_find(&f->docker->base, "a"));
}

static void
test_the_end_of_another_container_of_that_name(void **state)
{
    struct fixture *f = *state;
    f->start = (struct answer){204, ""};
    f->events = (struct answer){0};
    f->create = (struct answer){201, "{\"Id\":\"new\"}"};
    (void)ask_for(f, "a");
    PASS_TIME_UNTIL(f, f->n_done == 1 && f->n_events == 1);
    f->create = (struct answer){201, "{\"Id\":\"other\"}"};
    (void)ask_for(f, "b");
    PASS_TIME_UNTIL(f, f->n_done == 2);
    // As if the stream of events had broken.
    http_call_cancel(KG_STEAL(f->docker->monitor.events));
    set_late_report(f);
    loop_timer_start(f->docker->monitor.timer, 0);
    assert_only_b_ends(f);
}

static void
on_found(const char *id, const json_t *meta, void *arg)
{
    struct fixture *f = arg;
    (void)id;
    (void)meta;
    f->n_found++;
}

// The same for sandboxes that an earlier run of the gateway has made.
static void
test_the_end_of_another_container_after_a_recovery(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    assert_int_equal(folder_make(f->dir, "a", &err), 0);
    assert_int_equal(folder_make(f->dir, "b", &err), 0);
    set_late_report(f);
    assert_non_null(provisioner_recover(&f->docker->base, on_found, on_done, on_exit_of, f, &err));
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->n_found, 2);
    assert_only_b_ends(f);
}

#define WITH_ENGINE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

const struct CMUnitTest docker_fault_tests[] = {
    WITH_ENGINE(test_an_image_that_stays_missing),
    WITH_ENGINE(test_why_a_pull_failed),
    WITH_ENGINE(test_a_pull_that_goes_silent),
    WITH_ENGINE(test_warnings_and_a_container_that_runs_already),
    WITH_ENGINE(test_events_that_end_at_once),
    WITH_ENGINE(test_events_that_are_refused),
    WITH_ENGINE(test_the_end_of_another_container_of_that_name),
    WITH_ENGINE(test_the_end_of_another_container_after_a_recovery),
};
const size_t n_docker_fault_tests = KG_ARRAY_LEN(docker_fault_tests);
