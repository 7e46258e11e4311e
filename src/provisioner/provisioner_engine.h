// SPDX-License-Identifier: Apache-2.0
// The interface of an engine, and what engines share: operations, watches, the sandbox's folder.
#pragma once

#include <sys/queue.h>

#include "provisioner.h"
#include "provisioner_replicas.h"

#define SANDBOX_ID_MAX 16

// The inside of a sandbox, the same for every engine.
#define SANDBOX_UID 1000 // also the gid
#define SANDBOX_HOME "/tmp"
#define SANDBOX_DATA "/mnt/data"
#define SANDBOX_HOMES "/home"
#define SANDBOX_USER_HOME SANDBOX_HOMES "/user" // SANDBOX_DATA again: a second mount, or a link
#define SANDBOX_AGENT "/run/kg-agent"
#define SANDBOX_DOOR "/run/kg"
#define SANDBOX_AGENT_PORT 16011 // of an agent that listens
#define SANDBOX_KERNELS "/opt/kernelgate"
#define SANDBOX_PATH "/usr/local/bin:/usr/bin:/bin"
#define SANDBOX_SHM_MB 64
#define SANDBOX_NOFILE 4096
#define SANDBOX_CPU_PERIOD_US 100000
#define SANDBOX_OOM_SCORE 500 // the OOM killer kills a sandbox before the gateway

#define MIB (INT64_C(1024) * 1024)

// What provisioner_replicas.h declares, of an engine with which several gateways can share an
// installation.
struct provisioner_replica_engine {
    const char *(*id)(const struct provisioner *provisioner);
    void (*on_lost)(struct provisioner *provisioner, loop_fn fn, void *arg);
    bool (*leads)(const struct provisioner *provisioner);
    void (*on_lead)(struct provisioner *provisioner, loop_fn fn, void *arg);
    size_t (*claimed_elsewhere)(const struct provisioner *provisioner, const char *whose);
    bool (*holds_for)(const struct provisioner *provisioner, const char *replica_id,
                      const char *owner);
    void (*offer)(struct provisioner *provisioner, const char *id);
    const char *(*free_sandbox)(const struct provisioner *provisioner);
    void (*hand_over)(struct provisioner *provisioner, const char *id);
    void (*overtaken)(struct provisioner *provisioner, const char *id);
    void (*leave)(struct provisioner *provisioner);
    struct provisioner_place (*place)(const struct provisioner *provisioner, const char *id,
                                      size_t len);
    bool (*is_silent)(const struct provisioner *provisioner, const char *id);
    size_t (*others)(const struct provisioner *provisioner,
                     struct provisioner_place ret[PROVISIONER_REPLICAS_MAX]);
    bool (*session_place)(const struct provisioner *provisioner, const char *owner,
                          const char *session_id, struct provisioner_place *ret);
    struct provisioner_place (*sandbox_place)(const struct provisioner *provisioner,
                                              const char *id);
    struct provisioner_search *(*search_start)(struct provisioner *provisioner, const char *owner,
                                               const char *session_id, provisioner_place_fn fn,
                                               void *arg, struct kg_error *err);
    void (*search_cancel)(struct provisioner_search *search);
};

// The first member of an engine's own struct.
struct provisioner_search {
    struct provisioner *provisioner;
};

