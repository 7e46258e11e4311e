// SPDX-License-Identifier: Apache-2.0
// Internals of the engine "oci": sandboxes are made by an OCI runtime (runc, crun or runsc), which
// runs as a child process.
#pragma once

#include "provisioner_engine.h"

struct cgroup_mount {
    char *path;
    bool v2;
};

struct cgroup_disk {
    unsigned major;
    unsigned minor;
};

// The machine's control groups, as found by cgroups_init().
struct cgroups {
    struct cgroup_mount *mounts; // one for each hierarchy
    size_t n_mounts;
    bool v1;
    bool v2; // both: hybrid
    bool memory;
    bool memory_v1; // by version 1
    bool cpu;
    bool pids;
    bool swap;                   // can be limited
    struct cgroup_disk disks[8]; // from which sandboxes read
    size_t n_disks;
};

struct oci_kernel_env {
    char *name;
    char *host_dir; // absolute
    bool changes;   // while sandboxes use it
};

// Which files of a sandbox have their own inodes, so that their locks, watches and times are
// visible neither to the host nor to other sandboxes; best first.
enum oci_inodes {
    INODES_OWN,
    INODES_MOST, // all but the root's few files and the agent: crun cannot mount a root
    INODES_SHARED,
};

// How one runtime differs from others (runtime_kind.c).
struct runtime_kind {
    const char *name;         // prefix of its program's name
    const char *packages;     // packages that have it
    const char *const *flags; // before every command, up to NULL
    bool user_namespace;      // accepts a bundle with one
    bool mount_rro;           // supports this mount option
    bool state_files;         // keeps `<id>_sandbox:<id>.state` in its root, not a folder `<id>`
    bool own_kernel;          // sandboxes run on another kernel than the machine's
    bool denies_newer_calls;  // calls newer than the filter fail with EPERM; else with ENOSYS
};

struct oci {
    struct provisioner base;
    char *agent_path; // absolute
    char *root_dir;   // every sandbox's root, read-only
    bool host_image;  // root_dir is our skeleton, into which the host's /usr is mounted
    struct provisioner_limits limits;
    struct oci_kernel_env *kernel_envs;
    size_t n_kernel_envs;
    struct cgroups cgroups;
    char *runtime; // path of runc, crun or runsc; set by oci_trial()
    const struct runtime_kind *kind;
    char *runtime_root; // where it keeps its state
    bool user_namespace;
    enum oci_inodes inodes; // as tried by oci_trial()
    char *group; // parent of the sandboxes' control groups, so that the scheduler gives all of them
                 // the weight of one service of the machine
    uint64_t epoch;     // with which we dial agents (link_hello.h); 0: agents dial
    char *mount_points; // of the machine, each with a newline before and after it
};

static inline struct oci *
oci_of(const struct provisioner_op *op)
{
    return (struct oci *)op->provisioner;
}

// ---- Operations (oci_op.c) ------------------------------------------------------------------

struct oci_op {
    struct provisioner_op base;
    struct loop_process *process;
    struct loop_timer *timer;
    int64_t kill_until_ms;
};

void oci_op_start(struct provisioner_op *op);
void oci_op_fini(struct provisioner_op *op);
// As provisioner_limit().
KG_MUST_CHECK int oci_limit(const struct provisioner *provisioner, const char *id,
                            int64_t memory_mb, struct kg_error *err);

// ---- Dialling an agent (netns.c) ------------------------------------------------------------

// Begins a TCP connection to a port on loopback in the network namespace of process `pid`. Returns
// a non-blocking socket that the caller owns, and that may still be connecting.
KG_MUST_CHECK int netns_dial(int pid, int port, struct kg_error *err);

// ---- The runtime's command lines (runtime.c) ------------------------------------------------

