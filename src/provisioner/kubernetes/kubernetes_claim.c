// SPDX-License-Identifier: Apache-2.0
// Claims a sandbox: with replicas its session's name first, by a Lease (kubernetes_names.c), and
// then the pod, by one patch. Another patch replaces the record of a claimed one.
#include <string.h>

#include "budget.h"
#include "kubernetes_priv.h"

#define META_MAX_BYTES ((size_t)200 << 10) // the API takes 256 KiB of annotations

static void claim_step(struct kube_op *op);

// ---- The pod --------------------------------------------------------------------------------

// The server applies the whole patch or nothing. A test fails if another gateway has claimed the
// pod or taken it over.
static json_t *
claim_patch(const struct kubernetes *kube, const struct kube_op *op, const char *meta)
{
    const char *owner = json_string_value(json_object_get(op->base.meta, "owner"));
    char hash[KUBE_HASH_LEN + 1];
    json_t *patch = json_array();
    kube_patch_test(patch, KUBE_PATH_LABEL("state"), "free");
    kube_patch_test(patch, KUBE_PATH_ANNOTATION("holder"), kube->holder);
    kube_patch_replace(patch, KUBE_PATH_LABEL("state"), "claimed");
    kube_patch_add(patch, KUBE_PATH_ANNOTATION("meta"), meta);
    if (kube_has_replicas(kube) && kube_session_hash_of(op->base.meta, hash))
        kube_patch_add(patch, KUBE_PATH_LABEL("session"), hash);
    if (kube_has_replicas(kube) && owner) {
        kube_owner_hash(owner, hash);
        kube_patch_add(patch, KUBE_PATH_LABEL("owner"), hash);
        kube_owner_hash(budget_name(owner), hash);
        kube_patch_add(patch, KUBE_PATH_LABEL("share"), hash);
    }
    return patch;
}

static json_t *
record_patch(const struct kubernetes *kube, const char *meta)
{
    json_t *patch = json_array();
    kube_patch_test(patch, KUBE_PATH_LABEL("state"), "claimed");
    kube_patch_test(patch, KUBE_PATH_ANNOTATION("holder"), kube->holder);
    kube_patch_replace(patch, KUBE_PATH_ANNOTATION("meta"), meta);
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
        end_claim(op, strcmp(kube_pod_meta(pod), meta) == 0);
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
    const struct kubernetes *kube = kube_of(&op->base);
    KG_AUTO_FREE char *path = kube_pod_path(kube_of(&op->base), op->base.id);
    KG_AUTO_FREE char *meta = json_dumps(op->base.meta, JSON_COMPACT);
    if (!meta || strlen(meta) > META_MAX_BYTES)
        kg_error_set(&op->base.err, KG_INVALID, 0,
                     "the session's record, with its environment, has more than %zu KiB",
                     META_MAX_BYTES >> 10);
    else
        op->call =
            kube_call(kube_of(&op->base), "PATCH", path,
                      op->base.again ? record_patch(kube, meta) : claim_patch(kube, op, meta),
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
        kg_error_set(&op->base.err, KG_SESSION_BUSY, 0,
                     "another replica creates a session of this name");
    else
        (void)kube_check(kube_of(&op->base), result, &op->base.err);
    if (op->base.err.code) {
        op_finish(&op->base);
        return;
    }
    op->named = true;
    kube_op_begin_attempts(op, claim_step);
    ask_claim(op);
}

// With the pod of the session that had it, the Lease may have been removed since it was read.
static void
on_name_taken(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    if (result->status != 404 || clock_mono_ms() >= op->until_ms) {
        on_named(result, op);
        return;
    }
    op->call = NULL;
    loop_timer_start(op->timer, 0);
}

// The Lease says that another session has the name, or has had it.
static void
take_name(struct kube_op *op)
{
    struct kubernetes *kube = kube_of(&op->base);
    const struct kube_pod *pod = kube_pod_find(kube, op->base.id);
    char hash[KUBE_HASH_LEN + 1];
    json_t *patch = pod ? kube_name_takeover(kube, op->lease, op->base.id, pod->uid) : NULL;
    if (patch && kube_session_hash_of(op->base.meta, hash)) {
        KG_AUTO_FREE char *path = kube_name_path(kube, hash);
        op->call = kube_call(kube, "PATCH", path, patch, on_name_taken, op, &op->base.err);
    } else {
        kg_error_set(&op->base.err, KG_SESSION_BUSY, 0,
                     "another replica has just created a session of this name; try again");
    }
    if (!op->call)
        op_finish(&op->base);
}

static void
on_other_read(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    op->call = NULL;
    if (kube_op_try_again(op, result)) // from the Lease on
        return;
    if (result->status != 404 && kube_check(kube_of(&op->base), result, &op->base.err) < 0) {
        op_finish(&op->base);
        return;
    }
    kube_pod_learn(kube_of(&op->base), result);
    take_name(op);
}

static void
on_name_read(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    struct kubernetes *kube = kube_of(&op->base);
    op->call = NULL;
    if (kube_op_try_again(op, result))
        return;
    if (result->status == 404) {
        loop_timer_start(op->timer, 0);
        return;
    }
    if (kube_check(kube, result, &op->base.err) < 0) {
        op_finish(&op->base);
        return;
    }
    json_decref(op->lease);
    op->lease = json_loadb(result->body, result->body_len, 0, NULL);
    const char *unverified = kube_name_unverified(kube, op->lease);
    if (!unverified) {
        take_name(op);
        return;
    }
    KG_AUTO_FREE char *path = kube_pod_path(kube, unverified);
    op->call = kube_call(kube, "GET", path, NULL, on_other_read, op, &op->base.err);
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
    if (!op->base.again && !op->named && kube_has_replicas(kube_of(&op->base)) &&
        kube_session_hash_of(op->base.meta, hash))
        ask_name(op, hash);
    else
        ask_claim(op);
}

void
kube_claim_start(struct kube_op *op)
{
    kube_op_begin_attempts(op, claim_step);
    claim_step(op);
}
