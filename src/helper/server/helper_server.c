// SPDX-License-Identifier: Apache-2.0
// Carries out requests with the engine and the zygotes. A gateway that breaks the protocol, or asks
// for more than there can be, is not answered any more: this process ends.
#include "helper_server.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "file_watch.h"
#include "helper_packet.h"
#include "provisioner_engine.h"
#include "server_process.h"
#include "trusted_open.h"

enum {
    REQUESTS_MAX = 4096, // that are not answered yet
    IDLE_LOOK_MS = 10,   // between looks whether all is removed
    END_MS = 700,        // for what is being removed when the gateway ends
};

struct helper_server;

// A sandbox that the gateway may name: neither a zygote's container nor anybody else's.
struct served_sandbox {
    TAILQ_ENTRY(served_sandbox) link;
    struct helper_server *server;
    char id[HELPER_ID_MAX + 1];
    bool made;                     // else it is being created
    bool ended;                    // its container has ended by itself
    bool removed;                  // it is being removed
    struct provisioner_op *making; // or NULL
    uint32_t serial;               // of the request to create it
};

// A request whose answer is not complete.
struct served_request {
    TAILQ_ENTRY(served_request) link;
    struct helper_server *server;
    struct helper_request request;
    struct provisioner_op *op; // or NULL
};

struct served_file {
    struct helper_server *server;
    struct loop_file_watch *watch; // NULL: it is not watched
};

struct helper_server {
    const struct helper_server_settings *settings;
    struct loop *loop;
    struct provisioner *provisioner; // NULL: no engine works
    struct zygotes *zygotes;         // NULL: kernels cannot be forked
    struct loop_fd *watch;
    struct loop_timer *idle;
    struct loop_timer *ending;
    int64_t end_by_ms; // 0: it serves
    struct provisioner_op *recovery;
    TAILQ_HEAD(, served_sandbox) sandboxes;
    size_t n_sandboxes;
    TAILQ_HEAD(, served_request) requests;
    size_t n_requests;
    bool warming, cooling;
    uint32_t warm_serial, cool_serial;
    bool *ready; // of each zygote, as the gateway knows it
    struct served_file *files;
    struct server_processes *processes; // of MCP servers
    bool failed;
};

// ---- Answers --------------------------------------------------------------------------------

// Waits where the gateway does not read: this process has nothing else to do then.
static void
server_say(struct helper_server *server, const struct helper_reply *reply, int fd)
{
    if (!server->watch || helper_send(server->settings->fd, reply, sizeof *reply, fd, 0) == 0)
        return;
    server->failed |= errno != EPIPE && errno != ECONNRESET; // it has ended
    loop_timer_start(server->ending, 0);                     // not here: callers go on
}

static void
server_done(struct helper_server *server, uint32_t serial, const struct kg_error *err,
            int64_t number)
{
    struct helper_reply reply = {.event = HELPER_DONE, .serial = serial, .number = number};
    if (err && err->code)
        helper_reply_set_error(&reply, err);
    server_say(server, &reply, -1);
}

static void
server_refuse(struct helper_server *server, uint32_t serial, const char *why)
{
    struct kg_error err;
    (void)kg_error_set(&err, KG_INVALID, 0, "the helper refuses: %s", why);
    log_warning("a request of the gateway is refused", LOG_ERR(&err));
    server_done(server, serial, &err, 0);
}

static struct served_request *
request_new(struct helper_server *server, const struct helper_request *request)
{
    struct served_request *served = KG_NEW(struct served_request);
    served->server = server;
    served->request = *request;
    TAILQ_INSERT_TAIL(&server->requests, served, link);
    server->n_requests++;
    return served;
}

static void
request_free(struct served_request *served)
{
    TAILQ_REMOVE(&served->server->requests, served, link);
    served->server->n_requests--;
    free(served);
}

static void
request_done(struct served_request *served, const struct kg_error *err, int64_t number)
{
    struct helper_server *server = served->server;
    uint32_t serial = served->request.serial;
    request_free(served);
    server_done(server, serial, err, number);
}

// ---- Sandboxes ------------------------------------------------------------------------------

static struct served_sandbox *
sandbox_find(const struct helper_server *server, const char *id)
{
    struct served_sandbox *sandbox;
    TAILQ_FOREACH(sandbox, &server->sandboxes, link) {
        if (strcmp(sandbox->id, id) == 0)
            return sandbox;
    }
    return NULL;
}

