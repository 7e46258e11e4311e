// SPDX-License-Identifier: Apache-2.0
// After a start: which of our sandboxes still live, and the removal of the others.
#include "docker_priv.h"

// One whose owner cannot be read any more must not pass for one that nobody owns, and one without a
// folder was being destroyed.
static bool
take_up(struct docker_op *op, const char *id)
{
    struct provisioner *provisioner = op->base.provisioner;
    json_auto_t *meta = NULL;
    struct kg_error err = {0};
    if (!folder_exists(provisioner->state_dir, id))
        return false;
    if (folder_meta(provisioner->state_dir, id, &meta, &err) < 0) {
        log_warning("cannot take a sandbox up again", LOG_STR("sandbox", id), LOG_ERR(&err));
        return false;
    }
    watch_start(provisioner, id, op->base.on_exit, op->base.arg);
    op->base.on_found(id, meta, op->base.arg);
    return true;
}

// Folders whose container is gone.
static void
on_folder(const char *id, void *arg)
{
    struct docker_op *op = arg;
    if (!watch_find(op->base.provisioner, id) && !op_find(op->base.provisioner, id))
        op_remove_dead(&op->base, id);
}

static void
on_listed(const struct http_call_result *result, void *arg)
{
    struct docker_op *op = arg;
    struct docker *docker = docker_of(&op->base);
    op->call = NULL;
    if (docker_check(docker, result, &op->base.err) < 0) {
        op_finish(&op->base);
        return;
    }
    op->base.n_dead++; // our own share
    json_auto_t *list = json_loadb(result->body, result->body_len, 0, NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *container = json_array_get(list, i);
        const char *id = docker_sandbox_id(json_object_get(container, "Labels"));
        bool taken = id && docker_lives(container) && !op->base.cancelled && take_up(op, id);
        if (id && !taken)
            op_remove_dead(&op->base, id);
    }
    struct kg_error err = {0};
    if (folder_list(docker->base.state_dir, on_folder, op, &err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&err));
    docker_monitor_start(docker);
    op->base.n_dead--;
    op_recover_step(&op->base);
}

void
docker_recover(struct docker_op *op)
{
    op->call = docker_list(docker_of(&op->base), NULL, on_listed, op, &op->base.err);
    if (!op->call)
        op_finish(&op->base);
}
