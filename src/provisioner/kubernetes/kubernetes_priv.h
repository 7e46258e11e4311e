// SPDX-License-Identifier: Apache-2.0
// Internals of the engine "kubernetes": sandboxes are pods, controlled by the API of Kubernetes.
// The pods are the only record of sandboxes: their owners are in labels and annotations.
#pragma once

#include <netinet/in.h>

#include "http_client.h"
#include "provisioner_engine.h"
#include "provisioner_replicas.h"

#define KUBE_IMAGE "kernelgate-kernel:latest" // if the image setting is "host"
#define KUBE_CONTAINER "sandbox"
#define KUBE_LABEL_INSTALLATION "kernelgate/installation"
#define KUBE_LABEL_STATE "kernelgate/state" // "free" or "claimed"
#define KUBE_LABEL_SESSION                                                                         \
    "kernelgate/session" // of a claimed one, with replicas: see kube_session_hash()
#define KUBE_LABEL_OWNER "kernelgate/owner" // the same: see kube_owner_hash()
#define KUBE_LABEL_SHARE "kernelgate/share" // the same of its owner's budget_name()
#define KUBE_LABEL_KIND "kernelgate/kind"   // of a Lease: "replica", "leader" or "session"
#define KUBE_ANNOTATION_META "kernelgate/meta"
#define KUBE_ANNOTATION_EPOCH "kernelgate/epoch"
#define KUBE_ANNOTATION_READY "kernelgate/ready"   // "true": its kernel is
#define KUBE_ANNOTATION_HOLDER "kernelgate/holder" // the process that made it or took it over
#define KUBE_NAME_MAX 63
#define KUBE_VERSION_MAX 63
#define KUBE_HOLDER_LEN PROVISIONER_REPLICA_ID_LEN
#define KUBE_HASH_LEN 32

// A pod, as of the latest list or event.
enum kube_phase {
    KUBE_PENDING, // or its container has not started yet
    KUBE_RUNNING, // its container runs, and `ip` is set
    KUBE_ENDED,   // it will not run any more
};

struct kube_pod {
    LIST_ENTRY(kube_pod) link;
    LIST_ENTRY(kube_pod) session_link; // if `session` is set
    char session[KUBE_HASH_LEN + 1];   // kube_session_hash() of a claimed one; or empty
    char owner[KUBE_HASH_LEN + 1];     // kube_owner_hash() of a claimed one; or empty
    char share[KUBE_HASH_LEN + 1];     // the same of the owner's budget_name()
    char holder[KUBE_HOLDER_LEN + 1];
    char uid[40];
    int64_t held_ms;     // since when that holder is known
    uint64_t held_epoch; // the latest with which this gateway has held it; 0: none
    char id[SANDBOX_ID_MAX + 1];
    enum kube_phase phase;
    bool deleting; // its deletion was requested
    bool stuck;    // pending, and will not start without a change
    bool claimed;
    bool ready;     // its kernel is, so another gateway may take it while it is not claimed
    bool ours;      // its holder is this process
    bool released;  // this process gives it up, whatever events from before say
    bool listed;    // in the list that is being read
    char why[160];  // why it is pending, or has ended
    uint64_t epoch; // link_hello.h
    char ip[INET6_ADDRSTRLEN];
};

#define KUBE_LOOK_MS 1000 // between two lists of Leases
#define KUBE_BUCKETS 1024 // 10,000 pods in a cache of one replica

struct kubernetes;

// The list of all pods of this installation, and the watch that follows it.
struct kube_monitor {
    struct loop_timer *timer; // the next step
    struct loop_timer *sweep;
    struct http_call *call; // the list or the watch; NULL: none is under way
    struct json_lines lines;
    char *version;     // of the list or of the latest event; NULL: a list is needed
    char *next;        // token of the list's next page, or NULL
    int64_t asked_ms;  // when the list began
    int64_t began_ms;  // when the watch began
    int n_failures;    // consecutive ones
    bool gone;         // the watch has reported that `version` is too old
    bool synced;       // a list is complete
    int64_t synced_ms; // when the first one was
    char *failure;     // why the last call failed; NULL: it did not
};

