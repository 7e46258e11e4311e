// SPDX-License-Identifier: Apache-2.0
// One client of a kernel: a WebSocket at one end, a tap (kernel_tap.h) at the other.
//
// A disconnected client may reconnect. Its tap is kept for a while, and the messages that it gets
// meanwhile are sent to the next connection with the same session_id.
//
// A client may have connected again before the end of its earlier connection was noticed. The
// connection that came last is not always the one in use: for a page of JupyterLab,
// jupyter_server's gateway client opens two and abandons the first, which may arrive after the
// second and is not closed. So both are kept, each with a tap, and both get all messages. The one
// on which the client sends something is the one in use; it closes the others.
//
// Bounds: what the kernel says waits in the tap's queue while more than WEBSOCKET_HIGH_WATERMARK
// waits for the client. What the client says waits here if the tap takes no more; the WebSocket is
// not read meanwhile. What all clients say, whole messages and parts of messages, takes at most
// MAX_RECEIVED_BYTES here, that of one owner half of it; messages of up to WEBSOCKET_SMALL_BYTES
// are not counted while they are received.
//
// A client's key is checked again for each message, before the tap gets it, and every RECHECK_MS
// for a client that sends nothing, or is disconnected.

#include <string.h>

#include "framing_priv.h"
#include "kernel_tap.h"
#include "notebook_priv.h"
#include "pace.h"
#include "websocket_priv.h"

enum {
    MESSAGE_SLACK = 64 << 10, // for the parts beside content and buffers
    SHARED_MIN_BYTES = 16 << 10,
    MAX_RECEIVED_BYTES = 64 << 20, // or twice the largest message
    RETRY_MS = 50,
    RECHECK_MS = 5 * 1000,
    RETRY_KEY_MS = 1000,  // if keys cannot be checked
    SESSION_ID_MAX = 128, // of a client, in the query
};

// A message of the client that the tap does not take yet.
struct delayed {
    STAILQ_ENTRY(delayed) link;
    bool is_text;
    bool is_admitted; // counted as a request
    struct buf data;
};

struct kernel_socket {
    TAILQ_ENTRY(kernel_socket) link;
    struct notebook *notebook;
    struct http_server *server;
    struct websocket *ws; // NULL while the client is disconnected
    struct kernel_tap *tap;
    struct session_client *client; // keeps the kernel from expiring; or NULL
    int64_t said_ms;               // when either side last sent a message
    char *owner;
    const char *shares_as;       // budget_name() when it connected
    struct http_credential *key; // of the client; NULL: it needs none, or the kernel's id is one
    char kernel_id[KERNEL_ID_LEN + 1];
    char *session_id; // of the client; "": none
    bool is_v1;
    bool owes_idle;     // "starting", "restarting" or "dead" was sent last
    bool may_have_twin; // another connection of the same client, unless that has ended
    STAILQ_HEAD(, delayed) delayed;
    size_t delayed_bytes;
    struct loop_timer *retry;
    struct http_pace *crowded; // of the connection: looks while a large part is being sent
    struct loop_timer *quiet;  // frees `client`
    struct loop_timer *away;   // frees the socket of a disconnected client
    struct loop_timer *recheck;
};

// ---- The end --------------------------------------------------------------------------------

static void
kernel_socket_free(struct kernel_socket *socket)
{
    struct delayed *delayed;
    TAILQ_REMOVE(&socket->notebook->sockets, socket, link);
    while ((delayed = STAILQ_FIRST(&socket->delayed))) {
        STAILQ_REMOVE_HEAD(&socket->delayed, link);
        buf_fini(&delayed->data);
        free(delayed);
    }
    kernel_tap_close(socket->tap);
    session_client_free(socket->client);
    loop_timer_free(socket->retry);
    http_pace_free(socket->crowded);
    loop_timer_free(socket->quiet);
    loop_timer_free(socket->away);
    loop_timer_free(socket->recheck);
    http_credential_free(socket->key);
    free(socket->session_id);
    free(socket->owner);
    free(socket);
}

static void
socket_on_away(void *arg)
{
    kernel_socket_free(arg);
}

