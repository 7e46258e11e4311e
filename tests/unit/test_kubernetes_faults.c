// SPDX-License-Identifier: Apache-2.0
// What the engine "kubernetes" does with an API server that answers as a real one seldom does. It
// has a list of answers for each kind of request; the last one stays.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_kubernetes.h"
#include "virtual_clock.h"

enum kind { LIST, WATCH, READ, CREATE, CLAIM, DELETE };

// ---- The server -----------------------------------------------------------------------------

static int
kind_of(const char *request)
{
    if (strncmp(request, "POST ", 5) == 0)
        return CREATE;
    if (strncmp(request, "PATCH ", 6) == 0)
        return CLAIM;
    if (strncmp(request, "DELETE ", 7) == 0)
        return DELETE;
    if (strncmp(request, "GET /api/v1/namespaces/default/pods/", 36) == 0)
        return READ;
    const char *watch = strstr(request, "watch=1");
    return watch && watch < strchr(request, '\r') ? WATCH : LIST;
}

// ---- Fixture --------------------------------------------------------------------------------

#define POD(name, status)                                                                          \
    "{\"metadata\":{\"name\":\"kg-" name "\",\"resourceVersion\":\"9\",\"labels\":{"               \
    "\"kernelgate/installation\":\"abcdefgh\",\"kernelgate/state\":\"free\"},\"annotations\":{"    \
    "\"kernelgate/epoch\":\"1\"}},\"status\":" status "}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
static int
set_up(void **state)
{
    struct fixture *f = fixture_new(kind_of, NULL);
    f->answers[LIST][0].body = EMPTY;
    f->answers[WATCH][0] = (struct fake_answer){.status = 200, .body = "", .open = true};
    f->answers[CREATE][0].status = 201;
    *state = f;
    return 0;
}

static void
on_exit_of(const char *id, void *arg)
{
    struct fixture *f = arg;
    assert_string_equal(id, "a");
    f->n_exits++;
}

static struct provisioner_op *
ask_for(struct fixture *f)
{
    const struct provisioner_sandbox_spec spec = {.id = "a", .agent_idle_timeout_s = 60};
    struct kg_error err = {0};
    struct provisioner_op *op =
        provisioner_create(&f->kube->base, &spec, fixture_on_done, on_exit_of, f, &err);
    assert_non_null(op);
    return op;
}

static void
expect(const struct fixture *f, const char *words)
{
    if (!strstr(f->err.message, words))
        fail_msg("\"%s\" says nothing of \"%s\"", f->err.message, words);
}

// ---- Creates --------------------------------------------------------------------------------

static void
test_a_pod_that_comes_to_run(void **state)
{
    struct fixture *f = *state;
    struct kg_error err;
    uint64_t epoch;
    f->answers[WATCH][0].body =
        EVENT("ADDED", POD("a", "{\"phase\":\"Pending\"}")) EVENT("MODIFIED", POD("a", RUNNING));
    (void)ask_for(f);
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_OK);
    int fd = provisioner_dial(&f->kube->base, "a", &epoch, &err);
    assert_true(fd >= 0); // it is connecting; nobody has to listen
    close(fd);
    assert_int_equal(epoch, 1);
}

static void
test_too_many_requests(void **state)
{
    struct fixture *f = *state;
    f->answers[CREATE][0] = (struct fake_answer){.status = 429, .header = "Retry-After: 1\r\n"};
    f->answers[CREATE][1] = (struct fake_answer){.status = 503};
    f->answers[CREATE][2] = (struct fake_answer){.status = 201};
    f->answers[WATCH][0].body = EVENT("ADDED", POD("a", RUNNING));
    (void)ask_for(f);
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->n_requests[CREATE], 3);
    assert_int_equal(f->asked_ms[CREATE][1] - f->asked_ms[CREATE][0], 1000);
    assert_int_equal(f->asked_ms[CREATE][2] - f->asked_ms[CREATE][1], 1000);
}

static void
test_an_answer_that_was_lost(void **state)
{
    struct fixture *f = *state;
    f->answers[CREATE][0] = (struct fake_answer){.status = 504};
    f->answers[CREATE][1] =
        (struct fake_answer){.status = 409, .body = "{\"reason\":\"AlreadyExists\"}"};
    f->answers[WATCH][0].body = EVENT("ADDED", POD("a", RUNNING));
    (void)ask_for(f);
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_OK);
}