// Another gateway of this installation, by its Lease.
struct kube_replica {
    LIST_ENTRY(kube_replica) link;
    char id[KUBE_HOLDER_LEN + 1];
    char address[PROVISIONER_ADDRESS_MAX + 1];
    char renewed[48];  // its renewTime, which is only compared with itself: clocks differ
    int64_t silent_ms; // for how long it has not changed, while the API server answered
    bool listed;
};

// The one that keeps sandboxes ready, by its Lease in the same list.
struct kube_leader {
    bool leads; // this gateway does
    char id[KUBE_HOLDER_LEN + 1];
    char version[KUBE_VERSION_MAX + 1]; // of the Lease; empty: there is none
    struct http_call *resignation;      // its removal
    loop_fn on_lead;
    void *on_lead_arg;
};

// The gateways of this installation, by a list of their Leases every second.
struct kube_replicas {
    char *address; // of this one; NULL: it is the only one
    struct loop_timer *timer;
    struct http_call *call;
    struct http_call *farewell; // the removal of our own Lease
    LIST_HEAD(, kube_replica) others;
    size_t n_others;
    int64_t renewed_ms; // when our own was renewed; 0: it is not there
    int64_t asked_ms;   // when the list under way began
    int64_t known_ms;   // when the latest complete list began; 0: there is none
    char *failure;      // why the last call failed; NULL: it did not
    struct kube_leader leader;
    bool retired; // provisioner_retire() was called
    bool left;    // provisioner_leave() was called
    loop_fn on_lost;
    void *on_lost_arg;
};

// Trials of what a sandbox can reach.
struct kube_network {
    bool unenforced; // it may reach anything: there are no trials
    bool started;
    bool retired;
    bool closed; // the latest trial has reached nothing
    char *why;   // else: why that is not so; NULL: the first trial has not ended
    enum kube_network_stage {
        KUBE_NETWORK_BEGIN, // no trial is under way
        KUBE_NETWORK_NEIGHBOUR,
        KUBE_NETWORK_PROBER,
        KUBE_NETWORK_REMOVE,
    } stage;
    struct loop_timer *timer;
    struct http_call *call;
    loop_fn on_tried; // after each trial; or NULL
    void *on_tried_arg;
    int64_t until_ms;                   // when the pod must have started
    char neighbour[SANDBOX_ID_MAX + 1]; // their pods; or empty
    char prober[SANDBOX_ID_MAX + 1];
};

// Where the API server is, and what it knows this gateway by. Of a file and a text at most one is
// set; NULL: there is none.
struct kube_access {
    const char *source; // of the following, in words
    char *server;       // URL without a slash at its end
    char *ca_file;
    char *ca_pem;
    char *token_file; // read for each call
    char *token;
    char *certificate_file;
    char *certificate_pem;
    char *key_file;
    char *key_pem;
    char *namespace; // of the pods
};

struct kubernetes {
    struct provisioner base;
    struct http_client *http;
    struct kube_access access;
    char *pods_path; // /api/v1/namespaces/<namespace>/pods
    char *leases_path;
    char *image;
    char *agent_image;
    json_t *template; // NULL, or what the operator adds to each pod: {metadata, spec}
    char *installation;
    char holder[KUBE_HOLDER_LEN + 1]; // this process
    struct provisioner_limits limits;
    struct kube_monitor monitor;
    LIST_HEAD(, kube_pod) pods[KUBE_BUCKETS];
    LIST_HEAD(, kube_pod) sessions[KUBE_BUCKETS]; // the same by their session
    struct kube_replicas replicas;
    struct kube_network network;
    LIST_HEAD(, kube_search) searches;
    TAILQ_HEAD(, kube_mark) marks;
    size_t n_marking;         // of these, those that the server is being asked for
    struct kube_op *recovery; // waits for the first list
    bool recovered;           // that has happened once
};

