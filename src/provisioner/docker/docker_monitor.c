// SPDX-License-Identifier: Apache-2.0
// Watches containers. The engine reports the end of containers in its event stream. The stream
// breaks when the engine ends, and has no earlier events: so each time it begins, and every 30
// seconds, we list all our containers, to find those that ended unnoticed and those that are
// unknown (whose removal failed earlier).
#include "docker_priv.h"

#include <string.h>

#define LOOK_MS 30000
#define RETRY_MS 1000

// ---- Events ---------------------------------------------------------------------------------

static void
on_end_of(struct docker *docker, const struct docker_container *container, const char *exit_code)
{
    struct provisioner_op *op = op_find(&docker->base, container->sandbox);
    struct sandbox_watch *watch = watch_find(&docker->base, container->sandbox);
    if (op && op->kind == OP_CREATE) {
        const char *made = ((struct docker_op *)op)->container; // not one that had its name
        ((struct docker_op *)op)->died |= made && strcmp(made, container->id) == 0;
    } else if (watch && (!watch->container || strcmp(watch->container, container->id) == 0)) {
        log_info("the agent has ended", LOG_STR("sandbox", container->sandbox),
                 LOG_STR("exit_code", exit_code));
        watch_fire(watch);
    }
}

// Docker has "die" and "exitCode"; some versions of Podman have "died" and "containerExitCode".
static void
monitor_on_event(const json_t *event, void *arg)
{
    const char *action = json_string_value(json_object_get(event, "Action"));
    const json_t *actor = json_object_get(event, "Actor");
    const json_t *attributes = json_object_get(actor, "Attributes");
    const char *exit_code = json_string_value(json_object_get(attributes, "exitCode"));
    struct docker_container container;
    if (!action || (strcmp(action, "die") != 0 && strcmp(action, "died") != 0))
        return;
    if (!exit_code)
        exit_code = json_string_value(json_object_get(attributes, "containerExitCode"));
    if (docker_take_actor(arg, actor, &container) && container.ours)
        on_end_of(arg, &container, exit_code);
}

static void
log_refusal(struct docker *docker, int status)
{
    if (!docker->monitor.no_events)
        log_warning("docker sends no events; its containers are polled instead",
                    LOG_INT("status", status));
    docker->monitor.no_events = true;
}

static bool
monitor_on_event_data(int status, const void *data, size_t len, void *arg)
{
    struct docker *docker = arg;
    if (status != 200) {
        log_refusal(docker, status);
        return false;
    }
    docker->monitor.no_events = false;
    return json_lines_feed(&docker->monitor.lines, data, len, monitor_on_event, docker);
}

// Does not retry at once: an engine that keeps refusing this request would keep both of us busy.
static void
monitor_on_events_end(const struct http_call_result *result, void *arg)
{
    struct docker *docker = arg;
    docker->monitor.events = NULL;
    buf_fini(&docker->monitor.lines.rest);
    docker->monitor.lines.rest = (struct buf){0};
    if (!result->err && result->status != 200)
        log_refusal(docker, result->status);
    int64_t wait_ms = docker->monitor.events_ms + RETRY_MS - clock_mono_ms();
    loop_timer_start(docker->monitor.timer, wait_ms > 0 ? wait_ms : 0);
}

// Requests events since the start of the listing, so that none is missed in between.
static void
ask_for_events(struct docker *docker)
{
    struct kg_error err = {0};
    docker->monitor.events_ms = clock_mono_ms();
    // No filter by kind of event: Podman's names for them differ between versions.
    KG_AUTO_FREE char *filters =
        kg_asprintf("{\"type\":[\"container\"],\"label\":[\"" DOCKER_LABEL_GATEWAY "=%s\"]}",
                    docker->base.gateway_id);
    KG_AUTO_FREE char *escaped = docker_escape(filters);
    KG_AUTO_FREE char *path = kg_asprintf("/events?since=%lld&filters=%s",
                                          (long long)docker->monitor.asked_s - 1, escaped);
    docker->monitor.events = docker_stream(docker, "GET", path, monitor_on_event_data,
                                           monitor_on_events_end, docker, &err);
    if (!docker->monitor.events)
        log_warning("cannot receive docker's events", LOG_ERR(&err));
}

// ---- Listing --------------------------------------------------------------------------------

