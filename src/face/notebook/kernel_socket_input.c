// SPDX-License-Identifier: Apache-2.0
// What the client of a WebSocket says, to the kernel.

#include <string.h>

#include "framing_priv.h"
#include "kernel_socket_priv.h"

enum {
    MESSAGE_SLACK = 64 << 10,      // for the parts beside content and buffers
    MAX_RECEIVED_BYTES = 64 << 20, // or twice the largest message
};

static int
read_message(const struct kernel_socket *socket, bool is_text, const void *data, size_t len,
             struct framed *ret, struct kg_error *err)
{
    if (is_text)
        return framing_read_text(data, len, ret, err);
    return socket->is_v1 ? framing_read_v1(data, len, ret, err)
                         : framing_read_binary(data, len, ret, err);
}

size_t
kernel_socket_max_bytes(const struct kernel_socket *socket)
{
    return socket->notebook->face->max_output_bytes + MESSAGE_SLACK;
}

bool
kernel_socket_may_receive(size_t len, void *arg)
{
    const struct kernel_socket *socket = arg, *other;
    size_t half = MAX_RECEIVED_BYTES / 2, largest = kernel_socket_max_bytes(socket);
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
    const struct kernel *kernel = socket->ws ? kernel_socket_kernel(socket) : NULL;
    const char *info = kernel && kernel_is_running(kernel) ? kernel_info(kernel) : NULL;
    const struct kernel_bytes request = message->header;
    if (!info || !is_info_request(message))
        return false;
    kernel_socket_write_own(socket, KERNEL_IOPUB, "status", request, own_status("busy"));
    kernel_socket_write_own(socket, KERNEL_SHELL, "kernel_info_reply", request, kg_strdup(info));
    kernel_socket_write_own(socket, KERNEL_IOPUB, "status", request, own_status("idle"));
    kernel_socket_write_state(socket, "busy");
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
    // An input_reply whose request was cancelled by a restart is ignored.
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
    struct delayed_message *delayed = KG_NEW(struct delayed_message);
    delayed->is_text = is_text;
    delayed->is_admitted = is_admitted;
    buf_append(&delayed->data, data, len);
    socket->delayed_bytes += len;
    STAILQ_INSERT_TAIL(&socket->delayed, delayed, link);
    websocket_pause(socket->ws, true); // not NULL: the client has just sent
    if (!loop_timer_active(socket->retry))
        loop_timer_start(socket->retry, KERNEL_SOCKET_RETRY_MS);
}

void
kernel_socket_on_message(bool is_text, const void *data, size_t len, void *arg)
{
    struct kernel_socket *socket = arg;
    struct kg_error err = {0};
    bool is_admitted = false;
    kernel_socket_touch(socket);
    kernel_socket_close_twins(socket);
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
bool
kernel_socket_send_delayed(struct kernel_socket *socket)
{
    struct kg_error err = {0};
    struct delayed_message *delayed;
    while ((delayed = STAILQ_FIRST(&socket->delayed))) {
        if (send_message(socket, delayed->is_text, delayed->data.data ? delayed->data.data : "",
                         delayed->data.len, &delayed->is_admitted, &err) < 0) {
            if (!is_temporary(&err)) {
                refuse_message(socket, &err);
                return false;
            }
            loop_timer_start(socket->retry, KERNEL_SOCKET_RETRY_MS);
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

void
kernel_socket_on_retry(void *arg)
{
    (void)kernel_socket_send_delayed(arg);
}
