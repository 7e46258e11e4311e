// SPDX-License-Identifier: Apache-2.0
// Follows the pods of this installation: a list, in pages, and then a watch from the list's
// version. The server ends each watch after a while, and the next one continues after the last
// event. If the server no longer has the following events (410), the list is read again.
#include <string.h>

#include "kubernetes_priv.h"

#define PAGE "250"
#define WATCH_S 50 // after this time a silently broken connection is noticed
#define SWEEP_MS 30000
#define WATCH_MIN_MS 1000 // between the beginnings of two watches
#define VERSION_MAX 256
#define NEXT_MAX 8192

static void
step_later(struct kubernetes *kube, int64_t delay_ms)
{
    loop_timer_start(kube->monitor.timer, delay_ms > 0 ? delay_ms : 0);
}

// ---- What has changed -----------------------------------------------------------------------

static struct kube_op *
waiting_op(struct kubernetes *kube, const char *id)
{
    struct kube_op *op = (struct kube_op *)op_find(&kube->base, id);
    return op && op->base.kind == OP_CREATE && op->waiting ? op : NULL;
}

static void
on_end_of(struct kubernetes *kube, const char *id, const char *why)
{
    struct sandbox_watch *watch = watch_find(&kube->base, id);
    if (!watch)
        return;
    log_info("the sandbox's pod has ended", LOG_STR("sandbox", id), LOG_STR("reason", why));
    watch_fire(watch);
}

static void
pod_changed(struct kubernetes *kube, const struct kube_pod *taken)
{
    const struct kube_pod *pod = kube_pod_keep(kube, taken);
    struct kube_op *op = waiting_op(kube, pod->id);
    if (op)
        kube_op_on_pod(op, pod);
    else if (pod->phase == KUBE_ENDED)
        on_end_of(kube, pod->id, pod->why);
    if (!pod->holder[0] && !pod->released) // another replica has given it up
        kube_replicas_look(kube);
}

static void
pod_gone(struct kubernetes *kube, const char *id)
{
    char gone[SANDBOX_ID_MAX + 1];
    struct kube_pod *pod = kube_pod_find(kube, id);
    struct kube_op *op = waiting_op(kube, id);
    memcpy(gone, id, strlen(id) + 1); // `id` may be the pod's own
    if (pod)
        kube_pod_drop(pod);
    if (op)
        kube_op_on_pod(op, NULL);
    else
        on_end_of(kube, gone, "it was deleted");
}

// ---- Strays ---------------------------------------------------------------------------------

static bool
is_used(const struct kubernetes *kube, const char *id)
{
    return watch_find(&kube->base, id) || op_find(&kube->base, id);
}

static void
remove_stray(const char *id, void *arg)
{
    struct kubernetes *kube = arg;
    if (!is_used(kube, id))
        op_remove_leftover(&kube->base, id, NULL);
}

static struct kube_pod *
next_pod(const struct kubernetes *kube, size_t *bucket, struct kube_pod *pod)
{
    pod = pod ? LIST_NEXT(pod, link) : LIST_FIRST(&kube->pods[*bucket]);
    while (!pod && ++*bucket < KUBE_BUCKETS)
        pod = LIST_FIRST(&kube->pods[*bucket]);
    return pod;
}

static bool
is_recovering(const struct kubernetes *kube)
{
    const struct provisioner_op *op;
    TAILQ_FOREACH(op, &kube->base.ops, next) {
        if (op->kind == OP_RECOVER)
            return true;
    }
    return false;
}

// Removes pods that could not be deleted before, and folders without a pod. A gateway whose pods
// were taken over must not touch the pods of its successor.
static void
sweep(void *arg)
{
    struct kubernetes *kube = arg;
    struct kg_error err = {0};
    size_t bucket = 0;
    loop_timer_start(kube->monitor.sweep, SWEEP_MS);
    if (!kube->monitor.synced || is_recovering(kube))
        return;
    for (struct kube_pod *pod = next_pod(kube, &bucket, NULL); pod;
         pod = next_pod(kube, &bucket, pod))
        if (pod->ours && !pod->deleting && !kube_network_uses(kube, pod->id))
            remove_stray(pod->id, kube);
    if (folder_list(kube->base.state_dir, remove_stray, kube, &err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&err));
}

// ---- The list -------------------------------------------------------------------------------

