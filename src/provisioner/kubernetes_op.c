// SPDX-License-Identifier: Apache-2.0
// Creates, claims and destroys sandboxes. Each operation is one call to the API server, which is
// repeated after temporary errors. A create then waits for its pod to run.
#include <string.h>

#include "kubernetes_priv.h"

#define ATTEMPTS_MS 15000
#define META_MAX_BYTES ((size_t)200 << 10) // the API takes 256 KiB of annotations

static void start_create(struct kube_op *op);
static void ask_delete(struct kube_op *op);
static void claim_step(struct kube_op *op);

void
kube_op_fini(struct provisioner_op *base)
{
    struct kube_op *op = (struct kube_op *)base;
    if (kube_of(base)->recovery == op)
        kube_of(base)->recovery = NULL;
    http_call_cancel(op->call);
    loop_timer_free(op->timer);
    kube_adoptions_fini(op);
}

// ---- Attempts -------------------------------------------------------------------------------

static void
on_timer(void *arg)
{
    struct kube_op *op = arg;
    if (op->base.state == OP_DELETING)
        ask_delete(op);
    else if (op->base.kind == OP_CLAIM)
        claim_step(op);
    else
        start_create(op);
}

bool
kube_op_try_again(struct kube_op *op, const struct http_call_result *result)
{
    op->n_attempts++;
    int64_t pause_ms = kube_pause_ms(result, op->n_attempts);
    if (!kube_is_transient(result) || clock_mono_ms() + pause_ms >= op->until_ms)
        return false;
    loop_timer_start(op->timer, pause_ms);
    return true;
}

