// SPDX-License-Identifier: Apache-2.0
// After a start: finds our living sandboxes, and removes the others.
#include "oci_priv.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

// A sandbox that has a folder is alive, or dead or half-made.
static void
recover_folder(const char *id, void *arg)
{
    struct provisioner_op *op = arg;
    int pid;
    bool lives = runtime_init_lives(oci_of(op), id, &pid);
    if (lives && op->cancelled)
        return;
    if (!lives || !op_take_up(op, id, pid))
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

void
oci_recover(struct provisioner_op *op)
{
    op_set_state(op, OP_WAITING);
    remove_bare_containers(op);
    if (folder_list(op->provisioner->state_dir, recover_folder, op, &op->err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&op->err));
    op_recover_step(op);
}