static void
remove_stray(const char *id, void *arg)
{
    struct docker *docker = arg;
    if (!watch_find(&docker->base, id) && !op_find(&docker->base, id))
        op_remove_leftover(&docker->base, id, NULL);
}

// The first watch over a sandbox that existed when the listing began, but is not in it.
static struct sandbox_watch *
find_dead(const struct docker *docker, const json_t *living)
{
    struct sandbox_watch *watch;
    TAILQ_FOREACH(watch, &docker->base.watches, next) {
        if (watch->since_ms < docker->monitor.asked_ms && !json_object_get(living, watch->id) &&
            !op_find(&docker->base, watch->id))
            return watch;
    }
    return NULL;
}

static void
compare(struct docker *docker, const json_t *list)
{
    json_auto_t *living = json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct docker_container container;
        if (!docker_take_listed(docker, json_array_get(list, i), &container) || !container.ours)
            continue;
        if (container.lives)
            json_object_set_new(living, container.sandbox, json_true());
        remove_stray(container.sandbox, docker);
    }
    for (struct sandbox_watch *watch; (watch = find_dead(docker, living));)
        watch_fire(watch); // whose callback may end other watches
    struct kg_error err = {0};
    if (folder_list(docker->base.state_dir, remove_stray, docker, &err) < 0)
        log_warning("cannot list the sandboxes' folders", LOG_ERR(&err));
}

static void
on_failed_look(struct docker *docker, const struct kg_error *err)
{
    if (!docker->monitor.down)
        log_warning("docker does not answer", LOG_ERR(err));
    docker->monitor.down = true;
    loop_timer_start(docker->monitor.timer, RETRY_MS);
}

static void
monitor_on_listed(const struct http_call_result *result, void *arg)
{
    struct docker *docker = arg;
    struct kg_error err = {0};
    docker->monitor.look = NULL;
    json_auto_t *list = json_loadb(result->body, result->body_len, 0, NULL);
    if (docker_check(docker, result, &err) == 0 && !json_is_array(list))
        kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "docker: invalid list of containers");
    if (!json_is_array(list)) {
        on_failed_look(docker, &err);
        return;
    }
    if (docker->monitor.down)
        log_info("docker answers again");
    docker->monitor.down = false;
    loop_timer_start(docker->monitor.timer, LOOK_MS);
    compare(docker, list);
    if (!docker->monitor.events)
        ask_for_events(docker);
}

static void
ask_for_list(struct docker *docker)
{
    struct kg_error err = {0};
    docker->monitor.asked_ms = clock_mono_ms();
    docker->monitor.asked_s = clock_wall_ms() / 1000;
    docker->monitor.look = docker_list(docker, NULL, monitor_on_listed, docker, &err);
    if (!docker->monitor.look)
        on_failed_look(docker, &err);
}

static void
monitor_on_version(const struct http_call_result *result, void *arg)
{
    struct docker *docker = arg;
    struct kg_error err = {0};
    docker->monitor.look = NULL;
    json_auto_t *body = json_loadb(result->body, result->body_len, 0, NULL);
    if (docker_check(docker, result, &err) < 0 || docker_take_version(docker, body, &err) < 0)
        on_failed_look(docker, &err);
    else
        ask_for_list(docker);
}

// An engine that was down may have been upgraded.
static void
look(void *arg)
{
    struct docker *docker = arg;
    struct kg_error err = {0};
    if (docker->monitor.look)
        return;
    if (!docker->monitor.down) {
        ask_for_list(docker);
        return;
    }
    docker->monitor.look =
        docker_call(docker, "GET", "/version", NULL, monitor_on_version, docker, &err);
    if (!docker->monitor.look)
        on_failed_look(docker, &err);
}

void
docker_monitor_start(struct docker *docker)
{
    if (docker->monitor.timer)
        return;
    docker->monitor.timer = loop_timer_new(docker->base.loop, look, docker);
    loop_timer_start(docker->monitor.timer, 0);
}

void
docker_monitor_fini(struct docker *docker)
{
    loop_timer_free(docker->monitor.timer);
    if (docker->monitor.look)
        http_call_cancel(docker->monitor.look);
    if (docker->monitor.events)
        http_call_cancel(docker->monitor.events);
    buf_fini(&docker->monitor.lines.rest);
}
