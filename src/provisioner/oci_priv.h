// SPDX-License-Identifier: Apache-2.0
// Inside the engine "oci": sandboxes made by an OCI runtime (runc or crun), run as a child process.
#pragma once

#include "provisioner_priv.h"

// What the machine's control groups offer.
struct cgroup_info {
    bool v1;
    bool v2; // both: hybrid
    bool memory;
    bool cpu;
    bool pids;
    bool swap; // can be limited
};

struct oci_kernel_env {
    char *name;
    char *host_dir; // absolute
};

struct oci {
    struct provisioner base;
    char *agent_path; // absolute
    char *root_dir;   // what every sandbox has as its root, read-only
    bool host_image;  // root_dir is our skeleton, and the host's /usr belongs into it
    struct provisioner_limits limits;
    struct oci_kernel_env *kernel_envs;
    size_t n_kernel_envs;
    struct cgroup_info cgroups;
    char *runtime;      // path of runc or crun; set by oci_trial()
    char *runtime_root; // where it keeps its state
    bool user_namespace;
};

static inline struct oci *
oci_of(const struct provisioner_op *op)
{
    return (struct oci *)op->provisioner;
}

// ---- The engine (oci.c) ---------------------------------------------------------------------

// Everything but the runtime, which is still to be tried.
struct oci *oci_open(struct loop *loop, const struct provisioner_settings *settings,
                     struct kg_error *err);
void oci_close(struct oci *oci);
KG_DEFINE_AUTO(oci, oci_close)
// The container's id and the name of its control group. To be freed.
char *oci_container_id(const struct oci *oci, const char *id);

// ---- Operations (oci_op.c, oci_recover.c) ---------------------------------------------------

struct oci_op {
    struct provisioner_op base;
    struct loop_process *process;
    struct loop_timer *timer;
    int64_t kill_until_ms;
};

void oci_op_start(struct provisioner_op *op);
void oci_op_fini(struct provisioner_op *op);
void oci_recover(struct provisioner_op *op);

// ---- The runtime's command lines (runtime.c) ------------------------------------------------

// One command line; what is not a constant is owned.
struct runtime_argv {
    const char *items[20];
    char *owned[4];
};
void runtime_argv_run(const struct oci *oci, const char *id, bool detach, struct runtime_argv *ret);
void runtime_argv_delete(const struct oci *oci, const char *id, struct runtime_argv *ret);
void runtime_argv_fini(struct runtime_argv *argv);
// Fills `err`, and returns -1, with what the runtime's log says, or with how the process ended.
int runtime_error(const struct oci *oci, const char *id, const struct loop_process_result *result,
                  struct kg_error *err);
// Whether the runtime keeps anything of the sandbox.
bool runtime_knows(const struct oci *oci, const char *id);
// Reads the process id of the sandbox's init, which the runtime wrote once it was started.
KG_MUST_CHECK int runtime_init_pid(const struct oci *oci, const char *id, int *ret,
                                   struct kg_error *err);
// Looks a program up in PATH, unless it is a path; NULL where there is none. To be freed.
char *runtime_find(const char *name);

// ---- Trying it (oci_trial.c) ----------------------------------------------------------------

// Picks the first runtime of `wanted` ("auto", a name or a path) that really runs a container, in a
// user namespace if that works; blocks for about 0.1 s.
KG_MUST_CHECK int oci_trial(struct oci *oci, const char *wanted, struct kg_error *err);
// The runtimes that "auto" tries, best first, up to NULL.
extern const char *const oci_runtimes[];
KG_MUST_CHECK int oci_use_runtime(struct oci *oci, const char *name, bool user_namespace,
                                  struct kg_error *err);
// Runs `kg-agent --version` in a sandbox and removes it again; blocks.
KG_MUST_CHECK int oci_try_container(const struct oci *oci, struct kg_error *err);
bool oci_doctor(const struct provisioner_settings *settings, provisioner_finding_fn fn, void *arg);

// ---- What a sandbox is made of --------------------------------------------------------------

// Writes the sandbox's config.json; `args` (stolen) is the init's argv.
KG_MUST_CHECK int bundle_write(const struct oci *oci, const char *id, json_t *args,
                               struct kg_error *err);
// Appends one mount; `options` are separated by commas.
void bundle_add_mount(json_t *mounts, const char *destination, const char *type, const char *source,
                      const char *options);

// Makes the skeleton root for image `host`, or completes it: `oci->root_dir`.
KG_MUST_CHECK int host_image_make(const struct oci *oci, struct kg_error *err);
// Appends the mounts that show the host's /usr and friends.
void host_image_mounts(json_t *mounts);
// Checks that a rootfs folder has every mount point that a sandbox needs.
KG_MUST_CHECK int folder_image_check(const struct oci *oci, struct kg_error *err);

void cgroup_probe(struct cgroup_info *ret);
// Whether process `pid` is in the group `name`.
bool cgroup_has(const char *name, int pid);
// Ends what still runs in the group `name` and removes it; false: not gone yet, try again.
bool cgroup_sweep(const char *name);
