// SPDX-License-Identifier: Apache-2.0
// Pods: requests to create them, answers about them, and the cache of these answers.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kubernetes_priv.h"

#define AGENT_FOLDER SANDBOX_AGENT // a folder here, with the agent that the init container copies
#define AGENT_PATH AGENT_FOLDER "/kernelgate-agent"
#define AGENT_IN_IMAGE "/usr/local/libexec/kernelgate/kernelgate-agent"
// The kubelet mounts a file of the node here. Every user may write to it, and it counts towards no
// limit, so it is put into a folder that only root can enter.
#define TERMINATION_FILE "/root/termination-log"
#define AGENT_MB 32
#define LOG_MB 32      // limit of the container's log and its other data on the node's disk
#define MEMORY_SHARE 4 // a pod requests its memory limit divided by this
#define CPU_SHARE 50

// ---- The request ----------------------------------------------------------------------------

static json_t *
limits_of(const struct kubernetes *kube)
{
    int64_t memory = sandbox_memory_bytes(&kube->limits, 0);
    int64_t millis = (int64_t)(kube->limits.cpus * 1000 + 0.5);
    KG_AUTO_FREE char *most_memory = kg_asprintf("%lld", (long long)memory);
    KG_AUTO_FREE char *most_cpu = kg_asprintf("%lldm", (long long)millis);
    KG_AUTO_FREE char *disk = kg_asprintf("%dMi", LOG_MB);
    KG_AUTO_FREE char *memory_share = kg_asprintf("%lld", (long long)(memory / MEMORY_SHARE));
    KG_AUTO_FREE char *cpu_share = kg_asprintf("%lldm", (long long)(millis / CPU_SHARE + 1));
    return json_pack("{s:{s:s, s:s, s:s}, s:{s:s, s:s, s:s}}", "limits", "memory", most_memory,
                     "cpu", most_cpu, "ephemeral-storage", disk, "requests", "memory", memory_share,
                     "cpu", cpu_share, "ephemeral-storage", disk);
}

static json_t *
container_security(void)
{
    return json_pack("{s:b, s:b, s:b, s:{s:[s]}}", "allowPrivilegeEscalation", 0, "privileged", 0,
                     "readOnlyRootFilesystem", 1, "capabilities", "drop", "ALL");
}

static json_t *
pod_security(void)
{
    return json_pack("{s:b, s:i, s:i, s:{s:s}}", "runAsNonRoot", 1, "runAsUser", SANDBOX_UID,
                     "runAsGroup", SANDBOX_UID, "seccompProfile", "type", "RuntimeDefault");
}

static json_t *
memory_volume(const char *name, int64_t size_mb)
{
    KG_AUTO_FREE char *size = kg_asprintf("%lldMi", (long long)size_mb);
    return json_pack("{s:s, s:{s:s, s:s}}", "name", name, "emptyDir", "medium", "Memory",
                     "sizeLimit", size);
}

static json_t *
mount_of(const char *name, const char *path, bool read_only)
{
    return json_pack("{s:s, s:s, s:b}", "name", name, "mountPath", path, "readOnly", read_only);
}

// The agent comes from the gateway's image, so the kernels' image does not need one.
static json_t *
agent_container(const struct kubernetes *kube)
{
    return json_pack("{s:s, s:s, s:s, s:[s, s, s], s:o, s:o, s:[o]}", "name", "agent", "image",
                     kube->agent_image, "imagePullPolicy", "IfNotPresent", "command", "cp",
                     AGENT_IN_IMAGE, AGENT_PATH, "securityContext", container_security(),
                     "resources", limits_of(kube), "volumeMounts",
                     mount_of("agent", AGENT_FOLDER, false));
}

static json_t *
environment(void)
{
    return json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "name", "PATH", "value",
                     SANDBOX_PATH, "name", "HOME", "value", SANDBOX_HOME, "name", "LANG", "value",
                     "C.UTF-8", "name", "USER", "value", "sandbox");
}

// The API has no such limits, so the agent sets them for itself and for what it starts.
static void
append_limits(json_t *args)
{
    for (size_t i = 0; i < sandbox_n_rlimits; i++) {
        KG_AUTO_FREE char *limit = kg_asprintf("%s=%llu", sandbox_rlimits[i].name,
                                               (unsigned long long)sandbox_rlimits[i].value);
        json_array_append_new(args, json_string("--limit"));
        json_array_append_new(args, json_string(limit));
    }
}