// One command line; strings that are not constants are owned.
struct runtime_argv {
    const char *items[24];
    char *owned[4];
};
void runtime_argv_run(const struct oci *oci, const char *id, bool detach, struct runtime_argv *ret);
void runtime_argv_delete(const struct oci *oci, const char *id, struct runtime_argv *ret);
void runtime_argv_fini(struct runtime_argv *argv);
// Returns -1 with the last message of the runtime's log in `err`, or with how the process ended.
int runtime_error(const struct oci *oci, const char *id, const struct loop_process_result *result,
                  struct kg_error *err);
// Whether the runtime still has state of the sandbox.
bool runtime_knows(const struct oci *oci, const char *id);
// Reads the process id of the sandbox's init, which the runtime wrote when it started it.
KG_MUST_CHECK int runtime_init_pid(const struct oci *oci, const char *id, int *ret,
                                   struct kg_error *err);
// The same; false if that process has ended.
bool runtime_init_lives(const struct oci *oci, const char *id, int *ret_pid);
// The path of the sandbox's control group. To be freed.
char *runtime_cgroup(const struct oci *oci, const char *id);
// Looks a program up in PATH, unless it is a path; NULL if not found. To be freed.
char *runtime_find(const char *name);

// ---- Differences between runtimes (runtime_kind.c) ------------------------------------------

// The kind of the program at `path`, by its name.
const struct runtime_kind *runtime_kind_of(const char *path);
// The runtime's entry in its root while it has the container. To be freed.
char *runtime_kind_state(const struct runtime_kind *kind, const char *root, const char *container);
// The sandbox's id in the name of such an entry; `rest` is the name after the gateway's prefix.
// NULL: it is another file of the runtime. To be freed.
char *runtime_kind_sandbox(const struct runtime_kind *kind, const char *rest);
// Removes what the runtime does not support from a config.json.
void runtime_kind_adapt(const struct runtime_kind *kind, json_t *config);

// ---- The trial (oci_trial.c) ----------------------------------------------------------------

// Picks the first runtime of `wanted` ("auto", a name or a path) that can run a container, in a
// user namespace if that works; blocks for about 0.1 s.
KG_MUST_CHECK int oci_trial(struct oci *oci, const char *wanted, struct kg_error *err);
// The runtimes that "auto" tries, best first, up to NULL.
extern const char *const oci_runtimes[];
// Why a runtime cannot do better; code KG_OK: there is nothing better.
struct oci_shortfall {
    struct kg_error users;  // its sandboxes have no user namespace
    struct kg_error inodes; // its sandboxes share inodes with the host
};
// Runs `kg-agent --version` in a temporary sandbox, at best in a user namespace and with its own
// inodes, and keeps in `oci` what works. Blocks.
KG_MUST_CHECK int oci_try_runtime(struct oci *oci, const char *name, struct oci_shortfall *ret,
                                  struct kg_error *err);
// What may be done about sandboxes without a user namespace, to be freed.
char *oci_users_advice(void);
bool oci_doctor(struct oci *oci, const struct provisioner_settings *settings,
                provisioner_finding_fn fn, void *arg, struct provisioner_traits *ret);
// Of the runtime that was tried last, while the group of its sandboxes exists (oci_trial.c).
void oci_traits(const struct oci *oci, struct provisioner_traits *ret);

// ---- The bundle -----------------------------------------------------------------------------

// Writes the sandbox's config.json; `args` (stolen) is the init's argv.
KG_MUST_CHECK int bundle_write(const struct oci *oci, const char *id, json_t *args,
                               struct kg_error *err);
// The same for a zygote (provisioner.h); `env` is an object of strings, borrowed.
KG_MUST_CHECK int bundle_write_zygote(const struct oci *oci, const char *id, json_t *args,
                                      const json_t *env, struct kg_error *err);

// ---- Mounts (mounts.c) ----------------------------------------------------------------------

// Appends one mount; `options` are separated by commas.
void mount_add(json_t *mounts, const char *destination, const char *type, const char *source,
               const char *options);