static bool
is_of_kernel(const struct kernel_socket *socket, const char *owner, const char *kernel_id)
{
    return strcmp(socket->kernel_id, kernel_id) == 0 && strcmp(socket->owner, owner) == 0;
}

static bool
are_twins(const struct kernel_socket *a, const struct kernel_socket *b)
{
    return a != b && a->ws && b->ws && *a->session_id &&
           strcmp(a->session_id, b->session_id) == 0 && is_of_kernel(a, b->owner, b->kernel_id);
}

static bool
has_twin(const struct kernel_socket *socket)
{
    const struct kernel_socket *other;
    if (!socket->may_have_twin)
        return false;
    TAILQ_FOREACH(other, &socket->notebook->sockets, link) {
        if (are_twins(socket, other))
            return true;
    }
    return false;
}

// The connection has ended. A client with a session_id may reconnect.
static void
kernel_socket_leave(struct kernel_socket *socket)
{
    struct notebook *notebook = socket->notebook;
    bool is_needed = *socket->session_id && !has_twin(socket);
    socket->ws = NULL;
    if (!is_needed || notebook->replay_ms == 0 || kernel_tap_has_ended(socket->tap)) {
        kernel_socket_free(socket);
        return;
    }
    session_client_free(KG_STEAL(socket->client));
    kernel_tap_let_go(socket->tap);
    http_pace_free(KG_STEAL(socket->crowded));
    loop_timer_stop(socket->quiet);
    loop_timer_start(socket->away, notebook->replay_ms);
    TAILQ_REMOVE(&notebook->sockets, socket, link);
    TAILQ_INSERT_TAIL(&notebook->sockets, socket, link);
}

static void
socket_on_end(void *arg)
{
    kernel_socket_leave(arg);
}

// The WebSocket is closed before its owner is freed: what it still sends refers to nothing here.
static void
kernel_socket_close(struct kernel_socket *socket, int status, const char *reason)
{
    http_pace_free(KG_STEAL(socket->crowded));
    if (socket->ws)
        websocket_close(socket->ws, status, reason);
    kernel_socket_free(socket);
}

// The client has sent something here.
static void
close_twins(struct kernel_socket *socket)
{
    struct kernel_socket *other, *next;
    if (!socket->may_have_twin)
        return;
    for (other = TAILQ_FIRST(&socket->notebook->sockets); other; other = next) {
        next = TAILQ_NEXT(other, link);
        if (are_twins(socket, other))
            kernel_socket_close(other, WEBSOCKET_POLICY, "the client uses another connection");
    }
    socket->may_have_twin = false;
}

// ---- The key --------------------------------------------------------------------------------

static void
revoke(struct kernel_socket *socket)
{
    log_info("the key of a WebSocket is no longer valid", LOG_STR("kernel", socket->kernel_id),
             LOG_STR("owner", socket->owner));
    kernel_socket_close(socket, WEBSOCKET_POLICY, "the API key is no longer valid");
}

// Messages have waited for the answer.
static void
socket_on_key_checked(enum http_validity validity, void *arg)
{
    struct kernel_socket *socket = arg;
    if (validity == HTTP_INVALID)
        revoke(socket);
    else if (!STAILQ_EMPTY(&socket->delayed))
        loop_timer_start(socket->retry, validity == HTTP_VALID ? 0 : RETRY_KEY_MS);
}

static void
socket_on_recheck(void *arg)
{
    struct kernel_socket *socket = arg;
    loop_timer_start(socket->recheck, RECHECK_MS);
    if (http_credential_check(socket->key) == HTTP_INVALID)
        revoke(socket);
}

// What the client sends from now on needs this key.
static void
set_key(struct kernel_socket *socket, const struct http_request *request)
{
    http_credential_free(socket->key);
    socket->key = http_credential_new(request, socket_on_key_checked, socket);
    if (socket->key)
        loop_timer_start(socket->recheck, RECHECK_MS);
    else
        loop_timer_stop(socket->recheck);
}

// ---- The kernel -----------------------------------------------------------------------------

