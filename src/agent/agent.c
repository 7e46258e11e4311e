// SPDX-License-Identifier: Apache-2.0
// Puts the agent together. Its API listens on a socket whose name is gone before the first kernel
// starts: only the agent itself, through a descriptor of its own, can still connect to it.
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "files_api.h"

enum { MAX_BODY = 1 << 20, MAX_HEADER = 16 << 10, MAX_CONNECTIONS = 64, API_IDLE_S = 60 };

static int
listen_nameless(struct agent *agent, const char *dir, const char *path, struct kg_error *err)
{
    const struct http_server_settings settings = {
        .unix_path = path,
        .max_body_bytes = MAX_BODY,
        .max_header_bytes = MAX_HEADER,
        .max_connections = MAX_CONNECTIONS,
        .idle_timeout_s = API_IDLE_S,
    };

    if (mkdir(dir, 0700) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make %.100s", dir);
    agent->api = http_server_new(agent->loop, &settings, err);
    if (!agent->api)
        return -1;
    agent->api_socket = open(path, O_PATH | O_CLOEXEC);
    if (agent->api_socket < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open %.100s", path);
    return 0;
}

static int
start_api(struct agent *agent, struct kg_error *err)
{
    char random[9];
    struct kg_error ignored;

    id_random(random, 8);
    KG_AUTO_FREE char *dir = kg_asprintf("%s/.kg-agent-%s", agent->settings.tmp_dir, random);
    KG_AUTO_FREE char *path = kg_asprintf("%s/api", dir);
    int result = listen_nameless(agent, dir, path, err);
    if (path_remove_tree(dir, &ignored) != 0 && result == 0)
        result = kg_error_set(err, KG_INTERNAL, 0, "%s", ignored.message);
    if (result == 0)
        api_add_routes(agent);
    return result;
}

static int
connect_api(const struct agent *agent, struct kg_error *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    (void)snprintf(addr.sun_path, sizeof addr.sun_path, "/proc/self/fd/%d", agent->api_socket);
    KG_AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&addr, sizeof addr) != 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, errno, "not ready");
    return KG_STEAL_FD(fd);
}

static int
on_connect(const struct target *target, void *arg, struct kg_error *err)
{
    struct agent *agent = arg;

    if (target->channel == TARGET_AGENT)
        return connect_api(agent, err);
    if (target->channel == TARGET_CHANGES)
        return changes_connect(agent->changes, err);
    return kernels_connect(agent->kernels, target, err);
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
    return links_way_out(agent->links);
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

// What runs processes.
static void
make_kernels(struct agent *agent)
{
    const struct agent_settings *settings = &agent->settings;
    const struct commands_settings commands = {
        .loop = agent->loop,
        .children = agent->children,
        .cgroup_root = settings->cgroup_root,
    };
    agent->commands = commands_new(&commands);
    const struct kernels_settings kernels = {
        .loop = agent->loop,
        .children = agent->children,
        .events = agent->events,
        .commands = agent->commands,
        .tmp_dir = settings->tmp_dir,
        .cgroup_root = settings->cgroup_root,
        .close_links = on_close_links,
        .arg = agent,
    };
    agent->kernels = kernels_new(&kernels);
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
    agent->api_socket = -1;
    if (start_api(agent, err) != 0)
        return NULL;
    agent->changes = changes_new(loop, settings->data_dir);
    agent->uploads = uploads_new(loop);
    if (settings->egress_port) {
        agent->proxy = proxy_new(loop, settings->egress_port, on_way_out, agent, err);
        if (!agent->proxy)
            return NULL;
    }
    agent->children = children_new(loop);
    agent->events = events_new();
    make_kernels(agent);
    if (make_links(agent, err) != 0)
        return NULL;
    return KG_STEAL(agent);
}

void
agent_free(struct agent *agent)
{
    if (!agent)
        return;
    commands_free(agent->commands);
    kernels_free(agent->kernels);
    proxy_free(agent->proxy);
    listener_free(agent->listener);
    links_free(agent->links);
    events_free(agent->events);
    http_server_free(agent->api);
    uploads_free(agent->uploads);
    changes_free(agent->changes);
    children_free(agent->children);
    if (agent->api_socket >= 0)
        close(agent->api_socket);
    free(agent);
}
