// SPDX-License-Identifier: Apache-2.0
// Requests of code: clients are the connections, places the requests that the gateway knows.
#include "tenant.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "events.h"
#include "loop.h"
#include "relays.h"

enum {
    LOOSE_MAX = 32, // clients that have no place: their line, or their reading, is awaited
    SAY_MS = 5000,
    TAKE_MS = 10 * 1000,
    CALLER_MS = 10 * 1000,
    DIAL_MS = 20,
    ANSWER_MS = 20 * 60 * 1000,
    PLACE_MS = 250, // a place takes one request in this time: code cannot flood the gateway
    UNREAD_MAX = 1024 * 1024,
    METHOD_MAX = 32,
    BACKLOG = 64,
    ACCEPTS_PER_TURN = 8,
    PAUSE_MS = 100,
};

struct place;

struct client {
    TAILQ_ENTRY(client) entry; // of the loose ones, while `place` is NULL
    struct tenant *tenant;
    struct place *place;
    int fd;
    struct loop_fd *watch;
    struct loop_timer *timer;
    struct buf in;  // its line, until that is complete
    struct buf out; // what it has not read
    bool answered;  // it has heard all when `out` is empty
    bool calls;     // tools: it is one of the callers, which wait for a link
    size_t line_len;
};

// A request that the gateway was told of. It is taken until the gateway has ended it, also where
// its client has left.
struct place {
    int64_t id; // 0: free
    struct client *client;
    int64_t began_ms;
};

struct tenant {
    struct loop *loop;
    struct events *events;
    struct tenant_settings settings;
    struct relays *tool_callers;
    TAILQ_HEAD(, client) callers; // that wait for a link
    int n_callers;
    struct loop_timer *dial; // when no link was to be had
    int fd;
    struct loop_fd *watch;
    struct loop_timer *pause;
    bool connected; // to a gateway that answers requests
    int64_t last_id;
    struct place places[TENANT_REQUESTS_MAX];
    TAILQ_HEAD(, client) loose; // the one that has waited longest first
    int n_loose;
};

// ---- Clients --------------------------------------------------------------------------------

static void
client_enter_loose(struct client *client)
{
    TAILQ_INSERT_TAIL(&client->tenant->loose, client, entry);
    client->tenant->n_loose++;
}

static void
client_leave_loose(struct client *client)
{
    TAILQ_REMOVE(&client->tenant->loose, client, entry);
    client->tenant->n_loose--;
}

static void
client_leave_callers(struct client *client)
{
    TAILQ_REMOVE(&client->tenant->callers, client, entry);
    client->tenant->n_callers--;
    client->calls = false;
}

// The gateway is not informed: see client_withdraw().
static void
client_free(struct client *client)
{
    if (client->place)
        client->place->client = NULL;
    else if (client->calls)
        client_leave_callers(client);
    else
        client_leave_loose(client);
    loop_fd_free(client->watch);
    loop_timer_free(client->timer);
    if (client->fd >= 0)
        close(client->fd);
    buf_fini(&client->in);
    buf_fini(&client->out);
    free(client);
}

// The gateway may end the request. It is the last step of its caller: if the event cannot be sent,
// all requests end.
static void
tenant_withdraw(struct tenant *tenant, const struct place *place)
{
    if (place->id)
        events_add(tenant->events,
                   json_pack("{s:s, s:I}", "type", "request_end", "id", (json_int_t)place->id));
}

// Ends the connection before its request has ended.
static void
client_withdraw(struct client *client)
{
    struct tenant *tenant = client->tenant;
    const struct place *place = client->place;
    client_free(client);
    if (place)
        tenant_withdraw(tenant, place);
}

// Sends what the client takes now. It may be freed.
static void
client_flush(struct client *client)
{
    ssize_t n = 0;
    while (client->out.len > 0) {
        n = send(client->fd, client->out.data, client->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0)
            break;
        buf_consume(&client->out, (size_t)n);
    }
    bool failed = n < 0 && errno != EAGAIN && errno != EINTR;
    if (failed || client->out.len > UNREAD_MAX)
        client_withdraw(client);
    else if (client->out.len == 0 && client->answered && shutdown(client->fd, SHUT_WR) != 0)
        client_free(client);
    else
        loop_fd_set(client->watch, client->out.len > 0 ? LOOP_READ | LOOP_WRITE : LOOP_READ);
}

static void
client_append(struct client *client, const json_t *line)
{
    KG_AUTO_FREE char *text = json_dumps(line, JSON_COMPACT);
    buf_append_str(&client->out, text);
    buf_append_str(&client->out, "\n");
}

