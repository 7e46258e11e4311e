// SPDX-License-Identifier: Apache-2.0
// What one of several gateways does with pods that another one has, or has had, and an API server
// whose answers say so. It has a list of answers for each kind of request; the last one stays.
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_kubernetes.h"
#include "virtual_clock.h"

enum kind {
    LIST,
    WATCH,
    READ_POD,
    PATCH_POD,
    DELETE_POD,
    LEASES,
    NAME,
    READ_NAME,
    PATCH_NAME,
    PATCH_REPLICA,
    DELETE_REPLICA,
    OTHER
};

// ---- The server -----------------------------------------------------------------------------

static bool
begins(const char *request, const char *line)
{
    return strncmp(request, line, strlen(line)) == 0;
}

static int
kind_of(const char *request)
{
#define LEASES_PATH "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    if (begins(request, "GET /api/v1/namespaces/default/pods?"))
        return strstr(request, "watch=1") ? WATCH : LIST;
    if (begins(request, "GET /api/v1/namespaces/default/pods/"))
        return READ_POD;
    if (begins(request, "PATCH /api/v1/namespaces/default/pods/"))
        return PATCH_POD;
    if (begins(request, "DELETE /api/v1/namespaces/default/pods/"))
        return DELETE_POD;
    if (begins(request, "GET " LEASES_PATH "?"))
        return LEASES;
    if (begins(request, "GET " LEASES_PATH "/kg-s-"))
        return READ_NAME;
    if (begins(request, "PATCH " LEASES_PATH "/kg-s-"))
        return PATCH_NAME;
    if (begins(request, "PATCH " LEASES_PATH "/kg-r-"))
        return PATCH_REPLICA;
    if (begins(request, "DELETE " LEASES_PATH "/kg-r-"))
        return DELETE_REPLICA;
    return begins(request, "POST " LEASES_PATH) && strstr(request, "kg-s-") ? NAME : OTHER;
}

// ---- Fixture --------------------------------------------------------------------------------

// A pod that has a session. To be freed.
static char *
claimed_by(const char *holder, int epoch)
{
    return kg_asprintf(
        "{\"metadata\":{\"name\":\"kg-a\",\"resourceVersion\":\"9\",\"labels\":{"
        "\"kernelgate/installation\":\"abcdefgh\",\"kernelgate/state\":\"claimed\"},"
        "\"annotations\":{\"kernelgate/epoch\":\"%d\",\"kernelgate/holder\":\"%s\","
        "\"kernelgate/meta\":\"{\\\"session_id\\\":\\\"s\\\"}\"}},\"status\":" RUNNING "}",
        epoch, holder);
}

static void
on_found(const char *id, const json_t *meta, void *arg)
{
    struct fixture *f = arg;
    assert_string_equal(id, "a");
    assert_string_equal(json_string_value(json_object_get(meta, "session_id")), "s");
    f->n_found++;
}

static void
on_exit_of(const char *id, void *arg)
{
    (void)arg;
    fail_msg("%s has ended", id);
}

static struct provisioner_op *
recover(struct fixture *f)
{
    struct kg_error err = {0};
    struct provisioner_op *op =
        provisioner_recover(&f->kube->base, on_found, fixture_on_done, on_exit_of, f, &err);
    assert_non_null(op);
    return op;
}

// A gateway that is the only one as yet, and has found no pods at its start.
static int
set_up(void **state)
{
    struct fixture *f = fixture_new(kind_of, "127.0.0.1:1");
    f->answers[LIST][0].body = f->answers[LEASES][0].body = EMPTY;
    f->answers[WATCH][0] = (struct fake_answer){.status = 200, .body = "", .open = true};
    (void)recover(f);
    PASS_TIME_UNTIL(f, f->n_done == 1);
    assert_int_equal(f->err.code, KG_OK);
    *state = f;
    return 0;
}

// ---- Taking over ----------------------------------------------------------------------------

static void
take_over(struct fixture *f)
{
    const struct kube_pod pod = {.id = "a", .epoch = 1, .phase = KUBE_RUNNING, .claimed = true};
    (void)kube_pod_keep(f->kube, &pod);
    (void)recover(f);
    PASS_TIME_UNTIL(f, f->n_done == 2);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->n_requests[DELETE_POD], 0);
}

// The answer has the session's record, which the cache has not.
static void
test_a_takeover(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *answer = claimed_by(f->kube->holder, 2);
    f->answers[PATCH_POD][0].body = answer;
    take_over(f);
    assert_int_equal(f->n_found, 1);
    assert_true(kube_pod_find(f->kube, "a")->ours);
}

// The next requests for its session go there, whether or not an event has come.
static void
test_a_takeover_that_another_replica_was_faster_with(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *pod = claimed_by("another", 2);
    f->answers[PATCH_POD][0].status = 422;
    f->answers[READ_POD][0].body = pod;
    take_over(f);
    assert_int_equal(f->n_found, 0);
    assert_string_equal(kube_pod_find(f->kube, "a")->holder, "another");
}

