// SPDX-License-Identifier: Apache-2.0
// After a start: which of our sandboxes still live, and the removal of the others.
#include "oci_op.h"

#include <string.h>

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

// Fills `op->containers` from the runtime's list: those of this gateway, 0 for one that has ended.
static int
take_list(struct oci_op *op, const struct loop_process_result *result)
{
    KG_AUTO_FREE char *prefix = oci_container_id(oci_of(op), "");
    json_auto_t *list = json_loadb(result->output, result->output_len, JSON_DECODE_ANY,
                                   NULL); // runc says null for none
    op->containers = json_object();
    if (result->exit_code != 0 || (!json_is_array(list) && !json_is_null(list)))
        return runtime_error(oci_of(op), op->id, result, &op->err);
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry)
    {
        const char *name;
        const char *status;
        int pid;
        if (json_unpack(entry, "{s:s, s:s, s:i}", "id", &name, "status", &status, "pid", &pid) <
                0 ||
            strncmp(name, prefix, strlen(prefix)) || !sandbox_id_valid(name + strlen(prefix)))
            continue;
        bool lives = !strcmp(status, "running") && pid > 1;
        json_object_set_new(op->containers, name + strlen(prefix), json_integer(lives ? pid : 0));
    }
    return 0;
}

// One that has a folder: it lives, or it is dead or half-made. One whose owner cannot be read any
// more must not pass for one that nobody owns.
static void
on_folder(const char *id, void *arg)
{
    struct oci_op *op = arg;
    struct oci *oci = oci_of(op);
    int pid = (int)json_integer_value(json_object_get(op->containers, id));
    json_object_del(op->containers, id);
    json_auto_t *meta = NULL;
    struct kg_error err = {0};
    if (pid != 0 && op->cancelled)
        return;
    if (pid != 0 && folder_meta(oci->base.state_dir, id, &meta, &err) == 0 &&
        oci_watch_start(oci, id, pid, op->on_exit, op->arg, &err) == 0) {
        op->on_found(id, meta, op->arg);
        return;
    }
    if (err.code)
        log_warning("cannot take a sandbox up again", LOG_STR("sandbox", id), LOG_ERR(&err));
    remove_dead(op, id);
}

static void
on_listed(const struct loop_process_result *result, void *arg)
{
    struct oci_op *op = arg;
    op->process = NULL;
    if (take_list(op, result) < 0) {
        oci_op_finish(op);
        return;
    }
    oci_op_set_state(op, OCI_OP_WAITING);
    op->n_dead++; // this loop's own share
    if (folder_list(oci_of(op)->base.state_dir, on_folder, op, &op->err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&op->err));
    const char *id;
    json_t *pid;
    json_object_foreach(op->containers, id, pid) remove_dead(op, id);
    op->n_dead--;
    maybe_finish(op);
}

void
oci_recover_start(struct oci_op *op)
{
    struct runtime_argv argv;
    oci_op_set_state(op, OCI_OP_LISTING);
    runtime_argv_list(oci_of(op), &argv);
    if (oci_op_process(op, &argv, NULL, on_listed) < 0)
        oci_op_finish(op);
    runtime_argv_fini(&argv);
}

struct provisioner_op *
oci_recover(struct provisioner *provisioner, provisioner_found_fn on_found,
            provisioner_done_fn on_done, provisioner_exit_fn on_exit, void *arg,
            struct kg_error *err)
{
    (void)err;
    struct oci_op *op = oci_op_new((struct oci *)provisioner, OCI_OP_RECOVER, "", on_done, arg);
    op->on_found = on_found;
    op->on_exit = on_exit;
    return &op->base;
}