// NULL if the kernel is about to end.
static struct session *
session_of(const struct kernel_socket *socket)
{
    if (socket->client)
        return session_client_session(socket->client);
    return kernel_find(socket->notebook, socket->owner, socket->kernel_id, NULL);
}

// A message was sent: the kernel is active, and does not expire while the client is connected.
static void
touch(struct kernel_socket *socket)
{
    struct session *session = session_of(socket);
    int64_t hold_ms = socket->notebook->hold_ms;
    socket->said_ms = clock_mono_ms();
    if (!session)
        return;
    session_touch(session);
    if (!socket->client)
        socket->client = session_client_new(session);
    if (hold_ms > 0 && !loop_timer_active(socket->quiet))
        loop_timer_start(socket->quiet, hold_ms);
}

// A forgotten client must not keep its kernel for ever. It stays connected, but its kernel can
// expire like one without clients (unless it is running code).
static void
socket_on_quiet(void *arg)
{
    struct kernel_socket *socket = arg;
    int64_t left_ms = socket->said_ms + socket->notebook->hold_ms - clock_mono_ms();
    if (left_ms > 0)
        loop_timer_start(socket->quiet, left_ms);
    else
        session_client_free(KG_STEAL(socket->client));
}

// ---- From the kernel ------------------------------------------------------------------------

// What a client held is freed after its turn of the loop. Until then others do not count as slow:
// on a busy machine their timers may run in the same turn.
static bool
was_another_cut(const struct notebook *notebook)
{
    return notebook->cut_ms > 0 && clock_mono_ms() - notebook->cut_ms < HTTP_CROWDED_TICK_MS;
}

static bool
socket_is_crowded(const void *arg)
{
    const struct kernel_socket *socket = arg;
    return kernel_tap_is_crowded(socket->tap) && !was_another_cut(socket->notebook);
}

static void
socket_on_slow(void *arg)
{
    struct kernel_socket *socket = arg;
    socket->notebook->cut_ms = clock_mono_ms();
    http_pace_free(KG_STEAL(socket->crowded));
    websocket_abort(socket->ws);
    kernel_socket_leave(socket);
}

static const struct http_pace_rule crowded_rule = {
    .tick_ms = HTTP_CROWDED_TICK_MS,
    .max_ticks = HTTP_CROWDED_TICKS,
    .min_bytes = HTTP_CROWDED_TICK_BYTES,
    .rests = true,
    .counts = socket_is_crowded,
    .on_slow = socket_on_slow,
};

// A large part is sent as it is, and counts as held until then.
static void
write_shared(struct kernel_socket *socket, const struct kernel_bytes *part)
{
    websocket_write_shared(socket->ws, part->data, part->len, kernel_message_release,
                           kernel_tap_hold(socket->tap));
    http_pace_start(socket->crowded);
}

// `is_held`: the message is the tap's, not one that was made here.
static void
write_message(struct kernel_socket *socket, const struct kernel_message *message, bool is_held)
{
    KG_AUTO_FRAMED out;
    (socket->is_v1 ? framing_write_v1 : framing_write_legacy)(message, &out);
    websocket_begin(socket->ws, out.is_text, out.len);
    struct buf small = out.head;
    out.head = (struct buf){0};
    for (size_t i = 0; i < out.n_parts; i++) {
        if (!is_held || out.parts[i].len < SHARED_MIN_BYTES) {
            buf_append(&small, out.parts[i].data, out.parts[i].len);
            continue;
        }
        websocket_write(socket->ws, small.data, small.len);
        small.len = 0;
        write_shared(socket, &out.parts[i]);
    }
    websocket_write(socket->ws, small.data, small.len);
    buf_fini(&small);
}

// Takes `content`.
static void
write_own(struct kernel_socket *socket, enum kernel_channel channel, const char *type,
          struct kernel_bytes parent_header, char *content)
{
    struct own_message own;
    own_message_init(&own, channel, type, socket->kernel_id, parent_header, content);
    write_message(socket, &own.message, false);
    own_message_fini(&own);
}

static const struct kernel_bytes no_parent = {"", 0};

