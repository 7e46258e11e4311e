// SPDX-License-Identifier: Apache-2.0
// Queries the API server before the main loop runs: whether it answers, whether it allows what is
// needed, and whether it would admit a pod. `kernelgate doctor` runs a pod, too.
#include <string.h>
#include <time.h>

#include "kubernetes_priv.h"

#define POD_MS 60000
#define POLL_MS 250

// Waits for an answer in a separate loop.
struct answer {
    const struct kubernetes *kube;
    struct loop *loop;
    json_t *body;
    struct kg_error err;
};

static void
on_answer(const struct http_call_result *result, void *arg)
{
    struct answer *answer = arg;
    (void)kube_check(answer->kube, result, &answer->err);
    answer->body = json_loadb(result->body, result->body_len, 0, NULL);
    loop_stop(answer->loop);
}

// The call is made by a copy of the engine, whose calls use a separate loop.
static int
ask_and_wait(const struct kubernetes *kube, const char *method, const char *path, json_t *body,
             json_t **ret, struct kg_error *err)
{
    KG_AUTO(loop) loop = loop_new();
    KG_AUTO(http_client) http = http_client_new(loop);
    struct kubernetes asking = *kube;
    struct answer answer = {.kube = kube, .loop = loop};
    asking.http = http;
    if (kube_call(&asking, method, path, body, on_answer, &answer, &answer.err))
        loop_run(loop);
    if (ret && !answer.err.code)
        *ret = json_incref(answer.body);
    json_decref(answer.body);
    if (!answer.err.code)
        return 0;
    *err = answer.err;
    return -1;
}

// ---- Rights ---------------------------------------------------------------------------------

static int
ask_right(const struct kubernetes *kube, const char *group, const char *resource, const char *verb,
          bool *ret, struct kg_error *err)
{
    json_t *question =
        json_pack("{s:s, s:s, s:{s:{s:s, s:s, s:s, s:s}}}", "apiVersion", "authorization.k8s.io/v1",
                  "kind", "SelfSubjectAccessReview", "spec", "resourceAttributes", "namespace",
                  kube->access.namespace, "group", group, "resource", resource, "verb", verb);
    json_auto_t *answer = NULL;
    if (ask_and_wait(kube, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                     question, &answer, err) < 0)
        return -1;
    const json_t *status = json_object_get(answer, "status");
    *ret = json_is_true(json_object_get(status, "allowed"));
    return 0;
}

static int
check_rights_over(const struct kubernetes *kube, const char *group, const char *resource,
                  const char *const *verbs, size_t n_verbs, struct kg_error *err)
{
    KG_AUTO_BUF missing = {0};
    for (size_t i = 0; i < n_verbs; i++) {
        bool allowed = false;
        if (ask_right(kube, group, resource, verbs[i], &allowed, err) < 0)
            return -1;
        if (!allowed)
            buf_printf(&missing, "%s%s", missing.len ? ", " : "", verbs[i]);
    }
    if (!missing.len)
        return 0;
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                        "kubernetes: this account may not %s %s in the namespace %s (see the Role "
                        "in deploy/kubernetes)",
                        missing.data, resource, kube->access.namespace);
}

static int
check_rights(const struct kubernetes *kube, struct kg_error *err)
{
    static const char *const of_pods[] = {"create", "delete", "get", "list", "patch", "watch"};
    static const char *const of_leases[] = {"create", "delete", "get", "list", "patch"};
    if (check_rights_over(kube, "", "pods", of_pods, KG_ARRAY_LEN(of_pods), err) < 0)
        return -1;
    return kube_has_replicas(kube) ? check_rights_over(kube, "coordination.k8s.io", "leases",
                                                       of_leases, KG_ARRAY_LEN(of_leases), err)
                                   : 0;
}

// ---- A pod ----------------------------------------------------------------------------------

static json_t *
trial_pod(const struct kubernetes *kube, const char *id)
{
    return kube_pod_spec(kube, id, json_pack("[s, s]", SANDBOX_AGENT, "--version"));
}

// A dry run: the server checks quotas and the namespace's Pod Security, and creates nothing.
static int
check_admission(const struct kubernetes *kube, struct kg_error *err)
{
    char id[SANDBOX_ID_MAX + 1] = {0};
    id_random(id, 10);
    KG_AUTO_FREE char *path = kg_asprintf("%s?dryRun=All&fieldValidation=Strict", kube->pods_path);
    return ask_and_wait(kube, "POST", path, trial_pod(kube, id), NULL, err);
}

