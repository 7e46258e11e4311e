// SPDX-License-Identifier: Apache-2.0
// Whether the cluster enforces the NetworkPolicy of the sandboxes, which not every network plugin
// does: a pod like a sandbox's tries to reach what it must not, at the start and then every hour.
// A second one is its neighbour, with an agent that listens.
#include <string.h>

#include "kubernetes_priv.h"

#define POLL_MS 500
#define POD_MS 120000
#define AGAIN_MS 3600000
#define AGAIN_FAILED_MS 10000
#define KEY_LEN 64        // of the agent's option
#define NEIGHBOUR_S "300" // after which its agent ends by itself

static void step(void *arg);

// ---- The verdict ----------------------------------------------------------------------------

// The pods are removed, which is tried once: they end by themselves.
static void
on_removed(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    struct kg_error err = {0};
    kube->network.call = NULL;
    if (result->status != 404 && kube_check(kube, result, &err) < 0)
        log_warning("cannot remove a pod of a trial of the network", LOG_ERR(&err));
    step(kube);
}

static void
remove_pod(struct kubernetes *kube, char *id)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = kube_pod_path(kube, id);
    id[0] = '\0';
    kube->network.call = kube_call(kube, "DELETE", path, NULL, on_removed, kube, &err);
    if (!kube->network.call)
        loop_timer_start(kube->network.timer, POLL_MS);
}

static void
set_verdict(struct kubernetes *kube, bool closed, const char *why)
{
    struct kube_network *network = &kube->network;
    if (!closed)
        log_error("the network of the sandboxes is not closed", LOG_STR("reason", why));
    else if (!network->closed)
        log_info("the cluster enforces the NetworkPolicy of the sandboxes");
    network->closed = closed;
    free(network->why);
    network->why = kg_strdup(why);
    network->stage = KUBE_NETWORK_REMOVE;
    step(kube);
}

// Once it was closed it counts as closed until the opposite is seen: else the gateway would not be
// ready while the API server is away.
static void
network_fail(struct kubernetes *kube, const struct kg_error *err)
{
    KG_AUTO_FREE char *why = kg_asprintf("cannot test what sandboxes can reach: %s", err->message);
    if (!kube->network.closed) {
        set_verdict(kube, false, why);
        return;
    }
    log_warning("cannot test what sandboxes can reach", LOG_ERR(err));
    kube->network.stage = KUBE_NETWORK_REMOVE;
    step(kube);
}

// ---- Pods -----------------------------------------------------------------------------------

static void
on_made(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    struct kg_error err = {0};
    kube->network.call = NULL;
    if (kube_check(kube, result, &err) < 0) {
        network_fail(kube, &err);
        return;
    }
    kube->network.until_ms = clock_mono_ms() + POD_MS;
    kube->network.stage++;
    loop_timer_start(kube->network.timer, POLL_MS);
}

static void
make_pod(struct kubernetes *kube, char id[SANDBOX_ID_MAX + 1], json_t *args)
{
    struct kg_error err = {0};
    id_random(id, 10);
    json_t *pod = kube_trial_pod(kube, id, args);
    kube->network.call = kube_call(kube, "POST", kube->pods_path, pod, on_made, kube, &err);
    if (!kube->network.call)
        network_fail(kube, &err);
}

// Nobody has the other half of its key.
static void
make_neighbour(struct kubernetes *kube)
{
    char key[KEY_LEN + 1];
    KG_AUTO_FREE char *port = kg_asprintf("%d", SANDBOX_AGENT_PORT);
    id_random_hex(key, KEY_LEN);
    make_pod(kube, kube->network.neighbour,
             json_pack("[s, s, s, s, s, s, s, s, s]", SANDBOX_AGENT, "--listen", port, "--sandbox",
                       "trial", "--gateway-key", key, "--idle-timeout", NEIGHBOUR_S));
}

// The kubelet replaces what begins with a dollar sign.
static void
make_prober(struct kubernetes *kube, const char *neighbour_ip)
{
    KG_AUTO_FREE char *neighbour =
        kg_asprintf("another sandbox=%s:%d", neighbour_ip, SANDBOX_AGENT_PORT);
    json_t *args =
        json_pack("[s, s, s, s, s, s, s, s, s]", SANDBOX_AGENT, "--reach",
                  "the API server=$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)", "--reach",
                  "the node's kubelet=$(NODE_ADDRESS):10250", "--reach",
                  "the cloud's metadata service=169.254.169.254:80", "--reach", neighbour);
    make_pod(kube, kube->network.prober, args);
}

static void
take_neighbour(struct kubernetes *kube, const struct kube_pod *pod)
{
    if (pod->phase == KUBE_RUNNING)
        make_prober(kube, pod->ip);
    else
        loop_timer_start(kube->network.timer, POLL_MS);
}

// How the container ended; NULL: it has not.
static const json_t *
end_of(const json_t *pod)
{
    const json_t *statuses =
        json_object_get(json_object_get(pod, "status"), "containerStatuses"); // there is one
    const json_t *state = json_object_get(json_array_get(statuses, 0), "state");
    return json_object_get(state, "terminated");
}

