// SPDX-License-Identifier: Apache-2.0
// Names of sessions. A session that others can ask for has a Lease `kg-s-<installation>-<hash>`: of
// several gateways that create one of the same name, the first has it. Its owner is the session's
// pod, with which the cluster removes it. Who holds the session is the pod's matter, not the
// Lease's.
#include <sodium.h>
#include <string.h>

#include "kubernetes_priv.h"

struct kube_search {
    struct provisioner_search base;
    LIST_ENTRY(kube_search) link;
    struct kubernetes *kube;
    struct http_call *call;
    json_t *lease; // while its pod is asked for
    char hash[KUBE_HASH_LEN + 1];
    provisioner_place_fn fn;
    void *arg;
};

void
kube_session_hash(const char *owner, const char *session_id, char ret[KUBE_HASH_LEN + 1])
{
    unsigned char hash[KUBE_HASH_LEN / 2];
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof hash);
    crypto_generichash_update(&state, (const unsigned char *)owner, strlen(owner) + 1);
    crypto_generichash_update(&state, (const unsigned char *)session_id, strlen(session_id));
    crypto_generichash_final(&state, hash, sizeof hash);
    sodium_bin2hex(ret, KUBE_HASH_LEN + 1, hash, sizeof hash);
}

void
kube_owner_hash(const char *owner, char ret[KUBE_HASH_LEN + 1])
{
    kube_session_hash(owner, "", ret); // no session has an empty id
}

bool
kube_session_hash_of(const json_t *meta, char ret[KUBE_HASH_LEN + 1])
{
    const char *owner = json_string_value(json_object_get(meta, "owner"));
    const char *id = json_string_value(json_object_get(meta, "session_id"));
    if (!owner || !id || json_is_true(json_object_get(meta, "one_shot")))
        return false;
    kube_session_hash(owner, id, ret);
    return true;
}

char *
kube_name_path(const struct kubernetes *kube, const char *hash)
{
    return kg_asprintf("%s/kg-s-%s-%s", kube->leases_path, kube->installation, hash);
}

// ---- Claiming one ---------------------------------------------------------------------------

static json_t *
owners_of(const char *sandbox_id, const char *pod_uid)
{
    KG_AUTO_FREE char *pod = kg_asprintf("kg-%s", sandbox_id);
    return json_pack("[{s:s, s:s, s:s, s:s}]", "apiVersion", "v1", "kind", "Pod", "name", pod,
                     "uid", pod_uid);
}

json_t *
kube_name_lease(const struct kubernetes *kube, const char *hash, const char *sandbox_id,
                const char *pod_uid)
{
    KG_AUTO_FREE char *name = kg_asprintf("kg-s-%s-%s", kube->installation, hash);
    return json_pack("{s:s, s:s, s:{s:s, s:{s:s, s:s}, s:o}, s:{s:s}}", "apiVersion",
                     "coordination.k8s.io/v1", "kind", "Lease", "metadata", "name", name, "labels",
                     KUBE_LABEL_INSTALLATION, kube->installation, "kernelgate/kind", "session",
                     "ownerReferences", owners_of(sandbox_id, pod_uid), "spec", "holderIdentity",
                     kube->holder);
}

// The sandbox of the session that has the name; false: the Lease is not one of ours.
static bool
read_lease(const json_t *lease, const char **ret_hash, const char **ret_sandbox,
           const char **ret_holder)
{
    const json_t *meta = json_object_get(lease, "metadata");
    const json_t *owner = json_array_get(json_object_get(meta, "ownerReferences"), 0);
    const json_t *spec = json_object_get(lease, "spec");
    const char *pod = json_string_value(json_object_get(owner, "name"));
    const char *name = json_string_value(json_object_get(meta, "name"));
    *ret_holder = json_string_value(json_object_get(spec, "holderIdentity"));
    if (!pod || strncmp(pod, "kg-", 3) != 0 || !sandbox_id_valid(pod + 3) || !*ret_holder ||
        !name || strncmp(name, "kg-s-", 5) != 0)
        return false;
    *ret_hash = strrchr(name, '-') + 1;
    *ret_sandbox = pod + 3;
    return true;
}

// The holder of a session is its pod's; where the pod is not known here yet, who has made the name.
// NULL: the pod has ended, or is another session's, or is free and not about to be claimed by who
// made the name.
static const char *
living_holder(const struct kubernetes *kube, const char *hash, const char *sandbox_id,
              const char *creator)
{
    const struct kube_pod *pod = kube_pod_find(kube, sandbox_id);
    if (pod) {
        bool other =
            pod->claimed ? strcmp(pod->session, hash) != 0 : strcmp(pod->holder, creator) != 0;
        return other || pod->deleting || pod->phase == KUBE_ENDED ? NULL : pod->holder;
    }
    return kube_replica_find(kube, creator) ? creator : NULL;
}

// A pod that is about to be claimed may have come from another holder a moment ago; and one that is
// not known may be new.
const char *
kube_name_unverified(const struct kubernetes *kube, const json_t *lease)
{
    const char *hash, *sandbox, *creator;
    if (!read_lease(lease, &hash, &sandbox, &creator))
        return NULL;
    const struct kube_pod *pod = kube_pod_find(kube, sandbox);
    bool lives = pod && !pod->deleting && pod->phase != KUBE_ENDED;
    bool is_unverified = pod ? lives && !pod->claimed && strcmp(pod->holder, creator) != 0
                             : !kube_replica_find(kube, creator);
    return is_unverified ? sandbox : NULL;
}

