// SPDX-License-Identifier: Apache-2.0
// The gateways of one installation. Each has a Lease `kg-r-<id>`, with its address, and renews it.
// The others look at it every second: one that is gone, or was not renewed for long enough,
// belongs to a gateway that has ended. What that one held is then lost, until another gateway takes
// it over; the epoch of each pod decides between several that try (kubernetes_recovery.c).
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "kubernetes_priv.h"

#define RENEW_MS 5000
#define DEAD_MS 15000
#define FORGET_MS 60000 // the Lease of a dead one is removed
#define ANNOTATION_ADDRESS "kernelgate/address"

static void
look_later(struct kubernetes *kube, int64_t delay_ms)
{
    loop_timer_start(kube->replicas.timer, delay_ms);
}

// ---- What is known --------------------------------------------------------------------------

static bool
is_dead(const struct kube_replica *replica)
{
    return replica->silent_ms >= DEAD_MS;
}

static struct kube_replica *
find_any(const struct kubernetes *kube, const char *id)
{
    struct kube_replica *replica;
    LIST_FOREACH(replica, &kube->replicas.others, link) {
        if (strcmp(replica->id, id) == 0)
            return replica;
    }
    return NULL;
}

const struct kube_replica *
kube_replica_find(const struct kubernetes *kube, const char *id)
{
    const struct kube_replica *replica = find_any(kube, id);
    return replica && !is_dead(replica) ? replica : NULL;
}

bool
kube_replicas_known(const struct kubernetes *kube)
{
    return !kube_has_replicas(kube) ||
           (kube->monitor.synced && kube->replicas.known_ms > kube->monitor.synced_ms);
}

// A holder that is not in the list may have begun after it.
bool
kube_pod_is_lost(const struct kubernetes *kube, const struct kube_pod *pod)
{
    return !pod->ours && (!pod->holder[0] || (!kube_replica_find(kube, pod->holder) &&
                                              pod->held_ms < kube->replicas.known_ms));
}

bool
kube_pod_is_due(const struct kubernetes *kube, const struct kube_pod *pod)
{
    return kube_pod_is_lost(kube, pod) && (pod->claimed || kube->replicas.leader.leads);
}

// ---- Addresses ------------------------------------------------------------------------------

// host:port
static bool
is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    return colon && colon != text && (text[0] == '[' || colon == strchr(text, ':')) &&
           strlen(text) <= PROVISIONER_ADDRESS_MAX &&
           strspn(colon + 1, "0123456789") == strlen(colon + 1) && strlen(colon + 1) <= 5 &&
           atoi(colon + 1) >= 1 && atoi(colon + 1) <= 65535 &&
           strcspn(text, " /?#@\r\n") == strlen(text);
}

// With brackets around an IPv6 address that has none, as in $(POD_IP):16010. To be freed.
static char *
with_brackets(const char *text)
{
    const char *colon = strrchr(text, ':');
    struct in6_addr unused;
    KG_AUTO_FREE char *host = kg_strndup(text, colon ? (size_t)(colon - text) : 0);
    return inet_pton(AF_INET6, host, &unused) == 1 ? kg_asprintf("[%s]%s", host, colon)
                                                   : kg_strdup(text);
}

// ---- What the Leases say --------------------------------------------------------------------

static void
replicas_drop(struct kubernetes *kube, struct kube_replica *replica)
{
    LIST_REMOVE(replica, link);
    kube->replicas.n_others--;
    free(replica);
}

static struct kube_replica *
find_or_add(struct kubernetes *kube, const char *id)
{
    struct kube_replica *replica = find_any(kube, id);
    if (replica || kube->replicas.n_others == PROVISIONER_REPLICAS_MAX)
        return replica;
    replica = KG_NEW(struct kube_replica);
    memcpy(replica->id, id, strlen(id) + 1);
    LIST_INSERT_HEAD(&kube->replicas.others, replica, link);
    kube->replicas.n_others++;
    return replica;
}