static void
test_no_answer_at_all(void **state)
{
    struct fixture *f = *state;
    f->answers[CREATE][0] = (struct fake_answer){.status = 201, .silent = true};
    f->answers[CREATE][1] = (struct fake_answer){.status = 201};
    f->answers[WATCH][0].body = EVENT("ADDED", POD("a", RUNNING));
    (void)ask_for(f);
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->n_requests[CREATE], 2);
}

static void
test_refusals(void **state)
{
    static const char quota[] = "{\"reason\":\"Forbidden\",\"message\":\"exceeded quota: boxes\"}";
    struct fixture *f = *state;
    f->answers[CREATE][0] = (struct fake_answer){.status = 403, .body = quota};
    f->answers[DELETE][0] = (struct fake_answer){.status = 200, .silent = true};
    (void)ask_for(f);
    PASS_TIME_UNTIL(f, f->n_done == 1);
    expect(f, "exceeded quota: boxes");
    assert_true(f->n_requests[DELETE] <= 1); // nobody waits for its answer
    PASS_TIME_UNTIL(f, f->n_requests[DELETE] == 2);
    assert_false(folder_exists(f->dir, "a"));
}

static void
test_an_image_that_is_missing(void **state)
{
    struct fixture *f = *state;
    f->answers[WATCH][0].body = EVENT(
        "ADDED", POD("a", "{\"phase\":\"Pending\",\"initContainerStatuses\":[{\"name\":\"agent\","
                          "\"state\":{\"waiting\":{\"reason\":\"ErrImagePull\",\"message\":"
                          "\"no agent:1\"}}}]}"));
    (void)ask_for(f);
    PASS_TIME_UNTIL(f, f->n_done == 1);
    expect(f, "cannot start: ErrImagePull: no agent:1");
}

static void
test_a_create_that_is_cancelled_while_the_pod_waits(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    f->answers[WATCH][0].body =
        EVENT("ADDED", POD("a", "{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\","
                                "\"status\":\"False\",\"reason\":\"Unschedulable\"}]}"));
    struct provisioner_op *op = ask_for(f);
    PASS_TIME_UNTIL(f, kube_pod_find(f->kube, "a") && f->n_requests[CREATE]);
    PASS_TIME_UNTIL(f, provisioner_op_explain(op, &err));
    assert_non_null(strstr(err.message, "Unschedulable"));
    provisioner_op_cancel(op);
    PASS_TIME_UNTIL(f, provisioner_is_idle(&f->kube->base));
    assert_int_equal(f->n_requests[DELETE], 1);
    assert_int_equal(f->n_done, 0);
}

// Nothing that was heard of the pod before says how it is now.
static void
test_a_create_while_the_pods_cannot_be_followed(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    f->answers[WATCH][0] = (struct fake_answer){.status = 500};
    struct provisioner_op *op = ask_for(f);
    PASS_TIME_UNTIL(f, provisioner_op_explain(op, &err) &&
                           strstr(err.message, "the API server fails: "));
    provisioner_op_cancel(op);
    PASS_TIME_UNTIL(f, provisioner_is_idle(&f->kube->base));
}

// ---- The watch ------------------------------------------------------------------------------

// A sandbox that runs, seen by the first watch, which ends then.
static void
make_sandbox(struct fixture *f)
{
    f->answers[WATCH][0] =
        (struct fake_answer){.status = 200, .body = EVENT("ADDED", POD("a", RUNNING))};
    (void)ask_for(f);
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_OK);
}

static void
test_a_watch_goes_on_from_the_last_version(void **state)
{
    struct fixture *f = *state;
    f->answers[WATCH][1] = (struct fake_answer){
        .status = 200, .body = EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"12\"}}")};
    f->answers[WATCH][2] = (struct fake_answer){
        .status = 200, .body = EVENT("DELETED", POD("a", RUNNING)), .open = true};
    make_sandbox(f);
    PASS_TIME_UNTIL(f, f->n_exits == 1);
    assert_int_equal(f->n_requests[LIST], 1);
    assert_non_null(strstr(f->lines.data, "resourceVersion=5&"));
    assert_non_null(strstr(f->lines.data, "resourceVersion=9&"));
    assert_non_null(strstr(f->lines.data, "resourceVersion=12&"));
}