// A pod that is being taken over by a recovery.
struct kube_adoption;
// A patch of a pod under way.
struct kube_mark;

struct kube_op {
    struct provisioner_op base;
    struct http_call *call;
    struct loop_timer *timer;
    void (*attempt)(struct kube_op *op); // when the timer fires
    int64_t until_ms;                    // the end of attempts
    int n_attempts;
    bool waiting;                       // for the pod to run
    json_t *lease;                      // claim: of the name, which another session may have
    bool named;                         // claim: the name of the session is ours, or it needs none
    char version[KUBE_VERSION_MAX + 1]; // destroy: of the pod, whose holder may do that
    TAILQ_HEAD(, kube_adoption) adoptions;
    size_t n_adopting; // whose attempts have begun
};

static inline struct kubernetes *
kube_of_provisioner(const struct provisioner *provisioner)
{
    return (struct kubernetes *)(uintptr_t)provisioner;
}

static inline struct kubernetes *
kube_of(const struct provisioner_op *op)
{
    return (struct kubernetes *)op->provisioner;
}

// ---- The engine (kubernetes.c) --------------------------------------------------------------

// Sets everything up without asking the API server yet.
struct kubernetes *kube_open(struct loop *loop, const struct provisioner_settings *settings,
                             struct kg_error *err);
void kube_close(struct kubernetes *kube);
static inline void
kube_auto_(struct kubernetes **kube)
{
    kube_close(*kube);
}
#define KUBE_AUTO __attribute__((cleanup(kube_auto_))) struct kubernetes *

// ---- Access (kubernetes_access.c) -----------------------------------------------------------

// Finds the API server and the credentials: `settings`, else those of the pod's service account.
KG_MUST_CHECK int kube_find_access(struct kube_access *access,
                                   const struct provisioner_kubernetes *settings,
                                   struct kg_error *err);
// The header with the token, to be freed; NULL: there is none.
KG_MUST_CHECK int kube_authorization(const struct kube_access *access, char **ret,
                                     struct kg_error *err);
// What was found, without secrets: server, namespace, kind of credential, source. To be freed.
char *kube_access_describe(const struct kube_access *access);
// Frees what was found, also where that failed.
void kube_access_fini(struct kube_access *access);
// Reads a file of kubectl's (kubernetes_config.c).
KG_MUST_CHECK int kube_take_config(struct kube_access *access, const char *path,
                                   struct kg_error *err);

// ---- What the operator adds to pods (kubernetes_template.c) ---------------------------------

// Reads the file; NULL: there is none. `ret` is NULL, or an object to be freed.
KG_MUST_CHECK int kube_template_read(const char *path, json_t **ret, struct kg_error *err);
// Adds it to a pod, whose own members win.
void kube_template_apply(const json_t *template, json_t *pod);

// ---- Calls (kubernetes_api.c) ---------------------------------------------------------------

// Calls the API server; `path` begins with a slash, `body` (stolen) may be NULL. The body of a
// PATCH is a JSON patch.
KG_MUST_CHECK struct http_call *kube_call(struct kubernetes *kube, const char *method,
                                          const char *path, json_t *body, http_call_fn on_done,
                                          void *arg, struct kg_error *err);
// Requests a page of objects, which may take longer.
KG_MUST_CHECK struct http_call *kube_list(struct kubernetes *kube, const char *path,
                                          http_call_fn on_done, void *arg, struct kg_error *err);
// Requests the events of `path`, which the server ends after `seconds`.
KG_MUST_CHECK struct http_call *kube_watch(struct kubernetes *kube, const char *path, int seconds,
                                           http_call_data_fn on_data, http_call_fn on_done,
                                           void *arg, struct kg_error *err);
