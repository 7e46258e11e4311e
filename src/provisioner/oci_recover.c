// SPDX-License-Identifier: Apache-2.0
// After a start: which of our sandboxes still live, and the removal of the others.
#include "oci_op.h"

#include <assert.h>
#include <dirent.h>
#include <string.h>
#include <unistd.h>

static void
maybe_finish(struct oci_op *op)
{
    if (op->n_dead == 0)
        oci_op_finish(op);
}

static void
on_dead_removed(const struct kg_error *err, void *arg)
{
    struct oci_op *op = arg;
    if (err)
        log_warning("cannot remove what is left of a sandbox", LOG_ERR(err));
    op->n_dead--;
    maybe_finish(op);
}

static void
remove_dead(struct oci_op *op, const char *id)
{
    log_info("removing what is left of a sandbox", LOG_STR("sandbox", id));
    op->n_dead++;
    oci_op_new(oci_of(op), OCI_OP_DESTROY, id, on_dead_removed, op)->internal = true;
}

// Whether the init that the runtime once started is still in the sandbox's control group; its id
// alone would not do, since another process may have it by now.
static bool
init_lives(const struct oci *oci, const char *id, int *ret_pid)
{
    KG_AUTO_FREE char *container = oci_container_id(oci, id);
    return runtime_knows(oci, id) && runtime_init_pid(oci, id, ret_pid, NULL) == 0 &&
           cgroup_has(container, *ret_pid);
}

// One that has a folder: it lives, or it is dead or half-made. One whose owner cannot be read any
// more must not pass for one that nobody owns.
static void
on_folder(const char *id, void *arg)
{
    struct oci_op *op = arg;
    struct oci *oci = oci_of(op);
    int pid;
    json_auto_t *meta = NULL;
    struct kg_error err = {0};
    bool lives = init_lives(oci, id, &pid);
    if (lives && op->cancelled)
        return;
    if (lives && folder_meta(oci->base.state_dir, id, &meta, &err) == 0 &&
        oci_watch_start(oci, id, pid, op->on_exit, op->arg, &err) == 0) {
        op->on_found(id, meta, op->arg);
        return;
    }
    if (err.code)
        log_warning("cannot take a sandbox up again", LOG_STR("sandbox", id), LOG_ERR(&err));
    remove_dead(op, id);
}

// Containers of ours whose folder is gone.
static void
remove_bare_containers(struct oci_op *op)
{
    struct oci *oci = oci_of(op);
    KG_AUTO_FREE char *prefix = oci_container_id(oci, "");
    DIR *dir = opendir(oci->runtime_root);
    if (!dir)
        return; // the runtime has never made one
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        const char *id = entry->d_name + strlen(prefix);
        KG_AUTO_FREE char *folder = folder_path(oci->base.state_dir, id, NULL);
        if (sandbox_id_valid(id) && access(folder, F_OK) < 0)
            remove_dead(op, id);
    }
    closedir(dir);
}

void
oci_recover_start(struct oci_op *op)
{
    oci_op_set_state(op, OCI_OP_WAITING);
    op->n_dead++; // our own share
    remove_bare_containers(op);
    if (folder_list(oci_of(op)->base.state_dir, on_folder, op, &op->err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&op->err));
    op->n_dead--;
    maybe_finish(op);
}

struct provisioner_op *
oci_recover(struct provisioner *provisioner, provisioner_found_fn on_found,
            provisioner_done_fn on_done, provisioner_exit_fn on_exit, void *arg,
            struct kg_error *err)
{
    (void)err;
    struct oci *oci = (struct oci *)provisioner;
    assert(TAILQ_EMPTY(&oci->ops) && TAILQ_EMPTY(&oci->watches));
    struct oci_op *op = oci_op_new(oci, OCI_OP_RECOVER, "", on_done, arg);
    op->on_found = on_found;
    op->on_exit = on_exit;
    return &op->base;
}