// Nothing follows what was appended. The client may be freed.
static void
client_finish(struct client *client)
{
    client->answered = true;
    if (client->place) {
        client->place->client = NULL;
        client->place = NULL;
        client_enter_loose(client);
    } else if (client->calls) {
        client_leave_callers(client);
        client_enter_loose(client);
    }
    loop_timer_start(client->timer, TAKE_MS);
    client_flush(client);
}

static void
client_refuse(struct client *client, const struct kg_error *err)
{
    json_auto_t *line = json_pack("{s:s, s:s, s:s}", "type", "error", "message", err->message,
                                  "code", kg_code_info(err->code)->name);
    client_append(client, line);
    client_finish(client);
}

static void
client_on_time(void *arg)
{
    struct client *client = arg;
    struct kg_error err;
    struct tenant *tenant = client->tenant;
    const struct place *place = client->place;
    if (client->calls) {
        (void)kg_error_set(&err, KG_SESSION_BUSY, 0,
                           "too many connections of this sandbox begin to call tools; try again");
        client_refuse(client, &err);
        return;
    }
    if (!place) {
        client_free(client);
        return;
    }
    (void)kg_error_set(&err, KG_INTERNAL, 0, "the gateway did not answer in time");
    client_refuse(client, &err);
    tenant_withdraw(tenant, place);
}

// ---- A request ------------------------------------------------------------------------------

static bool
method_is_valid(const char *method)
{
    size_t len = strlen(method);
    return len >= 1 && len <= METHOD_MAX && strspn(method, "abcdefghijklmnopqrstuvwxyz_.") == len;
}

// Returns the event for the gateway.
static json_t *
line_parse(const char *line, size_t len, struct kg_error *err)
{
    json_auto_t *message = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const char *method;
    json_t *params;
    if (json_unpack(message, "{s:s, s:o !}", "method", &method, "params", &params) != 0 ||
        !json_is_object(params) || !method_is_valid(method)) {
        (void)kg_error_set(err, KG_INVALID, 0,
                           "a request is one line: {\"method\": NAME, \"params\": {...}}");
        return NULL;
    }
    // Written again, numbers may have become longer.
    if (json_dumpb(params, NULL, 0, JSON_COMPACT) > TENANT_LINE_MAX) {
        (void)kg_error_set(err, KG_INVALID, 0, "a request has at most %d bytes", TENANT_LINE_MAX);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:O}", "type", "request", "method", method, "params", params);
}

static bool
place_is_free(const struct place *place, int64_t now_ms)
{
    int64_t age_ms = now_ms - place->began_ms;
    if (place->began_ms == 0)
        return true;
    // A gateway that has forgotten a request does not keep its place for ever.
    return place->id == 0 ? age_ms >= PLACE_MS : !place->client && age_ms >= ANSWER_MS;
}

static struct place *
place_find(struct tenant *tenant)
{
    int64_t now_ms = clock_mono_ms();
    for (size_t i = 0; i < TENANT_REQUESTS_MAX; i++) {
        if (place_is_free(&tenant->places[i], now_ms))
            return &tenant->places[i];
    }
    return NULL;
}

static void
client_ask(struct client *client, struct place *place, json_t *event)
{
    struct tenant *tenant = client->tenant;
    assert(place && event);
    *place = (struct place){.id = ++tenant->last_id, .client = client, .began_ms = clock_mono_ms()};
    client_leave_loose(client);
    client->place = place;
    buf_fini(&client->in);
    loop_timer_start(client->timer, ANSWER_MS);
    json_object_set_new(event, "id", json_integer(place->id));
    events_add(tenant->events, json_incref(event)); // this may end all requests
}

// ---- Tools ----------------------------------------------------------------------------------

// Joins it with a link, which gets what has come after the line, too. False: none is to be had now,
// since the gateway takes only so many at a time.
static bool
caller_join(struct client *client)
{
    struct tenant *tenant = client->tenant;
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    struct kg_error err;
    const char *rest = client->in.data + client->line_len + 1;
    size_t rest_len = client->in.len - client->line_len - 1;
    (void)getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    KG_AUTO_FD link = tenant->settings.open_tools(peer.pid, tenant->settings.arg);
    if (link < 0 && tenant->connected)
        return false;
    if (link < 0 || (rest_len > 0 && send(link, rest, rest_len, MSG_NOSIGNAL | MSG_DONTWAIT) !=
                                         (ssize_t)rest_len)) {
        (void)kg_error_set(&err, KG_DRAINING, 0, "no gateway is connected to this sandbox now");
        client_refuse(client, &err);
        return true;
    }
    loop_fd_free(KG_STEAL(client->watch)); // before another watch of this descriptor
    relays_join(tenant->tool_callers, KG_STEAL_FD(client->fd), KG_STEAL_FD(link));
    client_free(client);
    return true;
}

