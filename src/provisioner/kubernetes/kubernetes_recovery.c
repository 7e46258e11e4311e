// SPDX-License-Identifier: Apache-2.0
// Takes over the pods that an earlier gateway of this installation has left: each gets the next
// epoch before it is used, so its agent refuses that gateway if it still runs.
#include <string.h>

#include "kubernetes_priv.h"

#define MAX_ADOPTING 8
#define ADOPT_MS 30000

struct kube_adoption {
    TAILQ_ENTRY(kube_adoption) entry;
    struct kube_op *op;
    struct http_call *call;
    struct loop_timer *timer; // the next attempt
    int64_t until_ms;         // the end of attempts
    int n_attempts;           // 0: not asked yet
    uint64_t epoch;           // before
    char id[SANDBOX_ID_MAX + 1];
};

static void adopt_more(struct kube_op *op);

static void
adoption_free(struct kube_adoption *adoption)
{
    TAILQ_REMOVE(&adoption->op->adoptions, adoption, entry);
    http_call_cancel(adoption->call);
    loop_timer_free(adoption->timer);
    free(adoption);
}

void
kube_adoptions_fini(struct kube_op *op)
{
    for (struct kube_adoption *adoption; (adoption = TAILQ_FIRST(&op->adoptions));)
        adoption_free(adoption);
}

// Reads the record of a pod's session; NULL if the sandbox is not claimed. Returns false if the
// record is damaged.
static bool
read_meta(const struct kube_pod *pod, const json_t *answer, json_t **ret)
{
    *ret = pod->claimed ? json_loads(kube_pod_meta(answer), 0, NULL) : NULL;
    return *ret || !pod->claimed;
}

// Reports the sandbox, of which `answer` has the record. Returns false if it cannot be used.
static bool
report(struct kube_op *op, const struct kube_pod *pod, const json_t *answer)
{
    struct provisioner *provisioner = op->base.provisioner;
    json_auto_t *meta = NULL;
    struct kg_error err = {0};
    if (pod->phase != KUBE_RUNNING || pod->deleting || op->base.cancelled)
        return false;
    if (!read_meta(pod, answer, &meta)) {
        log_warning("a pod's record of its session is damaged", LOG_STR("sandbox", pod->id));
        return false;
    }
    if (!folder_exists(provisioner->state_dir, pod->id) &&
        folder_make(provisioner->state_dir, pod->id, &err) < 0) {
        log_warning("cannot recover a sandbox", LOG_STR("sandbox", pod->id), LOG_ERR(&err));
        return false;
    }
    return op_report(&op->base, pod->id, 0, meta);
}

// ---- Taking over ----------------------------------------------------------------------------

static void
adoption_end(struct kube_adoption *adoption)
{
    struct kube_op *op = adoption->op;
    adoption_free(adoption);
    op->n_adopting--;
    adopt_more(op);
    op_recover_step(&op->base);
}

// The pod stays, and so does its session: the next start can have it.
static void
adoption_fail(struct kube_adoption *adoption, const struct kg_error *err)
{
    log_warning("cannot recover a sandbox", LOG_STR("sandbox", adoption->id), LOG_ERR(err));
    if (!adoption->op->base.err.code)
        adoption->op->base.err = *err;
    adoption_end(adoption);
}

static bool
try_again(struct kube_adoption *adoption, const struct http_call_result *result)
{
    int64_t pause_ms = kube_pause_ms(result, adoption->n_attempts);
    if (!kube_is_transient(result) || clock_mono_ms() + pause_ms >= adoption->until_ms)
        return false;
    loop_timer_start(adoption->timer, pause_ms);
    return true;
}

static bool
take_answer(struct kubernetes *kube, const struct http_call_result *result, const json_t *body,
            struct kube_pod *ret, struct kg_error *err)
{
    if (kube_check(kube, result, err) < 0)
        return false;
    if (kube_pod_take(kube, body, ret))
        return true;
    kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                 "kubernetes: the answer has no pod of this installation");
    return false;
}

// The answer has the pod's present state, and its record.
static void
on_answer(struct kube_adoption *adoption, const struct http_call_result *result)
{
    struct kube_op *op = adoption->op;
    struct kubernetes *kube = kube_of(&op->base);
    struct kg_error err = {0};
    struct kube_pod pod;
    json_auto_t *body = json_loadb(result->body, result->body_len, 0, NULL);
    if (!take_answer(kube, result, body, &pod, &err)) {
        adoption_fail(adoption, &err);
        return;
    }
    const struct kube_pod *kept = kube_pod_keep(kube, &pod);
    if (!pod.ours || pod.epoch != adoption->epoch + 1)
        log_info("another gateway has a pod of this installation",
                 LOG_STR("sandbox", adoption->id));
    else if (op->base.cancelled)
        kube_mark(kube, adoption->id, KUBE_MARK_RELEASED);
    else if (!report(op, kept, body))
        op_remove_leftover(&kube->base, adoption->id, &op->base);
    adoption_end(adoption);
}