static json_t *
sandbox_container(const struct kubernetes *kube, json_t *args)
{
    json_array_set_new(args, 0, json_string(AGENT_PATH));
    append_limits(args);
    return json_pack(
        "{s:s, s:s, s:s, s:o, s:s, s:s, s:o, s:o, s:o, s:[o, o, o, o]}", "name", KUBE_CONTAINER,
        "image", kube->image, "imagePullPolicy", "IfNotPresent", "command", args, "workingDir",
        SANDBOX_DATA, "terminationMessagePath", TERMINATION_FILE, "env", environment(),
        "securityContext", container_security(), "resources", limits_of(kube), "volumeMounts",
        mount_of("agent", AGENT_FOLDER, true), mount_of("data", SANDBOX_DATA, false),
        mount_of("data", SANDBOX_USER_HOME, false), mount_of("tmp", SANDBOX_HOME, false));
}

static json_t *
metadata(const struct kubernetes *kube, const char *id)
{
    KG_AUTO_FREE char *name = kg_asprintf("kg-%s", id);
    return json_pack("{s:s, s:{s:s, s:s, s:s}, s:{s:s, s:s}}", "name", name, "labels",
                     "app.kubernetes.io/name", "kernelgate-sandbox", KUBE_LABEL_INSTALLATION,
                     kube->installation, KUBE_LABEL_STATE, "free", "annotations",
                     KUBE_ANNOTATION_EPOCH, "1", KUBE_ANNOTATION_HOLDER, kube->holder);
}

// No name server: a sandbox has no network, and its resolver must not wait for answers.
json_t *
kube_pod_spec(const struct kubernetes *kube, const char *id, json_t *args)
{
    json_t *spec = json_pack(
        "{s:s, s:b, s:b, s:i, s:s, s:s, s:{s:[s]}, s:o, s:[o], s:[o], s:[o, o, o]}",
        "restartPolicy", "Never", "automountServiceAccountToken", 0, "enableServiceLinks", 0,
        "terminationGracePeriodSeconds", 1, "hostname", "sandbox", "dnsPolicy", "None", "dnsConfig",
        "nameservers", "127.0.0.1", "securityContext", pod_security(), "initContainers",
        agent_container(kube), "containers", sandbox_container(kube, args), "volumes",
        memory_volume("agent", AGENT_MB), memory_volume("data", kube->limits.disk_mb),
        memory_volume("tmp", kube->limits.tmp_mb));
    json_t *pod = json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "Pod", "metadata",
                            metadata(kube, id), "spec", spec);
    kube_template_apply(kube->template, pod);
    return pod;
}

json_t *
kube_trial_pod(const struct kubernetes *kube, const char *id, json_t *args)
{
    json_t *pod = kube_pod_spec(kube, id, args);
    json_t *spec = json_object_get(pod, "spec");
    json_t *container = json_array_get(json_object_get(spec, "containers"), 0);
    json_object_set_new(container, "terminationMessagePolicy",
                        json_string("FallbackToLogsOnError"));
    json_array_append_new(json_object_get(container, "env"),
                          json_pack("{s:s, s:{s:{s:s}}}", "name", "NODE_ADDRESS", "valueFrom",
                                    "fieldRef", "fieldPath", "status.hostIP"));
    return pod;
}

// ---- The answer -----------------------------------------------------------------------------

bool
kube_name_valid(const char *name)
{
    size_t len = strlen(name);
    return len >= 1 && len <= KUBE_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len && name[0] != '-' &&
           name[len - 1] != '-';
}

static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void
explain(struct kube_pod *pod, const char *reason, const char *message)
{
    snprintf(pod->why, sizeof pod->why, "%s%s%s", reason, *reason && *message ? ": " : "", message);
}

// Reasons that keep a container from starting until the configuration is changed.
static bool
is_stuck(const char *reason)
{
    static const char *const reasons[] = {"ErrImagePull",
                                          "ImagePullBackOff",
                                          "ErrImageNeverPull",
                                          "InvalidImageName",
                                          "CreateContainerError",
                                          "RunContainerError",
                                          "CreateContainerConfigError"};
    for (size_t i = 0; i < KG_ARRAY_LEN(reasons); i++)
        if (strcmp(reason, reasons[i]) == 0)
            return true;
    return false;
}