static void
tenant_join_callers(void *arg)
{
    struct tenant *tenant = arg;
    for (struct client *first; (first = TAILQ_FIRST(&tenant->callers));) {
        if (!caller_join(first)) {
            loop_timer_start(tenant->dial, DIAL_MS);
            return;
        }
    }
}

// What follows the line is not read here.
static void
client_call_tools(struct client *client, size_t line_len)
{
    struct tenant *tenant = client->tenant;
    struct kg_error err;
    if (relays_room(tenant->tool_callers) <= tenant->n_callers) {
        (void)kg_error_set(&err, KG_SESSION_BUSY, 0,
                           "%d connections of this sandbox call tools already",
                           TENANT_TOOL_CALLERS_MAX);
        client_refuse(client, &err);
        return;
    }
    client_leave_loose(client);
    client->calls = true;
    client->line_len = line_len;
    TAILQ_INSERT_TAIL(&tenant->callers, client, entry);
    tenant->n_callers++;
    loop_fd_set(client->watch, 0);
    loop_timer_start(client->timer, CALLER_MS);
    if (!loop_timer_active(tenant->dial))
        tenant_join_callers(tenant);
}

// ---- Lines ----------------------------------------------------------------------------------

static void
client_take_line(struct client *client, size_t len)
{
    struct tenant *tenant = client->tenant;
    struct kg_error err = {0};
    json_auto_t *event = line_parse(client->in.data, len, &err);
    const char *method = json_string_value(json_object_get(event, "method"));
    if (method && strcmp(method, "tools") == 0) {
        client_call_tools(client, len);
        return;
    }
    struct place *place = place_find(tenant);
    if (event && !tenant->connected)
        (void)kg_error_set(&err, KG_DRAINING, 0, "no gateway is connected to this sandbox now");
    else if (event && !place)
        (void)kg_error_set(&err, KG_SESSION_BUSY, 0, "%d requests of this sandbox are under way",
                           TENANT_REQUESTS_MAX);
    if (err.code)
        client_refuse(client, &err);
    else
        client_ask(client, place, event);
}

// ---- Reading --------------------------------------------------------------------------------

static void
client_read_line(struct client *client)
{
    struct kg_error err;
    size_t had = client->in.len;
    size_t room = TENANT_LINE_MAX + 1 - had;
    ssize_t n = recv(client->fd, buf_reserve(&client->in, room), room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        client_free(client);
        return;
    }
    client->in.len += (size_t)n;
    const char *end = memchr(client->in.data + had, '\n', (size_t)n);
    if (end) {
        client_take_line(client, (size_t)(end - client->in.data));
    } else if (client->in.len > TENANT_LINE_MAX) {
        (void)kg_error_set(&err, KG_INVALID, 0, "a request has at most %d bytes", TENANT_LINE_MAX);
        client_refuse(client, &err);
    }
}

// It has nothing more to say, and only its end is awaited. What it has said beyond its line is read
// all the same: a connection that is closed before would lose the answer.
static void
client_read_end(struct client *client)
{
    char unwanted[4096];
    ssize_t n = recv(client->fd, unwanted, sizeof unwanted, MSG_DONTWAIT);
    if (n == 0 || (n > 0 && !client->answered) || (n < 0 && errno != EAGAIN && errno != EINTR))
        client_withdraw(client);
}

static void
client_on_ready(int fd, int events, void *arg)
{
    struct client *client = arg;
    (void)fd;
    if (events & LOOP_WRITE)
        client_flush(client);
    else if (client->place || client->answered)
        client_read_end(client);
    else
        client_read_line(client);
}

// ---- Accepting ------------------------------------------------------------------------------

static void
client_add(struct tenant *tenant, int fd)
{
    // There are more where requests have ended meanwhile.
    while (tenant->n_loose >= LOOSE_MAX)
        client_free(TAILQ_FIRST(&tenant->loose));
    struct client *client = KG_NEW(struct client);
    client->tenant = tenant;
    client->fd = fd;
    client->watch = loop_fd_new(tenant->loop, fd, LOOP_READ, client_on_ready, client);
    client->timer = loop_timer_new(tenant->loop, client_on_time, client);
    loop_timer_start(client->timer, SAY_MS);
    client_enter_loose(client);
}