static void
on_failure(struct kubernetes *kube, const struct http_call_result *result,
           const struct kg_error *err)
{
    struct kube_monitor *monitor = &kube->monitor;
    if (kube->recovery) {
        kube_recover_listed(KG_STEAL(kube->recovery), err);
        return;
    }
    if (!monitor->failure)
        log_warning("the pods cannot be followed", LOG_ERR(err));
    free(monitor->failure);
    monitor->failure = kg_strdup(err->message);
    monitor->n_failures++;
    step_later(kube, kube_pause_ms(result, monitor->n_failures));
}

static void
on_success(struct kubernetes *kube)
{
    if (kube->monitor.failure)
        log_info("the pods are followed again");
    free(KG_STEAL(kube->monitor.failure));
    kube->monitor.n_failures = 0;
}

// Takes the version from an object's metadata. Returns false if there is no valid one.
static bool
take_version(struct kubernetes *kube, const json_t *object)
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *version = json_string_value(json_object_get(meta, "resourceVersion"));
    if (!version || !*version || strlen(version) > VERSION_MAX)
        return false;
    free(kube->monitor.version);
    kube->monitor.version = kg_strdup(version);
    return true;
}

static void
begin_list(struct kubernetes *kube)
{
    size_t bucket = 0;
    for (struct kube_pod *pod = next_pod(kube, &bucket, NULL); pod;
         pod = next_pod(kube, &bucket, pod))
        pod->listed = false;
    kube->monitor.asked_ms = clock_mono_ms();
}

static struct kube_pod *
find_unlisted(const struct kubernetes *kube)
{
    size_t bucket = 0;
    for (struct kube_pod *pod = next_pod(kube, &bucket, NULL); pod;
         pod = next_pod(kube, &bucket, pod))
        if (!pod->listed)
            return pod;
    return NULL;
}

// An exit watch whose sandbox existed before the list, and is not in it; NULL if there is none.
static struct sandbox_watch *
find_dead(const struct kubernetes *kube)
{
    struct sandbox_watch *watch;
    TAILQ_FOREACH(watch, &kube->base.watches, next) {
        if (watch->since_ms < kube->monitor.asked_ms && !kube_pod_find(kube, watch->id) &&
            !op_find(&kube->base, watch->id))
            return watch;
    }
    return NULL;
}

static void
list_complete(struct kubernetes *kube)
{
    if (!kube->monitor.synced)
        kube->monitor.synced_ms = clock_mono_ms();
    kube->monitor.synced = true;
    for (struct kube_pod *pod; (pod = find_unlisted(kube));)
        pod_gone(kube, pod->id);
    for (struct sandbox_watch *watch; (watch = find_dead(kube));)
        on_end_of(kube, watch->id, "it was deleted");
    step_later(kube, 0); // the watch
    if (kube->recovery && !kube_replicas_known(kube))
        kube_replicas_look(kube);
    else if (kube->recovery)
        kube_recover_listed(KG_STEAL(kube->recovery), NULL);
}

static void
take_page(struct kubernetes *kube, const json_t *page)
{
    size_t i;
    const json_t *element;
    json_array_foreach(json_object_get(page, "items"), i, element) {
        struct kube_pod pod;
        if (!kube_pod_take(kube, element, &pod))
            continue;
        pod.listed = true;
        pod_changed(kube, &pod);
    }
    const json_t *meta = json_object_get(page, "metadata");
    const char *next = json_string_value(json_object_get(meta, "continue"));
    free(KG_STEAL(kube->monitor.next));
    if (next && *next && strlen(next) <= NEXT_MAX)
        kube->monitor.next = kg_strdup(next);
}

static void
monitor_on_listed(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    struct kg_error err = {0};
    kube->monitor.call = NULL;
    if (result->status == 410 && kube->monitor.next) { // the list took too long: another one
        free(KG_STEAL(kube->monitor.next));
        step_later(kube, kube_pause_ms(result, 1));
        return;
    }
    if (kube_check(kube, result, &err) < 0) {
        free(KG_STEAL(kube->monitor.next));
        on_failure(kube, result, &err);
        return;
    }
    json_auto_t *page = json_loadb(result->body, result->body_len, 0, NULL);
    take_page(kube, page);
    if (kube->monitor.next) {
        step_later(kube, 0);
    } else if (!take_version(kube, page)) {
        kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "%.100s has not answered with a list of pods", kube->access.server);
        on_failure(kube, result, &err);
    } else {
        on_success(kube);
        list_complete(kube);
    }
}

static char *
selected_path(const struct kubernetes *kube)
{
    return kg_asprintf("%s?labelSelector=" KUBE_LABEL_INSTALLATION "%%3D%s", kube->pods_path,
                       kube->installation);
}