// Mounts the host's folder `path` read-only, with the mounts below it.
void mount_add_folder(json_t *mounts, const char *destination, const char *path);
// The same, as an overlay if the runtime can make one.
void mount_add_overlay(const struct oci *oci, json_t *mounts, const char *destination,
                       const char *path);
// If only the hook can make an overlay of the folder: the overlay's options. Else NULL.
char *mount_hidden_overlay(const struct oci *oci, const char *path);
// Whether the root is an overlay, which then also contains the agent.
bool mount_root_is_overlay(const struct oci *oci);
void mount_add_root(const struct oci *oci, json_t *mounts);
// Creates the layers that the overlays of all sandboxes share, in the state folder.
KG_MUST_CHECK int layers_prepare(struct oci *oci, struct kg_error *err);
// Copies the file `source` to `path` in every root that is an overlay.
KG_MUST_CHECK int layers_copy(const struct oci *oci, const char *path, const char *source,
                              unsigned mode, struct kg_error *err);
// Whether any user may reach the folder.
bool path_reachable(const char *path);
// Creates the missing folders above `path`, below its first `from` bytes.
KG_MUST_CHECK int path_make_parents(char *path, size_t from, struct kg_error *err);

// ---- The root (host_image.c) ----------------------------------------------------------------

// Creates or completes the skeleton root for image `host`: `oci->root_dir`.
KG_MUST_CHECK int host_image_make(const struct oci *oci, struct kg_error *err);
// Appends the mounts of the host's /usr and its few other paths.
void host_image_mounts(const struct oci *oci, json_t *mounts);
// Appends the mount of a /home in which SANDBOX_USER_HOME is a link to SANDBOX_DATA, for containers
// in which `kernelgate-agent --prepare` cannot mount it a second time.
void host_image_mount_home_link(const struct oci *oci, json_t *mounts);
// Checks that a rootfs folder has every mount point that a sandbox needs.
KG_MUST_CHECK int folder_image_check(const struct oci *oci, struct kg_error *err);

// ---- Control groups (cgroup.c) --------------------------------------------------------------

// Looks at what is mounted now, into zeroed memory.
void cgroups_init(struct cgroups *cgroups);
void cgroups_fini(struct cgroups *cgroups);
// Adds the disk under a path; a file system without a single disk is left out.
void cgroups_add_disk(struct cgroups *cgroups, const char *path);
// A group is named by its path in every hierarchy, without a leading slash.
// Whether process `pid` is in the group.
bool cgroup_has(const struct cgroups *cgroups, const char *name, int pid);
// Opens the group's `cgroup.procs` for writing, in every hierarchy that has the group. Returns the
// number of descriptors, which the caller owns; -1 if there are none, or more than `max`.
KG_MUST_CHECK int cgroup_open_members(const struct cgroups *cgroups, const char *name, int *ret,
                                      size_t max, struct kg_error *err);
// Sets the group's limits that the runtime cannot: TCP buffers if they are counted apart from other
// memory, as in version 1, and reads from the disks.
void cgroup_limit(const struct cgroups *cgroups, const char *name);
// Changes the limit of the group's memory, swap included.
KG_MUST_CHECK int cgroup_limit_memory(const struct cgroups *cgroups, const char *name,
                                      int64_t bytes, struct kg_error *err);
// Limits all groups in the group together: nine tenths of the machine's memory, without swap, and
// half of its process ids.
void cgroup_bound(const struct cgroups *cgroups, const char *name);
// The bytes of memory that all groups in the group have together; 0: nothing bounds them.
int64_t cgroup_memory_bound(const struct cgroups *cgroups, const char *name);
// Removes the group if it is empty.
void cgroup_remove(const struct cgroups *cgroups, const char *name);
// Kills the processes in the group and removes it; false: not removed yet, try again.
bool cgroup_sweep(const struct cgroups *cgroups, const char *name);
