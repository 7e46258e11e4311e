// SPDX-License-Identifier: Apache-2.0
// What comes on a link of calls, as the agent reads it: frames, requests, bodies, and the
// parameters of its methods, but those of kernels. A command is always `cat`, and there are a few
// at most. The first byte says in parts of which size all of it comes.
#include <assert.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
changes_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_t *changes = changes_since(agent->changes, request_params(request), &err);

    if (changes)
        request_reply(request, changes);
    else
        request_fail(request, &err);
}

// A stream that goes on until its caller leaves.
static void
events_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    events_listen(agent->events, request);
}

// Has the parameters checked before what is run is replaced.
static void
run_call(struct request *request, void *arg)
{
    enum { MOST = 3 };
    const struct agent *agent = arg;
    pid_t keepers[COMMANDS_MAX];
    json_t *params = request_params(request);
    const struct kg_error err = {.code = KG_SESSION_BUSY};

    if (commands_keepers(agent->commands, keepers) >= MOST) {
        request_fail(request, &err);
        return;
    }
    if (json_is_string(json_array_get(json_object_get(params, "argv"), 0)))
        json_object_set_new(params, "argv", json_pack("[s]", "/bin/cat"));
    commands_run_call(request, arg);
}

static const struct method methods[] = {
    {"commands.run", run_call, false},
    {"commands.join", commands_join_call, false},
    {"commands.list", commands_list_call, false},
    {"commands.input", commands_input_call, true},
    {"commands.close_input", commands_close_input_call, false},
    {"commands.resize", commands_resize_call, false},
    {"commands.signal", commands_signal_call, false},
    {"changes", changes_call, false},
    {"events", events_call, false},
    {"files.list", files_list_call, false},
    {"files.describe", files_describe_call, false},
    {"files.read", files_read_call, false},
    {"files.write", files_write_call, true},
    {"files.append", files_append_call, true},
    {"files.delete", files_delete_call, false},
    {"files.stat", files_stat_call, false},
    {"files.chmod", files_chmod_call, false},
    {"files.watch", files_watch_call, false},
    {"files.unused", files_unused_call, false},
    {"files.mkdir", files_mkdir_call, false},
    {"files.move", files_move_call, false},
    {"files.copy", files_copy_call, false},
    {NULL, NULL, false},
};

static void
on_tick(void *arg)
{
    loop_stop(arg);
}

static void
on_link_end(void *arg)
{
    (void)arg;
}

// Every frame that the agent sends is one that a gateway takes.
static void
check_answers(int fd)
{
    KG_AUTO_BUF in = {0};
    struct frame frame;
    ssize_t n;
    int used;

    do {
        n = recv(fd, buf_reserve(&in, 1 << 16), 1 << 16, MSG_DONTWAIT);
        in.len += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    while ((used = frame_read(RPC_GATEWAY, in.data, in.len, &frame)) > 0)
        buf_consume(&in, (size_t)used);
    assert(used == 0);
}

static void
feed(struct agent *agent, struct loop_timer *tick, const char *data, size_t len, size_t part)
{
    int fds[2];

    int failed = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds);
    assert(!failed);
    struct conversation *taken = server_take(agent->server, fds[1], on_link_end, NULL);
    assert(taken);
    for (size_t at = 0; at < len; at += part) {
        if (send(fds[0], data + at, len - at < part ? len - at : part, MSG_NOSIGNAL) < 0)
            break; // the agent has had enough of it
        loop_timer_start(tick, 0);
        loop_run(agent->loop);
    }
    loop_timer_start(tick, 0);
    loop_run(agent->loop);
    check_answers(fds[0]);
    close(fds[0]);
}

// Without their keepers commands are killed by Linux.
static void
end_commands(struct agent *agent)
{
    pid_t keepers[COMMANDS_MAX];

    size_t n = commands_keepers(agent->commands, keepers);
    for (size_t i = 0; i < n; i++)
        (void)kill(keepers[i], SIGKILL);
    commands_free(agent->commands);
    for (size_t i = 0; i < n; i++)
        (void)waitpid(keepers[i], NULL, 0);
    children_free(agent->children);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { SMALLEST_PART = 16 };
    char dir[] = "/tmp/kg-fuzz-XXXXXX";

    if (size < 1)
        return 0;
    char *made = mkdtemp(dir);
    assert(made);
    KG_AUTO_FREE char *data_dir = kg_asprintf("%s/data", dir);
    if (mkdir(data_dir, 0700) != 0)
        abort();
    struct agent agent = {.loop = loop_new(), .settings = {.data_dir = data_dir, .root_dir = dir}};
    struct loop_timer *tick = loop_timer_new(agent.loop, on_tick, agent.loop);
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
    agent.children = children_new(agent.loop);
    const struct commands_settings commands = {
        .loop = agent.loop, .children = agent.children, .cgroup_root = dir};
    agent.commands = commands_new(&commands);
    agent.events = events_new();
    agent.changes = changes_new(data_dir);
    agent.server = server_new(agent.loop, methods, &agent);
    feed(&agent, tick, (const char *)data + 1, size - 1, SMALLEST_PART + 8 * (size_t)data[0]);
    end_commands(&agent);
    server_free(agent.server);
    events_free(agent.events);
    changes_free(agent.changes);
    loop_timer_free(tick);
    loop_free(agent.loop);
    int kept = path_remove_tree(dir, NULL);
    assert(!kept);
    return 0;
}