int
kube_trial(struct kubernetes *kube, struct kg_error *err)
{
    return check_rights(kube, err) < 0 || check_admission(kube, err) < 0 ? -1 : 0;
}

static int
wait_for_end(struct kubernetes *kube, const char *path, struct kg_error *err)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    int64_t end_ms = clock_mono_ms() + POD_MS;
    struct kube_pod pod = {0};
    do {
        json_auto_t *body = NULL;
        if (ask_and_wait(kube, "GET", path, NULL, &body, err) < 0)
            return -1;
        if (!kube_pod_take(kube, body, &pod) || pod.stuck || pod.phase == KUBE_ENDED)
            break;
        nanosleep(&pause, NULL);
    } while (clock_mono_ms() < end_ms);
    if (pod.phase == KUBE_ENDED && !pod.why[0])
        return 0;
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "a pod does not run: %.180s",
                        pod.why[0] ? pod.why : "it has not ended in time");
}

// Runs `kernelgate-agent --version` as a sandbox.
static int
try_pod(struct kubernetes *kube, struct kg_error *err)
{
    char id[SANDBOX_ID_MAX + 1] = {0};
    struct kg_error why;
    id_random(id, 10);
    KG_AUTO_FREE char *path = kube_pod_path(kube, id);
    if (ask_and_wait(kube, "POST", kube->pods_path, trial_pod(kube, id), NULL, err) < 0)
        return -1;
    int result = wait_for_end(kube, path, err);
    if (ask_and_wait(kube, "DELETE", path, NULL, NULL, &why) < 0 && result == 0) {
        *err = why;
        return -1;
    }
    return result;
}

static void
on_tried(void *arg)
{
    loop_stop(arg);
}

static bool
try_network(struct kubernetes *kube, provisioner_finding_fn fn, void *arg)
{
    struct kg_error err = {0};
    if (kube->network.unenforced) {
        fn("kubernetes: network", true, "unenforced-network accepts what sandboxes reach", arg);
        return true;
    }
    kube->network.on_tried = on_tried;
    kube->network.on_tried_arg = kube->base.loop;
    kube_network_start(kube);
    loop_run(kube->base.loop);
    bool closed = kube_network_check(kube, &err) == 0;
    fn("kubernetes: network", closed,
       closed ? "a sandbox reaches neither the API server, the node nor another sandbox"
              : err.message,
       arg);
    return closed;
}

// The gateway that leads an installation removes pods of it that have no living holder.
static void
leave_installation(struct kubernetes *kube)
{
    char id[SANDBOX_ID_MAX + 1] = {0};
    id_random(id, 10);
    free(kube->installation);
    kube->installation = kg_asprintf("doctor-%s", id);
}

bool
kube_doctor(struct kubernetes *kube, provisioner_finding_fn fn, void *arg)
{
    const struct {
        const char *what;
        const char *good;
        int (*check)(const struct kubernetes *kube, struct kg_error *err);
    } checks[] = {
        {"kubernetes: rights", "pods can be created, deleted, read, watched and changed",
         check_rights},
        {"kubernetes: admission", "the namespace admits a sandbox's pod", check_admission}};
    KG_AUTO_FREE char *access = kube_access_describe(&kube->access);
    leave_installation(kube);
    fn("kubernetes: access", true, access, arg);
    for (size_t i = 0; i < KG_ARRAY_LEN(checks); i++) {
        struct kg_error err = {0};
        bool ok = checks[i].check(kube, &err) == 0;
        fn(checks[i].what, ok, ok ? checks[i].good : err.message, arg);
        if (!ok)
            return false;
    }
    struct kg_error err = {0};
    bool runs = try_pod(kube, &err) == 0;
    fn("kubernetes: system calls", false,
       "the runtime's default filter: it allows netlink, UDP and all options of sockets, whose "
       "queues"
       " and filters no pod's limit of memory counts",
       arg);
    fn("kubernetes: pod", runs, runs ? "the agent runs in a pod" : err.message, arg);
    return runs && try_network(kube, fn, arg);
}
