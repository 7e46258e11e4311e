// SPDX-License-Identifier: Apache-2.0
// Puts the agent together.
#include "agent.h"

#include <string.h>
#include <sys/socket.h>

#include "agent_priv.h"
#include "walk.h"

static int
on_connect(const struct target *target, void *arg, struct kg_error *err)
{
    struct agent *agent = arg;

    return kernels_connect(agent->kernels, target, err);
}

static void
on_finish_links(const char *kernel, void *arg)
{
    struct agent *agent = arg;
    links_finish_kernel(agent->links, kernel);
}

static void
on_close_links(const char *kernel, void *arg)
{
    struct agent *agent = arg;
    links_close_kernel(agent->links, kernel);
}

static void
on_idle_timeout(void *arg)
{
    struct agent *agent = arg;

    log_info("no gateway: ending", LOG_INT("idle_timeout_s", agent->settings.idle_timeout_s));
    agent->on_end(agent->arg);
}

static int
on_way_out(void *arg)
{
    const struct agent *agent = arg;
    return links_open(agent->links, LINKS_OUT);
}

static void
on_gateway_link(int fd, uint64_t epoch, const char *target, void *arg)
{
    const struct agent *agent = arg;
    links_take(agent->links, fd, epoch, target);
}

static int
make_links(struct agent *agent, struct kg_error *err)
{
    const struct agent_settings *settings = &agent->settings;
    const struct links_settings links = {
        .door_path = settings->door_path,
        .idle_timeout_s = settings->idle_timeout_s,
        .connect = on_connect,
        .port_is_own = agent_port_is_own,
        .server = agent->server,
        .on_idle_timeout = on_idle_timeout,
        .arg = agent,
    };
    agent->links = links_new(agent->loop, &links);
    if (settings->door_path)
        return 0;
    struct listener_settings listener = {
        .port = settings->listen_port,
        .sandbox = settings->sandbox,
        .on_link = on_gateway_link,
        .arg = agent,
    };
    memcpy(listener.public_key, settings->gateway_key, sizeof listener.public_key);
    agent->listener = listener_new(agent->loop, &listener, err);
    return agent->listener ? 0 : -1;
}

static void
on_commands_change(void *arg)
{
    const struct agent *agent = arg;
    usage_report_look(agent->usage_report);
}

// What runs processes.
static void
make_kernels(struct agent *agent)
{
    const struct agent_settings *settings = &agent->settings;
    const struct commands_settings commands = {
        .loop = agent->loop,
        .children = agent->children,
        .cgroup_root = settings->cgroup_root,
        .on_change = on_commands_change,
        .arg = agent,
    };
    agent->commands = commands_new(&commands);
    const struct kernels_settings kernels = {
        .loop = agent->loop,
        .children = agent->children,
        .events = agent->events,
        .commands = agent->commands,
        .tmp_dir = settings->tmp_dir,
        .cgroup_root = settings->cgroup_root,
        .finish_links = on_finish_links,
        .close_links = on_close_links,
        .arg = agent,
    };
    agent->kernels = kernels_new(&kernels);
}

// Its first line says whose process it is.
static int
on_tools(pid_t pid, void *arg)
{
    const struct agent *agent = arg;
    KG_AUTO_FD fd = links_open(agent->links, LINKS_TOOLS);
    const char *kernel = kernels_of_process(agent->kernels, pid);
    json_auto_t *line = json_pack("{s:s?}", "kernel", kernel);
    KG_AUTO_FREE char *text = json_dumps(line, JSON_COMPACT);
    KG_AUTO_FREE char *sent = kg_asprintf("%s\n", text);
    ssize_t len = (ssize_t)strlen(sent);

    if (fd < 0 || send(fd, sent, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) != len)
        return -1;
    return KG_STEAL_FD(fd);
}

// A sandbox without it still runs code.
static void
make_tenant(struct agent *agent)
{
    const struct tenant_settings settings = {
        .name = agent->settings.tenant_name,
        .events = agent->events,
        .open_tools = on_tools,
        .arg = agent,
    };
    struct kg_error err;

    if (!settings.name)
        return;
    agent->tenant = tenant_new(agent->loop, &settings, &err);
    if (!agent->tenant)
        log_warning("code cannot ask the gateway for packages or tools", LOG_ERR(&err));
}

struct agent *
agent_new(struct loop *loop, const struct agent_settings *settings, loop_fn on_end, void *arg,
          struct kg_error *err)
{
    KG_AUTO(agent) agent = KG_NEW(struct agent);

    agent->loop = loop;
    agent->settings = *settings;
    agent->on_end = on_end;
    agent->arg = arg;
    agent->started_ms = clock_mono_ms();
    agent->server = server_new(loop, agent_methods, agent);
    agent->changes = changes_new(settings->data_dir);
    walk_use_second_name(settings->root_dir, settings->second_name, settings->data_dir);
    if (settings->egress_port) {
        agent->proxy = proxy_new(loop, settings->egress_port, on_way_out, agent, err);
        if (!agent->proxy)
            return NULL;
    }
    agent->children = children_new(loop);
    agent->events = events_new();
    make_tenant(agent);
    agent->socket_watch = socket_watch_new(loop, settings->cgroup_root);
    make_kernels(agent);
    agent->usage_report = usage_report_new(loop, settings->cgroup_root, agent->commands,
                                           agent->kernels, agent->events);
    if (make_links(agent, err) != 0)
        return NULL;
    return KG_STEAL(agent);
}

void
agent_free(struct agent *agent)
{
    if (!agent)
        return;
    mirroring_cancel(agent->mirroring);
    usage_report_free(agent->usage_report);
    commands_free(agent->commands);
    kernels_free(agent->kernels);
    proxy_free(agent->proxy);
    listener_free(agent->listener);
    links_free(agent->links);
    socket_watch_free(agent->socket_watch);
    tenant_free(agent->tenant);
    events_free(agent->events);
    server_free(agent->server);
    changes_free(agent->changes);
    children_free(agent->children);
    free(agent);
}