static void
test_a_version_that_the_server_has_forgotten(void **state)
{
    static const char status[] = EVENT("ERROR", "{\"kind\":\"Status\",\"code\":410}");
    struct fixture *f = *state;
    const struct fake_answer gone[] = {{.status = 200, .body = status}, {.status = 410}};
    make_sandbox(f);
    for (int i = 0; i < 2; i++) {
        int n = f->n_requests[LIST];
        f->answers[LIST][0].body =
            "{\"metadata\":{\"resourceVersion\":\"20\"},\"items\":[" POD("a", RUNNING) "]}";
        f->answers[WATCH][1] = gone[i];
        PASS_TIME_UNTIL(f, f->n_requests[LIST] > n);
    }
    assert_int_equal(f->n_exits, 0);
    f->answers[LIST][0].body = EMPTY; // its end was not seen
    PASS_TIME_UNTIL(f, f->n_exits == 1);
}

static void
test_a_server_that_is_ill(void **state)
{
    struct fixture *f = *state;
    make_sandbox(f);
    f->answers[WATCH][1] = (struct fake_answer){.status = 500};
    PASS_TIME_UNTIL(f, f->kube->monitor.failure);
    PASS_TIME_UNTIL(f, f->n_requests[WATCH] >= 4);
    assert_int_equal(f->asked_ms[WATCH][2] - f->asked_ms[WATCH][1], 500);
    assert_int_equal(f->asked_ms[WATCH][3] - f->asked_ms[WATCH][2], 1000);
    assert_int_equal(f->n_exits, 0);
    f->answers[WATCH][1] =
        (struct fake_answer){.status = 200, .body = EVENT("DELETED", POD("a", "{}"))};
    PASS_TIME_UNTIL(f, f->n_exits == 1);
    assert_null(f->kube->monitor.failure);
}

static void
test_a_list_in_pages(void **state)
{
    struct fixture *f = *state;
    f->answers[LIST][0].body = "{\"metadata\":{\"resourceVersion\":\"5\",\"continue\":\"more/+\"},"
                               "\"items\":[" POD("a", RUNNING) "]}";
    f->answers[LIST][1] = (struct fake_answer){
        .status = 200,
        .body = "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[" POD("b", RUNNING) "]}"};
    kube_monitor_start(f->kube);
    PASS_TIME_UNTIL(f, f->n_requests[WATCH] == 1);
    assert_int_equal(f->n_requests[LIST], 2);
    assert_non_null(strstr(f->lines.data, "&continue=more%2F%2B"));
    assert_true(kube_pod_find(f->kube, "a") && kube_pod_find(f->kube, "b"));
}

static void
test_no_list(void **state)
{
    struct fixture *f = *state;
    f->answers[LIST][0].body = "<html>";
    kube_monitor_start(f->kube);
    PASS_TIME_UNTIL(f, f->kube->monitor.failure);
    f->answers[LIST][0].body = EMPTY;
    PASS_TIME_UNTIL(f, f->n_requests[WATCH] == 1);
    assert_null(f->kube->monitor.failure);
}

// Only those of this process are strays: another gateway may have the others by now.
static void
test_strays(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *list = kg_asprintf(
        "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[" POD(
            "b",
            RUNNING) ","
                     "{\"metadata\":{\"name\":\"kg-c\",\"labels\":{\"kernelgate/installation\":"
                     "\"abcdefgh\"},\"annotations\":{\"kernelgate/epoch\":\"1\","
                     "\"kernelgate/holder\":\"%s\"}}}]}",
        f->kube->holder);
    f->answers[LIST][0].body = list;
    kube_monitor_start(f->kube);
    PASS_TIME_UNTIL(f, f->n_requests[WATCH] == 1);
    loop_timer_fire(f->kube->monitor.sweep);
    PASS_TIME_UNTIL(f, f->n_requests[DELETE] && provisioner_is_idle(&f->kube->base));
    assert_int_equal(f->n_requests[DELETE], 1);
    assert_non_null(strstr(f->lines.data, "DELETE /api/v1/namespaces/default/pods/kg-c "));
}

static void
test_an_event_from_before_a_takeover(void **state)
{
    struct fixture *f = *state;
    make_sandbox(f);
    struct kube_pod *now = kube_pod_find(f->kube, "a");
    now->epoch = 2;
    f->answers[WATCH][1] =
        (struct fake_answer){.status = 200,
                             .body = EVENT("MODIFIED", POD("a", "{\"phase\":\"Pending\"}"))
                                 EVENT("ADDED", POD("b", RUNNING)),
                             .open = true};
    PASS_TIME_UNTIL(f, kube_pod_find(f->kube, "b"));
    const struct kube_pod *kept = kube_pod_find(f->kube, "a");
    assert_int_equal(kept->epoch, 2);
    assert_int_equal(kept->phase, KUBE_RUNNING);
}