static void
write_state(struct kernel_socket *socket, const char *state)
{
    write_own(socket, KERNEL_IOPUB, "status", no_parent, own_status(state));
}

static void
write_stderr(struct kernel_socket *socket, const char *text)
{
    write_own(socket, KERNEL_IOPUB, "stream", no_parent, own_stderr(text));
}

static void
write_loss(struct kernel_socket *socket, const struct kernel_tap_item *item)
{
    KG_AUTO_FREE char *text =
        kg_asprintf("[kernelgate dropped %llu messages (%llu bytes) of output that this client did "
                    "not read in time]\n",
                    (unsigned long long)item->lost_messages, (unsigned long long)item->lost_bytes);
    write_stderr(socket, text);
}

// NULL if the kernel is about to end.
static const struct kernel *
kernel_of(const struct kernel_socket *socket)
{
    const struct session *session = session_of(socket);
    return session ? session_first_kernel(session) : NULL;
}

// The process has ended: `state` is "restarting" or "dead".
static void
write_end(struct kernel_socket *socket, const char *state)
{
    const struct kernel *kernel = kernel_of(socket);
    const char *reason = kernel ? kernel_end_reason(kernel) : NULL;
    KG_AUTO_FREE char *text =
        reason ? kg_asprintf("[kernelgate: the kernel is %s: %s]\n", state, reason) : NULL;
    if (text)
        write_stderr(socket, text);
    socket->owes_idle = true;
    write_state(socket, state);
}

// False: the socket is gone.
static bool
write_item(struct kernel_socket *socket, const struct kernel_tap_item *item)
{
    switch (item->kind) {
    case KERNEL_TAP_MESSAGE:
        write_message(socket, item->message, true);
        return true;
    case KERNEL_TAP_LOST:
        write_loss(socket, item);
        return true;
    case KERNEL_TAP_RESTARTING:
        write_end(socket, "restarting");
        return true;
    case KERNEL_TAP_DEAD:
        write_end(socket, "dead");
        return true;
    case KERNEL_TAP_READY:
        // Its own status may have been published before iopub was connected, which a kernel greets
        // with iopub_welcome.
        if (socket->owes_idle)
            write_state(socket, kernel_first_state(kernel_of(socket)));
        socket->owes_idle = false;
        return true;
    case KERNEL_TAP_STARTING:
    case KERNEL_TAP_REQUESTED: // clients take `restarting` for the kernel's death
        return true;
    case KERNEL_TAP_REFUSED:
        kernel_socket_close(socket, WEBSOCKET_BAD_DATA, "the message is not JSON");
        return false;
    case KERNEL_TAP_CUT:
        kernel_socket_close(socket, WEBSOCKET_TRY_LATER, "the client reads too slowly");
        return false;
    case KERNEL_TAP_ENDED:
        kernel_socket_close(socket, WEBSOCKET_GOING_AWAY, "the kernel has ended");
        return false;
    }
    return true;
}

static void
pump(struct kernel_socket *socket)
{
    struct kernel_tap_item item;
    while (websocket_backlog(socket->ws) <= WEBSOCKET_HIGH_WATERMARK) {
        if (!kernel_tap_next(socket->tap, &item))
            return;
        touch(socket);
        if (!write_item(socket, &item))
            return;
    }
}

// ---- To the kernel --------------------------------------------------------------------------

static int
read_message(const struct kernel_socket *socket, bool is_text, const void *data, size_t len,
             struct framed *ret, struct kg_error *err)
{
    if (is_text)
        return framing_read_text(data, len, ret, err);
    return socket->is_v1 ? framing_read_v1(data, len, ret, err)
                         : framing_read_binary(data, len, ret, err);
}

static size_t
max_message_bytes(const struct kernel_socket *socket)
{
    return socket->notebook->face->max_output_bytes + MESSAGE_SLACK;
}