struct provisioner_engine {
    const char *name;
    bool is_on_this_machine; // "auto" tries it
    struct provisioner *(*create)(struct loop *loop, const struct provisioner_settings *settings,
                                  struct kg_error *err);
    void (*free)(struct provisioner *provisioner);
    // As provisioner_doctor(), true if a sandbox would run; adds to `ret`, which has the name.
    bool (*doctor)(const struct provisioner_settings *settings, provisioner_finding_fn fn,
                   void *arg, struct provisioner_traits *ret);
    // Adds what only the engine knows; NULL: nothing.
    void (*traits)(const struct provisioner *provisioner, struct provisioner_traits *ret);
    // As provisioner_dial(); NULL if the engine's agents dial.
    int (*dial)(struct provisioner *provisioner, const char *id, uint64_t *ret_epoch,
                struct kg_error *err);
    // As provisioner_open_entry(); NULL if processes cannot enter the engine's sandboxes.
    int (*open_entry)(const struct provisioner *provisioner, const char *id,
                      struct provisioner_entry *ret, struct kg_error *err);
    // Whether that works with the engine's configuration; NULL if open_entry is NULL.
    bool (*can_enter)(const struct provisioner *provisioner);
    // As provisioner_limit(); NULL: it cannot.
    int (*limit)(const struct provisioner *provisioner, const char *id, int64_t memory_mb,
                 struct kg_error *err);
    // As provisioner_open_door() and provisioner_close_door(); NULL: callers listen themselves.
    void (*open_door)(struct provisioner *provisioner, const char *id, provisioner_door_fn fn,
                      void *arg);
    void (*close_door)(struct provisioner *provisioner, const char *id);
    // Whether something else than operations is under way; NULL: never.
    bool (*is_busy)(const struct provisioner *provisioner);
    // As provisioner_check() and provisioner_retire(); NULL: there is nothing to do.
    int (*check)(const struct provisioner *provisioner, struct kg_error *err);
    void (*retire)(struct provisioner *provisioner);
    const struct provisioner_replica_engine *replicas; // NULL: one gateway only
    size_t op_size; // of the engine's own struct around a provisioner_op
    // Starts an operation: it leaves OP_QUEUED, and op_finish() ends it at some time.
    void (*op_start)(struct provisioner_op *op);
    // The operation was cancelled; NULL if the engine notices that at its next step.
    void (*op_cancelled)(struct provisioner_op *op);
    // As provisioner_op_explain(); NULL if no operation takes that long.
    bool (*op_explain)(const struct provisioner_op *op, struct kg_error *err);
    // Frees the engine's own part of an operation.
    void (*op_fini)(struct provisioner_op *op);
};

struct provisioner_op;

// The first member of every engine's own struct.
struct provisioner {
    const struct provisioner_engine *engine;
    struct loop *loop;
    char *state_dir; // absolute
    char *root_dir;  // the setting's, which names the gateway; mostly the same
    char *gateway_id;
    char *gateway_key;                   // NULL: agents dial
    bool denies_newer_calls;             // as in struct runtime_kind
    bool counts_udp;                     // as a sandbox's memory; otherwise it may not use it
    TAILQ_HEAD(, sandbox_watch) watches; // of the living sandboxes
    TAILQ_HEAD(, provisioner_op) ops;    // waiting or running, oldest first
    size_t n_running;                    // running ones, without claims
    struct loop_timer *pump;             // starts waiting ones
};

// Fills in the common part; fails if the state folder does not exist.
KG_MUST_CHECK int provisioner_init(struct provisioner *provisioner,
                                   const struct provisioner_engine *engine, struct loop *loop,
                                   const struct provisioner_settings *settings,
                                   struct kg_error *err);
void provisioner_fini(struct provisioner *provisioner);
// The real path of a mount's source; NULL with an error that names `what` if it does not exist. To
// be freed.
char *provisioner_real_path(const char *what, const char *path, struct kg_error *err);

// ---- The inside of a sandbox, the same for every engine (confinement.c, seccomp.c) -----------

// The name of a sandbox's container: `kg-<gateway id>-<sandbox id>`. To be freed.
char *sandbox_container_name(const char *gateway_id, const char *id);
// The arguments of the agent of the sandbox that an operation creates.
json_t *sandbox_agent_args(const struct provisioner_op *op);
// A sandbox's memory limit: its processes and its tmpfs together. `memory_mb`: of the processes, if
// it is not that of the limits; else 0.
int64_t sandbox_memory_bytes(const struct provisioner_limits *limits, int64_t memory_mb);
// The options of a tmpfs of this size, with a limit on its inodes; `more` begins with a comma. To
// be freed.
char *sandbox_tmpfs_options(int64_t size_mb, const char *more);
// Writes the files /etc/passwd and /etc/group of a sandbox whose user has this id.
KG_MUST_CHECK int sandbox_write_users(const char *passwd, const char *group, unsigned user,
                                      struct kg_error *err);