// ---- Recoveries -----------------------------------------------------------------------------

static void
on_found(const char *id, const json_t *meta, void *arg)
{
    struct fixture *f = arg;
    assert_string_equal(id, "a");
    assert_null(meta);
    f->n_found++;
}

// Of one pod, which another process has made.
static void
recover(struct fixture *f)
{
    struct kg_error err = {0};
    f->answers[LIST][0].body =
        "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[" POD("a", RUNNING) "]}";
    assert_non_null(
        provisioner_recover(&f->kube->base, on_found, fixture_on_done, on_exit_of, f, &err));
    PASS_TIME_UNTIL(f, f->n_requests[CLAIM]);
    loop_timer_fire(f->kube->monitor.sweep); // its pod is no stray
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->n_requests[DELETE], 0);
}

static char *
taken_over(const char *holder)
{
    return kg_asprintf("{\"metadata\":{\"name\":\"kg-a\",\"labels\":{\"kernelgate/installation\":"
                       "\"abcdefgh\",\"kernelgate/state\":\"free\"},\"annotations\":{"
                       "\"kernelgate/epoch\":\"2\",\"kernelgate/holder\":\"%s\"}},"
                       "\"status\":" RUNNING "}",
                       holder);
}

static void
test_a_takeover_that_is_repeated(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *pod = taken_over(f->kube->holder);
    f->answers[CLAIM][0] = (struct fake_answer){.status = 429};
    f->answers[CLAIM][1] = (struct fake_answer){.status = 503};
    f->answers[CLAIM][2] = (struct fake_answer){.status = 200, .body = pod};
    recover(f);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->n_found, 1);
    assert_int_equal(kube_pod_find(f->kube, "a")->epoch, 2);
}

// Whose takeover was the first, when the second attempt finds another epoch.
static void
takeover_whose_answer_was_lost(struct fixture *f, const char *holder, int n_found)
{
    KG_AUTO_FREE char *pod = taken_over(holder);
    f->answers[CLAIM][0] = (struct fake_answer){.status = 504};
    f->answers[CLAIM][1] = (struct fake_answer){.status = 422};
    f->answers[READ][0] = (struct fake_answer){.status = 500};
    f->answers[READ][1] = (struct fake_answer){.status = 200, .body = pod};
    recover(f);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->n_found, n_found);
    assert_int_equal(f->n_requests[READ], 2);
}

static void
test_a_takeover_whose_answer_was_lost(void **state)
{
    struct fixture *f = *state;
    takeover_whose_answer_was_lost(f, f->kube->holder, 1);
}

static void
test_a_takeover_in_which_another_was_first(void **state)
{
    takeover_whose_answer_was_lost(*state, "another", 0);
}

// The gateway does not start, rather than end a session that it may have.
static void
test_a_takeover_without_success(void **state)
{
    struct fixture *f = *state;
    f->answers[CLAIM][0] = (struct fake_answer){.status = 429, .header = "Retry-After: 60\r\n"};
    recover(f);
    assert_int_equal(f->err.code, KG_PROVISIONER_UNAVAILABLE);
    assert_int_equal(f->n_found, 0);
}

static void
test_a_takeover_that_is_forbidden(void **state)
{
    struct fixture *f = *state;
    f->answers[CLAIM][0] = (struct fake_answer){.status = 403, .body = "{\"message\":\"not you\"}"};
    recover(f);
    expect(f, "not you");
    assert_int_equal(f->n_found, 0);
}

// ---- Claims and removals --------------------------------------------------------------------

static void
claim_with(struct fixture *f, json_t *meta, int64_t memory_mb)
{
    json_auto_t *stolen = meta;
    struct kg_error err = {0};
    int n = f->n_done;
    assert_non_null(
        provisioner_claim(&f->kube->base, "a", stolen, memory_mb, fixture_on_done, f, &err));
    PASS_TIME_UNTIL(f, f->n_done == n + 1);
}

static void
claim(struct fixture *f, json_t *meta)
{
    claim_with(f, meta, 0);
}