static void
ask_for_list(struct kubernetes *kube)
{
    struct kg_error err = {0};
    KG_AUTO_BUF path = {0};
    KG_AUTO_FREE char *selected = selected_path(kube);
    buf_printf(&path, "%s&limit=" PAGE, selected);
    if (kube->monitor.next) {
        buf_append_str(&path, "&continue=");
        percent_append(&path, kube->monitor.next, "");
    } else {
        begin_list(kube);
    }
    kube->monitor.call = kube_list(kube, path.data, monitor_on_listed, kube, &err);
    if (!kube->monitor.call)
        on_failure(kube, &(struct http_call_result){0}, &err);
}

// ---- The watch ------------------------------------------------------------------------------

static void
on_error_event(struct kubernetes *kube, const json_t *status)
{
    json_int_t code = json_integer_value(json_object_get(status, "code"));
    const char *message = json_string_value(json_object_get(status, "message"));
    kube->monitor.gone = true;
    if (code != 410)
        log_warning("the watch over the pods has failed", LOG_INT("status", code),
                    LOG_STR("message", message ? message : ""));
}

static void
monitor_on_event(const json_t *event, void *arg)
{
    struct kubernetes *kube = arg;
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *object = json_object_get(event, "object");
    struct kube_pod pod;
    if (!type)
        return;
    if (strcmp(type, "ERROR") == 0) {
        on_error_event(kube, object);
        return;
    }
    (void)take_version(kube, object); // the only content of a BOOKMARK
    if (strcmp(type, "BOOKMARK") == 0 || !kube_pod_take(kube, object, &pod))
        return;
    if (strcmp(type, "DELETED") == 0)
        pod_gone(kube, pod.id);
    else
        pod_changed(kube, &pod);
}

static bool
monitor_on_data(int status, const void *data, size_t len, void *arg)
{
    struct kubernetes *kube = arg;
    if (status != 200)
        return true; // the reason is not needed
    on_success(kube);
    return json_lines_feed(&kube->monitor.lines, data, len, monitor_on_event, kube);
}

static void
monitor_on_watch_end(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    struct kube_monitor *monitor = &kube->monitor;
    struct kg_error err = {0};
    monitor->call = NULL;
    buf_fini(&monitor->lines.rest);
    monitor->lines.rest = (struct buf){0};
    if (monitor->gone || result->status == 410) {
        log_info("the pods are listed again, since the watch cannot be continued");
        free(KG_STEAL(monitor->version));
        monitor->gone = false;
    } else if (!result->err && result->status >= 300) {
        (void)kube_check(kube, result, &err);
        on_failure(kube, result, &err);
        return;
    }
    // If the connection was refused or broke, the events that were received still count.
    if (result->err && clock_mono_ms() - monitor->began_ms < WATCH_MIN_MS) {
        (void)kube_check(kube, result, &err);
        on_failure(kube, result, &err);
        return;
    }
    step_later(kube, monitor->began_ms + WATCH_MIN_MS - clock_mono_ms());
}

static void
ask_for_events(struct kubernetes *kube)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *selected = selected_path(kube);
    KG_AUTO_BUF path = {0};
    buf_printf(&path, "%s&resourceVersion=", selected);
    percent_append(&path, kube->monitor.version, "");
    kube->monitor.began_ms = clock_mono_ms();
    kube->monitor.call =
        kube_watch(kube, path.data, WATCH_S, monitor_on_data, monitor_on_watch_end, kube, &err);
    if (!kube->monitor.call)
        on_failure(kube, &(struct http_call_result){0}, &err);
}

static void
step(void *arg)
{
    struct kubernetes *kube = arg;
    if (kube->monitor.call)
        return;
    if (kube->monitor.version && !kube->monitor.next)
        ask_for_events(kube);
    else
        ask_for_list(kube);
}

void
kube_monitor_start(struct kubernetes *kube)
{
    if (kube->monitor.timer)
        return;
    kube->monitor.timer = loop_timer_new(kube->base.loop, step, kube);
    kube->monitor.sweep = loop_timer_new(kube->base.loop, sweep, kube);
    step_later(kube, 0);
    loop_timer_start(kube->monitor.sweep, SWEEP_MS);
}

void
kube_monitor_fini(struct kubernetes *kube)
{
    loop_timer_free(kube->monitor.timer);
    loop_timer_free(kube->monitor.sweep);
    http_call_cancel(kube->monitor.call);
    buf_fini(&kube->monitor.lines.rest);
    free(kube->monitor.version);
    free(kube->monitor.next);
    free(kube->monitor.failure);
}