json_t *
kube_name_takeover(const struct kubernetes *kube, const json_t *lease, const char *sandbox_id,
                   const char *pod_uid)
{
    const char *hash, *other, *creator;
    const json_t *meta = json_object_get(lease, "metadata");
    const char *version = json_string_value(json_object_get(meta, "resourceVersion"));
    if (!version || !read_lease(lease, &hash, &other, &creator))
        return NULL;
    // Of an earlier attempt. Another gateway may have made the name for a pod that it has taken
    // from this one; then its claim may still come.
    bool own = strcmp(other, sandbox_id) == 0 && strcmp(creator, kube->holder) == 0;
    if (!own && living_holder(kube, hash, other, creator))
        return NULL;
    json_t *patch = json_array();
    kube_patch_test(patch, KUBE_PATH_VERSION, version);
    kube_patch_add_json(patch, "/metadata/ownerReferences", owners_of(sandbox_id, pod_uid));
    kube_patch_add(patch, "/spec/holderIdentity", kube->holder);
    return patch;
}

// ---- Finding one ----------------------------------------------------------------------------

static struct provisioner_place
place_of(const struct kubernetes *kube, const char *holder)
{
    struct provisioner_place place = kube_replica_place(&kube->base, holder, strlen(holder));
    if (place.holder == HOLDER_NOBODY)
        place.holder = HOLDER_LOST;
    return place;
}

bool
kube_session_place(const struct provisioner *provisioner, const char *owner, const char *session_id,
                   struct provisioner_place *ret)
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    char hash[KUBE_HASH_LEN + 1];
    kube_session_hash(owner, session_id, hash);
    const struct kube_pod *pod = kube_pod_of_session(kube, hash);
    if (!pod)
        return false;
    *ret = place_of(kube, pod->holder);
    return true;
}

struct provisioner_place
kube_sandbox_place(const struct provisioner *provisioner, const char *id)
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    const struct kube_pod *pod = kube_pod_find(kube, id);
    if (!pod || !pod->claimed || pod->deleting)
        return (struct provisioner_place){.holder = HOLDER_NOBODY};
    return place_of(kube, pod->holder);
}

static void
search_free(struct kube_search *search)
{
    LIST_REMOVE(search, link);
    json_decref(search->lease);
    free(search);
}

static void
search_end(struct kube_search *search, const struct kg_error *err)
{
    const struct kubernetes *kube = search->kube;
    struct provisioner_place place = {.holder = HOLDER_NOBODY};
    provisioner_place_fn fn = search->fn;
    void *fn_arg = search->arg;
    const char *hash, *sandbox, *creator;
    const char *holder = read_lease(search->lease, &hash, &sandbox, &creator)
                             ? living_holder(kube, hash, sandbox, creator)
                             : NULL;
    if (holder)
        place = place_of(kube, holder);
    search_free(search);
    fn(&place, err->code ? err : NULL, fn_arg);
}

static void
on_pod_read(const struct http_call_result *result, void *arg)
{
    struct kube_search *search = arg;
    struct kg_error err = {0};
    search->call = NULL;
    if (result->status != 404 && kube_check(search->kube, result, &err) == 0)
        kube_pod_learn(search->kube, result);
    search_end(search, &err);
}

static void
names_on_read(const struct http_call_result *result, void *arg)
{
    struct kube_search *search = arg;
    struct kubernetes *kube = search->kube;
    struct kg_error err = {0};
    search->call = NULL;
    if (result->status != 404 && kube_check(kube, result, &err) == 0)
        search->lease = json_loadb(result->body, result->body_len, 0, NULL);
    const char *sandbox = kube_name_unverified(kube, search->lease);
    if (sandbox) {
        KG_AUTO_FREE char *path = kube_pod_path(kube, sandbox);
        search->call = kube_call(kube, "GET", path, NULL, on_pod_read, search, &err);
    }
    if (!search->call)
        search_end(search, &err);
}

struct provisioner_search *
kube_search_start(struct provisioner *provisioner, const char *owner, const char *session_id,
                  provisioner_place_fn fn, void *arg, struct kg_error *err)
{
    struct kubernetes *kube = kube_of_provisioner(provisioner);
    struct kube_search *search = KG_NEW(struct kube_search);
    search->base.provisioner = provisioner;
    search->kube = kube;
    search->fn = fn;
    search->arg = arg;
    kube_session_hash(owner, session_id, search->hash);
    LIST_INSERT_HEAD(&kube->searches, search, link);
    KG_AUTO_FREE char *path = kube_name_path(kube, search->hash);
    search->call = kube_call(kube, "GET", path, NULL, names_on_read, search, err);
    if (search->call)
        return &search->base;
    search_free(search);
    return NULL;
}

void
kube_search_cancel(struct provisioner_search *base)
{
    struct kube_search *search = (struct kube_search *)base;
    http_call_cancel(search->call);
    search_free(search);
}

void
kube_searches_fini(struct kubernetes *kube)
{
    for (struct kube_search *search; (search = LIST_FIRST(&kube->searches));)
        kube_search_cancel(&search->base);
}
