// SPDX-License-Identifier: Apache-2.0
// What the engine "kubernetes" makes of settings and of the API server's answers. What it does with
// a real cluster is shown by the end-to-end tests that run there.
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "test_kubernetes.h"

#define IMAGE "an/image:1"

static char server[] = "https://api:6443";
static char installation[] = "here";
static char image[] = IMAGE;
static char agent_image[] = "agent:1";

static struct kubernetes
engine(void)
{
    return (struct kubernetes){
        .access.server = server,
        .installation = installation,
        .image = image,
        .agent_image = agent_image,
        .limits = {.memory_mb = 512, .disk_mb = 256, .tmp_mb = 64, .cpus = 1.5, .pids = 64},
    };
}

// ---- Pods -----------------------------------------------------------------------------------

// A pod of ours with this status and more metadata, which begins with a comma.
static bool
take(const char *more, const char *status, struct kube_pod *ret)
{
    const struct kubernetes kube = engine();
    KG_AUTO_FREE char *text = kg_asprintf(
        "{\"metadata\":{\"name\":\"kg-abc234\",\"labels\":{\"kernelgate/installation\":\"here\","
        "\"kernelgate/state\":\"free\"},\"annotations\":{\"kernelgate/epoch\":\"7\"}%s},"
        "\"status\":%s}",
        more, status);
    json_auto_t *pod = json_loads(text, 0, NULL);
    assert_non_null(pod);
    return kube_pod_take(&kube, pod, ret);
}

#define RUNS                                                                                       \
    "\"containerStatuses\":[{\"name\":\"sandbox\",\"state\":{\"running\":{\"startedAt\":\"x\"}}}]"

static void
test_a_pod_that_runs(void **state)
{
    (void)state;
    struct kube_pod pod;
    assert_true(take("", "{\"phase\":\"Running\",\"podIP\":\"10.1.2.3\"," RUNS "}", &pod));
    assert_string_equal(pod.id, "abc234");
    assert_int_equal(pod.phase, KUBE_RUNNING);
    assert_string_equal(pod.ip, "10.1.2.3");
    assert_int_equal(pod.epoch, 7);
    assert_false(pod.deleting || pod.claimed || pod.stuck);
    assert_true(take(",\"deletionTimestamp\":\"x\"",
                     "{\"phase\":\"Running\",\"podIP\":\"10.1.2.3\"," RUNS "}", &pod));
    assert_true(pod.deleting);
}

static void
test_pods_that_do_not_run(void **state)
{
    (void)state;
    static const struct {
        const char *status;
        enum kube_phase phase;
        bool stuck;
        const char *why;
    } pods[] = {
        {"{\"phase\":\"Pending\"}", KUBE_PENDING, false, ""},
        {"{}", KUBE_PENDING, false, ""},
        {"null", KUBE_PENDING, false, ""},
        // It has no address yet.
        {"{\"phase\":\"Running\"," RUNS "}", KUBE_PENDING, false, ""},
        {"{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\","
         "\"reason\":\"Unschedulable\",\"message\":\"0/3 nodes\"}]}",
         KUBE_PENDING, false, "Unschedulable: 0/3 nodes"},
        {"{\"phase\":\"Pending\",\"containerStatuses\":[{\"name\":\"sandbox\",\"state\":{"
         "\"waiting\":{\"reason\":\"PodInitializing\"}}}]}",
         KUBE_PENDING, false, "PodInitializing"},
        {"{\"phase\":\"Pending\",\"initContainerStatuses\":[{\"name\":\"agent\",\"state\":{"
         "\"waiting\":{\"reason\":\"ImagePullBackOff\",\"message\":\"no such image\"}}}],"
         "\"containerStatuses\":[{\"name\":\"sandbox\",\"state\":{\"waiting\":{\"reason\":"
         "\"PodInitializing\"}}}]}",
         KUBE_PENDING, true, "ImagePullBackOff: no such image"},
        {"{\"phase\":\"Failed\",\"initContainerStatuses\":[{\"name\":\"agent\",\"state\":{"
         "\"terminated\":{\"exitCode\":1,\"reason\":\"Error\"}}}]}",
         KUBE_ENDED, false, "container agent ended with code 1 (Error) "},
        {"{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"memory\"}", KUBE_ENDED, false,
         "Evicted: memory"},
        {"{\"phase\":\"Succeeded\"}", KUBE_ENDED, false, ""},
        // The phase lags behind.
        {"{\"phase\":\"Running\",\"podIP\":\"10.1.2.3\",\"containerStatuses\":[{\"name\":"
         "\"sandbox\",\"state\":{\"terminated\":{\"exitCode\":137,\"reason\":\"OOMKilled\"}}}]}",
         KUBE_ENDED, false, "container sandbox ended with code 137 (OOMKilled) "},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(pods); i++) {
        struct kube_pod pod;
        assert_true(take("", pods[i].status, &pod));
        assert_int_equal(pod.phase, pods[i].phase);
        assert_int_equal(pod.stuck, pods[i].stuck);
        assert_string_equal(pod.why, pods[i].why);
    }
}