static bool
socket_may_receive(size_t len, void *arg)
{
    const struct kernel_socket *socket = arg, *other;
    size_t half = MAX_RECEIVED_BYTES / 2, largest = max_message_bytes(socket);
    if (half < largest)
        half = largest;
    size_t all = len, of_owner = len;
    TAILQ_FOREACH(other, &socket->notebook->sockets, link) {
        size_t n = other->delayed_bytes;
        if (other != socket && other->ws)
            n += websocket_incoming(other->ws);
        all += n;
        of_owner += strcmp(other->shares_as, socket->shares_as) == 0 ? n : 0;
    }
    return of_owner <= half && all <= 2 * half;
}

static int
check_key(const struct kernel_socket *socket, struct kg_error *err)
{
    enum http_validity validity = socket->key ? http_credential_check(socket->key) : HTTP_VALID;
    switch (validity) {
    case HTTP_VALID:
        return 0;
    case HTTP_INVALID:
        return kg_error_set(err, KG_UNAUTHORIZED, 0, "the API key is no longer valid");
    case HTTP_UNKNOWN:
        return kg_error_set(err, KG_SESSION_BUSY, 0, "the API key is being checked");
    }
    return 0;
}

// Answers a kernel_info_request that would wait in the kernel until the code that runs has ended:
// a client that connects shows nothing without the reply. To other clients nothing is said of it,
// and to this one that the kernel is still busy.
static bool
answer_info(struct kernel_socket *socket, const struct kernel_message *message)
{
    const struct kernel *kernel = socket->ws ? kernel_of(socket) : NULL;
    const char *info = kernel && kernel_is_running(kernel) ? kernel_info(kernel) : NULL;
    const struct kernel_bytes request = message->header;
    if (!info || !is_info_request(message))
        return false;
    write_own(socket, KERNEL_IOPUB, "status", request, own_status("busy"));
    write_own(socket, KERNEL_SHELL, "kernel_info_reply", request, kg_strdup(info));
    write_own(socket, KERNEL_IOPUB, "status", request, own_status("idle"));
    write_state(socket, "busy");
    return true;
}

// Gives the tap a message; the error is KG_SESSION_BUSY or KG_RATE_LIMITED where it is to be tried
// again. It counts as one request, however often it is tried.
static int
send_message(struct kernel_socket *socket, bool is_text, const void *data, size_t len,
             bool *is_admitted, struct kg_error *err)
{
    struct framed framed;
    if (check_key(socket, err) < 0 || read_message(socket, is_text, data, len, &framed, err) < 0 ||
        (!*is_admitted && http_server_admit(socket->server, socket->owner, err) < 0))
        return -1;
    *is_admitted = true;
    if (answer_info(socket, &framed.message))
        return 0;
    if (kernel_tap_send(socket->tap, &framed.message, err) == 0)
        return 0;
    // An answer to a question that a restart has taken back is nobody's fault.
    bool is_late = framed.message.channel == KERNEL_STDIN && err->code == KG_INVALID;
    return is_late || err->code == KG_NOT_FOUND ? 0 : -1;
}

static bool
is_temporary(const struct kg_error *err)
{
    return err->code == KG_SESSION_BUSY || err->code == KG_RATE_LIMITED;
}

static void
refuse_message(struct kernel_socket *socket, const struct kg_error *err)
{
    char reason[120];
    size_t len = utf8_cut(err->message, strlen(err->message), sizeof reason - 1);
    memcpy(reason, err->message, len);
    reason[len] = '\0';
    log_info("a WebSocket's message was refused", LOG_STR("kernel", socket->kernel_id),
             LOG_ERR(err));
    kernel_socket_close(
        socket, err->code == KG_INVALID_CONTENT ? WEBSOCKET_BAD_DATA : WEBSOCKET_POLICY, reason);
}

static void
delay(struct kernel_socket *socket, bool is_text, const void *data, size_t len, bool is_admitted)
{
    struct delayed *delayed = KG_NEW(struct delayed);
    delayed->is_text = is_text;
    delayed->is_admitted = is_admitted;
    buf_append(&delayed->data, data, len);
    socket->delayed_bytes += len;
    STAILQ_INSERT_TAIL(&socket->delayed, delayed, link);
    websocket_pause(socket->ws, true); // not NULL: the client has just sent
    if (!loop_timer_active(socket->retry))
        loop_timer_start(socket->retry, RETRY_MS);
}