static void
take_state(const json_t *status, struct kube_pod *pod)
{
    const json_t *state = json_object_get(status, "state");
    const json_t *waiting = json_object_get(state, "waiting");
    const json_t *ended = json_object_get(state, "terminated");
    json_int_t code = json_integer_value(json_object_get(ended, "exitCode"));
    if (waiting) {
        const char *reason = text_of(waiting, "reason");
        pod->stuck |= is_stuck(reason);
        if (!pod->why[0] || is_stuck(reason))
            explain(pod, reason, text_of(waiting, "message"));
    } else if (ended && code != 0) {
        snprintf(pod->why, sizeof pod->why, "container %s ended with code %d (%s) %s",
                 text_of(status, "name"), (int)code, text_of(ended, "reason"),
                 text_of(ended, "message"));
    }
}

// Reads the state of the sandbox's container: the phase of a pod that is being deleted stays
// "Running".
static void
take_containers(const json_t *status, struct kube_pod *pod)
{
    size_t i;
    const json_t *container;
    json_array_foreach(json_object_get(status, "initContainerStatuses"), i, container)
        take_state(container, pod);
    json_array_foreach(json_object_get(status, "containerStatuses"), i, container) {
        const json_t *state = json_object_get(container, "state");
        if (strcmp(text_of(container, "name"), KUBE_CONTAINER) != 0)
            continue;
        take_state(container, pod);
        if (json_object_get(state, "terminated"))
            pod->phase = KUBE_ENDED;
        else if (json_object_get(state, "running") && pod->ip[0])
            pod->phase = KUBE_RUNNING;
    }
}

static void
take_conditions(const json_t *status, struct kube_pod *pod)
{
    size_t i;
    const json_t *condition;
    json_array_foreach(json_object_get(status, "conditions"), i, condition) {
        if (strcmp(text_of(condition, "type"), "PodScheduled") == 0 &&
            strcmp(text_of(condition, "status"), "False") == 0)
            explain(pod, text_of(condition, "reason"), text_of(condition, "message"));
    }
}

static void
take_status(const json_t *status, struct kube_pod *pod)
{
    const char *phase = text_of(status, "phase");
    const char *ip = text_of(status, "podIP");
    if (strlen(ip) < sizeof pod->ip)
        memcpy(pod->ip, ip, strlen(ip));
    pod->phase = KUBE_PENDING;
    take_conditions(status, pod);
    take_containers(status, pod);
    if (strcmp(phase, "Failed") == 0 || strcmp(phase, "Succeeded") == 0) {
        pod->phase = KUBE_ENDED;
        if (*text_of(status, "reason")) // of an eviction, for instance
            explain(pod, text_of(status, "reason"), text_of(status, "message"));
    }
}

// Fails unless the text is a decimal number that can be incremented.
static bool
take_epoch(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long epoch = strtoull(text, &end, 10);
    *ret = epoch;
    return *text >= '0' && *text <= '9' && !*end && !errno && epoch < UINT64_MAX;
}

bool
kube_pod_take(const struct kubernetes *kube, const json_t *pod, struct kube_pod *ret)
{
    const json_t *meta = json_object_get(pod, "metadata");
    const json_t *labels = json_object_get(meta, "labels");
    const json_t *annotations = json_object_get(meta, "annotations");
    const char *name = text_of(meta, "name");
    *ret = (struct kube_pod){0};
    if (strncmp(name, "kg-", 3) != 0 || !sandbox_id_valid(name + 3) ||
        strcmp(text_of(labels, KUBE_LABEL_INSTALLATION), kube->installation) != 0 ||
        !take_epoch(text_of(annotations, KUBE_ANNOTATION_EPOCH), &ret->epoch))
        return false;
    memcpy(ret->id, name + 3, strlen(name + 3));
    ret->deleting = json_object_get(meta, "deletionTimestamp") != NULL;
    ret->ours = strcmp(text_of(annotations, KUBE_ANNOTATION_HOLDER), kube->holder) == 0;
    const char *holder = text_of(annotations, KUBE_ANNOTATION_HOLDER);
    const char *session = text_of(labels, KUBE_LABEL_SESSION);
    if (strlen(holder) < sizeof ret->holder)
        memcpy(ret->holder, holder, strlen(holder));
    if (strlen(text_of(meta, "uid")) < sizeof ret->uid)
        memcpy(ret->uid, text_of(meta, "uid"), strlen(text_of(meta, "uid")));
    if (strlen(session) < sizeof ret->session)
        memcpy(ret->session, session, strlen(session));
    const char *owner = text_of(labels, KUBE_LABEL_OWNER);
    const char *share = text_of(labels, KUBE_LABEL_SHARE);
    if (strlen(owner) < sizeof ret->owner)
        memcpy(ret->owner, owner, strlen(owner));
    if (strlen(share) < sizeof ret->share)
        memcpy(ret->share, share, strlen(share));
    ret->held_ms = clock_mono_ms();
    ret->held_epoch = ret->ours ? ret->epoch : 0;
    ret->ready = strcmp(text_of(annotations, KUBE_ANNOTATION_READY), "true") == 0;
    ret->claimed = strcmp(text_of(labels, KUBE_LABEL_STATE), "claimed") == 0;
    take_status(json_object_get(pod, "status"), ret);
    return true;
}