static void
begin_attempts(struct kube_op *op)
{
    op->n_attempts = 0;
    op->until_ms = clock_mono_ms() + ATTEMPTS_MS;
    if (!op->timer)
        op->timer = loop_timer_new(op->base.provisioner->loop, on_timer, op);
    loop_timer_stop(op->timer);
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
        log_info("another replica has a pod now", LOG_STR("sandbox", op->base.id));
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

// Whose pod it is in the cache counts: our own, or that of a replica that has ended.
static void
ask_held(struct kube_op *op)
{
    const struct kubernetes *kube = kube_of(&op->base);
    const struct kube_pod *pod = kube_pod_find(kube, op->base.id);
    const char *holder = pod && kube_pod_is_lost(kube, pod) ? pod->holder : kube->holder;
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = kube_pod_path(kube, op->base.id);
    json_t *patch =
        json_pack("[{s:s, s:s, s:s}, {s:s, s:s, s:s}]", "op", "test", "path",
                  "/metadata/annotations/kernelgate~1holder", "value", holder, "op", "replace",
                  "path", "/metadata/annotations/kernelgate~1holder", "value", kube->holder);
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
    begin_attempts(op);
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

static void
on_created(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    op->call = NULL;
    // The answer to an earlier attempt may have been lost.
    bool there = op->n_attempts > 0 && kube_already_exists(result);
    if (!there && !op->base.cancelled && kube_op_try_again(op, result))
        return;
    if (op->base.cancelled || (!there && kube_check(kube_of(&op->base), result, &op->base.err) < 0))
        start_delete(op);
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
    const struct kube_pod *pod = kube_pod_find(kube_of(base), base->id);
    if (!op->waiting)
        return false;
    kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                 "the sandbox's pod has not started yet%s%.180s", pod && pod->why[0] ? ": " : "",
                 pod ? pod->why : "");
    return true;
}

// ---- Claiming -------------------------------------------------------------------------------

// The server applies the whole patch or nothing. A test fails if another gateway has claimed the
// pod or taken it over.
static json_t *
claim_patch(const struct kubernetes *kube, const struct kube_op *op, const char *meta)
{
    char hash[KUBE_HASH_LEN + 1];
    json_t *patch =
        json_pack("[{s:s, s:s, s:s}, {s:s, s:s, s:s}, {s:s, s:s, s:s}, {s:s, s:s, s:s}]", "op",
                  "test", "path", "/metadata/labels/kernelgate~1state", "value", "free", "op",
                  "test", "path", "/metadata/annotations/kernelgate~1holder", "value", kube->holder,
                  "op", "replace", "path", "/metadata/labels/kernelgate~1state", "value", "claimed",
                  "op", "add", "path", "/metadata/annotations/kernelgate~1meta", "value", meta);
    if (kube_has_replicas(kube) && kube_session_hash_of(op->base.meta, hash))
        json_array_append_new(patch,
                              json_pack("{s:s, s:s, s:s}", "op", "add", "path",
                                        "/metadata/labels/kernelgate~1session", "value", hash));
    return patch;
}

static void
end_claim(struct kube_op *op, bool ours)
{
    if (!ours)
        kg_error_set(&op->base.err, KG_NOT_FOUND, 0, "the sandbox's pod is gone or claimed");
    op_finish(&op->base);
}

static void
on_read_claimed(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    KG_AUTO_FREE char *meta = json_dumps(op->base.meta, JSON_COMPACT);
    op->call = NULL;
    if (result->status == 200) {
        json_auto_t *pod = json_loadb(result->body, result->body_len, 0, NULL);
        end_claim(op, kube_pod_has_meta(pod, meta));
        return;
    }
    if (result->status == 404) {
        end_claim(op, false);
        return;
    }
    (void)kube_check(kube_of(&op->base), result, &op->base.err);
    op_finish(&op->base);
}

// If the answer to an earlier attempt was lost, the existing claim may be our own.
static void
ask_who_was_first(struct kube_op *op)
{
    KG_AUTO_FREE char *path = kube_pod_path(kube_of(&op->base), op->base.id);
    op->call = kube_call(kube_of(&op->base), "GET", path, NULL, on_read_claimed, op, &op->base.err);
    if (!op->call)
        op_finish(&op->base);
}

static void
on_claimed(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    op->call = NULL;
    if (kube_op_try_again(op, result))
        return;
    if (result->status == 422 && op->n_attempts > 1) {
        ask_who_was_first(op);
    } else if (result->status == 422 || result->status == 404) {
        end_claim(op, false);
    } else {
        (void)kube_check(kube_of(&op->base), result, &op->base.err);
        op_finish(&op->base);
    }
}

static void
ask_claim(struct kube_op *op)
{
    KG_AUTO_FREE char *path = kube_pod_path(kube_of(&op->base), op->base.id);
    KG_AUTO_FREE char *meta = json_dumps(op->base.meta, JSON_COMPACT);
    if (!meta || strlen(meta) > META_MAX_BYTES)
        kg_error_set(&op->base.err, KG_INVALID, 0,
                     "the session's record, with its environment, has more than %zu KiB",
                     META_MAX_BYTES >> 10);
    else
        op->call =
            kube_call(kube_of(&op->base), "PATCH", path, claim_patch(kube_of(&op->base), op, meta),
                      on_claimed, op, &op->base.err);
    if (!op->call)
        op_finish(&op->base);
}

// ---- The name of a session ------------------------------------------------------------------

static void
on_named(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    op->call = NULL;
    if (kube_op_try_again(op, result))
        return;
    if (result->status == 422) // the Lease has changed since it was read
        kg_error_set(&op->base.err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "another replica creates a session of this name");
    else
        (void)kube_check(kube_of(&op->base), result, &op->base.err);
    if (op->base.err.code) {
        op_finish(&op->base);
        return;
    }
    op->named = true;
    begin_attempts(op);
    ask_claim(op);
}

static void
on_name_read(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    struct kubernetes *kube = kube_of(&op->base);
    const struct kube_pod *pod = kube_pod_find(kube, op->base.id);
    char hash[KUBE_HASH_LEN + 1];
    op->call = NULL;
    if (kube_op_try_again(op, result))
        return;
    if (result->status == 404) {
        loop_timer_start(op->timer, 0);
        return;
    }
    json_auto_t *lease = json_loadb(result->body, result->body_len, 0, NULL);
    json_t *patch = NULL;
    if (pod && kube_check(kube, result, &op->base.err) == 0)
        patch = kube_name_takeover(kube, lease, op->base.id, pod->uid);
    if (patch && kube_session_hash_of(op->base.meta, hash)) {
        KG_AUTO_FREE char *path = kube_name_path(kube, hash);
        op->call = kube_call(kube, "PATCH", path, patch, on_named, op, &op->base.err);
    } else if (!op->base.err.code) {
        kg_error_set(&op->base.err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "another replica has just created a session of this name; try again");
    }
    if (!op->call)
        op_finish(&op->base);
}

static void
on_name_made(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    char hash[KUBE_HASH_LEN + 1];
    if (!kube_already_exists(result) || !kube_session_hash_of(op->base.meta, hash)) {
        on_named(result, op);
        return;
    }
    KG_AUTO_FREE char *path = kube_name_path(kube_of(&op->base), hash);
    op->call = kube_call(kube_of(&op->base), "GET", path, NULL, on_name_read, op, &op->base.err);
    if (!op->call)
        op_finish(&op->base);
}

static void
ask_name(struct kube_op *op, const char *hash)
{
    struct kubernetes *kube = kube_of(&op->base);
    const struct kube_pod *pod = kube_pod_find(kube, op->base.id);
    if (pod)
        op->call = kube_call(kube, "POST", kube->leases_path,
                             kube_name_lease(kube, hash, op->base.id, pod->uid), on_name_made, op,
                             &op->base.err);
    else
        end_claim(op, false);
    if (pod && !op->call)
        op_finish(&op->base);
}

static void
claim_step(struct kube_op *op)
{
    char hash[KUBE_HASH_LEN + 1];
    if (!op->named && kube_has_replicas(kube_of(&op->base)) &&
        kube_session_hash_of(op->base.meta, hash))
        ask_name(op, hash);
    else
        ask_claim(op);
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
        begin_attempts(op);
        if (base->cancelled)
            start_delete(op);
        else
            start_create(op);
        break;
    case OP_CLAIM:
        op_set_state(base, OP_RUNNING);
        begin_attempts(op);
        if (base->memory_mb > 0) {
            kg_error_set(&base->err, KG_INVALID, 0,
                         "on Kubernetes all sandboxes have the same limit of memory");
            op_finish(base);
            break;
        }
        claim_step(op);
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