// Returns 0 for a status below 300, else -1 with the server's reason in `err`.
int kube_check(const struct kubernetes *kube, const struct http_call_result *result,
               struct kg_error *err);
// Whether the answer says that an object of that name exists already.
bool kube_already_exists(const struct http_call_result *result);
// Whether the same call may succeed later: after no answer, too many requests, a conflict, a server
// error, or a denial.
bool kube_is_transient(const struct http_call_result *result);
// How long to wait before the next attempt: what the server asks for, else longer each time.
int64_t kube_pause_ms(const struct http_call_result *result, int n_attempts);
// The options of a deletion of what has this version.
json_t *kube_precondition(const char *version);
// The path of a sandbox's pod. To be freed.
char *kube_pod_path(const struct kubernetes *kube, const char *id);

// ---- Patches (kubernetes_patch.c) ------------------------------------------------------------

// Paths of our own labels and annotations, and of the version of which a patch is made.
#define KUBE_PATH_LABEL(name) "/metadata/labels/kernelgate~1" name
#define KUBE_PATH_ANNOTATION(name) "/metadata/annotations/kernelgate~1" name
#define KUBE_PATH_VERSION "/metadata/resourceVersion"

// Each adds one operation to `patch`, an array. A test that fails makes the server refuse all of
// the patch (422). `add` replaces a member that exists; `replace` fails where there is none.
void kube_patch_test(json_t *patch, const char *path, const char *value);
void kube_patch_add(json_t *patch, const char *path, const char *value);
void kube_patch_add_json(json_t *patch, const char *path, json_t *value); // stolen
void kube_patch_replace(json_t *patch, const char *path, const char *value);

// ---- Pods (kubernetes_pod.c) ----------------------------------------------------------------

// Whether `name` can be the name of a namespace and the value of a label.
bool kube_name_valid(const char *name);
// The pod of a sandbox; `args` (stolen) are the agent's, from its path on.
json_t *kube_pod_spec(const struct kubernetes *kube, const char *id, json_t *args);
// A pod like a sandbox's that tries something and ends: what it prints is its termination message,
// and NODE_ADDRESS is in its environment.
json_t *kube_trial_pod(const struct kubernetes *kube, const char *id, json_t *args);
// Reads a pod of this installation; false if it is not one.
bool kube_pod_take(const struct kubernetes *kube, const json_t *pod, struct kube_pod *ret);
// The record of a pod's session, or empty. Borrowed.
const char *kube_pod_meta(const json_t *pod);
// A patch that makes this gateway the pod's holder, if it still has that epoch. The pod is no
// longer offered to other replicas.
json_t *kube_takeover_patch(const struct kubernetes *kube, uint64_t epoch);
// The cache.
struct kube_pod *kube_pod_find(const struct kubernetes *kube, const char *id);
// Puts a copy into the cache, unless the cached pod has a higher epoch. Returns the pod in the
// cache.
struct kube_pod *kube_pod_keep(struct kubernetes *kube, const struct kube_pod *pod);
void kube_pod_drop(struct kube_pod *pod);
// Puts the answer to a question for a pod into the cache.
void kube_pod_learn(struct kubernetes *kube, const struct http_call_result *result);
// From now on it has no holder here, until another gateway takes it over.
void kube_pod_release(struct kube_pod *pod);
void kube_pods_fini(struct kubernetes *kube);

// The pod of a session, or NULL.
struct kube_pod *kube_pod_of_session(const struct kubernetes *kube, const char *hash);

// ---- Replicas (kubernetes_replicas.c) -------------------------------------------------------

// Whether there may be other gateways of this installation.
static inline bool
kube_has_replicas(const struct kubernetes *kube)
{
    return kube->replicas.address != NULL;
}
KG_MUST_CHECK int kube_replicas_init(struct kubernetes *kube, const char *address,
                                     struct kg_error *err);