const char *
kube_pod_meta(const json_t *pod)
{
    const json_t *annotations = json_object_get(json_object_get(pod, "metadata"), "annotations");
    return text_of(annotations, KUBE_ANNOTATION_META);
}

json_t *
kube_takeover_patch(const struct kubernetes *kube, uint64_t epoch)
{
    KG_AUTO_FREE char *old = kg_asprintf("%llu", (unsigned long long)epoch);
    KG_AUTO_FREE char *next = kg_asprintf("%llu", (unsigned long long)epoch + 1);
    json_t *patch = json_array();
    kube_patch_test(patch, KUBE_PATH_ANNOTATION("epoch"), old);
    kube_patch_replace(patch, KUBE_PATH_ANNOTATION("epoch"), next);
    kube_patch_add(patch, KUBE_PATH_ANNOTATION("holder"), kube->holder);
    kube_patch_add(patch, KUBE_PATH_ANNOTATION("ready"), "");
    return patch;
}

// ---- The cache ------------------------------------------------------------------------------

static size_t
bucket_of(const char *id)
{
    return hash_fnv1a(id, strlen(id)) % KUBE_BUCKETS;
}

struct kube_pod *
kube_pod_find(const struct kubernetes *kube, const char *id)
{
    struct kube_pod *pod;
    LIST_FOREACH(pod, &kube->pods[bucket_of(id)], link) {
        if (strcmp(pod->id, id) == 0)
            return pod;
    }
    return NULL;
}

struct kube_pod *
kube_pod_of_session(const struct kubernetes *kube, const char *hash)
{
    struct kube_pod *pod;
    LIST_FOREACH(pod, &kube->sessions[bucket_of(hash)], session_link) {
        if (strcmp(pod->session, hash) == 0 && !pod->deleting && pod->phase != KUBE_ENDED)
            return pod;
    }
    return NULL;
}

struct kube_pod *
kube_pod_keep(struct kubernetes *kube, const struct kube_pod *pod)
{
    struct kube_pod *kept = kube_pod_find(kube, pod->id);
    if (kept && pod->epoch < kept->epoch) { // an event from before the pod was taken over
        kept->listed |= pod->listed;
        return kept;
    }
    int64_t held_ms = kept && strcmp(kept->holder, pod->holder) == 0 ? kept->held_ms : pod->held_ms;
    uint64_t held_epoch = kept && !pod->ours ? kept->held_epoch : pod->held_epoch;
    bool deleting = kept && kept->deleting;
    bool released = kept && kept->released && pod->epoch == kept->epoch;
    if (kept)
        kube_pod_drop(kept);
    kept = KG_NEW(struct kube_pod);
    *kept = *pod;
    kept->held_ms = held_ms;
    kept->held_epoch = held_epoch;
    kept->deleting |= deleting;
    if (released)
        kube_pod_release(kept);
    LIST_INSERT_HEAD(&kube->pods[bucket_of(pod->id)], kept, link);
    if (kept->session[0])
        LIST_INSERT_HEAD(&kube->sessions[bucket_of(kept->session)], kept, session_link);
    return kept;
}

void
kube_pod_learn(struct kubernetes *kube, const struct http_call_result *result)
{
    struct kube_pod pod;
    json_auto_t *body =
        result->status == 200 ? json_loadb(result->body, result->body_len, 0, NULL) : NULL;
    if (body && kube_pod_take(kube, body, &pod))
        (void)kube_pod_keep(kube, &pod);
}

void
kube_pod_release(struct kube_pod *pod)
{
    pod->released = true;
    pod->ours = pod->ready = false;
    pod->holder[0] = '\0';
}

void
kube_pod_drop(struct kube_pod *pod)
{
    LIST_REMOVE(pod, link);
    if (pod->session[0])
        LIST_REMOVE(pod, session_link);
    free(pod);
}

void
kube_pods_fini(struct kubernetes *kube)
{
    for (size_t i = 0; i < KUBE_BUCKETS; i++)
        for (struct kube_pod *pod; (pod = LIST_FIRST(&kube->pods[i]));)
            kube_pod_drop(pod);
}
