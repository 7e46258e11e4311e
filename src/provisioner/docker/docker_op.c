// SPDX-License-Identifier: Apache-2.0
// Creates, destroys and recovers sandboxes: each operation is a sequence of calls to the engine.
#include "docker_priv.h"

#include <string.h>

#define DELETE_MS 15000 // for a container to be removed after the request
#define DELETE_PAUSE_MS 50

static void start_create(struct docker_op *op);

void
docker_op_fini(struct provisioner_op *base)
{
    struct docker_op *op = (struct docker_op *)base;
    if (op->call)
        http_call_cancel(op->call);
    loop_timer_free(op->timer);
    free(op->container);
}

// ---- Removing a container -------------------------------------------------------------------

static bool
remove_container(struct docker_op *op, const char *id, http_call_fn next)
{
    KG_AUTO_FREE char *path = kg_asprintf("/containers/%s?force=1&v=1", id);
    op->call = docker_call(docker_of(&op->base), "DELETE", path, NULL, next, op, &op->base.err);
    return op->call != NULL;
}

// Requests the removal of the sandbox's container in a list; false if the list does not have it.
static bool
remove_listed(struct docker_op *op, const struct http_call_result *list, http_call_fn next)
{
    json_auto_t *containers = json_loadb(list->body, list->body_len, 0, NULL);
    for (size_t i = 0; i < json_array_size(containers); i++) {
        const json_t *element = json_array_get(containers, i);
        struct docker_container container;
        if (docker_take_listed(docker_of(&op->base), element, &container) && container.ours &&
            strcmp(container.sandbox, op->base.id) == 0)
            return remove_container(op, container.id, next);
    }
    return false;
}

// ---- Destroying -----------------------------------------------------------------------------

// The monitor removes the rest as soon as the engine allows it.
static void
on_deleted(const struct http_call_result *result, void *arg)
{
    struct docker_op *op = arg;
    struct kg_error err = {0};
    op->call = NULL;
    // 409: it is being removed already; 500: part of it is still in use.
    bool again = result->status == 409 || result->status == 500;
    if (again && clock_mono_ms() < op->delete_until_ms) {
        loop_timer_start(op->timer, DELETE_PAUSE_MS);
        return;
    }
    if (result->status != 404)
        (void)docker_check(docker_of(&op->base), result, &err);
    op_finish_delete(&op->base, &err);
}

static void
on_listed_for_delete(const struct http_call_result *result, void *arg)
{
    struct docker_op *op = arg;
    struct kg_error err = {0};
    op->call = NULL;
    if (docker_check(docker_of(&op->base), result, &err) < 0 ||
        !remove_listed(op, result, on_deleted))
        op_finish_delete(&op->base, &err);
}

static void
ask_delete(void *arg)
{
    struct docker_op *op = arg;
    struct kg_error err = {0};
    if (op->container) {
        if (!remove_container(op, op->container, on_deleted))
            op_finish_delete(&op->base, &err);
        return;
    }
    op->call = docker_list(docker_of(&op->base), op->base.id, on_listed_for_delete, op, &err);
    if (!op->call)
        op_finish_delete(&op->base, &err);
}

static void
start_delete(struct docker_op *op)
{
    op_start_delete(&op->base);
    op->delete_until_ms = clock_mono_ms() + DELETE_MS;
    op->timer = loop_timer_new(op->base.provisioner->loop, ask_delete, op);
    ask_delete(op);
}

// ---- Creating -------------------------------------------------------------------------------

// The end of another container that had the sandbox's name is not the end of this one, however late
// it is reported.
static void
set_watched_container(const struct docker_op *op, const char *sandbox, const char *container)
{
    struct sandbox_watch *watch = watch_find(op->base.provisioner, sandbox);
    if (watch && container)
        watch->container = kg_strdup(container);
}

