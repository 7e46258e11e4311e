// SPDX-License-Identifier: Apache-2.0
// After a start: finds our living sandboxes, and removes the others.
#include "oci_priv.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

// Whether the init that the runtime started is still in the sandbox's control group. Its process id
// alone does not suffice, since another process may have it by now.
bool
oci_init_lives(const struct oci *oci, const char *id, int *ret_pid)
{
    KG_AUTO_FREE char *group = oci_cgroup(oci, id);
    return runtime_knows(oci, id) && runtime_init_pid(oci, id, ret_pid, NULL) == 0 &&
           cgroup_has(group, *ret_pid);
}

// A sandbox that has a folder is alive, or dead or half-made. One whose owner cannot be read must
// not be reported as one without an owner.
static void
on_folder(const char *id, void *arg)
{
    struct provisioner_op *op = arg;
    struct oci *oci = oci_of(op);
    int pid;
    json_auto_t *meta = NULL;
    struct kg_error err = {0};
    bool lives = oci_init_lives(oci, id, &pid);
    if (lives && op->cancelled)
        return;
    if (lives && folder_meta(oci->base.state_dir, id, &meta, &err) == 0 &&
        watch_start_pid(&oci->base, id, pid, op->on_exit, op->arg, &err) == 0) {
        op->on_found(id, meta, op->arg);
        return;
    }
    if (err.code)
        log_warning("cannot recover a sandbox", LOG_STR("sandbox", id), LOG_ERR(&err));
    op_remove_dead(op, id);
}

// Removes our containers whose folder no longer exists.
static void
remove_bare_containers(struct provisioner_op *op)
{
    struct oci *oci = oci_of(op);
    KG_AUTO_FREE char *prefix = oci_container_id(oci, "");
    DIR *dir = opendir(oci->runtime_root);
    if (!dir)
        return; // the runtime has never created one
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        KG_AUTO_FREE char *id = runtime_kind_sandbox(oci->kind, entry->d_name + strlen(prefix));
        if (!id)
            continue;
        KG_AUTO_FREE char *folder = folder_path(oci->base.state_dir, id, NULL);
        if (sandbox_id_valid(id) && access(folder, F_OK) < 0)
            op_remove_dead(op, id);
    }
    closedir(dir);
}

void
oci_recover(struct provisioner_op *op)
{
    op_set_state(op, OP_WAITING);
    op->n_dead++; // our own share
    remove_bare_containers(op);
    if (folder_list(op->provisioner->state_dir, on_folder, op, &op->err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&op->err));
    op->n_dead--;
    op_recover_step(op);
}