static struct served_sandbox *
sandbox_add(struct helper_server *server, const char *id)
{
    struct served_sandbox *sandbox = KG_NEW(struct served_sandbox);
    sandbox->server = server;
    memcpy(sandbox->id, id, strlen(id)); // checked, or from the engine
    TAILQ_INSERT_TAIL(&server->sandboxes, sandbox, link);
    server->n_sandboxes++;
    return sandbox;
}

static void
sandbox_drop(struct served_sandbox *sandbox)
{
    TAILQ_REMOVE(&sandbox->server->sandboxes, sandbox, link);
    sandbox->server->n_sandboxes--;
    free(sandbox);
}

static void
server_on_exit(const char *id, void *arg)
{
    struct helper_server *server = arg;
    struct helper_reply reply = {.event = HELPER_EXITED};
    struct served_sandbox *sandbox = sandbox_find(server, id);
    if (sandbox)
        sandbox->ended = true;
    memcpy(reply.id, id, strlen(id));
    server_say(server, &reply, -1);
}

static void
sandbox_on_exit(const char *id, void *arg)
{
    const struct served_sandbox *sandbox = arg;
    server_on_exit(id, sandbox->server);
}

static void
sandbox_on_made(const struct kg_error *err, void *arg)
{
    struct served_sandbox *sandbox = arg;
    struct helper_server *server = sandbox->server;
    uint32_t serial = sandbox->serial;
    sandbox->making = NULL;
    sandbox->made = true;
    if (err)
        sandbox_drop(sandbox);
    server_done(server, serial, err, 0);
}

// The socket that the sandbox's agent dials.
static int
server_pass_door(struct helper_server *server, enum helper_event event, const char *id,
                 uint32_t serial, struct kg_error *err)
{
    struct helper_reply reply = {.event = event, .serial = serial};
    memcpy(reply.id, id, strlen(id));
    KG_AUTO_FD fd = folder_listen(server->provisioner->state_dir, id, err);
    if (fd < 0)
        return -1;
    server_say(server, &reply, fd);
    return 0;
}

static void
serve_create(struct helper_server *server, const struct helper_request *request)
{
    const struct provisioner_sandbox_spec spec = {
        .id = request->id,
        .agent_idle_timeout_s = (int)request->number,
        .network = request->flag,
    };
    struct kg_error err = {0};
    if (sandbox_find(server, request->id)) {
        server_refuse(server, request->serial, "there is a sandbox of that id");
        return;
    }
    if (server->n_sandboxes >= server->settings->max_sandboxes) {
        server_refuse(server, request->serial, "there are as many sandboxes as there may be");
        return;
    }
    struct served_sandbox *sandbox = sandbox_add(server, request->id);
    sandbox->serial = request->serial;
    sandbox->making = provisioner_create(server->provisioner, &spec, sandbox_on_made,
                                         sandbox_on_exit, sandbox, &err);
    if (!sandbox->making) {
        sandbox_drop(sandbox);
        server_done(server, request->serial, &err, 0);
        return;
    }
    if (provisioner_dials(server->provisioner) ||
        server_pass_door(server, HELPER_DOOR, request->id, request->serial, &err) == 0)
        return;
    provisioner_op_cancel(sandbox->making); // it is removed in the background
    sandbox_drop(sandbox);
    server_done(server, request->serial, &err, 0);
}

static void
on_destroyed(const struct kg_error *err, void *arg)
{
    struct served_request *served = arg;
    struct served_sandbox *sandbox = sandbox_find(served->server, served->request.id);
    if (sandbox && !err)
        sandbox_drop(sandbox);
    else if (sandbox)
        sandbox->removed = false; // it can be tried again
    request_done(served, err, 0);
}

// One that is not there is removed. Names of others' containers are not there, either.
static void
serve_destroy(struct helper_server *server, const struct helper_request *request)
{
    struct served_sandbox *sandbox = sandbox_find(server, request->id);
    struct kg_error err;
    if (!sandbox) {
        server_done(server, request->serial, NULL, 0);
        return;
    }
    if (sandbox->making || sandbox->removed) {
        server_refuse(server, request->serial,
                      sandbox->making ? "the sandbox is being made" : "it is being removed");
        return;
    }
    struct served_request *served = request_new(server, request);
    sandbox->removed = true;
    served->op = provisioner_destroy(server->provisioner, request->id, on_destroyed, served, &err);
    if (!served->op)
        on_destroyed(&err, served);
}

