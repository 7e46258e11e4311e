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
//
// Each of the files uses only those below it:
//
//     kernel_socket_open.c     a client connects, or connects again
//     kernel_socket_input.c    from the client to the kernel
//     kernel_socket_output.c   from the kernel to the client
//     kernel_socket.c          its key, its session, its end
#pragma once

#include "kernel_tap.h"
#include "notebook_priv.h"
#include "pace.h"
#include "websocket.h"

enum { KERNEL_SOCKET_RETRY_MS = 50 };

// A message of the client that the tap does not take yet.
struct delayed_message {
    STAILQ_ENTRY(delayed_message) link;
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
    char kernel_id[KERNEL_ID_MAX + 1];
    char *session_id; // of the client; "": none
    bool is_v1;
    bool owes_idle;     // "starting", "restarting" or "dead" was sent last
    bool may_have_twin; // another connection of the same client, unless that has ended
    STAILQ_HEAD(, delayed_message) delayed;
    size_t delayed_bytes;
    struct loop_timer *retry;
    struct http_pace *crowded; // of the connection: looks while a large part is being sent
    struct loop_timer *quiet;  // frees `client`
    struct loop_timer *away;   // frees the socket of a disconnected client
    struct loop_timer *recheck;
};

// ---- kernel_socket.c -------------------------------------------------------------------------

void kernel_socket_free(struct kernel_socket *socket);
// The client is disconnected; it may connect again for a while.
void kernel_socket_leave(struct kernel_socket *socket);
// With a status of RFC 6455, section 7.4. The socket is gone.
void kernel_socket_close(struct kernel_socket *socket, int status, const char *reason);
// Closes the client's other connections.
void kernel_socket_close_twins(struct kernel_socket *socket);
bool kernel_socket_is_of(const struct kernel_socket *socket, const char *owner,
                         const char *kernel_id);
void kernel_socket_set_key(struct kernel_socket *socket, const struct http_request *request);
// NULL if the kernel is about to end.
struct session *kernel_socket_session(const struct kernel_socket *socket);
const struct kernel *kernel_socket_kernel(const struct kernel_socket *socket);
// A message was sent: the kernel is active, and does not expire while the client is connected.
void kernel_socket_touch(struct kernel_socket *socket);
// Callbacks of its timers and of its WebSocket.
void kernel_socket_on_quiet(void *arg);
void kernel_socket_on_away(void *arg);
void kernel_socket_on_recheck(void *arg);
void kernel_socket_on_end(void *arg);

// ---- kernel_socket_output.c ------------------------------------------------------------------

extern const struct http_pace_rule kernel_socket_crowded_rule;
// Sends what waits in the tap, as much as the client takes. The socket may be gone afterwards.
void kernel_socket_pump(struct kernel_socket *socket);
// A message of the gateway's own.
void kernel_socket_write_own(struct kernel_socket *socket, enum kernel_channel channel,
                             const char *type, struct kernel_bytes parent_header, char *content);
// A status of the kernel, "busy", "idle", …, that is about no request.
void kernel_socket_write_state(struct kernel_socket *socket, const char *state);
void kernel_socket_write_first_state(struct kernel_socket *socket);

// ---- kernel_socket_input.c -------------------------------------------------------------------

// The largest message that a client may send, in bytes.
size_t kernel_socket_max_bytes(const struct kernel_socket *socket);
// False: the socket is gone.
bool kernel_socket_send_delayed(struct kernel_socket *socket);
void kernel_socket_on_retry(void *arg);
void kernel_socket_on_message(bool is_text, const void *data, size_t len, void *arg);
bool kernel_socket_may_receive(size_t len, void *arg);
