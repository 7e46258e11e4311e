// SPDX-License-Identifier: Apache-2.0
// One request on its way to a port: it waits for a connection, then what listens there answers it.

#include <string.h>

#include "loop.h"
#include "ports_priv.h"
#include "session_ports.h"

struct port_forward {
    struct loop *loop;
    struct http_request *request;
    struct session_port *connection; // NULL: its session has ended
    struct http_relay *relay;        // NULL: it waits for the connection
};

static void
forward_free(void *arg)
{
    struct port_forward *forward = arg;
    http_relay_free(forward->relay);
    session_port_close(forward->connection);
    free(forward);
}

static void
on_bytes(void *arg)
{
    const struct port_forward *forward = arg;
    session_port_used(forward->connection);
}

static void
relay(struct port_forward *forward, int fd)
{
    struct http_request *request = forward->request;
    static const char websocket[] = "websocket";
    const char *upgrade = http_upgrade_is_asked(request, websocket) ? websocket : NULL;
    const struct http_tunnel_rule rule = {
        .extra =
            http_request_is_https(request) ? "X-Forwarded-Proto: https" : "X-Forwarded-Proto: http",
        .upgrade = upgrade,
        .append = port_request_header,
    };
    const struct http_relay_settings settings = {
        .loop = forward->loop,
        .upgrade = upgrade,
        .add = port_answer_header,
        .on_bytes = on_bytes,
        .arg = forward,
    };
    KG_AUTO_FREE char *head = http_tunnel_head(request, &rule);
    forward->relay = http_relay_new(request, fd, head, &settings);
}

static void
on_connection(int fd, const struct kg_error *err, void *arg)
{
    struct port_forward *forward = arg;
    if (fd >= 0) {
        relay(forward, fd);
        return;
    }
    forward->connection = NULL;
    if (forward->relay)
        http_relay_end(forward->relay, err);
    else
        http_reply_error(forward->request, err);
}

void
port_forward_start(struct loop *loop, struct http_request *request, struct session *session,
                   int port)
{
    struct port_forward *forward = KG_NEW(struct port_forward);
    forward->loop = loop;
    forward->request = request;
    http_request_own(request, forward, forward_free);
    forward->connection = session_port_open(session, port, on_connection, forward);
}
