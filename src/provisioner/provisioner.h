// SPDX-License-Identifier: Apache-2.0
// Creates, finds and destroys sandboxes on one engine. All calls and callbacks are on the loop's
// thread.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

// The port of the way out inside every sandbox that has one, on loopback.
#define SANDBOX_EGRESS_PORT "3128"
// The abstract Unix socket on which the agent hears requests of code (agent/tenant.h).
#define SANDBOX_TENANT_SOCKET "kernelgate"

// Limits of one sandbox; the same for every engine.
struct provisioner_limits {
    int64_t memory_mb; // of the processes; the engine's limit is memory + disk + tmp, without swap
    int64_t disk_mb;   // size of /mnt/data
    int64_t tmp_mb;    // size of /tmp
    double cpus;
    int pids;
};

// The environment of a kernelspec on the host. Sandboxes see it at /opt/kernelgate/<name>. An
// engine with images uses the environment that the image has there instead.
struct provisioner_kernel_env {
    const char *name;
    const char *host_dir;
};

// The API server of Kubernetes and the client's credentials. NULL members come from the file of
// kubectl's, or from the pod's service account.
struct provisioner_kubernetes {
    const char *kubeconfig;       // NULL: none; else the next five must be NULL
    const char *server;           // https://host:port
    const char *ca_file;          // PEM; NULL without a service account: the system's authorities
    const char *token_file;       // read again when it changes
    const char *certificate_file; // of a client, PEM; NULL: none
    const char *key_file;
    const char *namespace;    // of the sandboxes' pods
    const char *agent_image;  // an image with `cp` and the agent, such as the gateway's own
    const char *installation; // labels the pods; NULL: gateway_id
    const char
        *pod_template; // YAML file of what the pods have besides (kubernetes_template.c); or NULL
    // host:port at which other gateways of this installation reach this one
    // (provisioner_replicas.h); NULL: it is the only one.
    const char *replica_address;
    bool unenforced_network; // sandboxes may reach what the cluster lets them reach
};

// An engine is a folder beside this file, and one vtable (provisioner_engine.h). The last one is
// `oci` in the process of a helper (src/helper).
struct provisioner_engine;
extern const struct provisioner_engine provisioner_oci, provisioner_docker, provisioner_kubernetes,
    provisioner_helped;
struct helper;

struct provisioner_settings {
    // Those to choose from, ended by NULL, in the order in which "auto" tries them: it tries those
    // that run sandboxes on this machine.
    const struct provisioner_engine *const *engines;
    const char *engine;      // the name of one, or "auto"
    const char *state_dir;   // exists, is ours alone; the engine oci lets other users traverse it
    const char *root_dir;    // of which state_dir is a part, with a helper; NULL: it is state_dir
    const char *gateway_id;  // labels everything that this gateway creates: 8 characters of a-z2-7
    const char *image;       // "host"; else a rootfs folder (oci) or an image's name (docker)
    const char *oci_runtime; // "auto", "runc", "crun", or a path
    const char *docker_host; // unix:///path or tcp://host:port
    struct provisioner_kubernetes kubernetes;
    const char *agent_path; // the static agent on the host, which every user can execute
    struct provisioner_limits limits;
    const struct provisioner_kernel_env *kernel_envs;
    size_t n_kernel_envs;
    int64_t max_sessions; // for advice on the machine's own limits; 0: provisioner_sessions_for()
    const char *packages_dir; // at /opt/kernelgate/packages, read-only; NULL: none
    // An Ed25519 public key, 64 hexadecimal digits: agents listen on TCP for gateways that have its
    // secret key, and sandboxes share no folder with this machine, not even a door. NULL: agents
    // dial `door/`. The engine kubernetes needs it; oci supports it for tests.
    const char *gateway_key;
    struct helper *helper; // of provisioner_helped, borrowed; NULL for the others
};

struct provisioner;
// Picks the engine by a trial of each (blocks for about 0.1 s). If it fails, the message names what
// is missing.
KG_MUST_CHECK struct provisioner *provisioner_new(struct loop *loop,
                                                  const struct provisioner_settings *settings,
                                                  struct kg_error *err);
// The sandboxes keep running. Every operation must have ended or been cancelled.
void provisioner_free(struct provisioner *provisioner);
KG_DEFINE_AUTO(provisioner, provisioner_free)
const char *provisioner_name(const struct provisioner *provisioner);
// Fails if new sandboxes cannot be used, or would not be what is promised: the engine has tried it.
KG_MUST_CHECK int provisioner_check(const struct provisioner *provisioner, struct kg_error *err);
// This gateway ends soon: it takes nothing over any more, nor tries anything.
void provisioner_retire(struct provisioner *provisioner);
// Whether no operation is under way, not even a cancelled one that ends in the background.
bool provisioner_is_idle(const struct provisioner *provisioner);