static void
tenant_on_connection(int fd, int events, void *arg)
{
    struct tenant *tenant = arg;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (client >= 0) {
            client_add(tenant, client);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            loop_fd_set(tenant->watch, 0);
            loop_timer_start(tenant->pause, PAUSE_MS);
            return;
        } else {
            return;
        }
    }
}

static void
tenant_on_pause_over(void *arg)
{
    struct tenant *tenant = arg;
    loop_fd_set(tenant->watch, LOOP_READ);
}

static int
tenant_listen(const char *name, struct kg_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX}; // its path begins with a NUL
    size_t len = strlen(name);
    if (len >= sizeof address.sun_path)
        return kg_error_set(err, KG_INVALID, 0, "the name of the tenant's socket is too long");
    memcpy(address.sun_path + 1, name, len);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
    KG_AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, size) != 0 ||
        listen(fd, BACKLOG) != 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot listen on the tenant's socket");
    return KG_STEAL_FD(fd);
}

// ---- The gateway ----------------------------------------------------------------------------

bool
tenant_answer(struct tenant *tenant, int64_t id, const json_t *lines, bool last)
{
    struct place *place = NULL;
    for (size_t i = 0; i < TENANT_REQUESTS_MAX; i++) {
        if (id > 0 && tenant->places[i].id == id)
            place = &tenant->places[i];
    }
    if (!place)
        return false;
    struct client *client = place->client;
    if (last || !client)
        place->id = 0;
    if (!client)
        return false;
    size_t i;
    json_t *line;
    json_array_foreach(lines, i, line) {
        if (json_is_object(line))
            client_append(client, line);
    }
    if (last)
        client_finish(client);
    else
        client_flush(client);
    if (!place->client) // it has gone, or takes no more
        place->id = 0;
    return last || place->client;
}

// The requests that it was told of are unknown to the next one.
static void
tenant_on_gateway_lost(void *arg)
{
    struct tenant *tenant = arg;
    struct kg_error err;
    tenant->connected = false;
    (void)kg_error_set(&err, KG_INTERNAL, 0,
                       "the connection to the gateway has ended, and it is not known how far the "
                       "request got; try again");
    for (size_t i = 0; i < TENANT_REQUESTS_MAX; i++) {
        struct place *place = &tenant->places[i];
        place->id = 0;
        if (place->client)
            client_refuse(place->client, &err);
    }
}

void
tenant_set_gateway(struct tenant *tenant, bool answers)
{
    tenant->connected = answers;
}

// ---- Start and end --------------------------------------------------------------------------

struct tenant *
tenant_new(struct loop *loop, const struct tenant_settings *settings, struct kg_error *err)
{
    int fd = tenant_listen(settings->name, err);
    if (fd < 0)
        return NULL;
    struct tenant *tenant = KG_NEW(struct tenant);
    tenant->loop = loop;
    tenant->events = settings->events;
    tenant->settings = *settings;
    tenant->tool_callers = relays_new(loop, TENANT_TOOL_CALLERS_MAX);
    TAILQ_INIT(&tenant->callers);
    tenant->dial = loop_timer_new(loop, tenant_join_callers, tenant);
    tenant->fd = fd;
    TAILQ_INIT(&tenant->loose);
    tenant->watch = loop_fd_new(loop, fd, LOOP_READ, tenant_on_connection, tenant);
    tenant->pause = loop_timer_new(loop, tenant_on_pause_over, tenant);
    events_on_lost(settings->events, tenant_on_gateway_lost, tenant);
    return tenant;
}

void
tenant_free(struct tenant *tenant)
{
    if (!tenant)
        return;
    events_on_lost(tenant->events, NULL, NULL);
    for (size_t i = 0; i < TENANT_REQUESTS_MAX; i++) {
        if (tenant->places[i].client)
            client_free(tenant->places[i].client);
    }
    for (struct client *client; (client = TAILQ_FIRST(&tenant->loose));)
        client_free(client);
    for (struct client *client; (client = TAILQ_FIRST(&tenant->callers));)
        client_free(client);
    loop_timer_free(tenant->dial);
    relays_free(tenant->tool_callers);
    loop_fd_free(tenant->watch);
    loop_timer_free(tenant->pause);
    close(tenant->fd);
    free(tenant);
}
