// SPDX-License-Identifier: Apache-2.0
// What comes on a link of calls, as the agent reads it: frames, requests, bodies, and the
// parameters of the methods that start no process. The first byte says in parts of which size it
// comes.
#include <assert.h>
#include <string.h>
#include <sys/socket.h>
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

static const struct method methods[] = {
    {"changes", changes_call, false},          {"events", events_call, false},
    {"files.list", files_list_call, false},    {"files.describe", files_describe_call, false},
    {"files.read", files_read_call, false},    {"files.write", files_write_call, true},
    {"files.append", files_append_call, true}, {"files.delete", files_delete_call, false},
    {"files.stat", files_stat_call, false},    {"files.unused", files_unused_call, false},
    {"files.mkdir", files_mkdir_call, false},  {"files.move", files_move_call, false},
    {"files.copy", files_copy_call, false},    {NULL, NULL, false},
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

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { SMALLEST_PART = 16 };
    char dir[] = "/tmp/kg-fuzz-XXXXXX";

    if (size < 1)
        return 0;
    char *made = mkdtemp(dir);
    assert(made);
    struct agent agent = {.loop = loop_new(), .settings = {.data_dir = dir}};
    struct loop_timer *tick = loop_timer_new(agent.loop, on_tick, agent.loop);
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
    agent.events = events_new();
    agent.changes = changes_new(dir);
    agent.server = server_new(agent.loop, methods, &agent);
    feed(&agent, tick, (const char *)data + 1, size - 1, SMALLEST_PART + 8 * (size_t)data[0]);
    server_free(agent.server);
    events_free(agent.events);
    changes_free(agent.changes);
    loop_timer_free(tick);
    loop_free(agent.loop);
    int kept = path_remove_tree(dir, NULL);
    assert(!kept);
    return 0;
}
