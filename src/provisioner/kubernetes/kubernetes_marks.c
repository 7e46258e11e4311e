// SPDX-License-Identifier: Apache-2.0
// What this gateway tells the others about pods that it holds, each by one patch of the pod: that
// it gives the pod up, so that another replica takes it over without waiting for the end of this
// one's Lease (kubernetes_recovery.c); and that its kernel is ready, so that another replica may
// take it for a session (kubernetes_free.c).
#include <string.h>

#include "kubernetes_priv.h"

#define MAX_CALLS 8
#define ATTEMPTS_BEFORE_WARNING 5

struct kube_mark {
    TAILQ_ENTRY(kube_mark) entry;
    struct kubernetes *kube;
    enum kube_mark_kind kind;
    struct http_call *call;
    struct loop_timer *timer; // the next attempt
    int n_attempts;
    uint64_t epoch; // with which this gateway held it: it may take the pod again meanwhile
    char id[SANDBOX_ID_MAX + 1];
};

static const char *const failures[] = {
    [KUBE_MARK_RELEASED] = "cannot hand a sandbox over to the other replicas",
    [KUBE_MARK_READY] = "cannot offer a sandbox to the other replicas",
};

static void ask_more(struct kubernetes *kube);

static void
mark_free(struct kube_mark *mark)
{
    TAILQ_REMOVE(&mark->kube->marks, mark, entry);
    mark->kube->n_marking -= mark->call != NULL;
    http_call_cancel(mark->call);
    loop_timer_free(mark->timer);
    free(mark);
}

static void
say_failure(const struct kube_mark *mark, const struct kg_error *err)
{
    log_warning(failures[mark->kind], LOG_STR("sandbox", mark->id), LOG_ERR(err));
}

static void
mark_end(struct kube_mark *mark, const struct kg_error *err)
{
    struct kubernetes *kube = mark->kube;
    if (err->code)
        say_failure(mark, err);
    mark_free(mark);
    ask_more(kube);
}

// 422: another replica has it already. 404: it has ended. After a temporary error it is tried again
// for as long as this replica lives: no other one could use the pod before that.
static void
on_marked(const struct http_call_result *result, void *arg)
{
    struct kube_mark *mark = arg;
    struct kubernetes *kube = mark->kube;
    struct kg_error err = {0};
    mark->call = NULL;
    kube->n_marking--;
    if (result->status != 422 && result->status != 404)
        (void)kube_check(kube, result, &err);
    if (!kube_is_transient(result)) {
        mark_end(mark, &err);
        return;
    }
    if (mark->n_attempts == ATTEMPTS_BEFORE_WARNING)
        say_failure(mark, &err);
    loop_timer_start(mark->timer, kube_pause_ms(result, mark->n_attempts));
    ask_more(kube);
}

static void
mark_ask(struct kube_mark *mark)
{
    struct kubernetes *kube = mark->kube;
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = kube_pod_path(kube, mark->id);
    KG_AUTO_FREE char *epoch = kg_asprintf("%llu", (unsigned long long)mark->epoch);
    json_t *patch = json_array();
    kube_patch_test(patch, KUBE_PATH_ANNOTATION("holder"), kube->holder);
    kube_patch_test(patch, KUBE_PATH_ANNOTATION("epoch"), epoch);
    if (mark->kind == KUBE_MARK_READY)
        kube_patch_add(patch, KUBE_PATH_ANNOTATION("ready"), "true");
    else
        kube_patch_replace(patch, KUBE_PATH_ANNOTATION("holder"), "");
    mark->n_attempts++;
    mark->call = kube_call(kube, "PATCH", path, patch, on_marked, mark, &err);
    kube->n_marking += mark->call != NULL;
    if (!mark->call)
        mark_end(mark, &err);
}

static struct kube_mark *
next_mark(const struct kubernetes *kube)
{
    struct kube_mark *mark;
    TAILQ_FOREACH(mark, &kube->marks, entry) {
        if (!mark->call && !loop_timer_active(mark->timer))
            return mark;
    }
    return NULL;
}

static void
ask_more(struct kubernetes *kube)
{
    struct kube_mark *mark;
    while (kube->n_marking < MAX_CALLS && (mark = next_mark(kube)))
        mark_ask(mark);
}

static void
on_pause_over(void *arg)
{
    struct kube_mark *mark = arg;
    ask_more(mark->kube);
}

void
kube_mark(struct kubernetes *kube, const char *id, enum kube_mark_kind kind)
{
    struct kube_pod *pod = kube_pod_find(kube, id);
    if (!pod || !pod->ours || pod->deleting || (kind == KUBE_MARK_READY && pod->ready))
        return;
    if (kind == KUBE_MARK_RELEASED)
        kube_pod_release(pod);
    struct kube_mark *mark = KG_NEW(struct kube_mark);
    mark->kube = kube;
    mark->kind = kind;
    mark->epoch = pod->epoch;
    mark->timer = loop_timer_new(kube->base.loop, on_pause_over, mark);
    memcpy(mark->id, id, strlen(id) + 1); // `id` of a pod has room
    TAILQ_INSERT_TAIL(&kube->marks, mark, entry);
    ask_more(kube);
}

bool
kube_marks_are_busy(const struct kubernetes *kube)
{
    const struct kube_mark *mark;
    TAILQ_FOREACH(mark, &kube->marks, entry) {
        if (mark->n_attempts < ATTEMPTS_BEFORE_WARNING)
            return true;
    }
    return false;
}

void
kube_marks_fini(struct kubernetes *kube)
{
    for (struct kube_mark *mark; (mark = TAILQ_FIRST(&kube->marks));)
        mark_free(mark);
}

void
kube_hand_over(struct provisioner *provisioner, const char *id)
{
    kube_mark(kube_of_provisioner(provisioner), id, KUBE_MARK_RELEASED);
}

void
kube_overtaken(struct provisioner *provisioner, const char *id)
{
    struct kube_pod *pod = kube_pod_find(kube_of_provisioner(provisioner), id);
    if (pod && pod->ours) // else an event has said who has it
        kube_pod_release(pod);
}

void
kube_offer(struct provisioner *provisioner, const char *id)
{
    kube_mark(kube_of_provisioner(provisioner), id, KUBE_MARK_READY);
}