// Makes our own Lease, renews it, and follows those of the others.
void kube_replicas_start(struct kubernetes *kube);
// It takes nothing over any more, and does not lead.
void kube_replicas_retire(struct kubernetes *kube);
void kube_replicas_fini(struct kubernetes *kube);
// Whether the others are known as they were after the first list of pods.
bool kube_replicas_known(const struct kubernetes *kube);
// Asks for the others now.
void kube_replicas_look(struct kubernetes *kube);
// NULL: there is none of that id that lives.
const struct kube_replica *kube_replica_find(const struct kubernetes *kube, const char *id);
// Whether the pod's holder is another gateway that has ended, or has given it up.
bool kube_pod_is_lost(const struct kubernetes *kube, const struct kube_pod *pod);
// Whether this gateway should take such a pod over: any does that with a session, the leader with
// a pod that is free.
bool kube_pod_is_due(const struct kubernetes *kube, const struct kube_pod *pod);

// ---- The leader (kubernetes_leader.c) -------------------------------------------------------

// Before a list of Leases, and for each of them: false, it is not the leader's.
void kube_leader_clear(struct kubernetes *kube);
bool kube_leader_take(struct kubernetes *kube, const json_t *lease);
// After a list. Where the leader is none of the others, which live, begins a call to become it, and
// returns true.
bool kube_leader_step(struct kubernetes *kube, bool other_leads);
// Lets another replica become it.
void kube_leader_resign(struct kubernetes *kube);
void kube_leader_fini(struct kubernetes *kube);

// ---- What others are told of a pod (kubernetes_marks.c) -------------------------------------

enum kube_mark_kind {
    KUBE_MARK_RELEASED, // another replica takes the pod over at once
    KUBE_MARK_READY,    // another replica may take it for a session
};
// A pod of another holder is left alone.
void kube_mark(struct kubernetes *kube, const char *id, enum kube_mark_kind kind);
// Whether the end of this gateway should wait for marks; not for those that have failed often.
bool kube_marks_are_busy(const struct kubernetes *kube);
void kube_marks_fini(struct kubernetes *kube);

// ---- Free pods of other gateways (kubernetes_free.c) ----------------------------------------

// Takes the operation's pod over, as a create whose pod is there already.
void kube_take_start(struct kube_op *op);

// ---- Names of sessions (kubernetes_names.c) -------------------------------------------------

// Of an owner's session: KUBE_HASH_LEN hexadecimal digits.
void kube_session_hash(const char *owner, const char *session_id, char ret[KUBE_HASH_LEN + 1]);
// Of an owner.
void kube_owner_hash(const char *owner, char ret[KUBE_HASH_LEN + 1]);
// Of a session by its record; false: it is one-shot, and nobody else asks for it.
bool kube_session_hash_of(const json_t *meta, char ret[KUBE_HASH_LEN + 1]);
// The path of a name's Lease. To be freed.
char *kube_name_path(const struct kubernetes *kube, const char *hash);
// The Lease of a name whose session is in that pod.
json_t *kube_name_lease(const struct kubernetes *kube, const char *hash, const char *sandbox_id,
                        const char *pod_uid);
// A patch that gives a name to this gateway; NULL: its session is alive elsewhere, or `lease` is
// not one.
json_t *kube_name_takeover(const struct kubernetes *kube, const json_t *lease,
                           const char *sandbox_id, const char *pod_uid);
// The sandbox that must be read before it is known whether its session has the name, since the
// cache may be older than the Lease; NULL: none. Borrowed from `lease`.
const char *kube_name_unverified(const struct kubernetes *kube, const json_t *lease);
void kube_searches_fini(struct kubernetes *kube);

// ---- For other replicas, as provisioner_replicas.h has them ---------------------------------

void kube_on_lost(struct provisioner *provisioner, loop_fn fn, void *arg);
bool kube_leads(const struct provisioner *provisioner);
void kube_on_lead(struct provisioner *provisioner, loop_fn fn, void *arg);
size_t kube_claimed_elsewhere(const struct provisioner *provisioner, const char *whose);
bool kube_holds_for(const struct provisioner *provisioner, const char *replica_id,
                    const char *owner);