static void
serve_list(struct helper_server *server, const struct helper_request *request)
{
    const struct served_sandbox *sandbox;
    TAILQ_FOREACH(sandbox, &server->sandboxes, link) {
        struct helper_reply reply = {.event = HELPER_FOUND, .serial = request->serial};
        struct kg_error err;
        if (!sandbox->made || sandbox->ended || sandbox->removed)
            continue;
        memcpy(reply.id, sandbox->id, sizeof sandbox->id);
        if (!request->flag || provisioner_dials(server->provisioner))
            server_say(server, &reply, -1);
        else if (server_pass_door(server, HELPER_FOUND, sandbox->id, request->serial, &err) < 0)
            log_warning("a sandbox has no door", LOG_STR("sandbox", sandbox->id), LOG_ERR(&err));
    }
    server_done(server, request->serial, NULL, 0);
}

static struct served_sandbox *
find_made(struct helper_server *server, const struct helper_request *request)
{
    struct served_sandbox *sandbox = sandbox_find(server, request->id);
    if (sandbox && sandbox->made && !sandbox->removed)
        return sandbox;
    server_refuse(server, request->serial, "there is no such sandbox");
    return NULL;
}

static void
serve_limit(struct helper_server *server, const struct helper_request *request)
{
    struct kg_error err = {0};
    if (!find_made(server, request))
        return;
    int result = provisioner_limit(server->provisioner, request->id, request->number, &err);
    server_done(server, request->serial, result < 0 ? &err : NULL, 0);
}

static void
serve_dial(struct helper_server *server, const struct helper_request *request)
{
    struct helper_reply reply = {.event = HELPER_DONE, .serial = request->serial};
    struct kg_error err = {0};
    uint64_t epoch = 0;
    if (!find_made(server, request))
        return;
    if (!provisioner_dials(server->provisioner)) {
        server_refuse(server, request->serial, "agents do not listen");
        return;
    }
    KG_AUTO_FD fd = provisioner_dial(server->provisioner, request->id, &epoch, &err);
    if (fd < 0)
        helper_reply_set_error(&reply, &err);
    reply.number = (int64_t)epoch;
    server_say(server, &reply, fd);
}

// ---- Zygotes --------------------------------------------------------------------------------

// Tells the gateway which zygotes can fork, if that has changed.
static void
server_tell_zygotes(struct helper_server *server, bool all)
{
    for (size_t i = 0; i < server->settings->n_zygotes; i++) {
        struct helper_reply reply = {.event = HELPER_ZYGOTE, .number = (int64_t)i};
        struct kg_error err = {0};
        bool ready = zygotes_ready(server->zygotes, server->settings->zygotes[i].kernel, &err) == 0;
        if (ready == server->ready[i] && !all)
            continue;
        server->ready[i] = ready;
        if (!ready)
            helper_reply_set_error(&reply, &err);
        server_say(server, &reply, -1);
    }
}

static void
on_zygotes_changed(void *arg)
{
    server_tell_zygotes(arg, false);
}

static void
on_settled(void *arg)
{
    struct helper_server *server = arg;
    server_tell_zygotes(server, true);
    server->warming = false;
    server_done(server, server->warm_serial, NULL, 0);
}

static void
serve_warm(struct helper_server *server, const struct helper_request *request)
{
    if (!server->zygotes || server->warm_serial || server->cool_serial) {
        server_refuse(server, request->serial, "zygotes start once, where there are any");
        return;
    }
    server->warming = true;
    server->warm_serial = request->serial;
    zygotes_start(server->zygotes, on_settled, server);
}

static void
on_idle_look(void *arg)
{
    struct helper_server *server = arg;
    if (!provisioner_is_idle(server->provisioner)) {
        loop_timer_start(server->idle, IDLE_LOOK_MS);
        return;
    }
    server->cooling = false;
    server_done(server, server->cool_serial, NULL, 0);
}

static void
serve_cool(struct helper_server *server, const struct helper_request *request)
{
    if (!server->zygotes || server->cool_serial) {
        server_refuse(server, request->serial, "zygotes end once, where there are any");
        return;
    }
    server->cooling = true;
    server->cool_serial = request->serial;
    zygotes_stop(server->zygotes);
    if (server->warming) {
        server->warming = false;
        server_done(server, server->warm_serial, NULL, 0);
    }
    loop_timer_start(server->idle, 0);
}

static void
on_forked(int pid, const struct kg_error *err, void *arg)
{
    request_done(arg, err, pid);
}

static void
serve_fork(struct helper_server *server, const struct helper_request *request)
{
    struct kg_error err;
    if (!find_made(server, request))
        return;
    if (!server->zygotes || (size_t)request->number >= server->settings->n_zygotes) {
        server_refuse(server, request->serial, "there is no such zygote");
        return;
    }
    struct served_request *served = request_new(server, request);
    if (!zygotes_fork(server->zygotes, server->settings->zygotes[request->number].kernel,
                      request->id, request->fork, on_forked, served, &err))
        request_done(served, &err, 0);
}