// `passed_ms` has passed since the list before this one, or less.
static void
take_lease(struct kubernetes *kube, const json_t *lease, int64_t passed_ms)
{
    const char *id = NULL, *renewed = NULL, *address = NULL;
    if (json_unpack((json_t *)(uintptr_t)lease, "{s:{s:{s:s}}, s:{s:s, s:s}}", "metadata",
                    "annotations", ANNOTATION_ADDRESS, &address, "spec", "holderIdentity", &id,
                    "renewTime", &renewed) < 0 ||
        strlen(id) != KUBE_HOLDER_LEN || !sandbox_id_valid(id) || !is_address(address) ||
        strcmp(id, kube->holder) == 0)
        return;
    struct kube_replica *replica = find_or_add(kube, id);
    if (!replica)
        return;
    bool was_dead = is_dead(replica);
    bool same = strncmp(replica->renewed, renewed, sizeof replica->renewed - 1) == 0;
    replica->silent_ms = same ? replica->silent_ms + passed_ms : 0;
    snprintf(replica->renewed, sizeof replica->renewed, "%s", renewed);
    memcpy(replica->address, address, strlen(address) + 1);
    replica->listed = true;
    if (is_dead(replica) && !was_dead)
        log_warning("another replica does not renew its lease", LOG_STR("replica", id));
}

static bool
anything_is_lost(const struct kubernetes *kube)
{
    const struct kube_pod *pod;
    for (size_t i = 0; i < KUBE_BUCKETS; i++)
        LIST_FOREACH(pod, &kube->pods[i], link)
            if (!pod->deleting && kube_pod_is_due(kube, pod))
                return true;
    return false;
}

// While the API server was away nobody could renew: a long pause between two lists says nothing.
static void
take_list(struct kubernetes *kube, const json_t *list)
{
    struct kube_replicas *replicas = &kube->replicas;
    int64_t passed_ms = replicas->known_ms ? replicas->asked_ms - replicas->known_ms : 0;
    struct kube_replica *replica, *next;
    size_t i;
    const json_t *lease;
    LIST_FOREACH(replica, &replicas->others, link)
        replica->listed = false;
    kube_leader_clear(kube);
    json_array_foreach(json_object_get(list, "items"), i, lease)
        if (!kube_leader_take(kube, lease))
            take_lease(kube, lease, passed_ms < 4 * KUBE_LOOK_MS ? passed_ms : 4 * KUBE_LOOK_MS);
    for (replica = LIST_FIRST(&replicas->others); replica; replica = next) {
        next = LIST_NEXT(replica, link);
        if (!replica->listed)
            replicas_drop(kube, replica);
    }
    replicas->known_ms = replicas->asked_ms;
}

static void
on_failure(struct kubernetes *kube, const struct kg_error *err)
{
    if (kube->recovery) {
        kube_recover_listed(KG_STEAL(kube->recovery), err);
        return;
    }
    if (!kube->replicas.failure)
        log_warning("the replicas cannot be followed", LOG_ERR(err));
    free(kube->replicas.failure);
    kube->replicas.failure = kg_strdup(err->message);
    look_later(kube, KUBE_LOOK_MS);
}

// ---- Steps: our own Lease, then the list ----------------------------------------------------

static char *
own_path(const struct kubernetes *kube)
{
    return kg_asprintf("%s/kg-r-%s", kube->leases_path, kube->holder);
}

static void
on_forgotten(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    (void)result;
    kube->replicas.call = NULL;
    look_later(kube, KUBE_LOOK_MS);
}

// Removes the Lease of one that has ended long ago; others have taken over what it held.
static bool
forget_one(struct kubernetes *kube)
{
    const struct kube_replica *replica;
    struct kg_error err = {0};
    LIST_FOREACH(replica, &kube->replicas.others, link)
        if (replica->silent_ms >= FORGET_MS)
            break;
    if (!replica)
        return false;
    KG_AUTO_FREE char *path = kg_asprintf("%s/kg-r-%s", kube->leases_path, replica->id);
    kube->replicas.call = kube_call(kube, "DELETE", path, NULL, on_forgotten, kube, &err);
    return kube->replicas.call != NULL;
}