void kube_offer(struct provisioner *provisioner, const char *id);
const char *kube_free_sandbox(const struct provisioner *provisioner);
void kube_hand_over(struct provisioner *provisioner, const char *id);
void kube_overtaken(struct provisioner *provisioner, const char *id);
void kube_leave(struct provisioner *provisioner);
struct provisioner_place kube_replica_place(const struct provisioner *provisioner, const char *id,
                                            size_t len);
bool kube_replica_is_silent(const struct provisioner *provisioner, const char *id);
size_t kube_other_replicas(const struct provisioner *provisioner,
                           struct provisioner_place ret[PROVISIONER_REPLICAS_MAX]);
struct provisioner_place kube_sandbox_place(const struct provisioner *provisioner, const char *id);
bool kube_session_place(const struct provisioner *provisioner, const char *owner,
                        const char *session_id, struct provisioner_place *ret);
struct provisioner_search *kube_search_start(struct provisioner *provisioner, const char *owner,
                                             const char *session_id, provisioner_place_fn fn,
                                             void *arg, struct kg_error *err);
void kube_search_cancel(struct provisioner_search *base);

// ---- Attempts (kubernetes_attempts.c) -------------------------------------------------------

// The next attempts are calls of `attempt`, for 15 seconds from now.
void kube_op_begin_attempts(struct kube_op *op, void (*attempt)(struct kube_op *op));
// Whether there will be another attempt after this answer.
bool kube_op_try_again(struct kube_op *op, const struct http_call_result *result);

// ---- Claims (kubernetes_claim.c) ------------------------------------------------------------

void kube_claim_start(struct kube_op *op);

// ---- The network (kubernetes_network.c) -----------------------------------------------------

// `unenforced`: as in the settings.
void kube_network_init(struct kubernetes *kube, bool unenforced);
// Begins the first trial.
void kube_network_start(struct kubernetes *kube);
// Ends the trial under way; kube_network_is_busy() until its pods are removed.
void kube_network_retire(struct kubernetes *kube);
bool kube_network_is_busy(const struct kubernetes *kube);
void kube_network_fini(struct kubernetes *kube);
// Whether a pod belongs to the trial under way.
bool kube_network_uses(const struct kubernetes *kube, const char *id);
// Fails with the reason unless sandboxes reach nothing, or may reach anything.
KG_MUST_CHECK int kube_network_check(const struct kubernetes *kube, struct kg_error *err);

// ---- Operations (kubernetes_op.c, kubernetes_recovery.c) ------------------------------------

void kube_op_start(struct provisioner_op *op);
// Ends the creation when the pod runs.
void kube_op_wait_for_pod(struct kube_op *op);
void kube_op_fini(struct provisioner_op *op);
void kube_op_cancelled(struct provisioner_op *op);
bool kube_op_explain(const struct provisioner_op *op, struct kg_error *err);
// Gives the operation, which waits for its pod to run, the pod's latest state; NULL: it is gone.
void kube_op_on_pod(struct kube_op *op, const struct kube_pod *pod);
// Continues the recovery: the first list is complete, or has failed.
void kube_recover_listed(struct kube_op *op, const struct kg_error *err);
void kube_adoptions_fini(struct kube_op *op);

// ---- Watching pods (kubernetes_monitor.c) ---------------------------------------------------

// Starts to follow the pods, and to remove those without a sandbox. A second call does nothing.
void kube_monitor_start(struct kubernetes *kube);
void kube_monitor_fini(struct kubernetes *kube);

// ---- The trial (kubernetes_trial.c) ---------------------------------------------------------

// Asks for rights, and whether a pod would be admitted; blocks.
KG_MUST_CHECK int kube_trial(struct kubernetes *kube, struct kg_error *err);
bool kube_doctor(struct kubernetes *kube, provisioner_finding_fn fn, void *arg);