static void
test_a_long_reason_is_cut(void **state)
{
    (void)state;
    struct kube_pod pod;
    char message[1000];
    memset(message, 'x', sizeof message - 1);
    message[sizeof message - 1] = '\0';
    KG_AUTO_FREE char *status = kg_asprintf(
        "{\"phase\":\"Failed\",\"podIP\":\"%s\",\"reason\":\"Evicted\",\"message\":\"%s\"}",
        message, message);
    assert_true(take("", status, &pod));
    assert_int_equal(strlen(pod.why), sizeof pod.why - 1);
    assert_string_equal(pod.ip, ""); // no address is as long as that
}

static void
test_pods_of_others(void **state)
{
    (void)state;
    static const char *const others[] = {
        "null",
        "[]",
        "{}",
        "{\"metadata\":{\"name\":7}}",
        "{\"metadata\":{\"name\":\"kg-abc\"}}",
        "{\"metadata\":{\"name\":\"kg-abc\",\"labels\":{\"kernelgate/installation\":\"there\"},"
        "\"annotations\":{\"kernelgate/epoch\":\"1\"}}}",
        "{\"metadata\":{\"name\":\"web\",\"labels\":{\"kernelgate/installation\":\"here\"},"
        "\"annotations\":{\"kernelgate/epoch\":\"1\"}}}",
        "{\"metadata\":{\"name\":\"kg-../x\",\"labels\":{\"kernelgate/installation\":\"here\"},"
        "\"annotations\":{\"kernelgate/epoch\":\"1\"}}}",
        "{\"metadata\":{\"name\":\"kg-abc\",\"labels\":{\"kernelgate/installation\":\"here\"}}}",
    };
    const struct kubernetes kube = engine();
    for (size_t i = 0; i < KG_ARRAY_LEN(others); i++) {
        struct kube_pod ret;
        json_auto_t *pod = json_loads(others[i], JSON_DECODE_ANY, NULL);
        assert_false(kube_pod_take(&kube, pod, &ret));
    }
}

static void
test_epochs(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
    } epochs[] = {{"1", true},
                  {"18446744073709551614", true},
                  {"18446744073709551615", false}, // there is no next one
                  {"18446744073709551616", false},
                  {"", false},
                  {"-1", false},
                  {" 1", false},
                  {"1x", false}};
    const struct kubernetes kube = engine();
    for (size_t i = 0; i < KG_ARRAY_LEN(epochs); i++) {
        struct kube_pod ret;
        json_auto_t *pod = json_pack("{s:{s:s, s:{s:s}, s:{s:s}}}", "metadata", "name", "kg-abc",
                                     "labels", KUBE_LABEL_INSTALLATION, installation, "annotations",
                                     KUBE_ANNOTATION_EPOCH, epochs[i].text);
        assert_int_equal(kube_pod_take(&kube, pod, &ret), epochs[i].good);
    }
}

static void
test_the_cache(void **state)
{
    (void)state;
    struct kubernetes *kube = KG_NEW(struct kubernetes);
    for (int i = 0; i < 2000; i++) {
        struct kube_pod pod = {.epoch = (uint64_t)i};
        id_random(pod.id, 10);
        const struct kube_pod *kept = kube_pod_keep(kube, &pod);
        assert_ptr_equal(kube_pod_find(kube, pod.id), kept);
        pod.epoch++;
        kept = kube_pod_keep(kube, &pod);
        assert_ptr_equal(kube_pod_find(kube, pod.id), kept);
        assert_int_equal(kube_pod_find(kube, pod.id)->epoch, i + 1);
        if (i % 2)
            kube_pod_drop(kube_pod_find(kube, pod.id));
    }
    assert_null(kube_pod_find(kube, "nobody"));
    kube_pods_fini(kube);
    free(kube);
}

