// SPDX-License-Identifier: Apache-2.0
// Creates, destroys and recovers sandboxes: each operation is a small state machine around a
// runtime's process.
#include "oci_priv.h"

#include <dirent.h>
#include <string.h>

#define PROCESS_TIMEOUT_MS 60000
#define KILL_MS 5000 // for a killed container's control group to empty
#define KILL_PAUSE_MS 3

void
oci_op_fini(struct provisioner_op *base)
{
    struct oci_op *op = (struct oci_op *)base;
    loop_process_cancel(op->process);
    loop_timer_free(op->timer);
}

// Runs a runtime's command for the operation, which is also the argument of `fn`.
static int
op_process(struct oci_op *op, struct runtime_argv *argv, const char *output_path,
           loop_process_fn fn)
{
    struct loop_process_spec spec = {
        .argv = argv->items,
        .output_path = output_path,
        .timeout_ms = PROCESS_TIMEOUT_MS,
    };
    op->process = loop_process_start(oci_of(&op->base)->base.loop, &spec, fn, op, &op->base.err);
    return op->process ? 0 : -1;
}

// ---- Destroying -----------------------------------------------------------------------------

// Removes the folder, or keeps it for a later try if part of the sandbox is left.
static void
finish_delete(struct oci_op *op, const struct loop_process_result *result)
{
    struct oci *oci = oci_of(&op->base);
    KG_AUTO_FREE char *group = runtime_cgroup(oci, op->base.id);
    struct kg_error err = {0};
    if (runtime_knows(oci, op->base.id))
        runtime_error(oci, op->base.id, result, &err);
    else if (!cgroup_sweep(&oci->cgroups, group))
        kg_error_set(&err, KG_INTERNAL, 0, "cannot remove the control group %s", group);
    else if (folder_remove(oci->base.state_dir, op->base.id, &err) == 0)
        err.code = KG_OK;
    op_finish_delete(&op->base, &err);
}

static void
on_deleted(const struct loop_process_result *result, void *arg)
{
    struct oci_op *op = arg;
    op->process = NULL;
    finish_delete(op, result);
}

static void
start_delete(struct oci_op *op)
{
    struct oci *oci = oci_of(&op->base);
    op_set_state(&op->base, OP_DELETING);
    if (!runtime_knows(oci, op->base.id)) {
        finish_delete(op, NULL);
        return;
    }
    // The runtime needs a folder for its log even if the container has none.
    KG_AUTO_FREE char *folder = folder_path(oci->base.state_dir, op->base.id, NULL);
    struct runtime_argv argv;
    runtime_argv_delete(oci, op->base.id, &argv);
    if (dir_make(folder, 0700, &op->base.err) < 0 || op_process(op, &argv, NULL, on_deleted) < 0)
        op_finish(&op->base);
    runtime_argv_fini(&argv);
}

static void
kill_group(void *arg)
{
    struct oci_op *op = arg;
    const struct oci *oci = oci_of(&op->base);
    KG_AUTO_FREE char *group = runtime_cgroup(oci, op->base.id);
    if (cgroup_sweep(&oci->cgroups, group) || clock_mono_ms() >= op->kill_until_ms)
        start_delete(op);
    else
        loop_timer_start(op->timer, KILL_PAUSE_MS);
}

// Called before the runtime's `delete --force`, which also kills, but polls only every 100 ms.
static void
start_kill(struct oci_op *op)
{
    op_set_state(&op->base, OP_KILLING);
    op->kill_until_ms = clock_mono_ms() + KILL_MS;
    op->timer = loop_timer_new(oci_of(&op->base)->base.loop, kill_group, op);
    kill_group(op);
}

// ---- Creating -------------------------------------------------------------------------------

static void
on_ran(const struct loop_process_result *result, void *arg)
{
    struct oci_op *op = arg;
    struct oci *oci = oci_of(&op->base);
    KG_AUTO_FREE char *group = runtime_cgroup(oci, op->base.id);
    op->process = NULL;
    cgroup_limit(&oci->cgroups, group);
    int pid;
    if (result->exit_code != 0)
        runtime_error(oci, op->base.id, result, &op->base.err);
    else if (!op->base.cancelled && runtime_init_pid(oci, op->base.id, &pid, &op->base.err) == 0 &&
             watch_start(&oci->base, op->base.id, pid, op->base.on_exit, op->base.arg,
                         &op->base.err) < 0)
        kg_error_set(&op->base.err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "the sandbox's agent ended right after its start");
    if (op->base.err.code || op->base.cancelled)
        start_kill(op);
    else
        op_finish(&op->base);
}