static void
socket_on_message(bool is_text, const void *data, size_t len, void *arg)
{
    struct kernel_socket *socket = arg;
    struct kg_error err = {0};
    bool is_admitted = false;
    touch(socket);
    close_twins(socket);
    if (!STAILQ_EMPTY(&socket->delayed))
        delay(socket, is_text, data, len, false); // their order is kept
    else if (send_message(socket, is_text, data, len, &is_admitted, &err) == 0)
        return;
    else if (is_temporary(&err))
        delay(socket, is_text, data, len, is_admitted);
    else
        refuse_message(socket, &err);
}

// False: the socket is gone.
static bool
send_delayed(struct kernel_socket *socket)
{
    struct kg_error err = {0};
    struct delayed *delayed;
    while ((delayed = STAILQ_FIRST(&socket->delayed))) {
        if (send_message(socket, delayed->is_text, delayed->data.data ? delayed->data.data : "",
                         delayed->data.len, &delayed->is_admitted, &err) < 0) {
            if (!is_temporary(&err)) {
                refuse_message(socket, &err);
                return false;
            }
            loop_timer_start(socket->retry, RETRY_MS);
            return true;
        }
        STAILQ_REMOVE_HEAD(&socket->delayed, link);
        socket->delayed_bytes -= delayed->data.len;
        buf_fini(&delayed->data);
        free(delayed);
    }
    if (socket->ws)
        websocket_pause(socket->ws, false);
    return true;
}

static void
socket_on_retry(void *arg)
{
    (void)send_delayed(arg);
}

// ---- The start ------------------------------------------------------------------------------

static void
socket_on_tap(void *arg)
{
    struct kernel_socket *socket = arg;
    if (!socket->ws && kernel_tap_has_ended(socket->tap))
        kernel_socket_free(socket);
    else if (send_delayed(socket) && socket->ws)
        pump(socket);
}

static void
socket_on_drain(void *arg)
{
    pump(arg);
}

// The session_id of a client; "" if it has none, or one that is too long.
static const char *
session_id_of(const struct http_request *request)
{
    const char *text = http_request_query(request, "session_id");
    return text && strlen(text) <= SESSION_ID_MAX ? text : "";
}

// A socket of the same client, connected or not; NULL if there is none.
static struct kernel_socket *
find_earlier(struct notebook *notebook, const struct http_request *request, const char *kernel_id)
{
    struct kernel_socket *socket;
    const char *name = session_id_of(request);
    TAILQ_FOREACH(socket, &notebook->sockets, link) {
        if (*name && strcmp(socket->session_id, name) == 0 &&
            is_of_kernel(socket, http_request_owner(request), kernel_id) &&
            !kernel_tap_has_ended(socket->tap))
            break;
    }
    return socket;
}

// Whether messages wait in the socket that a tap of another one would not get. Those of the tap
// wait from the high watermark until the backlog has fallen to the low one.
static bool
has_waiting(const struct kernel_socket *socket)
{
    return !STAILQ_EMPTY(&socket->delayed) || kernel_tap_is_sending(socket->tap) ||
           websocket_backlog(socket->ws) > WEBSOCKET_LOW_WATERMARK;
}

// The socket is for another connection from now on.
static struct kernel_socket *
take_over(struct kernel_socket *socket)
{
    http_pace_free(KG_STEAL(socket->crowded));
    if (socket->ws)
        websocket_close(KG_STEAL(socket->ws), WEBSOCKET_POLICY, "the client has connected again");
    return socket;
}

// Frees the tap of a disconnected client for a connected one. Returns false if there is none.
static bool
forget_oldest(struct notebook *notebook, const struct kernel_socket *newest)
{
    struct kernel_socket *socket;
    TAILQ_FOREACH(socket, &notebook->sockets, link) {
        if (socket != newest && !socket->ws &&
            is_of_kernel(socket, newest->owner, newest->kernel_id)) {
            kernel_socket_free(socket);
            return true;
        }
    }
    return false;
}