// ---- Programs of MCP servers ----------------------------------------------------------------

static void
serve_server(struct helper_server *server, const struct helper_request *request)
{
    const struct servers_file *servers = server->settings->servers;
    struct helper_reply reply = {.event = HELPER_DONE, .serial = request->serial};
    struct kg_error err = {0};
    size_t number = (size_t)request->number;
    if (!servers || number >= servers->n || !servers->servers[number].argv) {
        server_refuse(server, request->serial, "there is no such MCP server");
        return;
    }
    KG_AUTO_FD fd =
        server_process_start(server->processes, &servers->servers[number], number, &err);
    if (fd < 0)
        helper_reply_set_error(&reply, &err);
    server_say(server, &reply, fd);
}

// ---- Files of the settings ------------------------------------------------------------------

// Opened for a gateway that may not open it.
static void
server_on_file(void *arg)
{
    const struct served_file *file = arg;
    struct helper_server *server = file->server;
    int64_t number = file - server->files;
    struct helper_reply reply = {.event = HELPER_FILE, .number = number};
    struct kg_error err;
    const char *path = server->settings->files[number];
    KG_AUTO_FD fd = trusted_open(path, server->settings->user, server->settings->group, &err);
    if (fd < 0)
        helper_reply_set_error(&reply, &err);
    server_say(server, &reply, fd);
}

static void
server_watch_files(struct helper_server *server)
{
    const struct helper_server_settings *settings = server->settings;
    server->files = kg_calloc(settings->n_files + 1, sizeof server->files[0]);
    for (size_t i = 0; i < settings->n_files; i++) {
        struct served_file *file = &server->files[i];
        file->server = server;
        if (!settings->files[i])
            continue;
        file->watch = loop_file_watch_new(server->loop, settings->files[i], server_on_file, file);
        server_on_file(file); // it may have changed since the gateway read it
    }
}

// ---- The end --------------------------------------------------------------------------------

static void server_end(struct helper_server *server);

static void
on_end_look(void *arg)
{
    struct helper_server *server = arg;
    if (server->watch)
        server_end(server);
    else if (provisioner_is_idle(server->provisioner) || clock_mono_ms() > server->end_by_ms)
        loop_stop(server->loop);
    else
        loop_timer_start(server->ending, IDLE_LOOK_MS);
}

// The gateway has ended, or is not to be served: what is half-made is removed, and the rest waits
// for the next gateway.
static void
server_end(struct helper_server *server)
{
    struct served_sandbox *sandbox;
    struct served_request *served;
    loop_fd_free(KG_STEAL(server->watch));
    server->end_by_ms = clock_mono_ms() + END_MS;
    if (!server->provisioner) {
        loop_stop(server->loop);
        return;
    }
    provisioner_op_cancel(KG_STEAL(server->recovery));
    if (server->zygotes)
        zygotes_stop(server->zygotes);
    TAILQ_FOREACH(served, &server->requests, link)
        provisioner_op_cancel(KG_STEAL(served->op));
    TAILQ_FOREACH(sandbox, &server->sandboxes, link)
        provisioner_op_cancel(KG_STEAL(sandbox->making));
    loop_timer_start(server->ending, 0);
}

// ---- Requests -------------------------------------------------------------------------------

static void
server_dispatch(struct helper_server *server, const struct helper_request *request)
{
    switch ((enum helper_verb)request->verb) {
    case HELPER_CREATE:
        serve_create(server, request);
        break;
    case HELPER_DESTROY:
        serve_destroy(server, request);
        break;
    case HELPER_LIST:
        serve_list(server, request);
        break;
    case HELPER_LIMIT:
        serve_limit(server, request);
        break;
    case HELPER_FORK:
        serve_fork(server, request);
        break;
    case HELPER_WARM:
        serve_warm(server, request);
        break;
    case HELPER_COOL:
        serve_cool(server, request);
        break;
    case HELPER_DIAL:
        serve_dial(server, request);
        break;
    case HELPER_SERVER:
        serve_server(server, request);
        break;
    }
}