static void
on_read_back(const struct http_call_result *result, void *arg)
{
    struct kube_adoption *adoption = arg;
    adoption->call = NULL;
    if (try_again(adoption, result))
        return;
    if (result->status == 404)
        adoption_end(adoption);
    else
        on_answer(adoption, result);
}

// Another gateway has changed the epoch; or we have, if the answer to an earlier attempt was lost.
static void
read_back(struct kube_adoption *adoption)
{
    struct kubernetes *kube = kube_of(&adoption->op->base);
    KG_AUTO_FREE char *path = kube_pod_path(kube, adoption->id);
    struct kg_error err = {0};
    adoption->call = kube_call(kube, "GET", path, NULL, on_read_back, adoption, &err);
    if (!adoption->call)
        adoption_fail(adoption, &err);
}

static void
on_adopted(const struct http_call_result *result, void *arg)
{
    struct kube_adoption *adoption = arg;
    adoption->call = NULL;
    if (try_again(adoption, result))
        return;
    if (result->status == 422)
        read_back(adoption);
    else if (result->status == 404)
        adoption_end(adoption);
    else
        on_answer(adoption, result);
}

static void
ask(void *arg)
{
    struct kube_adoption *adoption = arg;
    struct kubernetes *kube = kube_of(&adoption->op->base);
    KG_AUTO_FREE char *path = kube_pod_path(kube, adoption->id);
    struct kg_error err = {0};
    adoption->n_attempts++;
    adoption->call = kube_call(kube, "PATCH", path, kube_takeover_patch(kube, adoption->epoch),
                               on_adopted, adoption, &err);
    if (!adoption->call)
        adoption_fail(adoption, &err);
}

static struct kube_adoption *
next_adoption(const struct kube_op *op)
{
    struct kube_adoption *adoption;
    TAILQ_FOREACH(adoption, &op->adoptions, entry) {
        if (!adoption->n_attempts && !loop_timer_active(adoption->timer))
            return adoption;
    }
    return NULL;
}

// The recovery does not end meanwhile: `n_left` counts each adoption, and the caller.
static void
adopt_more(struct kube_op *op)
{
    struct kube_adoption *adoption;
    while (op->n_adopting < MAX_ADOPTING && (adoption = next_adoption(op))) {
        op->n_adopting++;
        adoption->until_ms = clock_mono_ms() + ADOPT_MS;
        loop_timer_start(adoption->timer, 0);
    }
}

static void
take_pod(struct kube_op *op, const struct kube_pod *pod)
{
    const struct kubernetes *kube = kube_of(&op->base);
    // A cancelled takeover leaves the pods to other replicas.
    if (kube_has_replicas(kube) && (op->base.cancelled || !kube_pod_is_due(kube, pod)))
        return;
    if (pod->phase != KUBE_RUNNING || pod->deleting || op->base.cancelled) {
        op_remove_leftover(op->base.provisioner, pod->id, &op->base);
        return;
    }
    struct kube_adoption *adoption = KG_NEW(struct kube_adoption);
    adoption->op = op;
    adoption->epoch = pod->epoch;
    adoption->timer = loop_timer_new(op->base.provisioner->loop, ask, adoption);
    memcpy(adoption->id, pod->id, sizeof adoption->id);
    TAILQ_INSERT_TAIL(&op->adoptions, adoption, entry);
    op->base.n_left++;
}

static void
recover_folder(const char *id, void *arg)
{
    struct kube_op *op = arg;
    struct kubernetes *kube = kube_of(&op->base);
    if (!kube_pod_find(kube, id))
        op_remove_leftover(&kube->base, id, &op->base);
}

void
kube_recover_listed(struct kube_op *op, const struct kg_error *failure)
{
    struct kubernetes *kube = kube_of(&op->base);
    struct kg_error err = {0};
    if (failure) {
        op->base.err = *failure;
        op_finish(&op->base);
        return;
    }
    for (size_t i = 0; i < KUBE_BUCKETS; i++) {
        struct kube_pod *pod;
        LIST_FOREACH(pod, &kube->pods[i], link)
            take_pod(op, pod);
    }
    // Later on some folders belong to pods that are being created.
    if (!kube->recovered && folder_list(kube->base.state_dir, recover_folder, op, &err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&err));
    kube->recovered = true;
    kube_network_start(kube); // a recovery would remove its pods
    adopt_more(op);
    op_recover_step(&op->base);
}
