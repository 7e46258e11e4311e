// SPDX-License-Identifier: Apache-2.0
// Pods of other gateways: how many have a session; and free ones, which the leader keeps ready:
// another replica that needs one takes it over with the kernel in it, and claims it like a pod of
// its own. The agent then cuts the leader's links, which so learns that it should make another one.
#include <sodium.h>
#include <string.h>

#include "kubernetes_priv.h"

static bool
can_be_taken(const struct kubernetes *kube, const struct kube_pod *pod)
{
    return pod->ready && !pod->claimed && !pod->ours && !pod->deleting &&
           pod->phase == KUBE_RUNNING && !op_find(&kube->base, pod->id);
}

// The first one after a random place, so that replicas seldom want the same.
const char *
kube_free_sandbox(const struct provisioner *provisioner)
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    const struct kube_pod *pod;
    size_t start = randombytes_uniform(KUBE_BUCKETS);
    for (size_t i = 0; i < KUBE_BUCKETS; i++)
        LIST_FOREACH(pod, &kube->pods[(start + i) % KUBE_BUCKETS], link)
            if (can_be_taken(kube, pod))
                return pod->id;
    return NULL;
}

size_t
kube_claimed_elsewhere(const struct provisioner *provisioner, const char *whose)
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    const struct kube_pod *pod;
    char hash[KUBE_HASH_LEN + 1] = "";
    size_t n = 0;
    if (whose)
        kube_owner_hash(whose, hash);
    for (size_t i = 0; i < KUBE_BUCKETS; i++)
        LIST_FOREACH(pod, &kube->pods[i], link)
            n += pod->claimed && !pod->ours && !pod->deleting && pod->phase != KUBE_ENDED &&
                 (!whose || strcmp(pod->owner, hash) == 0 || strcmp(pod->share, hash) == 0);
    return n;
}

bool
kube_holds_for(const struct provisioner *provisioner, const char *replica_id, const char *owner)
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    const struct kube_pod *pod;
    char hash[KUBE_HASH_LEN + 1];
    kube_owner_hash(owner, hash);
    for (size_t i = 0; i < KUBE_BUCKETS; i++)
        LIST_FOREACH(pod, &kube->pods[i], link)
            if (pod->claimed && !pod->deleting && pod->phase != KUBE_ENDED &&
                strcmp(pod->holder, replica_id) == 0 && strcmp(pod->owner, hash) == 0)
                return true;
    return false;
}

static void
take_fail(struct kube_op *op)
{
    struct kg_error err = {0};
    if (!op->base.err.code)
        kg_error_set(&op->base.err, KG_NOT_FOUND, 0, "another gateway has taken the sandbox");
    if (folder_remove(op->base.provisioner->state_dir, op->base.id, &err) < 0)
        log_warning("cannot remove a sandbox's folder", LOG_ERR(&err));
    op_finish(&op->base);
}

// 422: it is claimed, or has another epoch. After a lost answer that may be our own: then nobody
// uses the pod, and it is removed as a stray.
static void
on_taken(const struct http_call_result *result, void *arg)
{
    struct kube_op *op = arg;
    struct kubernetes *kube = kube_of(&op->base);
    struct kube_pod pod;
    op->call = NULL;
    if (!op->base.cancelled && kube_op_try_again(op, result))
        return;
    if (result->status == 422 || result->status == 404 ||
        kube_check(kube, result, &op->base.err) < 0) {
        take_fail(op);
        return;
    }
    json_auto_t *body = json_loadb(result->body, result->body_len, 0, NULL);
    if (!kube_pod_take(kube, body, &pod) || !pod.ours) {
        take_fail(op);
        return;
    }
    (void)kube_pod_keep(kube, &pod);
    if (op->base.cancelled) {
        kube_mark(kube, op->base.id, KUBE_MARK_RELEASED);
        take_fail(op);
    } else {
        kube_op_wait_for_pod(op);
    }
}

void
kube_take_start(struct kube_op *op)
{
    struct kubernetes *kube = kube_of(&op->base);
    const struct kube_pod *pod = kube_pod_find(kube, op->base.id);
    KG_AUTO_FREE char *path = kube_pod_path(kube, op->base.id);
    if (!pod) {
        take_fail(op);
        return;
    }
    json_t *patch = kube_takeover_patch(kube, pod->epoch);
    kube_patch_test(patch, KUBE_PATH_LABEL("state"), "free");
    op->call = kube_call(kube, "PATCH", path, patch, on_taken, op, &op->base.err);
    if (!op->call)
        take_fail(op);
}