static void
test_claims(void **state)
{
    struct fixture *f = *state;
    make_sandbox(f);
    claim(f, json_pack("{s:s}", "session_id", "s"));
    assert_int_equal(f->err.code, KG_OK);
    int n_asked = f->n_requests[CLAIM];
    claim_with(f, json_object(), 128); // pods keep their limit
    assert_int_equal(f->err.code, KG_INVALID);
    assert_int_equal(f->n_requests[CLAIM], n_asked);
    // Only the record of a pod that is this gateway's is replaced.
    json_auto_t *record = json_pack("{s:s}", "session_id", "t");
    int n_done = f->n_done;
    assert_non_null(provisioner_record(&f->kube->base, "a", record, fixture_on_done, f, NULL));
    PASS_TIME_UNTIL(f, f->n_done == n_done + 1);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->n_requests[CLAIM], n_asked + 1);
    assert_non_null(strstr(f->latest[CLAIM], "\"value\":\"claimed\""));
    assert_non_null(strstr(f->latest[CLAIM], "1holder\""));
    assert_null(strstr(f->latest[CLAIM], "\"free\""));
    f->answers[CLAIM][0].status = 422; // a test of the patch has failed
    f->answers[CLAIM][1] = (struct fake_answer){.status = 422};
    claim(f, json_object());
    assert_int_equal(f->err.code, KG_NOT_FOUND);
    int n = f->n_requests[CLAIM];
    KG_AUTO_FREE char *large = kg_calloc(1, 300 << 10);
    memset(large, 'x', (300 << 10) - 1);
    claim(f, json_pack("{s:s}", "env", large));
    assert_int_equal(f->err.code, KG_INVALID);
    assert_int_equal(f->n_requests[CLAIM], n);
}

// Whose claim was the first, when the second attempt finds the pod claimed.
static void
test_a_claim_whose_answer_was_lost(void **state)
{
    static const struct {
        const char *pod;
        enum kg_code code;
    } pods[] = {
        {"{\"metadata\":{\"annotations\":{\"kernelgate/"
         "meta\":\"{\\\"session_id\\\":\\\"s\\\"}\"}}}",
         KG_OK},
        {"{\"metadata\":{\"annotations\":{\"kernelgate/meta\":\"{}\"}}}", KG_NOT_FOUND},
    };
    struct fixture *f = *state;
    make_sandbox(f);
    for (size_t i = 0; i < KG_ARRAY_LEN(pods); i++) {
        f->n_requests[CLAIM] = 0;
        f->answers[CLAIM][0] = (struct fake_answer){.status = 500};
        f->answers[CLAIM][1] = (struct fake_answer){.status = 422};
        f->answers[READ][0] = (struct fake_answer){.status = 200, .body = pods[i].pod};
        claim(f, json_pack("{s:s}", "session_id", "s"));
        assert_int_equal(f->err.code, pods[i].code);
    }
}

static void
test_a_removal_that_is_repeated(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    f->answers[DELETE][0] = (struct fake_answer){.status = 500};
    f->answers[DELETE][1] = (struct fake_answer){.status = 404};
    assert_non_null(provisioner_destroy(&f->kube->base, "a", fixture_on_done, f, &err));
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->n_requests[DELETE], 2);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, fixture_tear_down)

const struct CMUnitTest kubernetes_fault_tests[] = {
    WITH_SERVER(test_a_pod_that_comes_to_run),
    WITH_SERVER(test_too_many_requests),
    WITH_SERVER(test_an_answer_that_was_lost),
    WITH_SERVER(test_no_answer_at_all),
    WITH_SERVER(test_refusals),
    WITH_SERVER(test_an_image_that_is_missing),
    WITH_SERVER(test_a_create_that_is_cancelled_while_the_pod_waits),
    WITH_SERVER(test_a_create_while_the_pods_cannot_be_followed),
    WITH_SERVER(test_a_watch_goes_on_from_the_last_version),
    WITH_SERVER(test_a_version_that_the_server_has_forgotten),
    WITH_SERVER(test_a_server_that_is_ill),
    WITH_SERVER(test_a_list_in_pages),
    WITH_SERVER(test_no_list),
    WITH_SERVER(test_strays),
    WITH_SERVER(test_an_event_from_before_a_takeover),
    WITH_SERVER(test_a_takeover_that_is_repeated),
    WITH_SERVER(test_a_takeover_whose_answer_was_lost),
    WITH_SERVER(test_a_takeover_in_which_another_was_first),
    WITH_SERVER(test_a_takeover_without_success),
    WITH_SERVER(test_a_takeover_that_is_forbidden),
    WITH_SERVER(test_claims),
    WITH_SERVER(test_a_claim_whose_answer_was_lost),
    WITH_SERVER(test_a_removal_that_is_repeated),
};
const size_t n_kubernetes_fault_tests = KG_ARRAY_LEN(kubernetes_fault_tests);