// Its session lives, and another replica takes it over.
static void
test_a_takeover_that_is_cancelled_removes_nothing(void **state)
{
    struct fixture *f = *state;
    const struct kube_pod pod = {.id = "a", .epoch = 1, .phase = KUBE_RUNNING, .claimed = true};
    assert_true(kube_pod_is_due(f->kube, kube_pod_keep(f->kube, &pod)));
    provisioner_op_cancel(recover(f));
    PASS_TIME_UNTIL(f, provisioner_is_idle(&f->kube->base));
    assert_int_equal(f->n_requests[PATCH_POD], 0);
    assert_int_equal(f->n_requests[DELETE_POD], 0);
    assert_false(kube_pod_find(f->kube, "a")->deleting);
}

// The cache is older than the session that its former holder has put into it.
static void
test_a_pod_that_was_claimed_meanwhile_is_not_removed(void **state)
{
    struct fixture *f = *state;
    const struct kube_pod pod = {.id = "a", .epoch = 1, .phase = KUBE_PENDING};
    (void)kube_pod_keep(f->kube, &pod);
    PASS_TIME_UNTIL(f, f->kube->replicas.leader.leads);
    f->answers[PATCH_POD][0].status = 422;
    (void)recover(f);
    PASS_TIME_UNTIL(f, f->n_done == 2);
    assert_non_null(strstr(f->latest[PATCH_POD], "{\"op\":\"test\",\"path\":\"/metadata/labels/"
                                                 "kernelgate~1state\",\"value\":\"free\"}"));
    assert_int_equal(f->n_requests[DELETE_POD], 0);
}

// The agent says so, and no event does: its session is not answered as one that has ended.
static void
test_a_pod_that_was_overtaken(void **state)
{
    struct fixture *f = *state;
    struct kube_pod pod = {.id = "a", .epoch = 1, .phase = KUBE_RUNNING, .claimed = true};
    struct provisioner_place place;
    pod.ours = true;
    memcpy(pod.holder, f->kube->holder, sizeof pod.holder);
    kube_session_hash("ann", "s", pod.session);
    (void)kube_pod_keep(f->kube, &pod);
    provisioner_overtaken(&f->kube->base, "b");
    assert_true(provisioner_session_place(&f->kube->base, "ann", "s", &place));
    assert_int_equal(place.holder, HOLDER_SELF);
    assert_int_equal(provisioner_sandbox_place(&f->kube->base, "a").holder, HOLDER_SELF);
    assert_int_equal(provisioner_sandbox_place(&f->kube->base, "b").holder, HOLDER_NOBODY);
    provisioner_overtaken(&f->kube->base, "a");
    assert_true(provisioner_session_place(&f->kube->base, "ann", "s", &place));
    assert_int_equal(place.holder, HOLDER_LOST);
    assert_int_equal(provisioner_sandbox_place(&f->kube->base, "a").holder, HOLDER_LOST);
}

// ---- Giving up ------------------------------------------------------------------------------

// Nobody could use the pod until this gateway has ended.
static void
test_a_pod_is_given_up_when_the_server_is_back(void **state)
{
    struct fixture *f = *state;
    struct kube_pod pod = {.id = "a", .epoch = 1, .phase = KUBE_RUNNING, .ours = true};
    memcpy(pod.holder, f->kube->holder, sizeof pod.holder);
    (void)kube_pod_keep(f->kube, &pod);
    f->answers[PATCH_POD][0] = (struct fake_answer){.status = 503, .header = "Retry-After: 1\r\n"};
    provisioner_hand_over(&f->kube->base, "a");
    PASS_TIME_UNTIL(f, f->n_requests[PATCH_POD] == 5);
    f->answers[PATCH_POD][0] = (struct fake_answer){.status = 200};
    PASS_TIME_UNTIL(f, TAILQ_EMPTY(&f->kube->marks));
    assert_int_equal(f->n_requests[PATCH_POD], 6);
}

// ---- Replicas -------------------------------------------------------------------------------

// Others take a replica for dead whose Lease says the same for 15 s. One renewal may fail.
static void
test_a_lease_is_renewed_in_time(void **state)
{
    enum { DEAD_MS = 15 * 1000, N_RENEWALS = 3 };
    struct fixture *f = *state;
    KG_AUTO_FREE char *own = kg_asprintf("/kg-r-%s ", f->kube->holder);
    KG_AUTO_FREE char *before = kg_strdup("");
    int64_t renewed_ms = clock_mono_ms(); // it was made at the start
    for (int n = 1; n <= N_RENEWALS; n++) {
        PASS_TIME_UNTIL(f, f->n_requests[PATCH_REPLICA] == n);
        int64_t asked_ms = f->asked_ms[PATCH_REPLICA][n - 1];
        assert_true(asked_ms - renewed_ms < DEAD_MS / 2);
        renewed_ms = asked_ms;
        const char *request = f->latest[PATCH_REPLICA];
        const char *path = strstr(request, "\"path\":\"/spec/renewTime\"");
        assert_non_null(strstr(request, own));
        assert_non_null(path);
        assert_string_not_equal(path, before);
        free(before);
        before = kg_strdup(path);
    }
}