// What an engine that works offers.
struct provisioner_traits {
    const char *engine;   // its name; NULL: no engine works
    bool can_enter;       // as provisioner_can_enter()
    int64_t memory_bound; // bytes that one control group grants all sandboxes together; 0: there is
                          // no such group
};
struct provisioner_traits provisioner_traits(const struct provisioner *provisioner);

// How many sessions there may be at a time, where the setting leaves that open: the least if
// nothing bounds the memory of all sandboxes together, else one for each 512 MiB of it, or for each
// `memory_mb` (of a sandbox's processes) if that is more. `max_files` is how many files the gateway
// may have open: a session takes 25, and some more for each further kernel and connection.
enum {
    PROVISIONER_SESSIONS_LEAST = 10,
    PROVISIONER_SESSIONS_MOST = 512,
    PROVISIONER_SESSION_FILES = 64,
};
int64_t provisioner_sessions_for(int64_t memory_bound, int64_t memory_mb, int64_t max_files);
// The gateway's own hard limit, to which it raises the other one.
int64_t provisioner_max_files(void);

// Raises this process's own hard limits as far as sandboxes need them. Call it where the process is
// about to give up the right to.
void provisioner_raise_limits(void);

// Whether commands of this OCI runtime (the setting's value) reach their sandboxes by abstract Unix
// sockets, as those of gVisor do: these belong to a network namespace, so the processes that run
// the commands must be in the same one.
bool provisioner_runtime_needs_network(const char *oci_runtime);

// One finding of `kernelgate doctor`.
typedef void (*provisioner_finding_fn)(const char *what, bool ok, const char *detail, void *arg);
// Tries `settings->engine`, and reports what this machine supports and lacks; blocks. Returns the
// traits of the engine that a gateway would have.
struct provisioner_traits provisioner_doctor(const struct provisioner_settings *settings,
                                             provisioner_finding_fn fn, void *arg);

// ---- Sandboxes ------------------------------------------------------------------------------

// A sandbox is named by an id of 1 to 16 characters of a-z2-7. Its folder on the host,
// `<state>/sb/<id>` (mode 0700), holds `door/`, which the sandbox sees read-only at /run/kg,
// `meta.json` once it is claimed, and files of the engine.
struct provisioner_sandbox_spec {
    const char *id;
    int agent_idle_timeout_s;                // the agent exits if it has no link for so long
    bool network;                            // its agent offers a proxy to the gateway's way out
    const struct provisioner_zygote *zygote; // it is a zygote's container; NULL: a sandbox
};

// A container with the root and the mounts of a sandbox that runs this program instead of the
// agent. The program is root, is in the machine's PID namespace and has no system call filter,
// because its children enter sandboxes, so it may run only trusted code. `door/` is mounted as in a
// sandbox. provisioner_recover() removes it.
struct provisioner_zygote {
    const json_t *argv; // of strings
    const json_t *env;  // an object of strings, in addition to the agent's PATH, HOME and so on
};

// Whether processes can enter the engine's sandboxes, by provisioner_open_entry().
bool provisioner_can_enter(const struct provisioner *provisioner);

enum { PROVISIONER_MAX_GROUPS = 24 };

// The descriptors that a zygote's child needs to enter a sandbox.
struct provisioner_entry {
    int pidfd;                          // of the sandbox's init
    int groups[PROVISIONER_MAX_GROUPS]; // its control groups' cgroup.procs, open for writing
    size_t n_groups;
    bool user_namespace; // the sandbox has its own
};
// KG_PROVISIONER_UNAVAILABLE if the sandbox has ended, or cannot be entered.
KG_MUST_CHECK int provisioner_open_entry(const struct provisioner *provisioner, const char *id,
                                         struct provisioner_entry *ret, struct kg_error *err);
void provisioner_entry_fini(struct provisioner_entry *entry);
// Appends the system call filter of a sandbox's init, as classic BPF instructions (struct
// sock_filter).
KG_MUST_CHECK int provisioner_filter(const struct provisioner *provisioner, struct buf *ret,
                                     struct kg_error *err);

// Whether sandboxes see folders of this machine: `packages_dir`. If not, files reach them through
// their agents only, and the image has the kernels' environments.
bool provisioner_shares_folders(const struct provisioner *provisioner);
// Whether the gateway dials the agents, by provisioner_dial(). If not, they dial `door/`.
bool provisioner_dials(const struct provisioner *provisioner);
// Begins a TCP connection to a sandbox's agent. Returns a non-blocking socket that the caller owns
// and that may still be connecting, or -1 if the sandbox cannot be reached (yet). `ret_epoch`
// counts the gateways that have held the sandbox (link_hello.h).
KG_MUST_CHECK int provisioner_dial(struct provisioner *provisioner, const char *id,
                                   uint64_t *ret_epoch, struct kg_error *err);

