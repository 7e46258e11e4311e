// SPDX-License-Identifier: Apache-2.0
// A client of a kernel: its end, its key, its session.

#include <string.h>

#include "kernel_socket_priv.h"

enum {
    RECHECK_MS = 5 * 1000,
    RETRY_KEY_MS = 1000, // if keys cannot be checked
};

// ---- The end --------------------------------------------------------------------------------

void
kernel_socket_free(struct kernel_socket *socket)
{
    struct delayed_message *delayed;
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

void
kernel_socket_on_away(void *arg)
{
    kernel_socket_free(arg);
}

bool
kernel_socket_is_of(const struct kernel_socket *socket, const char *owner, const char *kernel_id)
{
    return strcmp(socket->kernel_id, kernel_id) == 0 && strcmp(socket->owner, owner) == 0;
}

static bool
are_twins(const struct kernel_socket *a, const struct kernel_socket *b)
{
    return a != b && a->ws && b->ws && *a->session_id &&
           strcmp(a->session_id, b->session_id) == 0 &&
           kernel_socket_is_of(a, b->owner, b->kernel_id);
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
void
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

void
kernel_socket_on_end(void *arg)
{
    kernel_socket_leave(arg);
}

// The WebSocket is closed before its owner is freed: what it still sends refers to nothing here.
void
kernel_socket_close(struct kernel_socket *socket, int status, const char *reason)
{
    http_pace_free(KG_STEAL(socket->crowded));
    if (socket->ws)
        websocket_close(socket->ws, status, reason);
    kernel_socket_free(socket);
}

// The client has sent something here.
void
kernel_socket_close_twins(struct kernel_socket *socket)
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

void
kernel_socket_on_recheck(void *arg)
{
    struct kernel_socket *socket = arg;
    loop_timer_start(socket->recheck, RECHECK_MS);
    if (http_credential_check(socket->key) == HTTP_INVALID)
        revoke(socket);
}

// What the client sends from now on needs this key.
void
kernel_socket_set_key(struct kernel_socket *socket, const struct http_request *request)
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
struct session *
kernel_socket_session(const struct kernel_socket *socket)
{
    if (socket->client)
        return session_client_session(socket->client);
    return kernel_find(socket->notebook, socket->owner, socket->kernel_id, NULL);
}

// A message was sent: the kernel is active, and does not expire while the client is connected.
void
kernel_socket_touch(struct kernel_socket *socket)
{
    struct session *session = kernel_socket_session(socket);
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
void
kernel_socket_on_quiet(void *arg)
{
    struct kernel_socket *socket = arg;
    int64_t left_ms = socket->said_ms + socket->notebook->hold_ms - clock_mono_ms();
    if (left_ms > 0)
        loop_timer_start(socket->quiet, left_ms);
    else
        session_client_free(KG_STEAL(socket->client));
}

// NULL if the kernel is about to end.
const struct kernel *
kernel_socket_kernel(const struct kernel_socket *socket)
{
    const struct session *session = kernel_socket_session(socket);
    return session ? kernel_named(session, socket->kernel_id) : NULL;
}

int
kernel_sockets_count(const struct notebook *notebook, const struct session *session,
                     const char *kernel_id)
{
    const struct kernel_socket *socket;
    int n = 0;
    TAILQ_FOREACH(socket, &notebook->sockets, link)
        n += socket->ws && strcmp(socket->kernel_id, kernel_id) == 0 &&
             kernel_socket_session(socket) == session;
    return n;
}