static struct kernel_socket *
kernel_socket_new(struct notebook *notebook, const struct http_request *request,
                  struct session *session, struct kernel_socket *twin, struct kg_error *err)
{
    struct kernel_socket *socket = KG_NEW(struct kernel_socket);
    socket->notebook = notebook;
    socket->server = http_request_server(request);
    socket->owner = kg_strdup(http_request_owner(request));
    socket->shares_as = budget_name(socket->owner);
    socket->session_id = kg_strdup(session_id_of(request));
    memcpy(socket->kernel_id, session_id(session), KERNEL_ID_LEN);
    socket->retry = loop_timer_new(notebook->loop, socket_on_retry, socket);
    socket->quiet = loop_timer_new(notebook->loop, socket_on_quiet, socket);
    socket->away = loop_timer_new(notebook->loop, socket_on_away, socket);
    socket->recheck = loop_timer_new(notebook->loop, socket_on_recheck, socket);
    STAILQ_INIT(&socket->delayed);
    TAILQ_INSERT_TAIL(&notebook->sockets, socket, link);
    const struct kernel_tap_settings settings = {
        .owner = socket->owner, .session_id = socket->kernel_id, .twin = twin ? twin->tap : NULL};
    struct kernel_tap_item first; // the kernel's state, which each connection gets when it starts
    do {
        socket->tap =
            kernel_tap_open(session_first_kernel(session), &settings, socket_on_tap, socket, err);
    } while (!socket->tap && err->code == KG_SESSION_BUSY && forget_oldest(notebook, socket));
    if (!socket->tap) {
        kernel_socket_free(socket);
        return NULL;
    }
    if (twin)
        socket->may_have_twin = twin->may_have_twin = true;
    (void)!kernel_tap_next(socket->tap, &first);
    return socket;
}

// What has happened since is said by the items that wait in the tap.
static void
write_first_state(struct kernel_socket *socket)
{
    const char *state = kernel_first_state(kernel_of(socket));
    if (strcmp(state, "idle") != 0)
        socket->owes_idle = true;
    write_state(socket, state);
}

static void
kernel_socket_start(struct kernel_socket *socket, struct http_request *request)
{
    static const struct websocket_events events = {
        .on_message = socket_on_message,
        .may_receive = socket_may_receive,
        .on_drain = socket_on_drain,
        .on_end = socket_on_end,
    };
    socket->is_v1 = websocket_offers(request, FRAMING_V1);
    socket->crowded = http_pace_new(socket->notebook->loop, request, &crowded_rule, socket);
    loop_timer_stop(socket->away);
    set_key(socket, request);
    touch(socket);
    socket->ws = websocket_start(request, &(const struct websocket_settings){
                                              .loop = socket->notebook->loop,
                                              .subprotocol = socket->is_v1 ? FRAMING_V1 : NULL,
                                              .max_message_bytes = max_message_bytes(socket),
                                              .events = &events,
                                              .arg = socket,
                                          });
    if (!STAILQ_EMPTY(&socket->delayed))
        websocket_pause(socket->ws, true);
    write_first_state(socket);
    pump(socket);
}

void
kernel_socket_open(struct notebook *notebook, struct http_request *request, struct session *session)
{
    struct kg_error err = {0};
    struct kernel_socket *earlier = find_earlier(notebook, request, session_id(session));
    struct kernel_socket *socket = NULL;
    if (!earlier || (earlier->ws && !has_waiting(earlier)))
        socket = kernel_socket_new(notebook, request, session, earlier, &err);
    if (!socket && earlier)
        socket = take_over(earlier);
    if (socket)
        kernel_socket_start(socket, request);
    else
        reply_failure(request, &err);
}

void
kernel_sockets_close(struct notebook *notebook)
{
    for (struct kernel_socket *socket; (socket = TAILQ_FIRST(&notebook->sockets));)
        kernel_socket_close(socket, WEBSOCKET_GOING_AWAY, "the gateway is shutting down");
}

int
kernel_sockets_count(const struct notebook *notebook, const struct session *session)
{
    const struct kernel_socket *socket;
    int n = 0;
    TAILQ_FOREACH(socket, &notebook->sockets, link)
        n += socket->ws && session_of(socket) == session;
    return n;
}