// ---- The pod that is asked for --------------------------------------------------------------

static const json_t *
get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_non_null(value);
    return value;
}

static void
test_the_pod_is_confined(void **state)
{
    (void)state;
    const struct kubernetes kube = engine();
    json_auto_t *pod = kube_pod_spec(&kube, "abc", json_pack("[s, s]", SANDBOX_AGENT, "--version"));
    const json_t *spec = get(pod, "spec");
    assert_string_equal(json_string_value(get(get(pod, "metadata"), "name")), "kg-abc");
    assert_true(json_is_false(get(spec, "automountServiceAccountToken")));
    assert_true(json_is_false(get(spec, "enableServiceLinks")));
    assert_true(json_is_true(get(get(spec, "securityContext"), "runAsNonRoot")));
    static const char *const lists[] = {"initContainers", "containers"};
    for (size_t i = 0; i < KG_ARRAY_LEN(lists); i++) {
        const json_t *container = json_array_get(get(spec, lists[i]), 0);
        const json_t *security = get(container, "securityContext");
        assert_true(json_is_true(get(security, "readOnlyRootFilesystem")));
        assert_true(json_is_false(get(security, "allowPrivilegeEscalation")));
        const json_t *dropped = get(get(security, "capabilities"), "drop");
        assert_string_equal(json_string_value(json_array_get(dropped, 0)), "ALL");
        const json_t *limits = get(get(container, "resources"), "limits");
        assert_string_equal(json_string_value(get(limits, "memory")), "872415232");
        assert_string_equal(json_string_value(get(limits, "cpu")), "1500m");
    }
    const json_t *container = json_array_get(get(spec, "containers"), 0);
    assert_string_equal(json_string_value(get(container, "image")), IMAGE);
    const json_t *command = get(container, "command");
    assert_string_equal(json_string_value(json_array_get(command, 0)),
                        "/run/kg-agent/kernelgate-agent");
    assert_string_equal(json_string_value(json_array_get(command, 1)), "--version");
    assert_string_equal(json_string_value(json_array_get(command, 2)), "--limit");
    assert_string_equal(json_string_value(json_array_get(command, 3)), "NOFILE=4096");
    assert_string_equal(json_string_value(get(container, "terminationMessagePath")),
                        "/root/termination-log");
}

// ---- Answers --------------------------------------------------------------------------------

static void
test_answers(void **state)
{
    (void)state;
    struct kg_error broken = {.message = "no route"};
    const struct kubernetes kube = engine();
    static const char exists[] = "{\"reason\":\"AlreadyExists\",\"message\":\"pods exist\"}";
    static const char conflict[] = "{\"reason\":\"Conflict\"}";
    static const char denied[] = "{\"message\":\"pods is forbidden: User \\\"a\\\" cannot\"}";
    static const char quota[] = "{\"message\":\"pods \\\"a\\\" is forbidden: exceeded quota\"}";
    const struct {
        struct http_call_result result;
        bool good;
        bool transient;
        bool exists;
        const char *message;
    } answers[] = {
        {{.status = 200, .body = "{}", .body_len = 2}, true, false, false, NULL},
        {{.status = 201, .body = "", .body_len = 0}, true, false, false, NULL},
        {{.status = 409, .body = exists, .body_len = sizeof exists - 1},
         false,
         false,
         true,
         "kubernetes: pods exist (409)"},
        {{.status = 409, .body = conflict, .body_len = sizeof conflict - 1},
         false,
         true,
         false,
         "kubernetes: no reason given (409)"},
        {{.status = 403, .body = "no JSON", .body_len = 7},
         false,
         false,
         false,
         "kubernetes: no reason given (403)"},
        {{.status = 403, .body = denied, .body_len = sizeof denied - 1},
         false,
         true,
         false,
         "kubernetes: pods is forbidden: User \"a\" cannot (403)"},
        {{.status = 403, .body = quota, .body_len = sizeof quota - 1},
         false,
         false,
         false,
         "kubernetes: pods \"a\" is forbidden: exceeded quota (403)"},
        {{.status = 429, .body = ""}, false, true, false, "kubernetes: no reason given (429)"},
        {{.status = 503, .body = ""}, false, true, false, "kubernetes: no reason given (503)"},
        {{.body = "", .err = &broken},
         false,
         true,
         false,
         "the API server at https://api:6443 does not answer: no route"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(answers); i++) {
        struct kg_error err = {0};
        assert_int_equal(kube_check(&kube, &answers[i].result, &err), answers[i].good ? 0 : -1);
        if (!answers[i].good)
            assert_string_equal(err.message, answers[i].message);
        assert_int_equal(kube_is_transient(&answers[i].result), answers[i].transient);
        assert_int_equal(kube_already_exists(&answers[i].result), answers[i].exists);
    }
}

static void
test_pauses(void **state)
{
    (void)state;
    const struct http_call_result asked = {.status = 429, .retry_after_s = 3};
    const struct http_call_result absurd = {.status = 429, .retry_after_s = 1 << 30};
    const struct http_call_result silent = {.status = 503};
    assert_int_equal(kube_pause_ms(&asked, 1), 3000);
    assert_int_equal(kube_pause_ms(&absurd, 1), 30000);
    assert_int_equal(kube_pause_ms(&silent, 1), 500);
    assert_int_equal(kube_pause_ms(&silent, 2), 1000);
    assert_int_equal(kube_pause_ms(&silent, 1000), 8000);
}

static void
test_names(void **state)
{
    (void)state;
    char longest[65] = "";
    memset(longest, 'a', 64);
    assert_false(kube_name_valid(longest));
    longest[63] = '\0';
    assert_true(kube_name_valid(longest));
    static const char *const good[] = {"a", "kernelgate", "a-1", "0"};
    static const char *const bad[] = {"", "-a", "a-", "A", "a/b", "a.b", "ä"};
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++)
        assert_true(kube_name_valid(good[i]));
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_false(kube_name_valid(bad[i]));
}

