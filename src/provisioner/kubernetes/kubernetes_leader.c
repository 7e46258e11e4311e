// SPDX-License-Identifier: Apache-2.0
// The replica that keeps sandboxes ready for all: the holder of the Lease
// `kg-leader-<installation>`. It leads as long as its own Lease is renewed (kubernetes_replicas.c),
// so this one is written only when the leader changes. Two that lead for a moment make too many
// sandboxes, and nothing worse.
#include <string.h>

#include "kubernetes_priv.h"

// To be freed.
static char *
leader_path(const struct kubernetes *kube)
{
    return kg_asprintf("%s/kg-leader-%s", kube->leases_path, kube->installation);
}

static void
set_leads(struct kubernetes *kube, bool leads)
{
    struct kube_leader *leader = &kube->replicas.leader;
    if (leader->leads == leads)
        return;
    log_info(leads ? "this replica fills the pool"
                   : "this replica does not fill the pool any more");
    leader->leads = leads;
    if (leader->on_lead)
        leader->on_lead(leader->on_lead_arg);
}

void
kube_leader_clear(struct kubernetes *kube)
{
    kube->replicas.leader.id[0] = kube->replicas.leader.version[0] = '\0';
}

bool
kube_leader_take(struct kubernetes *kube, const json_t *lease)
{
    struct kube_leader *leader = &kube->replicas.leader;
    const json_t *meta = json_object_get(lease, "metadata");
    const json_t *spec = json_object_get(lease, "spec");
    const char *kind =
        json_string_value(json_object_get(json_object_get(meta, "labels"), KUBE_LABEL_KIND));
    const char *version = json_string_value(json_object_get(meta, "resourceVersion"));
    const char *id = json_string_value(json_object_get(spec, "holderIdentity"));
    if (!kind || strcmp(kind, "leader") != 0)
        return false;
    if (version && strlen(version) <= KUBE_VERSION_MAX && id && strlen(id) <= KUBE_HOLDER_LEN) {
        memcpy(leader->version, version, strlen(version) + 1);
        memcpy(leader->id, id, strlen(id) + 1);
    }
    return true;
}

// ---- Becoming it ----------------------------------------------------------------------------

// 409 and 422: another replica was faster. The next list says so.
static void
on_asked(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    struct kg_error err = {0};
    kube->replicas.call = NULL;
    if (result->status < 300 && !result->err)
        set_leads(kube, !kube->replicas.retired);
    else if (result->status != 409 && result->status != 422 && result->status != 404 &&
             kube_check(kube, result, &err) < 0)
        log_warning("cannot become the replica that fills the pool", LOG_ERR(&err));
    loop_timer_start(kube->replicas.timer, KUBE_LOOK_MS);
}

static json_t *
new_lease(const struct kubernetes *kube)
{
    KG_AUTO_FREE char *name = kg_asprintf("kg-leader-%s", kube->installation);
    return json_pack("{s:s, s:s, s:{s:s, s:{s:s, s:s}}, s:{s:s}}", "apiVersion",
                     "coordination.k8s.io/v1", "kind", "Lease", "metadata", "name", name, "labels",
                     KUBE_LABEL_INSTALLATION, kube->installation, KUBE_LABEL_KIND, "leader", "spec",
                     "holderIdentity", kube->holder);
}

static bool
ask_lead(struct kubernetes *kube)
{
    const struct kube_leader *leader = &kube->replicas.leader;
    KG_AUTO_FREE char *path = leader_path(kube);
    struct kg_error err = {0};
    if (leader->version[0]) {
        json_t *patch = json_array();
        kube_patch_test(patch, KUBE_PATH_VERSION, leader->version);
        kube_patch_add(patch, "/spec/holderIdentity", kube->holder);
        kube->replicas.call = kube_call(kube, "PATCH", path, patch, on_asked, kube, &err);
    } else {
        kube->replicas.call =
            kube_call(kube, "POST", kube->leases_path, new_lease(kube), on_asked, kube, &err);
    }
    return kube->replicas.call != NULL;
}

bool
kube_leader_step(struct kubernetes *kube, bool other_leads)
{
    bool ours = strcmp(kube->replicas.leader.id, kube->holder) == 0;
    set_leads(kube, ours && !kube->replicas.retired);
    return !ours && !kube->replicas.retired && !other_leads && ask_lead(kube);
}

// ---- Giving it up ---------------------------------------------------------------------------

// If it has failed, the others wait for the end of this replica.
static void
on_resigned(const struct http_call_result *result, void *arg)
{
    struct kubernetes *kube = arg;
    (void)result;
    kube->replicas.leader.resignation = NULL;
}

void
kube_leader_resign(struct kubernetes *kube)
{
    struct kube_leader *leader = &kube->replicas.leader;
    KG_AUTO_FREE char *path = leader_path(kube);
    struct kg_error err = {0};
    if (!leader->leads)
        return;
    set_leads(kube, false);
    if (leader->version[0] && strcmp(leader->id, kube->holder) == 0)
        leader->resignation = kube_call(kube, "DELETE", path, kube_precondition(leader->version),
                                        on_resigned, kube, &err);
}

void
kube_leader_fini(struct kubernetes *kube)
{
    http_call_cancel(kube->replicas.leader.resignation);
}

// ---- For the gateway ------------------------------------------------------------------------

bool
kube_leads(const struct provisioner *provisioner)
{
    return (kube_of_provisioner(provisioner))->replicas.leader.leads;
}

void
kube_on_lead(struct provisioner *provisioner, loop_fn fn, void *arg)
{
    struct kubernetes *kube = kube_of_provisioner(provisioner);
    kube->replicas.leader.on_lead = fn;
    kube->replicas.leader.on_lead_arg = arg;
}
