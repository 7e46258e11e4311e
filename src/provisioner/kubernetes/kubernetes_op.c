// SPDX-License-Identifier: Apache-2.0
// Creates and destroys sandboxes. Each operation is one call to the API server, which is repeated
// after temporary errors (kubernetes_attempts.c). A create then waits for its pod to run.
#include <string.h>

#include "kubernetes_priv.h"

static void ask_delete(struct kube_op *op);

void
kube_op_fini(struct provisioner_op *base)
{
    struct kube_op *op = (struct kube_op *)base;
    if (kube_of(base)->recovery == op)
        kube_of(base)->recovery = NULL;
    http_call_cancel(op->call);
    loop_timer_free(op->timer);
    json_decref(op->lease);
    kube_adoptions_fini(op);
}

// ---- Destroying -----------------------------------------------------------------------------

static void
end_delete(struct kube_op *op, const struct kg_error *err)
{
    op_finish_delete(&op->base, err);
}

// A pod that is being deleted counts as removed: its grace period is one second.
static void
on_deleted(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    struct kg_error err = {0};
    op->call = NULL;
    op->version[0] = '\0';
    if (kube_op_try_again(op, result))
        return;
    if (result->status != 404)
        (void)kube_check(kube_of(&op->base), result, &err);
    struct kube_pod *pod = kube_pod_find(kube_of(&op->base), op->base.id);
    if (pod && !err.code)
        pod->deleting = true;
    end_delete(op, &err);
}

static void
on_held(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    struct kg_error err = {0};
    op->call = NULL;
    if (kube_op_try_again(op, result))
        return;
    if (result->status == 422) {
        log_info("a pod is another replica's, or has a session now",
                 LOG_STR("sandbox", op->base.id));
        end_delete(op, &err);
        return;
    }
    if (result->status == 404 || kube_check(kube_of(&op->base), result, &err) < 0) {
        end_delete(op, &err);
        return;
    }
    json_auto_t *pod = json_loadb(result->body, result->body_len, 0, NULL);
    const json_t *meta = json_object_get(pod, "metadata");
    const char *version = json_string_value(json_object_get(meta, "resourceVersion"));
    if (!version || !*version || strlen(version) > KUBE_VERSION_MAX) {
        kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "kubernetes: the answer has no pod with a version");
        end_delete(op, &err);
        return;
    }
    memcpy(op->version, version, strlen(version) + 1);
    ask_delete(op);
}

// Whose pod it is in the cache counts: our own, or that of a replica that has ended. That one may
// have claimed it since.
static void
ask_held(struct kube_op *op)
{
    const struct kubernetes *kube = kube_of(&op->base);
    const struct kube_pod *pod = kube_pod_find(kube, op->base.id);
    bool lost = pod && kube_pod_is_lost(kube, pod);
    const char *holder = lost ? pod->holder : kube->holder;
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = kube_pod_path(kube, op->base.id);
    json_t *patch = json_array();
    if (lost)
        kube_patch_test(patch, KUBE_PATH_LABEL("state"), pod->claimed ? "claimed" : "free");
    kube_patch_test(patch, KUBE_PATH_ANNOTATION("holder"), holder);
    kube_patch_replace(patch, KUBE_PATH_ANNOTATION("holder"), kube->holder);
    op->call = kube_call(kube_of(&op->base), "PATCH", path, patch, on_held, op, &err);
    if (!op->call)
        end_delete(op, &err);
}

static void
ask_delete(struct kube_op *op)
{
    struct kg_error err = {0};
    if (kube_has_replicas(kube_of(&op->base)) && !op->version[0]) {
        ask_held(op);
        return;
    }
    KG_AUTO_FREE char *path = kube_pod_path(kube_of(&op->base), op->base.id);
    // The pod is as it was when its holder was right; otherwise there is a conflict, and another
    // attempt.
    json_t *options = op->version[0] ? kube_precondition(op->version) : NULL;
    op->call = kube_call(kube_of(&op->base), "DELETE", path, options, on_deleted, op, &err);
    if (!op->call)
        end_delete(op, &err);
}

static void
start_delete(struct kube_op *op)
{
    op->waiting = false;
    op_start_delete(&op->base);
    kube_op_begin_attempts(op, ask_delete);
    ask_delete(op);
}

// ---- Creating -------------------------------------------------------------------------------