// The system call filter, in the format of OCI runtimes; read-only. `udp`: sandboxes may have UDP
// sockets, whose queues version 1 of control groups does not count.
json_t *seccomp_profile(bool udp);
// A resource limit of a sandbox's processes, soft and hard.
struct sandbox_rlimit {
    const char *name; // without RLIMIT_
    int resource;
    unsigned value;
};
extern const struct sandbox_rlimit sandbox_rlimits[];
extern const size_t sandbox_n_rlimits;
// The limit that sandboxes get: the wanted one, unless the gateway has a lower hard limit and may
// not raise it. Raises the gateway's own hard limit.
unsigned sandbox_rlimit_raise(const struct sandbox_rlimit *limit);
// The first of two user ids for this sandbox, in a range that no machine uses. Drawn from 2^27
// pairs: among 150 sandboxes two have the same with a probability of 1 in 10,000.
uint32_t sandbox_host_users(const char *id);
// The settings of a sandbox's network namespace, by name.
json_t *sandbox_sysctls(void);
// Arrays of paths that read as empty, and of paths that are read-only.
json_t *sandbox_masked_paths(void);
json_t *sandbox_readonly_paths(void);

// ---- Operations (op.c) ----------------------------------------------------------------------

// create:  queued -> running -> done
//                            -> killing -> deleting -> done      (failed, or cancelled)
// destroy: queued -> killing -> deleting -> done
// claim:   queued -> running -> done
// recover: queued -> waiting (for the destroys of dead sandboxes) -> done
// Engines that kill by deleting skip `killing`.
enum op_state { OP_QUEUED, OP_RUNNING, OP_KILLING, OP_DELETING, OP_WAITING, OP_DONE };

enum op_kind { OP_CREATE, OP_CLAIM, OP_DESTROY, OP_RECOVER };

// The first member of every engine's operation. Of the operations on one sandbox only the oldest
// runs.
struct provisioner_op {
    struct provisioner *provisioner;
    TAILQ_ENTRY(provisioner_op) next;
    enum op_kind kind;
    enum op_state state;
    char id[SANDBOX_ID_MAX + 1]; // empty: recovery
    bool cancelled;              // the caller has cancelled it
    bool internal;               // started by us, as a recovery's destroy
    struct kg_error err;         // code KG_OK: none so far
    int idle_timeout_s;          // create
    bool network;                // create
    bool takes;                  // create: of one that another gateway keeps ready
    json_t *zygote_argv;         // create: of a zygote; NULL: of a sandbox
    json_t *zygote_env;
    json_t *meta;      // claim
    bool again;        // claim: of one that is claimed; only the record is new
    int64_t memory_mb; // claim: 0: as in the settings
    size_t n_left;     // recover: removals that run, and 1 until all are started
    provisioner_done_fn on_done;
    provisioner_found_fn on_found;
    provisioner_exit_fn on_exit;
    void *arg;
    int64_t asked_us; // clock_mono_us()
};

void op_queue_init(struct provisioner *provisioner);
// Frees the operations that run in the background; the others must have ended.
void op_queue_fini(struct provisioner *provisioner);
struct provisioner_op *op_new(struct provisioner *provisioner, enum op_kind kind, const char *id,
                              provisioner_done_fn on_done, void *arg);
// The oldest operation on a sandbox, or NULL.
struct provisioner_op *op_find(const struct provisioner *provisioner, const char *id);
void op_set_state(struct provisioner_op *op, enum op_state state);
// Ends the operation and calls its callback.
void op_finish(struct provisioner_op *op);
// Begins to delete, with the sandbox's folder: a sandbox that the engine cannot remove now must not
// be mistaken for a living one later.
void op_start_delete(struct provisioner_op *op);
// op_finish() after a delete that ended with this error. That of a create is more useful, and kept.
void op_finish_delete(struct provisioner_op *op, const struct kg_error *err);
// Carries out a claim, for engines whose sandboxes all belong to one gateway.
void op_claim(struct provisioner_op *op);
// Destroys what is left of a sandbox that nobody uses. `recovery`, which may be NULL, waits for it.
struct provisioner_op *op_remove_leftover(struct provisioner *provisioner, const char *id,
                                          struct provisioner_op *recovery);