// ---- Access ---------------------------------------------------------------------------------

static void
expect_description(const struct kube_access *access, const char *expected)
{
    KG_AUTO_FREE char *description = kube_access_describe(access);
    assert_string_equal(description, expected);
}

static void
expect_server(const char *expected)
{
    const struct provisioner_kubernetes none = {0};
    struct kube_access access = {0};
    struct kg_error err = {0};
    assert_int_equal(kube_find_access(&access, &none, &err), expected ? 0 : -1);
    if (expected)
        assert_string_equal(access.server, expected);
    else
        assert_non_null(strstr(err.message, "kubernetes-server"));
    kube_access_fini(&access);
}

static void
test_the_server_of_the_cluster(void **state)
{
    (void)state;
    unsetenv("KUBERNETES_SERVICE_HOST");
    expect_server(NULL);
    setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
    expect_server(NULL);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    expect_server("https://10.96.0.1:443");
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    expect_server("https://[fd00::1]:443");
    unsetenv("KUBERNETES_SERVICE_HOST");
    unsetenv("KUBERNETES_SERVICE_PORT");
}

static void
test_settings(void **state)
{
    (void)state;
    const struct {
        struct provisioner_kubernetes settings;
        const char *wrong; // NULL: nothing
    } all[] = {
        {{.server = "https://api:6443/", .namespace = "boxes"}, NULL},
        {{.server = "api:6443"}, "kubernetes-server: api:6443"},
        {{.server = "https://api", .namespace = "a/b"}, "kubernetes-namespace: a/b"},
        {{.server = "https://api", .ca_file = "/nowhere/ca.crt"}, "/nowhere/ca.crt"},
        {{.server = "https://api", .certificate_file = "/dev/null"}, "go together"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        struct kube_access access = {0};
        struct kg_error err = {0};
        int found = kube_find_access(&access, &all[i].settings, &err);
        assert_int_equal(found, all[i].wrong ? -1 : 0);
        if (all[i].wrong)
            assert_non_null(strstr(err.message, all[i].wrong));
        else
            expect_description(&access, "https://api:6443, namespace boxes, with no credential, "
                                        "from the settings");
        kube_access_fini(&access);
    }
}

// ---- Replicas -------------------------------------------------------------------------------

static void
test_hashes_of_sessions(void **state)
{
    (void)state;
    char one[KUBE_HASH_LEN + 1], two[KUBE_HASH_LEN + 1];
    kube_session_hash("ann", "mine", one);
    assert_int_equal(strlen(one), KUBE_HASH_LEN);
    kube_session_hash("ann", "mine", two);
    assert_string_equal(one, two);
    kube_session_hash("annm", "ine", two);
    assert_string_not_equal(one, two);
    json_auto_t *meta =
        json_pack("{s:s, s:s, s:b}", "owner", "ann", "session_id", "mine", "one_shot", 0);
    assert_true(kube_session_hash_of(meta, two));
    assert_string_equal(one, two);
    json_object_set_new(meta, "one_shot", json_true());
    assert_false(kube_session_hash_of(meta, two));
}

// In one namespace, each has its own.
static void
test_names_of_two_installations(void **state)
{
    (void)state;
    static char there[] = "there", leases[] = "/leases";
    struct kubernetes one = engine(), two = engine();
    two.installation = there;
    one.leases_path = two.leases_path = leases;
    KG_AUTO_FREE char *path = kube_name_path(&one, "5a5a");
    KG_AUTO_FREE char *other = kube_name_path(&two, "5a5a");
    assert_string_equal(path, "/leases/kg-s-here-5a5a");
    assert_string_equal(other, "/leases/kg-s-there-5a5a");
    json_auto_t *lease = kube_name_lease(&one, "5a5a", "abc234", "uid-1");
    const json_t *name = json_object_get(json_object_get(lease, "metadata"), "name");
    assert_string_equal(json_string_value(name), "kg-s-here-5a5a");
}

static void
test_the_pod_of_a_session(void **state)
{
    (void)state;
    struct kubernetes *kube = KG_NEW(struct kubernetes);
    char hash[KUBE_HASH_LEN + 1];
    kube_session_hash("ann", "mine", hash);
    struct kube_pod pod = {.id = "abc234", .holder = "first", .epoch = 1, .phase = KUBE_RUNNING};
    (void)kube_pod_keep(kube, &pod);
    assert_null(kube_pod_of_session(kube, hash));
    memcpy(pod.session, hash, sizeof hash);
    struct kube_pod *kept = kube_pod_keep(kube, &pod);
    assert_ptr_equal(kube_pod_of_session(kube, hash), kept);
    kept->deleting = true; // by this process; an older event does not undo it
    kept = kube_pod_keep(kube, &pod);
    assert_true(kept->deleting);
    assert_null(kube_pod_of_session(kube, hash));
    kube_pods_fini(kube);
    assert_null(kube_pod_of_session(kube, hash));
    free(kube);
}

// It dials with the epoch that it had: the agent then says that it was overtaken.
static void
test_the_epoch_that_was_held(void **state)
{
    (void)state;
    struct kubernetes *kube = KG_NEW(struct kubernetes);
    struct kube_pod pod = {.id = "abc234", .holder = "here", .ours = true, .epoch = 3};
    pod.held_epoch = 3;
    pod.held_ms = 1;
    (void)kube_pod_keep(kube, &pod);
    pod = (struct kube_pod){.id = "abc234", .holder = "there", .epoch = 4, .held_ms = 2};
    const struct kube_pod *kept = kube_pod_keep(kube, &pod);
    assert_int_equal(kept->epoch, 4);
    assert_int_equal(kept->held_epoch, 3);
    assert_int_equal(kept->held_ms, 2);
    pod.held_ms = 3;
    assert_int_equal(kube_pod_keep(kube, &pod)->held_ms, 2); // by the same holder
    kube_pods_fini(kube);
    free(kube);
}

static void
test_a_name_is_taken_over_from_a_pod_that_is_gone(void **state)
{
    (void)state;
    struct kubernetes *kube = KG_NEW(struct kubernetes);
    char hash[KUBE_HASH_LEN + 1];
    kube->installation = installation;
    memcpy(kube->holder, "here", 5);
    kube_session_hash("ann", "mine", hash);
    json_auto_t *lease = kube_name_lease(kube, hash, "abc234", "uid-1");
    assert_null(kube_name_takeover(kube, lease, "def567", "uid-2")); // it has no version
    json_object_set_new(json_object_get(lease, "metadata"), "resourceVersion", json_string("7"));
    struct kube_pod pod = {.id = "abc234", .holder = "here", .phase = KUBE_RUNNING};
    (void)kube_pod_keep(kube, &pod);
    assert_null(kube_name_takeover(kube, lease, "def567", "uid-2")); // it is about to be claimed
    memcpy(pod.holder, "there", 6);
    (void)kube_pod_keep(kube, &pod);
    json_t *free_patch = kube_name_takeover(kube, lease, "def567", "uid-2");
    assert_non_null(free_patch); // it is in another gateway's pool
    json_decref(free_patch);
    pod.claimed = true;
    kube_session_hash("ann", "another", pod.session);
    (void)kube_pod_keep(kube, &pod);
    json_t *other_patch = kube_name_takeover(kube, lease, "def567", "uid-2");
    assert_non_null(other_patch); // it has another session
    json_decref(other_patch);
    memcpy(pod.session, hash, sizeof hash);
    struct kube_pod *kept = kube_pod_keep(kube, &pod);
    assert_null(kube_name_takeover(kube, lease, "def567", "uid-2"));
    kept->deleting = true;
    json_auto_t *patch = kube_name_takeover(kube, lease, "def567", "uid-2");
    KG_AUTO_FREE char *text = json_dumps(patch, JSON_COMPACT);
    assert_non_null(strstr(text, "{\"op\":\"test\",\"path\":\"/metadata/resourceVersion\","
                                 "\"value\":\"7\"}"));
    assert_non_null(strstr(text, "\"uid\":\"uid-2\""));
    json_auto_t *foreign = json_object();
    assert_null(kube_name_takeover(kube, foreign, "def567", "uid-2"));
    kube_pods_fini(kube);
    free(kube);
}

// The cache may be older than the name.
static void
test_a_name_is_looked_at_twice(void **state)
{
    (void)state;
    struct kubernetes *kube = KG_NEW(struct kubernetes);
    kube->installation = installation;
    memcpy(kube->holder, "here", 5);
    json_auto_t *lease = json_object();
    assert_null(kube_name_unverified(kube, lease)); // it is not one of ours
    json_object_update_new(lease, kube_name_lease(kube, "5a5a", "abc234", "uid-1"));
    assert_string_equal(kube_name_unverified(kube, lease), "abc234"); // the pod is not known
    struct kube_pod pod = {.id = "abc234", .holder = "here", .phase = KUBE_RUNNING};
    (void)kube_pod_keep(kube, &pod);
    assert_null(kube_name_unverified(kube, lease)); // it is about to be claimed
    memcpy(pod.holder, "there", 6);
    (void)kube_pod_keep(kube, &pod);
    assert_string_equal(kube_name_unverified(kube, lease), "abc234"); // it may have come from there
    // It was taken by the gateway that has made the name, and is about to be claimed there.
    memcpy(kube->holder, "away", 5);
    json_auto_t *theirs = kube_name_lease(kube, "5a5a", "abc234", "uid-1");
    json_object_set_new(json_object_get(theirs, "metadata"), "resourceVersion", json_string("7"));
    memcpy(kube->holder, "here", 5);
    memcpy(pod.holder, "away", 5);
    (void)kube_pod_keep(kube, &pod);
    assert_null(kube_name_takeover(kube, theirs, "abc234", "uid-1"));
    pod.claimed = true;
    (void)kube_pod_keep(kube, &pod);
    assert_null(kube_name_unverified(kube, lease));
    kube_pods_fini(kube);
    free(kube);
}

// What is said about it later counts from the next epoch on.
static void
test_a_pod_that_is_given_up(void **state)
{
    (void)state;
    struct kubernetes *kube = KG_NEW(struct kubernetes);
    struct kube_pod pod = {.id = "abc234", .holder = "here", .ours = true, .epoch = 3};
    struct kube_pod *kept = kube_pod_keep(kube, &pod);
    assert_false(kube_pod_is_lost(kube, kept));
    kube_pod_release(kept);
    kept = kube_pod_keep(kube, &pod); // an event from before
    assert_false(kept->ours);
    assert_string_equal(kept->holder, "");
    assert_true(kube_pod_is_lost(kube, kept));
    assert_false(kube_pod_is_due(kube, kept)); // of free ones, only the leader's
    kube->replicas.leader.leads = true;
    assert_true(kube_pod_is_due(kube, kept));
    pod.epoch = 4;
    assert_true(kube_pod_keep(kube, &pod)->ours);
    kube_pods_fini(kube);
    free(kube);
}

static void
test_sessions_of_other_gateways(void **state)
{
    (void)state;
    struct kubernetes *kube = KG_NEW(struct kubernetes);
    struct kube_pod pod = {.holder = "there", .claimed = true, .phase = KUBE_RUNNING};
    static const char *const ids[] = {"aaaaaa", "bbbbbb", "cccccc"};
    for (size_t i = 0; i < KG_ARRAY_LEN(ids); i++) {
        memcpy(pod.id, ids[i], 7);
        kube_owner_hash(i == 0 ? "ann" : "bob", pod.owner);
        kube_owner_hash(i == 2 ? "together" : "", pod.share);
        (void)kube_pod_keep(kube, &pod);
    }
    assert_int_equal(kube_claimed_elsewhere(&kube->base, NULL), 3);
    assert_int_equal(kube_claimed_elsewhere(&kube->base, "ann"), 1);
    assert_int_equal(kube_claimed_elsewhere(&kube->base, "bob"), 2);
    assert_int_equal(kube_claimed_elsewhere(&kube->base, "eve"), 0);
    assert_int_equal(kube_claimed_elsewhere(&kube->base, "together"), 1);
    assert_true(kube_holds_for(&kube->base, "there", "bob"));
    assert_false(kube_holds_for(&kube->base, "there", "eve"));
    assert_false(kube_holds_for(&kube->base, "away", "bob"));
    pod.ours = true;
    (void)kube_pod_keep(kube, &pod);
    kube_pod_find(kube, "bbbbbb")->deleting = true;
    assert_int_equal(kube_claimed_elsewhere(&kube->base, NULL), 1);
    kube_pods_fini(kube);
    free(kube);
}

static void
test_addresses_of_replicas(void **state)
{
    (void)state;
    static const char *const good[] = {"10.0.0.1:16010", "[fd00::1]:1", "host.name:65535"};
    static const char *const bad[] = {"",        "host",  ":1",    "host:", "host:0",  "host:65536",
                                      "host:1a", "a b:1", "u@h:1", "h/p:1", "h\r\nX:1"};
    for (size_t i = 0; i < KG_ARRAY_LEN(good) + KG_ARRAY_LEN(bad); i++) {
        struct kubernetes *kube = KG_NEW(struct kubernetes);
        struct kg_error err = {0};
        bool right = i < KG_ARRAY_LEN(good);
        const char *address = right ? good[i] : bad[i - KG_ARRAY_LEN(good)];
        assert_int_equal(kube_replicas_init(kube, address, &err), right ? 0 : -1);
        assert_int_equal(kube_has_replicas(kube), right);
        if (!right)
            assert_non_null(strstr(err.message, "kubernetes-replica-address"));
        kube_replicas_fini(kube);
        free(kube);
    }
}

// As $(POD_IP):16010 makes it.
static void
test_an_address_without_brackets(void **state)
{
    (void)state;
    struct kubernetes *kube = KG_NEW(struct kubernetes);
    struct kg_error err = {0};
    assert_int_equal(kube_replicas_init(kube, "fd00::a:1:16010", &err), 0);
    assert_string_equal(kube->replicas.address, "[fd00::a:1]:16010");
    kube_replicas_fini(kube);
    free(kube);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pod_that_runs),
        cmocka_unit_test(test_pods_that_do_not_run),
        cmocka_unit_test(test_a_long_reason_is_cut),
        cmocka_unit_test(test_pods_of_others),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_the_cache),
        cmocka_unit_test(test_the_pod_is_confined),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_the_server_of_the_cluster),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_hashes_of_sessions),
        cmocka_unit_test(test_names_of_two_installations),
        cmocka_unit_test(test_the_pod_of_a_session),
        cmocka_unit_test(test_the_epoch_that_was_held),
        cmocka_unit_test(test_a_name_is_taken_over_from_a_pod_that_is_gone),
        cmocka_unit_test(test_a_name_is_looked_at_twice),
        cmocka_unit_test(test_a_pod_that_is_given_up),
        cmocka_unit_test(test_sessions_of_other_gateways),
        cmocka_unit_test(test_addresses_of_replicas),
        cmocka_unit_test(test_an_address_without_brackets),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += _cmocka_run_group_tests("kubernetes_faults", kubernetes_fault_tests,
                                      n_kubernetes_fault_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("kubernetes_files", kubernetes_file_tests,
                                      n_kubernetes_file_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("kubernetes_replicas", kubernetes_replica_tests,
                                      n_kubernetes_replica_tests, NULL, NULL);
    return failed;
}