static void
on_started(const struct http_call_result *result, void *arg)
{
    struct docker_op *op = arg;
    op->call = NULL;
    bool started = result->status == 304 || // it was started already
                   docker_check(docker_of(&op->base), result, &op->base.err) == 0;
    if (started && op->died)
        kg_error_set(&op->base.err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "the sandbox's agent ended right after its start");
    if (op->base.err.code || op->base.cancelled) {
        start_delete(op);
        return;
    }
    watch_start(op->base.provisioner, op->base.id, 0, op->base.on_exit, op->base.arg, NULL);
    set_watched_container(op, op->base.id, op->container);
    op_finish(&op->base);
}

static void
ask_start(struct docker_op *op)
{
    struct docker *docker = docker_of(&op->base);
    KG_AUTO_FREE char *path = docker_container_path(docker, op->base.id, "/start");
    op->call = docker_call(docker, "POST", path, NULL, on_started, op, &op->base.err);
    if (!op->call)
        start_delete(op);
}

static void
on_displaced(const struct http_call_result *result, void *arg)
{
    struct docker_op *op = arg;
    op->call = NULL;
    bool gone =
        result->status == 404 || docker_check(docker_of(&op->base), result, &op->base.err) == 0;
    if (gone && !op->base.cancelled)
        start_create(op);
    else
        start_delete(op);
}

// Removes a half-made container of ours, but none that is not ours.
static void
on_listed_for_name(const struct http_call_result *result, void *arg)
{
    struct docker_op *op = arg;
    struct docker *docker = docker_of(&op->base);
    op->call = NULL;
    op->displaced = true;
    if (docker_check(docker, result, &op->base.err) == 0 && remove_listed(op, result, on_displaced))
        return;
    KG_AUTO_FREE char *name = sandbox_container_name(docker->base.gateway_id, op->base.id);
    if (!op->base.err.code)
        kg_error_set(&op->base.err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "docker: a container that is not kernelgate's has the name %s; "
                     "remove it with docker rm",
                     name);
    start_delete(op);
}

static void
ask_for_owner_of_name(struct docker_op *op)
{
    op->call =
        docker_list(docker_of(&op->base), op->base.id, on_listed_for_name, op, &op->base.err);
    if (!op->call)
        start_delete(op);
}

// Podman responds with 500 and the reason.
static bool
name_is_taken(const struct docker *docker, const struct http_call_result *result)
{
    return result->status == 409 ||
           (docker->podman && result->status == 500 && strstr(result->body, "already in use"));
}

static void
take_created(struct docker_op *op, const struct http_call_result *result)
{
    struct docker *docker = docker_of(&op->base);
    json_auto_t *body = json_loadb(result->body, result->body_len, 0, NULL);
    const char *id = json_string_value(json_object_get(body, "Id"));
    const json_t *warnings = json_object_get(body, "Warnings");
    op->container = id ? kg_strdup(id) : NULL;
    if (!json_array_size(warnings) || docker->warned)
        return;
    docker->warned = true; // the next create would give the same warning
    for (size_t i = 0; i < json_array_size(warnings); i++)
        log_warning("docker gave a warning for a sandbox",
                    LOG_STR("warning", json_string_value(json_array_get(warnings, i))));
}

static struct docker_op *
find_pulling(const struct docker *docker)
{
    struct provisioner_op *op;
    TAILQ_FOREACH(op, &docker->base.ops, next) {
        if (((struct docker_op *)op)->pulling)
            return (struct docker_op *)op;
    }
    return NULL;
}

// One pull for all creates that wait for the image.
static void
on_pulled(struct docker *docker, const struct kg_error *err)
{
    for (struct docker_op *op; (op = find_pulling(docker));) {
        op->pulling = false;
        op->pulled = true;
        if (err) {
            op->base.err = *err;
            start_delete(op);
        } else {
            start_create(op);
        }
    }
}

static void
wait_for_image(struct docker_op *op)
{
    op->pulling = docker_pull(docker_of(&op->base), on_pulled, &op->base.err) == 0;
    if (!op->pulling)
        start_delete(op);
}