static void
take_prober(struct kubernetes *kube, const json_t *body, const struct kube_pod *pod)
{
    const json_t *end = end_of(body);
    const char *reached = json_string_value(json_object_get(end, "message"));
    json_int_t code = json_integer_value(json_object_get(end, "exitCode"));
    if (pod->phase != KUBE_ENDED) {
        loop_timer_start(kube->network.timer, POLL_MS);
    } else if (end && code == 0) {
        set_verdict(kube, true, "");
    } else if (code == 1 && reached) {
        KG_AUTO_FREE char *why = kg_asprintf(
            "a sandbox reaches %.120s: the cluster does not enforce the NetworkPolicy of "
            "deploy/kubernetes; use a network plugin that does, or accept it with "
            "--unenforced-network",
            reached);
        set_verdict(kube, false, why);
    } else {
        struct kg_error err;
        kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "a pod does not run: %.180s", pod->why);
        network_fail(kube, &err);
    }
}

static void
network_on_read(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    struct kube_network *network = &kube->network;
    struct kg_error err = {0};
    struct kube_pod pod;
    network->call = NULL;
    bool late = clock_mono_ms() >= network->until_ms;
    if (kube_is_transient(result) && !late) {
        loop_timer_start(network->timer, POLL_MS);
        return;
    }
    if (kube_check(kube, result, &err) < 0) {
        network_fail(kube, &err);
        return;
    }
    json_auto_t *body = json_loadb(result->body, result->body_len, 0, NULL);
    bool is_neighbour = network->stage == KUBE_NETWORK_NEIGHBOUR;
    bool read = kube_pod_take(kube, body, &pod);
    if (!read || pod.stuck || (pod.phase == KUBE_PENDING && late) ||
        (is_neighbour && pod.phase == KUBE_ENDED)) {
        kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "a pod does not run: %.180s",
                     read && pod.why[0] ? pod.why : "it has not started in time");
        network_fail(kube, &err);
    } else if (is_neighbour) {
        take_neighbour(kube, &pod);
    } else {
        take_prober(kube, body, &pod);
    }
}

static void
read_pod(struct kubernetes *kube, const char *id)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = kube_pod_path(kube, id);
    kube->network.call = kube_call(kube, "GET", path, NULL, network_on_read, kube, &err);
    if (!kube->network.call)
        network_fail(kube, &err);
}

// ---- The stages -----------------------------------------------------------------------------

static void
step(void *arg)
{
    struct kubernetes *kube = arg;
    struct kube_network *network = &kube->network;
    switch (network->stage) {
    case KUBE_NETWORK_BEGIN:
        make_neighbour(kube);
        break;
    case KUBE_NETWORK_NEIGHBOUR:
        read_pod(kube, network->neighbour);
        break;
    case KUBE_NETWORK_PROBER:
        read_pod(kube, network->prober);
        break;
    case KUBE_NETWORK_REMOVE:
        if (network->neighbour[0] || network->prober[0]) {
            remove_pod(kube, network->neighbour[0] ? network->neighbour : network->prober);
            break;
        }
        network->stage = KUBE_NETWORK_BEGIN;
        if (network->on_tried)
            network->on_tried(network->on_tried_arg);
        if (!network->retired)
            loop_timer_start(network->timer, network->closed ? AGAIN_MS : AGAIN_FAILED_MS);
        break;
    }
}

void
kube_network_init(struct kubernetes *kube, bool unenforced)
{
    kube->network.unenforced = unenforced;
    kube->network.timer = loop_timer_new(kube->base.loop, step, kube);
}

void
kube_network_start(struct kubernetes *kube)
{
    if (kube->network.unenforced || kube->network.started)
        return;
    kube->network.started = true;
    loop_timer_start(kube->network.timer, 0);
}

// The pods of a trial under way are removed.
void
kube_network_retire(struct kubernetes *kube)
{
    struct kube_network *network = &kube->network;
    network->retired = true;
    if (network->stage == KUBE_NETWORK_REMOVE)
        return;
    http_call_cancel(KG_STEAL(network->call));
    loop_timer_stop(network->timer);
    network->stage = KUBE_NETWORK_REMOVE;
    step(kube);
}

bool
kube_network_uses(const struct kubernetes *kube, const char *id)
{
    return strcmp(kube->network.neighbour, id) == 0 || strcmp(kube->network.prober, id) == 0;
}

bool
kube_network_is_busy(const struct kubernetes *kube)
{
    return kube->network.call != NULL || kube->network.stage == KUBE_NETWORK_REMOVE;
}

void
kube_network_fini(struct kubernetes *kube)
{
    http_call_cancel(kube->network.call);
    loop_timer_free(kube->network.timer);
    free(kube->network.why);
}

int
kube_network_check(const struct kubernetes *kube, struct kg_error *err)
{
    const struct kube_network *network = &kube->network;
    if (network->unenforced || network->closed)
        return 0;
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s",
                        network->why ? network->why : "what a sandbox can reach is being tried");
}
