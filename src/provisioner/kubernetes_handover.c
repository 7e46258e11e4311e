// SPDX-License-Identifier: Apache-2.0
// Pods that this gateway gives up while it runs. Each loses its holder by one patch, so that
// another replica takes it over without waiting for this one's Lease to expire
// (kubernetes_recovery.c).
#include <string.h>

#include "kubernetes_priv.h"

#define MAX_CALLS 8
#define MAX_ATTEMPTS 5

struct kube_handover {
    TAILQ_ENTRY(kube_handover) entry;
    struct kubernetes *kube;
    struct http_call *call;
    struct loop_timer *timer; // the next attempt
    int n_attempts;
    uint64_t epoch; // with which this gateway held it: it may take the pod again meanwhile
    char id[SANDBOX_ID_MAX + 1];
};

static void ask_more(struct kubernetes *kube);

static void
handover_free(struct kube_handover *handover)
{
    TAILQ_REMOVE(&handover->kube->handovers, handover, entry);
    handover->kube->n_handing_over -= handover->n_attempts > 0;
    http_call_cancel(handover->call);
    loop_timer_free(handover->timer);
    free(handover);
}

static void
handover_end(struct kube_handover *handover, const struct kg_error *err)
{
    struct kubernetes *kube = handover->kube;
    if (err->code)
        log_warning("cannot hand a sandbox over; another replica takes it when this one has ended",
                    LOG_STR("sandbox", handover->id), LOG_ERR(err));
    handover_free(handover);
    ask_more(kube);
}

// 422: another replica has it already. 404: it has ended.
static void
on_handed_over(const struct http_call_result *result, void *arg)
{
    struct kube_handover *handover = arg;
    struct kg_error err = {0};
    handover->call = NULL;
    if (kube_is_transient(result) && handover->n_attempts < MAX_ATTEMPTS) {
        loop_timer_start(handover->timer, kube_pause_ms(result, handover->n_attempts));
        return;
    }
    if (result->status != 422 && result->status != 404)
        (void)kube_check(handover->kube, result, &err);
    handover_end(handover, &err);
}

static void
handover_ask(void *arg)
{
    struct kube_handover *handover = arg;
    struct kubernetes *kube = handover->kube;
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = kube_pod_path(kube, handover->id);
    KG_AUTO_FREE char *epoch = kg_asprintf("%llu", (unsigned long long)handover->epoch);
    json_t *patch =
        json_pack("[{s:s, s:s, s:s}, {s:s, s:s, s:s}, {s:s, s:s, s:s}]", "op", "test", "path",
                  "/metadata/annotations/kernelgate~1holder", "value", kube->holder, "op", "test",
                  "path", "/metadata/annotations/kernelgate~1epoch", "value", epoch, "op",
                  "replace", "path", "/metadata/annotations/kernelgate~1holder", "value", "");
    kube->n_handing_over += handover->n_attempts == 0;
    handover->n_attempts++;
    handover->call = kube_call(kube, "PATCH", path, patch, on_handed_over, handover, &err);
    if (!handover->call)
        handover_end(handover, &err);
}

static struct kube_handover *
next_handover(const struct kubernetes *kube)
{
    struct kube_handover *handover;
    TAILQ_FOREACH(handover, &kube->handovers, entry) {
        if (!handover->n_attempts)
            return handover;
    }
    return NULL;
}

static void
ask_more(struct kubernetes *kube)
{
    struct kube_handover *handover;
    while (kube->n_handing_over < MAX_CALLS && (handover = next_handover(kube)))
        handover_ask(handover);
}

void
kube_hand_over(struct kubernetes *kube, const char *id)
{
    struct kube_pod *pod = kube_pod_find(kube, id);
    if (!pod || !pod->ours || pod->deleting)
        return;
    kube_pod_release(pod);
    struct kube_handover *handover = KG_NEW(struct kube_handover);
    handover->kube = kube;
    handover->epoch = pod->epoch;
    handover->timer = loop_timer_new(kube->base.loop, handover_ask, handover);
    memcpy(handover->id, id, strlen(id) + 1); // `id` of a pod has room
    TAILQ_INSERT_TAIL(&kube->handovers, handover, entry);
    ask_more(kube);
}

void
kube_handovers_fini(struct kubernetes *kube)
{
    for (struct kube_handover *handover; (handover = TAILQ_FIRST(&kube->handovers));)
        handover_free(handover);
}

void
provisioner_hand_over(struct provisioner *provisioner, const char *id)
{
    kube_hand_over((struct kubernetes *)provisioner, id);
}