void
kube_op_on_pod(struct kube_op *op, const struct kube_pod *pod)
{
    if (pod && pod->phase == KUBE_RUNNING && !pod->deleting) {
        op->waiting = false;
        watch_start(op->base.provisioner, op->base.id, 0, op->base.on_exit, op->base.arg, NULL);
        op_finish(&op->base);
        return;
    }
    if (pod && pod->phase == KUBE_PENDING && !pod->deleting && !pod->stuck)
        return;
    kg_error_set(&op->base.err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox's pod %s: %.180s",
                 pod && pod->stuck ? "cannot start" : "has ended",
                 pod && pod->why[0] ? pod->why : "it was deleted");
    start_delete(op);
}

void
kube_op_wait_for_pod(struct kube_op *op)
{
    const struct kube_pod *pod = kube_pod_find(kube_of(&op->base), op->base.id);
    op->waiting = true;
    if (pod)
        kube_op_on_pod(op, pod);
}

// Says at once that there is no sandbox. An attempt without an answer may have made a pod, which an
// operation of its own removes.
static void
fail_create(struct kube_op *op)
{
    op_remove_leftover(op->base.provisioner, op->base.id, NULL);
    op_finish(&op->base);
}

static void
on_created(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    op->call = NULL;
    // The answer to an earlier attempt may have been lost.
    bool there = op->n_attempts > 0 && kube_already_exists(result);
    if (!there && !op->base.cancelled && kube_op_try_again(op, result))
        return;
    if (op->base.cancelled)
        start_delete(op);
    else if (!there && kube_check(kube_of(&op->base), result, &op->base.err) < 0)
        fail_create(op);
    else
        kube_op_wait_for_pod(op);
}

static void
start_create(struct kube_op *op)
{
    struct kubernetes *kube = kube_of(&op->base);
    if (op->base.takes) {
        kube_take_start(op);
        return;
    }
    json_t *body = kube_pod_spec(kube, op->base.id, sandbox_agent_args(&op->base));
    op->call = kube_call(kube, "POST", kube->pods_path, body, on_created, op, &op->base.err);
    if (!op->call)
        start_delete(op);
}

bool
kube_op_explain(const struct provisioner_op *base, struct kg_error *err)
{
    const struct kube_op *op = (const struct kube_op *)base;
    const struct kubernetes *kube = kube_of(base);
    const struct kube_pod *pod = kube_pod_find(kube, base->id);
    // What is known of the pod may be old if one of these has failed.
    const char *failure = kube->monitor.failure ? kube->monitor.failure : kube->replicas.failure;
    if (!op->waiting)
        return false;
    if (failure)
        kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "the sandbox's pod has not started yet, as far as is known; the API server "
                     "fails: %.140s",
                     failure);
    else
        kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "the sandbox's pod has not started yet%s%.180s",
                     pod && pod->why[0] ? ": " : "", pod ? pod->why : "");
    return true;
}

// ---- Starting -------------------------------------------------------------------------------

void
kube_op_cancelled(struct provisioner_op *base)
{
    struct kube_op *op = (struct kube_op *)base;
    bool pauses = op->timer && loop_timer_active(op->timer);
    if (base->kind == OP_CREATE && base->state == OP_RUNNING && (op->waiting || pauses))
        start_delete(op);
}

void
kube_op_start(struct provisioner_op *base)
{
    struct kube_op *op = (struct kube_op *)base;
    TAILQ_INIT(&op->adoptions);
    switch (base->kind) {
    case OP_CREATE:
        op_set_state(base, OP_RUNNING);
        kube_op_begin_attempts(op, start_create);
        if (base->cancelled)
            start_delete(op);
        else
            start_create(op);
        break;
    case OP_CLAIM:
        op_set_state(base, OP_RUNNING);
        if (base->memory_mb > 0) {
            kg_error_set(&base->err, KG_INVALID, 0,
                         "on Kubernetes all sandboxes have the same limit of memory");
            op_finish(base);
            break;
        }
        kube_claim_start(op);
        break;
    case OP_DESTROY:
        start_delete(op);
        break;
    case OP_RECOVER:
        op_set_state(base, OP_WAITING);
        if (kube_of(base)->recovered)
            kube_recover_listed(op, NULL);
        else
            kube_of(base)->recovery = op; // continues after the first list
        break;
    }
}
