// SPDX-License-Identifier: Apache-2.0
// After a start: finds our living sandboxes, and removes the others.
#include "docker_priv.h"

#include <string.h>

// A sandbox whose owner cannot be read must not be reported as one without an owner, and one
// without a folder was being destroyed.
static bool
take_up(struct docker_op *op, const char *id)
{
    struct provisioner *provisioner = op->base.provisioner;
    json_auto_t *meta = NULL;
    struct kg_error err = {0};
    if (!folder_exists(provisioner->state_dir, id))
        return false;
    if (folder_meta(provisioner->state_dir, id, &meta, &err) < 0) {
        log_warning("cannot recover a sandbox", LOG_STR("sandbox", id), LOG_ERR(&err));
        return false;
    }
    watch_start(provisioner, id, op->base.on_exit, op->base.arg);
    op->base.on_found(id, meta, op->base.arg);
    return true;
}

// Removes folders whose container no longer exists.
static void
on_folder(const char *id, void *arg)
{
    struct docker_op *op = arg;
    if (!watch_find(op->base.provisioner, id) && !op_find(op->base.provisioner, id))
        op_remove_dead(&op->base, id);
}

// Whether the gateway that made it has ended. We hold the state folder's lock, so another gateway
// that made sandboxes in this very folder lost its id when the folder was emptied. If the folder
// was in memory when the machine restarted, none of its sandboxes is alive. A living sandbox that
// was made in another folder at this path belongs to a gateway in another container.
static bool
is_abandoned(const struct docker *docker, const struct docker_container *container)
{
    if (!container->state_dir || strcmp(container->state_dir, docker->base.state_dir) != 0)
        return false;
    if (!container->lives || (container->folder && !strcmp(container->folder, docker->folder)))
        return true;
    log_warning("another gateway has a state folder at the same path; its sandbox is left alone",
                LOG_STR("gateway", container->gateway), LOG_STR("sandbox", container->sandbox));
    return false;
}

static void
take_listed(struct docker_op *op, const json_t *element)
{
    const struct docker *docker = docker_of(&op->base);
    struct docker_container container;
    if (!docker_take_listed(docker, element, &container))
        return;
    if (container.ours) {
        if (!container.lives || op->base.cancelled || !take_up(op, container.sandbox))
            op_remove_dead(&op->base, container.sandbox);
    } else if (is_abandoned(docker, &container)) {
        struct provisioner_op *removal = op_remove_dead(&op->base, container.sandbox);
        ((struct docker_op *)removal)->container = kg_strdup(container.id);
    }
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
    for (size_t i = 0; i < json_array_size(list); i++)
        take_listed(op, json_array_get(list, i));
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
    op->call = docker_list_all(docker_of(&op->base), on_listed, op, &op->base.err);
    if (!op->call)
        op_finish(&op->base);
}
