// SPDX-License-Identifier: Apache-2.0
// After a start: finds our living sandboxes, and removes the others.
#include "docker_priv.h"

#include <string.h>

// Removes folders whose container no longer exists.
static void
recover_folder(const char *id, void *arg)
{
    struct docker_op *op = arg;
    if (!watch_find(op->base.provisioner, id) && !op_find(op->base.provisioner, id))
        op_remove_leftover(op->base.provisioner, id, &op->base);
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
    struct docker *docker = docker_of(&op->base);
    struct docker_container container;
    if (!docker_take_listed(docker, element, &container))
        return;
    if (container.ours) {
        // One without a folder was being destroyed.
        if (!container.lives || op->base.cancelled ||
            !folder_exists(docker->base.state_dir, container.sandbox) ||
            !op_take_up(&op->base, container.sandbox, 0))
            op_remove_leftover(&docker->base, container.sandbox, &op->base);
    } else if (is_abandoned(docker, &container)) {
        struct provisioner_op *removal =
            op_remove_leftover(&docker->base, container.sandbox, &op->base);
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
    json_auto_t *list = json_loadb(result->body, result->body_len, 0, NULL);
    for (size_t i = 0; i < json_array_size(list); i++)
        take_listed(op, json_array_get(list, i));
    struct kg_error err = {0};
    if (folder_list(docker->base.state_dir, recover_folder, op, &err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&err));
    docker_monitor_start(docker);
    op_recover_step(&op->base);
}

void
docker_recover(struct docker_op *op)
{
    op->call = docker_list_all(docker_of(&op->base), on_listed, op, &op->base.err);
    if (!op->call)
        op_finish(&op->base);
}
