// SPDX-License-Identifier: Apache-2.0
// The engine "kubernetes": its settings, its vtable, and connections to its pods.
#include "kubernetes_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int
take_installation(struct kubernetes *kube, const struct provisioner_settings *settings,
                  struct kg_error *err)
{
    const char *installation = settings->kubernetes.installation;
    kube->installation = kg_strdup(installation ? installation : settings->gateway_id);
    if (kube_name_valid(kube->installation))
        return 0;
    return kg_error_set(err, KG_INVALID, 0,
                        "kubernetes-installation: %.80s is not a name of up to %d small letters, "
                        "digits and inner hyphens",
                        installation, KUBE_NAME_MAX);
}

struct kubernetes *
kube_open(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    KUBE_AUTO kube = KG_NEW(struct kubernetes);
    kube->http = http_client_new(loop);
    id_random(kube->holder, KUBE_HOLDER_LEN);
    kube->limits = settings->limits;
    kube->image = kg_strdup(strcmp(settings->image, "host") == 0 ? KUBE_IMAGE : settings->image);
    kube->agent_image = kg_strdup(settings->kubernetes.agent_image);
    for (size_t i = 0; i < KUBE_BUCKETS; i++) {
        LIST_INIT(&kube->pods[i]);
        LIST_INIT(&kube->sessions[i]);
    }
    LIST_INIT(&kube->searches);
    TAILQ_INIT(&kube->marks);
    if (provisioner_init(&kube->base, &provisioner_kubernetes, loop, settings, err) < 0 ||
        take_installation(kube, settings, err) < 0 ||
        kube_find_access(&kube->access, &settings->kubernetes, err) < 0 ||
        kube_template_read(settings->kubernetes.pod_template, &kube->template, err) < 0 ||
        kube_replicas_init(kube, settings->kubernetes.replica_address, err) < 0)
        return NULL;
    kube_network_init(kube, settings->kubernetes.unenforced_network);
    kube->pods_path = kg_asprintf("/api/v1/namespaces/%s/pods", kube->access.namespace);
    kube->leases_path =
        kg_asprintf("/apis/coordination.k8s.io/v1/namespaces/%s/leases", kube->access.namespace);
    return KG_STEAL(kube);
}

void
kube_close(struct kubernetes *kube)
{
    if (!kube)
        return;
    kube_network_fini(kube);
    kube_monitor_fini(kube);
    kube_replicas_fini(kube);
    kube_searches_fini(kube);
    kube_marks_fini(kube);
    provisioner_fini(&kube->base);
    kube_pods_fini(kube);
    http_client_free(kube->http);
    kube_access_fini(&kube->access);
    json_decref(kube->template);
    free(kube->pods_path);
    free(kube->leases_path);
    free(kube->image);
    free(kube->agent_image);
    free(kube->installation);
    free(kube);
}

static struct provisioner *
engine_create(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    KUBE_AUTO kube = kube_open(loop, settings, err);
    if (!kube || kube_trial(kube, err) < 0)
        return NULL;
    log_info("sandboxes are pods of kubernetes", LOG_STR("server", kube->access.server),
             LOG_STR("namespace", kube->access.namespace), LOG_STR("image", kube->image));
    return &KG_STEAL(kube)->base;
}

static bool
engine_doctor(const struct provisioner_settings *settings, provisioner_finding_fn fn, void *arg,
              struct provisioner_traits *ret)
{
    (void)ret;
    struct kg_error err = {0};
    KG_AUTO(loop) loop = loop_new();
    KUBE_AUTO kube = kube_open(loop, settings, &err);
    if (kube)
        return kube_doctor(kube, fn, arg);
    fn("kubernetes: settings", false, err.message, arg);
    return false;
}

static void
engine_free(struct provisioner *provisioner)
{
    kube_close(kube_of_provisioner(provisioner));
}

// The first operation is a recovery, or there is none.
static void
engine_op_start(struct provisioner_op *op)
{
    kube_monitor_start(kube_of(op));
    kube_replicas_start(kube_of(op));
    kube_op_start(op);
}

// ---- Connections ----------------------------------------------------------------------------

static socklen_t
address_of(const struct kube_pod *pod, struct sockaddr_storage *ret)
{
    struct sockaddr_in *four = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;
    *ret = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, pod->ip, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(SANDBOX_AGENT_PORT);
        return sizeof *four;
    }
    if (inet_pton(AF_INET6, pod->ip, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(SANDBOX_AGENT_PORT);
        return sizeof *six;
    }
    return 0;
}

static int
engine_dial(struct provisioner *provisioner, const char *id, uint64_t *ret_epoch,
            struct kg_error *err)
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    const struct kube_pod *pod = kube_pod_find(kube, id);
    struct sockaddr_storage address;
    socklen_t len = pod && pod->phase == KUBE_RUNNING ? address_of(pod, &address) : 0;
    bool is_others = pod && kube_has_replicas(kube) && !pod->held_epoch;
    if (!len || is_others)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox's pod does not run");
    KG_AUTO_FD fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno, "cannot make a socket");
    if (connect(fd, (const struct sockaddr *)&address, len) != 0 && errno != EINPROGRESS)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno,
                            "cannot connect to the sandbox's pod");
    // One that was overtaken learns it from the agent.
    *ret_epoch = pod->held_epoch ? pod->held_epoch : pod->epoch;
    return KG_STEAL_FD(fd);
}

static const char *
kube_replica_id(const struct provisioner *provisioner)
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    return kube_has_replicas(kube) ? kube->holder : NULL;
}

static bool
engine_is_busy(const struct provisioner *provisioner)
{
    const struct kubernetes *kube = kube_of_provisioner(provisioner);
    return kube->replicas.farewell || kube->replicas.leader.resignation ||
           kube_marks_are_busy(kube) || (kube->network.retired && kube_network_is_busy(kube));
}

static void
engine_retire(struct provisioner *provisioner)
{
    struct kubernetes *kube = kube_of_provisioner(provisioner);
    kube_network_retire(kube);
    kube_replicas_retire(kube);
}

static int
engine_check(const struct provisioner *provisioner, struct kg_error *err)
{
    return kube_network_check(kube_of_provisioner(provisioner), err);
}

static const struct provisioner_replica_engine replica_engine = {
    .id = kube_replica_id,
    .on_lost = kube_on_lost,
    .leads = kube_leads,
    .on_lead = kube_on_lead,
    .claimed_elsewhere = kube_claimed_elsewhere,
    .holds_for = kube_holds_for,
    .offer = kube_offer,
    .free_sandbox = kube_free_sandbox,
    .hand_over = kube_hand_over,
    .overtaken = kube_overtaken,
    .leave = kube_leave,
    .place = kube_replica_place,
    .is_silent = kube_replica_is_silent,
    .others = kube_other_replicas,
    .session_place = kube_session_place,
    .sandbox_place = kube_sandbox_place,
    .search_start = kube_search_start,
    .search_cancel = kube_search_cancel,
};

const struct provisioner_engine provisioner_kubernetes = {
    .name = "kubernetes",
    .create = engine_create,
    .free = engine_free,
    .doctor = engine_doctor,
    .dial = engine_dial,
    .is_busy = engine_is_busy,
    .retire = engine_retire,
    .check = engine_check,
    .replicas = &replica_engine,
    .op_size = sizeof(struct kube_op),
    .op_start = engine_op_start,
    .op_cancelled = kube_op_cancelled,
    .op_explain = kube_op_explain,
    .op_fini = kube_op_fini,
};
