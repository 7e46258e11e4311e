// SPDX-License-Identifier: Apache-2.0
// A client of a kernel connects, or connects again.

#include <string.h>

#include "framing_priv.h"
#include "kernel_socket_priv.h"

enum { SESSION_ID_MAX = 128 }; // of a client, in the query

static void
socket_on_tap(void *arg)
{
    struct kernel_socket *socket = arg;
    if (!socket->ws && kernel_tap_has_ended(socket->tap))
        kernel_socket_free(socket);
    else if (kernel_socket_send_delayed(socket) && socket->ws)
        kernel_socket_pump(socket);
}

static void
socket_on_drain(void *arg)
{
    kernel_socket_pump(arg);
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
            kernel_socket_is_of(socket, http_request_owner(request), kernel_id) &&
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
            kernel_socket_is_of(socket, newest->owner, newest->kernel_id)) {
            kernel_socket_free(socket);
            return true;
        }
    }
    return false;
}

static struct kernel_socket *
kernel_socket_new(struct notebook *notebook, const struct http_request *request,
                  const struct session *session, struct kernel *kernel, struct kernel_socket *twin,
                  struct kg_error *err)
{
    struct kernel_socket *socket = KG_NEW(struct kernel_socket);
    socket->notebook = notebook;
    socket->server = http_request_server(request);
    socket->owner = kg_strdup(http_request_owner(request));
    socket->shares_as = budget_name(socket->owner);
    socket->session_id = kg_strdup(session_id_of(request));
    kernel_id_make(session, kernel, socket->kernel_id);
    socket->retry = loop_timer_new(notebook->loop, kernel_socket_on_retry, socket);
    socket->quiet = loop_timer_new(notebook->loop, kernel_socket_on_quiet, socket);
    socket->away = loop_timer_new(notebook->loop, kernel_socket_on_away, socket);
    socket->recheck = loop_timer_new(notebook->loop, kernel_socket_on_recheck, socket);
    STAILQ_INIT(&socket->delayed);
    TAILQ_INSERT_TAIL(&notebook->sockets, socket, link);
    const struct kernel_tap_settings settings = {
        .owner = socket->owner, .session_id = session_id(session), .twin = twin ? twin->tap : NULL};
    struct kernel_tap_item first; // the kernel's state, which each connection gets when it starts
    do {
        socket->tap = kernel_tap_open(kernel, &settings, socket_on_tap, socket, err);
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

static void
kernel_socket_start(struct kernel_socket *socket, struct http_request *request)
{
    static const struct websocket_events events = {
        .on_message = kernel_socket_on_message,
        .may_receive = kernel_socket_may_receive,
        .on_drain = socket_on_drain,
        .on_end = kernel_socket_on_end,
    };
    socket->is_v1 = websocket_offers(request, FRAMING_V1);
    socket->crowded =
        http_pace_new(socket->notebook->loop, request, &kernel_socket_crowded_rule, socket);
    loop_timer_stop(socket->away);
    kernel_socket_set_key(socket, request);
    kernel_socket_touch(socket);
    socket->ws = websocket_start(request, &(const struct websocket_settings){
                                              .loop = socket->notebook->loop,
                                              .subprotocol = socket->is_v1 ? FRAMING_V1 : NULL,
                                              .max_message_bytes = kernel_socket_max_bytes(socket),
                                              .events = &events,
                                              .arg = socket,
                                          });
    if (!STAILQ_EMPTY(&socket->delayed))
        websocket_pause(socket->ws, true);
    kernel_socket_write_first_state(socket);
    kernel_socket_pump(socket);
}

void
kernel_socket_open(struct notebook *notebook, struct http_request *request, struct session *session,
                   struct kernel *kernel)
{
    struct kg_error err = {0};
    char id[KERNEL_ID_MAX + 1];
    kernel_id_make(session, kernel, id);
    struct kernel_socket *earlier = find_earlier(notebook, request, id);
    struct kernel_socket *socket = NULL;
    if (!earlier || (earlier->ws && !has_waiting(earlier)))
        socket = kernel_socket_new(notebook, request, session, kernel, earlier, &err);
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