// Reports a living sandbox to the caller of a recovery, and watches it; `pid` as for watch_start().
// False if that fails. A sandbox whose owner cannot be read is not reported: it would look
// unclaimed.
bool op_take_up(struct provisioner_op *recovery, const char *id, int pid);
// The same, if the engine itself has the record; `meta` is NULL for an unclaimed sandbox.
bool op_report(struct provisioner_op *recovery, const char *id, int pid, const json_t *meta);
// Ends the recovery when all leftovers are removed. Called once when all removals are started.
void op_recover_step(struct provisioner_op *op);

// ---- Watches (watch.c) ----------------------------------------------------------------------

// Watches one sandbox's container.
struct sandbox_watch {
    TAILQ_ENTRY(sandbox_watch) next;
    struct provisioner *provisioner;
    char id[SANDBOX_ID_MAX + 1];
    struct loop_pid_watch *pid;  // of its init, if the engine does not report its end
    char *container;             // Docker's id of it; NULL for other engines
    int64_t since_ms;            // clock_mono_ms()
    provisioner_exit_fn on_exit; // NULL: muted
    void *arg;
};

// Fires when process `pid` ends. `pid` 0: the engine fires it by watch_fire(); this cannot fail.
int watch_start(struct provisioner *provisioner, const char *id, int pid,
                provisioner_exit_fn on_exit, void *arg, struct kg_error *err);
struct sandbox_watch *watch_find(const struct provisioner *provisioner, const char *id);
// Ends the watch and reports the sandbox's end; `arg` is a struct sandbox_watch.
void watch_fire(void *arg);
void watch_stop(struct provisioner *provisioner, const char *id);
// Its callback is not called any more. The watch itself is kept, since a sandbox without one is
// treated as a leftover and removed (docker_monitor.c).
void watch_mute(struct provisioner *provisioner, const char *id);
void watch_stop_all(struct provisioner *provisioner);

// ---- The sandbox's folder (folder.c) --------------------------------------------------------

bool sandbox_id_valid(const char *id);
// Path of a sandbox's folder, or of `name` in it if that is not NULL. To be freed.
char *folder_path(const char *state_dir, const char *id, const char *name);
// Creates the folder and its `door/`; KG_INTERNAL if it exists already.
KG_MUST_CHECK int folder_make(const char *state_dir, const char *id, struct kg_error *err);
// Listens at `door/door.sock`, in place of a socket that is there. Returns a non-blocking socket
// that every user can connect to, and that the caller owns.
KG_MUST_CHECK int folder_listen(const char *state_dir, const char *id, struct kg_error *err);
bool folder_exists(const char *state_dir, const char *id);
KG_MUST_CHECK int folder_remove(const char *state_dir, const char *id, struct kg_error *err);
KG_MUST_CHECK int folder_write_meta(const char *state_dir, const char *id, const json_t *meta,
                                    struct kg_error *err);
// Fails if meta.json cannot be read; NULL if there is none, because the sandbox was never claimed.
KG_MUST_CHECK int folder_read_meta(const char *state_dir, const char *id, json_t **ret,
                                   struct kg_error *err);
// Marks a folder as a zygote's; returns whether it is marked.
KG_MUST_CHECK int folder_mark_zygote(const char *state_dir, const char *id, struct kg_error *err);
bool folder_is_zygotes(const char *state_dir, const char *id);
// Calls `fn` with the id of every folder.
KG_MUST_CHECK int folder_list(const char *state_dir, void (*fn)(const char *id, void *arg),
                              void *arg, struct kg_error *err);

// ---- Lines of JSON (json_lines.c) -----------------------------------------------------------

// Lines of JSON that arrive in pieces.
struct json_lines {
    struct buf rest;
};
typedef void (*json_line_fn)(const json_t *line, void *arg);
// Calls `fn` for every complete line that is JSON; false if one is too long.
bool json_lines_feed(struct json_lines *lines, const void *data, size_t len, json_line_fn fn,
                     void *arg);