static void
on_request(int socket, int events, void *arg)
{
    struct helper_server *server = arg;
    struct helper_request request;
    int received;
    (void)events;
    ssize_t n = helper_receive(socket, &request, sizeof request, MSG_DONTWAIT, &received);
    if (n < 0 && errno == EAGAIN)
        return;
    bool valid = n > 0 && received < 0 && server->n_requests < REQUESTS_MAX &&
                 helper_request_is_valid(&request, (size_t)n) && request.serial > 0;
    if (received >= 0)
        close(received);
    if (n > 0 && !valid)
        log_error("the gateway breaks the helper's protocol: the helper ends");
    server->failed |= n > 0 && !valid;
    if (!valid)
        server_end(server);
    else if (!server->provisioner && request.verb != HELPER_SERVER)
        server_refuse(server, request.serial, "it makes no sandboxes");
    else
        server_dispatch(server, &request);
}

// ---- Life -----------------------------------------------------------------------------------

static void
server_make_zygotes(struct helper_server *server)
{
    const struct helper_server_settings *settings = server->settings;
    if (settings->n_zygotes == 0 || !provisioner_can_enter(server->provisioner))
        return;
    const struct zygotes_settings zygotes = {
        .provisioner = server->provisioner,
        .library_path = settings->zygote_library,
        .on_change = on_zygotes_changed,
        .arg = server,
    };
    server->zygotes = zygotes_new(server->loop, &zygotes);
    for (size_t i = 0; i < settings->n_zygotes; i++)
        zygotes_add(server->zygotes, &settings->zygotes[i]);
}

static void
on_found(const char *id, const json_t *meta, void *arg)
{
    struct helper_server *server = arg;
    (void)meta; // the gateway has the records
    if (strlen(id) <= HELPER_ID_MAX)
        sandbox_add(server, id)->made = true;
}

// The first packet, once it is known which sandboxes live.
static void
server_say_started(struct helper_server *server, const struct kg_error *err)
{
    struct helper_reply reply = {.event = HELPER_STARTED};
    if (err) {
        helper_reply_set_error(&reply, err);
    } else {
        struct provisioner_traits traits = provisioner_traits(server->provisioner);
        reply.flag = traits.can_enter;
        reply.number = traits.memory_bound;
    }
    server_say(server, &reply, -1);
    server_watch_files(server);
}

static void
on_recovered(const struct kg_error *err, void *arg)
{
    struct helper_server *server = arg;
    server->recovery = NULL;
    server_say_started(server, err);
}

static void
server_on_found_exit(const char *id, void *arg)
{
    server_on_exit(id, arg);
}

static void
server_start(struct helper_server *server)
{
    struct kg_error err = {0};
    if (server->settings->engine)
        server->provisioner = provisioner_new(server->loop, server->settings->engine, &err);
    else
        (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "another engine was chosen");
    if (!server->provisioner) {
        server_say_started(server, &err);
        return;
    }
    server_make_zygotes(server);
    server->recovery = provisioner_recover(server->provisioner, on_found, on_recovered,
                                           server_on_found_exit, server, &err);
    if (!server->recovery)
        server_say_started(server, &err);
}

// What the gateway has left half-made is removed at the next start.
static void
server_fini(struct helper_server *server)
{
    struct served_sandbox *sandbox;
    struct served_request *served;
    provisioner_op_cancel(server->recovery);
    zygotes_free(server->zygotes);
    while ((served = TAILQ_FIRST(&server->requests))) {
        provisioner_op_cancel(served->op);
        request_free(served);
    }
    while ((sandbox = TAILQ_FIRST(&server->sandboxes))) {
        provisioner_op_cancel(sandbox->making);
        sandbox_drop(sandbox);
    }
    provisioner_free(server->provisioner);
    for (size_t i = 0; server->files && i < server->settings->n_files; i++)
        loop_file_watch_free(server->files[i].watch);
    free(server->files);
    loop_fd_free(server->watch);
    loop_timer_free(server->idle);
    loop_timer_free(server->ending);
    free(server->ready);
    close(server->settings->fd);
    server_processes_free(server->processes);
}

int
helper_serve(const struct helper_server_settings *settings)
{
    KG_AUTO(loop) loop = loop_new();
    struct helper_server server = {.settings = settings, .loop = loop};
    TAILQ_INIT(&server.sandboxes);
    TAILQ_INIT(&server.requests);
    server.processes = server_processes_new(loop, settings->network, false);
    server.ready = kg_calloc(settings->n_zygotes + 1, sizeof server.ready[0]);
    server.idle = loop_timer_new(loop, on_idle_look, &server);
    server.ending = loop_timer_new(loop, on_end_look, &server);
    server.watch = loop_fd_new(loop, settings->fd, LOOP_READ, on_request, &server);
    server_start(&server);
    loop_run(loop);
    server_fini(&server);
    return server.failed ? 1 : 0;
}