static void
on_created(const struct http_call_result *result, void *arg)
{
    struct docker_op *op = arg;
    struct docker *docker = docker_of(&op->base);
    op->call = NULL;
    if (name_is_taken(docker, result) && !op->displaced) {
        ask_for_owner_of_name(op);
    } else if (!op->base.cancelled && result->status == 404 && !op->pulled) {
        wait_for_image(op);
    } else if (op->base.cancelled || docker_check(docker, result, &op->base.err) < 0) {
        start_delete(op);
    } else {
        take_created(op, result);
        ask_start(op);
    }
}

static void
start_create(struct docker_op *op)
{
    struct docker *docker = docker_of(&op->base);
    KG_AUTO_FREE char *name = sandbox_container_name(docker->base.gateway_id, op->base.id);
    KG_AUTO_FREE char *path = kg_asprintf("/containers/create?name=%s", name);
    if (docker_write_users(docker, op->base.id, &op->base.err) < 0) {
        start_delete(op);
        return;
    }
    json_t *body = docker_container_spec(docker, op->base.id, sandbox_agent_args(&op->base));
    op->call = docker_call(docker, "POST", path, body, on_created, op, &op->base.err);
    if (!op->call)
        start_delete(op);
}

bool
docker_op_explain(const struct provisioner_op *base, struct kg_error *err)
{
    const struct docker_op *op = (const struct docker_op *)base;
    if (!op->pulling)
        return false;
    kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                 "the image %.150s is being pulled; try again in a while", docker_of(base)->image);
    return true;
}

// ---- Recovering -----------------------------------------------------------------------------

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
    if (!container->state_dir || strcmp(container->state_dir, docker->base.root_dir) != 0)
        return false;
    if (!container->lives || (container->folder && strcmp(container->folder, docker->folder) == 0))
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
        else
            set_watched_container(op, container.sandbox, container.id);
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

static void
recover(struct docker_op *op)
{
    op->call = docker_list_all(docker_of(&op->base), on_listed, op, &op->base.err);
    if (!op->call)
        op_finish(&op->base);
}

// ---- Claiming -------------------------------------------------------------------------------

static void
on_limited(const struct http_call_result *result, void *arg)
{
    struct docker_op *op = arg;
    op->call = NULL;
    if (docker_check(docker_of(&op->base), result, &op->base.err) < 0)
        op_finish(&op->base);
    else
        op_claim(&op->base);
}

static void
start_claim(struct docker_op *op)
{
    struct docker *docker = docker_of(&op->base);
    if (op->base.memory_mb <= 0) {
        op_claim(&op->base);
        return;
    }
    op_set_state(&op->base, OP_RUNNING);
    KG_AUTO_FREE char *name = sandbox_container_name(docker->base.gateway_id, op->base.id);
    KG_AUTO_FREE char *path = kg_asprintf("/containers/%s/update", name);
    json_int_t bytes = sandbox_memory_bytes(&docker->limits, op->base.memory_mb);
    json_t *body = json_pack("{s:I, s:I}", "Memory", bytes, "MemorySwap", bytes);
    op->call = docker_call(docker, "POST", path, body, on_limited, op, &op->base.err);
    if (!op->call)
        op_finish(&op->base);
}

// ---- Starting -------------------------------------------------------------------------------

void
docker_op_cancelled(struct provisioner_op *base)
{
    struct docker_op *op = (struct docker_op *)base;
    if (op->pulling) { // a pull may take long
        op->pulling = false;
        start_delete(op);
    }
}

void
docker_op_start(struct provisioner_op *base)
{
    struct docker_op *op = (struct docker_op *)base;
    switch (base->kind) {
    case OP_CREATE:
        docker_monitor_start(docker_of(base));
        op_set_state(base, OP_RUNNING);
        if (base->cancelled)
            start_delete(op);
        else
            start_create(op);
        break;
    case OP_CLAIM:
        start_claim(op);
        break;
    case OP_DESTROY:
        start_delete(op);
        break;
    case OP_RECOVER:
        op_set_state(base, OP_WAITING);
        recover(op);
        break;
    }
}