static void
test_the_lease_of_a_replica_that_was_killed_is_removed(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *list = kg_asprintf(
        "{\"items\":[{\"metadata\":{\"annotations\":{\"kernelgate/address\":\"there:1\"}},"
        "\"spec\":{\"holderIdentity\":\"abcdefghij\",\"renewTime\":\"x\"}},"
        "{\"metadata\":{\"labels\":{\"kernelgate/kind\":\"leader\"},\"resourceVersion\":\"1\"},"
        "\"spec\":{\"holderIdentity\":\"%s\"}}]}",
        f->kube->holder);
    f->answers[LEASES][0].body = list;
    PASS_TIME_UNTIL(f, kube_replica_find(f->kube, "abcdefghij"));
    struct kube_replica *replica = LIST_FIRST(&f->kube->replicas.others);
    int n_lists = f->n_requests[LEASES];
    PASS_TIME_UNTIL(f, f->n_requests[LEASES] > n_lists);
    assert_int_equal(f->n_requests[DELETE_REPLICA], 0);
    replica->silent_ms = 60000;
    PASS_TIME_UNTIL(f, f->n_requests[DELETE_REPLICA] == 1);
    assert_null(kube_replica_find(f->kube, "abcdefghij"));
    f->answers[LEASES][0].body = EMPTY;
}

// The watch over the pods may be silent for long before it is known to be broken.
static void
test_a_create_while_the_replicas_cannot_be_followed(void **state)
{
    struct fixture *f = *state;
    const struct provisioner_sandbox_spec spec = {.id = "b", .agent_idle_timeout_s = 60};
    struct kg_error err = {0};
    struct provisioner_op *op =
        provisioner_create(&f->kube->base, &spec, fixture_on_done, on_exit_of, f, &err);
    assert_non_null(op);
    PASS_TIME_UNTIL(f, provisioner_op_explain(op, &err));
    assert_null(strstr(err.message, "API server"));
    f->answers[LEASES][0] = (struct fake_answer){.status = 504};
    PASS_TIME_UNTIL(f, provisioner_op_explain(op, &err) &&
                           strstr(err.message, "the API server fails: "));
    f->answers[LEASES][0] = (struct fake_answer){.status = 200, .body = EMPTY};
    PASS_TIME_UNTIL(f, provisioner_op_explain(op, &err) && !strstr(err.message, "API server"));
    provisioner_op_cancel(op);
    PASS_TIME_UNTIL(f, provisioner_is_idle(&f->kube->base));
}

// ---- Names ----------------------------------------------------------------------------------

// The cluster removes the Lease, whose pod is gone, between two requests for it.
static void
test_a_name_whose_lease_is_removed_meanwhile(void **state)
{
    struct fixture *f = *state;
    struct kg_error err = {0};
    json_auto_t *meta = json_pack("{s:s, s:s}", "owner", "ann", "session_id", "s");
    struct kube_pod pod = {.id = "a", .uid = "u", .phase = KUBE_RUNNING, .ours = true};
    (void)kube_pod_keep(f->kube, &pod);
    memcpy(pod.id, "b", 2);
    pod.deleting = true;
    (void)kube_pod_keep(f->kube, &pod);
    json_auto_t *lease = kube_name_lease(f->kube, "5a5a", "b", "v");
    json_object_set_new(json_object_get(lease, "metadata"), "resourceVersion", json_string("7"));
    KG_AUTO_FREE char *text = json_dumps(lease, 0);
    f->answers[NAME][0] =
        (struct fake_answer){.status = 409, .body = "{\"reason\":\"AlreadyExists\"}"};
    f->answers[NAME][1] = (struct fake_answer){.status = 201};
    f->answers[READ_NAME][0].body = text;
    f->answers[PATCH_NAME][0].status = 404;
    assert_non_null(provisioner_claim(&f->kube->base, "a", meta, 0, fixture_on_done, f, &err));
    PASS_TIME_UNTIL(f, f->n_done == 2);
    assert_int_equal(f->err.code, KG_OK);
    assert_int_equal(f->n_requests[NAME], 2);
    assert_int_equal(f->n_requests[PATCH_NAME], 1);
    assert_int_equal(f->n_requests[PATCH_POD], 1);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, fixture_tear_down)

const struct CMUnitTest kubernetes_replica_tests[] = {
    WITH_SERVER(test_a_takeover),
    WITH_SERVER(test_a_takeover_that_another_replica_was_faster_with),
    WITH_SERVER(test_a_takeover_that_is_cancelled_removes_nothing),
    WITH_SERVER(test_a_pod_that_was_claimed_meanwhile_is_not_removed),
    WITH_SERVER(test_a_pod_that_was_overtaken),
    WITH_SERVER(test_a_pod_is_given_up_when_the_server_is_back),
    WITH_SERVER(test_a_lease_is_renewed_in_time),
    WITH_SERVER(test_the_lease_of_a_replica_that_was_killed_is_removed),
    WITH_SERVER(test_a_create_while_the_replicas_cannot_be_followed),
    WITH_SERVER(test_a_name_whose_lease_is_removed_meanwhile),
};
const size_t n_kubernetes_replica_tests = KG_ARRAY_LEN(kubernetes_replica_tests);