static void
on_listed(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    struct kg_error err = {0};
    kube->replicas.call = NULL;
    if (kube_check(kube, result, &err) < 0) {
        on_failure(kube, &err);
        return;
    }
    json_auto_t *list = json_loadb(result->body, result->body_len, 0, NULL);
    take_list(kube, list);
    if (kube->replicas.failure)
        log_info("the replicas are followed again");
    free(KG_STEAL(kube->replicas.failure));
    bool other_leads = kube_replica_find(kube, kube->replicas.leader.id) != NULL;
    // A recovery waits for a list that begins after that of the pods.
    if (!kube_leader_step(kube, other_leads) && !forget_one(kube))
        look_later(kube, kube->recovery && kube->monitor.synced ? 1 : KUBE_LOOK_MS);
    if (kube->recovery && kube_replicas_known(kube))
        kube_recover_listed(KG_STEAL(kube->recovery), NULL);
    else if (kube->recovered && kube->replicas.on_lost && anything_is_lost(kube))
        kube->replicas.on_lost(kube->replicas.on_lost_arg);
}

static void
ask_list(struct kubernetes *kube)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = kg_asprintf(
        "%s?limit=%d&labelSelector=" KUBE_LABEL_INSTALLATION "%%3D%s,%s%%20in%%20(leader,replica)",
        kube->leases_path, 2 * PROVISIONER_REPLICAS_MAX, kube->installation, KUBE_LABEL_KIND);
    kube->replicas.asked_ms = clock_mono_ms();
    kube->replicas.call = kube_call(kube, "GET", path, NULL, on_listed, kube, &err);
    if (!kube->replicas.call)
        on_failure(kube, &err);
}

// To be freed.
static char *
format_now(void)
{
    struct timespec now;
    struct tm utc;
    char text[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    return kg_asprintf("%s.%06ldZ", text, now.tv_nsec / 1000);
}

static json_t *
own_lease(const struct kubernetes *kube)
{
    KG_AUTO_FREE char *now = format_now();
    KG_AUTO_FREE char *name = kg_asprintf("kg-r-%s", kube->holder);
    return json_pack("{s:s, s:s, s:{s:s, s:{s:s, s:s}, s:{s:s}}, s:{s:s, s:i, s:s}}", "apiVersion",
                     "coordination.k8s.io/v1", "kind", "Lease", "metadata", "name", name, "labels",
                     KUBE_LABEL_INSTALLATION, kube->installation, KUBE_LABEL_KIND, "replica",
                     "annotations", ANNOTATION_ADDRESS, kube->replicas.address, "spec",
                     "holderIdentity", kube->holder, "leaseDurationSeconds", DEAD_MS / 1000,
                     "renewTime", now);
}

static void
on_renewed(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    struct kg_error err = {0};
    kube->replicas.call = NULL;
    bool gone = result->status == 404 && kube->replicas.renewed_ms;
    if (gone || kube_already_exists(result)) {
        kube->replicas.renewed_ms = gone ? 0 : 1;
        look_later(kube, 0);
        return;
    }
    if (kube_check(kube, result, &err) < 0) {
        on_failure(kube, &err);
        return;
    }
    kube->replicas.renewed_ms = clock_mono_ms();
    ask_list(kube);
}

static void
renew(struct kubernetes *kube)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *now = format_now();
    KG_AUTO_FREE char *path = own_path(kube);
    if (kube->replicas.renewed_ms) {
        json_t *patch = json_array();
        kube_patch_add(patch, "/spec/renewTime", now);
        kube->replicas.call = kube_call(kube, "PATCH", path, patch, on_renewed, kube, &err);
    } else {
        kube->replicas.call =
            kube_call(kube, "POST", kube->leases_path, own_lease(kube), on_renewed, kube, &err);
    }
    if (!kube->replicas.call)
        on_failure(kube, &err);
}

static void
step(void *arg)
{
    struct kubernetes *kube = arg;
    if (kube->replicas.call)
        return;
    if (!kube->replicas.renewed_ms || clock_mono_ms() - kube->replicas.renewed_ms >= RENEW_MS)
        renew(kube);
    else
        ask_list(kube);
}

void
kube_replicas_look(struct kubernetes *kube)
{
    if (kube->replicas.timer)
        look_later(kube, 1); // later than what is known now
}

