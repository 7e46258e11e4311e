// SPDX-License-Identifier: Apache-2.0
// What makes, lists and destroys sandboxes on one engine.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

// Limits of one sandbox; the same for every engine.
struct provisioner_limits {
    int64_t memory_mb; // of the processes; the engine's limit is memory + disk + tmp, without swap
    int64_t disk_mb;   // size of /mnt/data
    int64_t tmp_mb;    // size of /tmp
    double cpus;
    int pids;
};

// Where the environment of a kernelspec lies on the host; it appears at /opt/kernelgate/<name>.
struct provisioner_kernel_env {
    const char *name;
    const char *host_dir;
};

struct provisioner_settings {
    const char *engine;      // "auto", "oci", "docker"
    const char *state_dir;   // exists; ours alone, but others get leave to pass through it (711)
    const char *gateway_id;  // labels all that this gateway makes: 8 characters of a-z2-7
    const char *image;       // "host"; else a rootfs folder (oci) or an image's name (docker)
    const char *oci_runtime; // "auto", "runc", "crun", or a path
    const char *docker_host; // unix:///path or tcp://host:port
    const char *agent_path;  // the static agent on the host, which everybody may run
    struct provisioner_limits limits;
    const struct provisioner_kernel_env *kernel_envs;
    size_t n_kernel_envs;
    int64_t max_sessions;     // for advice on the machine's own limits
    const char *packages_dir; // appears at /opt/kernelgate/packages, read-only; NULL: nothing does
    // Agents listen on TCP for gateways that hold the other half of this Ed25519 public key (64
    // hexadecimal digits), and no door is mounted. NULL: agents dial `door/`. Only the engine oci
    // can do it, for tests.
    const char *gateway_key;
};

struct provisioner;
// Picks the engine, by a real trial (it blocks for about 0.1 s); fails with a message that says
// what is missing.
KG_MUST_CHECK struct provisioner *provisioner_new(struct loop *loop,
                                                  const struct provisioner_settings *settings,
                                                  struct kg_error *err);
// Sandboxes stay. Operations under way must have ended or been cancelled.
void provisioner_free(struct provisioner *provisioner);
KG_DEFINE_AUTO(provisioner, provisioner_free)
const char *provisioner_name(const struct provisioner *provisioner);
// No operation is under way, nor one that was cancelled and goes on in the background.
bool provisioner_is_idle(const struct provisioner *provisioner);

// One finding of `kernelgate doctor`.
typedef void (*provisioner_finding_fn)(const char *what, bool ok, const char *detail, void *arg);
// Says what this machine offers and lacks for `settings->engine`, trying it for real; blocks.
// Returns true where a sandbox would run.
bool provisioner_doctor(const struct provisioner_settings *settings, provisioner_finding_fn fn,
                        void *arg);

// ---- Sandboxes ------------------------------------------------------------------------------

// A sandbox is named by an id of 1 to 16 characters of a-z2-7. Its folder on the host,
// `<state>/sb/<id>` (mode 0700), holds `door/`, which the sandbox sees read-only at /run/kg,
// `meta.json` once it is claimed, and what the engine keeps there.
struct provisioner_sandbox_spec {
    const char *id;
    int agent_idle_timeout_s; // the agent ends itself when no gateway was linked for so long
    bool network;             // its agent offers the way out; there is no network in any case
};

// Whether the gateway dials the agents, by provisioner_dial(). Else they dial `door/`.
bool provisioner_dials(const struct provisioner *provisioner);
// Begins a TCP connection to a sandbox's agent: a non-blocking socket, the caller's, which may
// still be connecting. `ret_epoch` counts the gateways that have held the sandbox: link_hello.h. -1
// where the sandbox cannot be reached, or not yet.
KG_MUST_CHECK int provisioner_dial(struct provisioner *provisioner, const char *id,
                                   uint64_t *ret_epoch, struct kg_error *err);

// Where `door/` of a sandbox is: `<state>/sb/<id>/door`. To be freed.
char *provisioner_sandbox_dir(const struct provisioner *provisioner, const char *id);

// An operation under way. Its callback fires exactly once; then the handle is gone.
struct provisioner_op;
typedef void (*provisioner_done_fn)(const struct kg_error *err, void *arg); // err NULL: done
// Fires once, when the sandbox's container has ended by whatever cause but provisioner_destroy().
typedef void (*provisioner_exit_fn)(const char *id, void *arg);

// Makes the sandbox's folder and `door/` (synchronously, before it returns), then its container,
// and starts the agent as its PID 1. When `on_done` says that it failed, nothing is left.
KG_MUST_CHECK struct provisioner_op *provisioner_create(struct provisioner *provisioner,
                                                        const struct provisioner_sandbox_spec *spec,
                                                        provisioner_done_fn on_done,
                                                        provisioner_exit_fn on_exit, void *arg,
                                                        struct kg_error *err);
// Stops waiting for the operation: its callbacks will not fire. A sandbox that was being made is
// destroyed in the background; a provisioner_destroy() of its id is done after that.
void provisioner_op_cancel(struct provisioner_op *op);

// What an operation waits for that may take long, as the error for those who will not wait: an
// image that is being pulled. False: nothing of the kind.
bool provisioner_op_explain(const struct provisioner_op *op, struct kg_error *err);

// Kills the container and removes all that belongs to it. Idempotent; an unknown id is done at
// once.
KG_MUST_CHECK struct provisioner_op *provisioner_destroy(struct provisioner *provisioner,
                                                         const char *id,
                                                         provisioner_done_fn on_done, void *arg,
                                                         struct kg_error *err);
// Ends the caller's interest in a sandbox whose container lives on: its provisioner_exit_fn will
// not be called. An unknown id is fine.
void provisioner_forget(struct provisioner *provisioner, const char *id);
// Records whose the sandbox is now: `meta` is the session's own JSON (borrowed). The record
// outlives the gateway. It need not outlive the machine, as the container does not either. Where an
// engine serves several gateways, one of them gets the sandbox, and KG_NOT_FOUND is the error of
// the others.
KG_MUST_CHECK struct provisioner_op *provisioner_claim(struct provisioner *provisioner,
                                                       const char *id, const json_t *meta,
                                                       provisioner_done_fn on_done, void *arg,
                                                       struct kg_error *err);

// After a start, and before the first provisioner_create(): tells of every sandbox of this gateway
// id that lives (`meta`, borrowed, is NULL for an unclaimed one), and watches it with `on_exit`;
// what is left of dead or half-made ones, and of one whose `meta` cannot be read, is removed.
typedef void (*provisioner_found_fn)(const char *id, const json_t *meta, void *arg);
KG_MUST_CHECK struct provisioner_op *provisioner_recover(struct provisioner *provisioner,
                                                         provisioner_found_fn on_found,
                                                         provisioner_done_fn on_done,
                                                         provisioner_exit_fn on_exit, void *arg,
                                                         struct kg_error *err);