static int
write_bundle(struct oci_op *op)
{
    struct oci *oci = oci_of(&op->base);
    if (op->base.zygote_argv)
        return bundle_write_zygote(oci, op->base.id, json_incref(op->base.zygote_argv),
                                   op->base.zygote_env, &op->base.err);
    json_t *args = sandbox_agent_args(&op->base);
    if (oci->kind->own_kernel)
        json_array_append_new(args, json_string("--no-log"));
    return bundle_write(oci, op->base.id, args, &op->base.err);
}

static void
start_run(struct oci_op *op)
{
    struct oci *oci = oci_of(&op->base);
    op_set_state(&op->base, OP_RUNNING);
    KG_AUTO_FREE char *output = folder_path(oci->base.state_dir, op->base.id, "agent.log");
    struct runtime_argv argv;
    runtime_argv_run(oci, op->base.id, true, &argv);
    if (write_bundle(op) < 0 || op_process(op, &argv, output, on_ran) < 0)
        start_kill(op);
    runtime_argv_fini(&argv);
}

// ---- Recovering -----------------------------------------------------------------------------

// A sandbox that has a folder is alive, or dead or half-made.
static void
recover_folder(const char *id, void *arg)
{
    struct provisioner_op *op = arg;
    int pid;
    bool lives = runtime_init_lives(oci_of(op), id, &pid);
    if (lives && op->cancelled)
        return;
    if (!lives || folder_is_zygotes(op->provisioner->state_dir, id) || !op_take_up(op, id, pid))
        op_remove_leftover(op->provisioner, id, op);
}

// Removes our containers whose folder no longer exists.
static void
remove_bare_containers(struct provisioner_op *op)
{
    struct oci *oci = oci_of(op);
    KG_AUTO_FREE char *prefix = sandbox_container_name(oci->base.gateway_id, "");
    DIR *dir = opendir(oci->runtime_root);
    if (!dir)
        return; // the runtime has never created one
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        KG_AUTO_FREE char *id = runtime_kind_sandbox(oci->kind, entry->d_name + strlen(prefix));
        if (!id)
            continue;
        if (sandbox_id_valid(id) && !folder_exists(oci->base.state_dir, id))
            op_remove_leftover(op->provisioner, id, op);
    }
    closedir(dir);
}

static void
recover(struct provisioner_op *op)
{
    op_set_state(op, OP_WAITING);
    remove_bare_containers(op);
    if (folder_list(op->provisioner->state_dir, recover_folder, op, &op->err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&op->err));
    op_recover_step(op);
}

// ---- Claiming -------------------------------------------------------------------------------

int
oci_limit(const struct provisioner *provisioner, const char *id, int64_t memory_mb,
          struct kg_error *err)
{
    const struct oci *oci = (const struct oci *)provisioner;
    KG_AUTO_FREE char *group = runtime_cgroup(oci, id);
    int64_t bytes = sandbox_memory_bytes(&oci->limits, memory_mb);
    return cgroup_limit_memory(&oci->cgroups, group, bytes, err);
}

static void
claim(struct provisioner_op *base)
{
    if (base->memory_mb > 0 &&
        oci_limit(base->provisioner, base->id, base->memory_mb, &base->err) < 0)
        op_finish(base);
    else
        op_claim(base);
}

// ---- Starting -------------------------------------------------------------------------------

void
oci_op_start(struct provisioner_op *base)
{
    struct oci_op *op = (struct oci_op *)base;
    switch (base->kind) {
    case OP_CREATE:
        if (base->cancelled)
            start_kill(op);
        else
            start_run(op);
        break;
    case OP_CLAIM:
        claim(base);
        break;
    case OP_DESTROY:
        start_kill(op);
        break;
    case OP_RECOVER:
        recover(base);
        break;
    }
}