// The path of a sandbox's `door/`: `<state>/sb/<id>/door`. To be freed.
char *provisioner_sandbox_dir(const struct provisioner *provisioner, const char *id);

// Whether the engine itself listens where agents dial, since only the helper may write to `door/`.
// If not, and agents dial, the caller listens at `door/door.sock`.
bool provisioner_opens_doors(const struct provisioner *provisioner);
// Gets the listening socket of a sandbox that is being created or was found: once, not before this
// returns, and again if the engine had to make another one. The callback owns it.
typedef void (*provisioner_door_fn)(int fd, void *arg);
void provisioner_open_door(struct provisioner *provisioner, const char *id, provisioner_door_fn fn,
                           void *arg);
// The callback is not called any more. An unknown id is fine.
void provisioner_close_door(struct provisioner *provisioner, const char *id);

// An operation under way. Its callback fires exactly once, and the handle is then invalid.
struct provisioner_op;
typedef void (*provisioner_done_fn)(const struct kg_error *err, void *arg); // err NULL: done
// Fires once when the sandbox's container has ended, unless provisioner_destroy() ended it.
typedef void (*provisioner_exit_fn)(const char *id, void *arg);

// Creates the sandbox's folder and `door/` before it returns, then its container, and starts the
// agent as its PID 1. If the operation fails, nothing of the sandbox is left.
KG_MUST_CHECK struct provisioner_op *provisioner_create(struct provisioner *provisioner,
                                                        const struct provisioner_sandbox_spec *spec,
                                                        provisioner_done_fn on_done,
                                                        provisioner_exit_fn on_exit, void *arg,
                                                        struct kg_error *err);
// Cancels the operation: its callbacks will not fire. A sandbox that was being created is destroyed
// in the background; a provisioner_destroy() of its id ends after that. NULL is fine.
void provisioner_op_cancel(struct provisioner_op *op);

// If the operation waits for something that may take long (an image that is being pulled), returns
// true and an error that names it, for callers that do not wait.
bool provisioner_op_explain(const struct provisioner_op *op, struct kg_error *err);

// Kills the container and removes everything that belongs to it. Idempotent; an unknown id is fine.
KG_MUST_CHECK struct provisioner_op *provisioner_destroy(struct provisioner *provisioner,
                                                         const char *id,
                                                         provisioner_done_fn on_done, void *arg,
                                                         struct kg_error *err);
// Its provisioner_exit_fn will not be called, although the container keeps running. An unknown id
// is fine.
void provisioner_forget(struct provisioner *provisioner, const char *id);
// Records the sandbox's owner: `meta` is the session's own JSON (borrowed). The record outlives the
// gateway, but need not outlive the machine, since the container does not either. If an engine
// serves several gateways, one of them gets the sandbox, and the others get KG_NOT_FOUND. With
// KG_SESSION_BUSY another one has a session of this name, and the sandbox is unclaimed as before.
// `memory_mb`: another limit of the memory than that of the settings; 0: none. KG_INVALID: the
// engine cannot change it.
KG_MUST_CHECK struct provisioner_op *
provisioner_claim(struct provisioner *provisioner, const char *id, const json_t *meta,
                  int64_t memory_mb, provisioner_done_fn on_done, void *arg, struct kg_error *err);

// Replaces the record of a sandbox that this gateway has claimed, after the operations on it that
// were asked for before. KG_NOT_FOUND: another gateway has it now.
KG_MUST_CHECK struct provisioner_op *provisioner_record(struct provisioner *provisioner,
                                                        const char *id, const json_t *meta,
                                                        provisioner_done_fn on_done, void *arg,
                                                        struct kg_error *err);

// Changes the limit of a sandbox's memory at once, to `memory_mb` for its processes. KG_INVALID:
// the engine cannot.
KG_MUST_CHECK int provisioner_limit(const struct provisioner *provisioner, const char *id,
                                    int64_t memory_mb, struct kg_error *err);

// Call it once, before the first provisioner_create(), and with several gateways again for what
// one of them has left (provisioner_on_lost()). Reports every living sandbox of this gateway
// id (`meta`, borrowed, is NULL for an unclaimed one) and watches it with `on_exit`. Removes what
// is left of dead and half-made ones, and sandboxes whose `meta` cannot be read.
typedef void (*provisioner_found_fn)(const char *id, const json_t *meta, void *arg);
KG_MUST_CHECK struct provisioner_op *provisioner_recover(struct provisioner *provisioner,
                                                         provisioner_found_fn on_found,
                                                         provisioner_done_fn on_done,
                                                         provisioner_exit_fn on_exit, void *arg,
                                                         struct kg_error *err);