void
kube_replicas_start(struct kubernetes *kube)
{
    if (!kube_has_replicas(kube) || kube->replicas.timer || kube->replicas.left)
        return;
    kube->replicas.timer = loop_timer_new(kube->base.loop, step, kube);
    look_later(kube, 0);
}

int
kube_replicas_init(struct kubernetes *kube, const char *address, struct kg_error *err)
{
    LIST_INIT(&kube->replicas.others);
    if (!address)
        return 0;
    KG_AUTO_FREE char *whole = with_brackets(address);
    if (!is_address(whole))
        return kg_error_set(err, KG_INVALID, 0,
                            "kubernetes-replica-address: %.120s is not host:port", address);
    kube->replicas.address = KG_STEAL(whole);
    return 0;
}

void
kube_replicas_fini(struct kubernetes *kube)
{
    loop_timer_free(kube->replicas.timer);
    http_call_cancel(kube->replicas.call);
    http_call_cancel(kube->replicas.farewell);
    kube_leader_fini(kube);
    for (struct kube_replica *replica; (replica = LIST_FIRST(&kube->replicas.others));)
        replicas_drop(kube, replica);
    free(kube->replicas.address);
    free(kube->replicas.failure);
}

// ---- For the gateway ------------------------------------------------------------------------

void
kube_on_lost(struct provisioner *provisioner, loop_fn fn, void *arg)
{
    struct kubernetes *kube = kube_of_provisioner(provisioner);
    kube->replicas.on_lost = fn;
    kube->replicas.on_lost_arg = arg;
}

static void
on_left(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    struct kg_error err = {0};
    kube->replicas.farewell = NULL;
    if (result->status != 404 && kube_check(kube, result, &err) < 0)
        log_warning("the others learn later that this replica has ended", LOG_ERR(&err));
}

void
kube_replicas_retire(struct kubernetes *kube)
{
    kube->replicas.on_lost = NULL;
    kube->replicas.retired = true;
    kube_leader_resign(kube);
    if (kube->monitor.sweep)
        loop_timer_stop(kube->monitor.sweep);
}

void
kube_leave(struct provisioner *provisioner)
{
    struct kubernetes *kube = kube_of_provisioner(provisioner);
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = own_path(kube);
    kube_replicas_retire(kube);
    kube->replicas.left = true;
    kube_marks_fini(kube);
    loop_timer_free(KG_STEAL(kube->replicas.timer));
    http_call_cancel(KG_STEAL(kube->replicas.call));
    kube->replicas.farewell = kube_call(kube, "DELETE", path, NULL, on_left, kube, &err);
    if (!kube->replicas.farewell)
        log_warning("the others learn later that this replica has ended", LOG_ERR(&err));
}

struct provisioner_place
kube_replica_place(const struct provisioner *provisioner, const char *id, size_t len)
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    struct provisioner_place place = {.holder = HOLDER_NOBODY};
    char text[KUBE_HOLDER_LEN + 1] = {0};
    if (len != KUBE_HOLDER_LEN)
        return place;
    memcpy(text, id, len);
    const struct kube_replica *replica = kube_replica_find(kube, text);
    if (strcmp(text, kube->holder) == 0) {
        place.holder = HOLDER_SELF;
    } else if (replica) {
        place.holder = HOLDER_OTHER;
        memcpy(place.id, replica->id, sizeof place.id);
        memcpy(place.address, replica->address, sizeof place.address);
    }
    return place;
}

bool
kube_replica_is_silent(const struct provisioner *provisioner, const char *id)
{
    const struct kube_replica *replica = find_any(kube_of_provisioner(provisioner), id);
    return replica && is_dead(replica);
}

size_t
kube_other_replicas(const struct provisioner *provisioner,
                    struct provisioner_place ret[PROVISIONER_REPLICAS_MAX])
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    const struct kube_replica *replica;
    size_t n = 0;
    LIST_FOREACH(replica, &kube->replicas.others, link)
        if (!is_dead(replica))
            ret[n++] = kube_replica_place(provisioner, replica->id, strlen(replica->id));
    return n;
}
