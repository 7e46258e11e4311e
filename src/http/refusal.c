// SPDX-License-Identifier: Apache-2.0
// evhttp itself refuses some requests with an HTML page: malformed ones, too large bodies, methods
// and expectations that it does not support. This file replaces the page with a problem document
// before it is sent. It also sends the refusals of the gate, for requests that evhttp has not read.

#include <event2/event.h>
#include <string.h>

#include "http_priv.h"
#include "metrics.h"

struct refusal {
    const char *status; // evhttp's
    enum kg_code code;
    const char *detail;
    const char *headers;
};

static const struct refusal refusals[] = {
    {"400", KG_INVALID, "malformed HTTP request", ""},
    {"413", KG_UPLOAD_TOO_LARGE, "the body is too large", ""},
    {"417", KG_INVALID, "Expect: only 100-continue is supported", ""},
    {"501", KG_METHOD_NOT_ALLOWED, "no path accepts this method",
     "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n"},
};

static const struct refusal *
refusal_of(struct evbuffer *output)
{
    char line[] = "HTTP/1.1 000";
    evbuffer_copyout(output, line, strlen(line));
    for (size_t i = 0; i < KG_ARRAY_LEN(refusals); i++)
        if (strcmp(line + 9, refusals[i].status) == 0)
            return &refusals[i];
    return NULL;
}

static void
write_page(struct evbuffer *output, const struct kg_error *err, const char *headers)
{
    const struct kg_code_info *info = kg_code_info(err->code);
    json_auto_t *problem = problem_new(err);
    KG_AUTO_FREE char *text = json_dumps(problem, JSON_COMPACT);
    char id[HTTP_ID_LEN + 1];
    id_random(id, HTTP_ID_LEN);
    metric_add(METRIC_HTTP_PROBLEMS, 1, info->name);
    evbuffer_add_printf(output,
                        "HTTP/1.1 %d %s\r\n"
                        "X-Request-Id: %s\r\n"
                        "X-Content-Type-Options: nosniff\r\n"
                        "Content-Type: application/problem+json\r\n"
                        "Content-Length: %zu\r\n"
                        "%s"
                        "Connection: close\r\n\r\n%s",
                        info->http_status, info->title, id, strlen(text), headers, text);
}

static void
replace_page(struct http_connection *conn)
{
    struct evbuffer *output = bufferevent_get_output(conn->bev);
    // Only the bufferevent may remove from the front of its output, unless that is unfrozen.
    evbuffer_unfreeze(output, 1);
    const struct refusal *refusal = refusal_of(output);
    if (refusal) {
        struct kg_error err;
        kg_error_set(&err, refusal->code, 0, "%s", refusal->detail);
        conn->lingers = true;
        evbuffer_drain(output, evbuffer_get_length(output));
        write_page(output, &err, refusal->headers);
    }
    evbuffer_freeze(output, 1);
}

static void
on_refusals(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_server *server = arg;
    struct http_connection *conn;
    while ((conn = LIST_FIRST(&server->refused))) {
        if (conn->closing) {
            connection_close(conn);
        } else {
            replace_page(conn);
            refusal_forget(conn);
        }
    }
}

void
refusal_send(struct http_connection *conn, const struct kg_error *err)
{
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    bufferevent_event_cb on_event;
    void *evcon;
    bufferevent_getcb(conn->bev, NULL, NULL, &on_event, &evcon);
    bufferevent_setcb(conn->bev, NULL, NULL, on_event, evcon);
    conn->closing = true;
    evbuffer_drain(input, evbuffer_get_length(input));
    bufferevent_disable(conn->bev, EV_READ);
    bufferevent_enable(conn->bev, EV_WRITE);
    write_page(bufferevent_get_output(conn->bev), err, "");
}

// Output although no handler is to answer is a page of evhttp. It comes in several pieces, so it is
// replaced when it is complete, which is before the loop writes it. Or a refusal of ours was sent.
static void
on_output(struct evbuffer *output, const struct evbuffer_cb_info *info, void *arg)
{
    struct http_connection *conn = arg;
    bool of_evhttp = info->n_added > 0 && !conn->busy && !conn->closing;
    bool sent = conn->closing && info->n_deleted > 0 && evbuffer_get_length(output) == 0;
    if (conn->refused || !(of_evhttp || sent))
        return;
    conn->refused = true;
    LIST_INSERT_HEAD(&conn->server->refused, conn, refused_link);
    event_active(conn->server->refuse, EV_TIMEOUT, 0);
}

void
refusal_watch(struct http_connection *conn)
{
    evbuffer_add_cb(bufferevent_get_output(conn->bev), on_output, conn);
}

void
refusal_forget(struct http_connection *conn)
{
    if (conn->refused)
        LIST_REMOVE(conn, refused_link);
    conn->refused = false;
}

void
refusal_init(struct http_server *server)
{
    LIST_INIT(&server->refused);
    server->refuse = event_new(loop_event_base(server->loop), -1, 0, on_refusals, server);
    if (!server->refuse)
        abort();
}

void
refusal_fini(struct http_server *server)
{
    event_free(server->refuse);
}
