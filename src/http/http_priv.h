// SPDX-License-Identifier: Apache-2.0
// What the files of the HTTP server share: its connections, requests and routes. evhttp's types go
// no further than this folder.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <sys/queue.h>
#include <sys/time.h>

#include "http.h"

enum {
    HTTP_ID_LEN = 20,
    HTTP_PARAMS_MAX = 6,
    // What a client may send ahead while its request is being answered.
    HTTP_READ_AHEAD_MAX = 64 * 1024,
};

// One accepted connection. `evcon` is evhttp's, known once the connection was adopted; `request` is
// set while a handler owes an answer, `busy` until that answer has been sent. `refused` while a
// page of evhttp's own is in the output.
struct http_connection {
    struct http_server *server;
    struct bufferevent *bev;
    struct evhttp_connection *evcon;
    int fd;
    bool busy;
    bool refused;
    size_t held;        // bytes read and not yet given away
    bool is_large;      // in the intake's list
    bool intake_paused; // does not read: others go first
    TAILQ_ENTRY(http_connection) intake_link;
    struct http_request *request;
    LIST_ENTRY(http_connection) link;
    LIST_ENTRY(http_connection) refused_link;
};
LIST_HEAD(http_connections, http_connection);

// What all connections hold of requests that they read, or whose body nobody has taken yet.
struct http_intake {
    TAILQ_HEAD(, http_connection) large; // in the order in which they became so
    size_t held;
    size_t max;
    size_t max_body;
    struct event *decide; // who may read
    struct loop_timer *look;
    const struct http_connection *first; // at the last look, and what it had
    size_t first_held;
};

struct http_param {
    const char *name; // in the pattern
    size_t name_len;
    char *value;
};

struct http_router_entry {
    struct http_route route;
    void *arg;
};

struct http_router {
    struct http_router_entry *entries;
    size_t n;
};

struct http_server {
    struct loop *loop;
    struct evhttp *evhttp;
    struct evconnlistener *listener;
    struct loop_timer *accept_pause;
    char *unix_path;
    int port;
    int max_connections;
    size_t max_small_body_bytes;
    struct http_intake intake;
    struct timeval idle_timeout;
    bool check_origin_and_host;
    char **allowed_origins;
    char **allowed_hosts;
    const struct http_keys *keys;
    struct http_router router;
    http_gate_fn gate;
    void *gate_arg;
    // Accepted, not yet seen by evhttp; `adopt` takes them up in the same turn of the loop.
    struct http_connections fresh;
    struct event *adopt;
    struct http_connections connections;
    struct http_connections refused;
    struct event *refuse;
    struct http_connection **by_fd;
    size_t by_fd_len;
    int n_connections;
    int n_busy;
    LIST_HEAD(, http_request) requests;
    // The request whose handler is on the stack, until it is answered.
    struct http_request *handling;
    struct evbuffer *scratch;
};

// One request until its answer is complete. `conn` is NULL once the client has gone; `ev` is
// evhttp's request, which is ours to free from then on.
struct http_request {
    struct http_connection *conn;
    struct evhttp_request *ev;
    enum http_method method;
    char id[HTTP_ID_LEN + 1];
    const char *owner;
    const char *route; // its pattern; NULL: none was found
    int flags;         // its route's
    int status;        // of the answer; 0: not begun
    char *raw_path;
    char *path; // decoded segments, each ended by a NUL
    size_t path_len;
    char *query; // decoded name, NUL, value, NUL, …
    size_t query_len;
    struct http_param params[HTTP_PARAMS_MAX];
    size_t n_params;
    loop_fn on_gone;
    void *on_gone_arg;
    bool streaming;
    size_t low_watermark;
    loop_fn on_drain;
    void *on_drain_arg;
    struct loop_timer *drain_timer;
    struct evbuffer_cb_entry *output_cb;
    LIST_ENTRY(http_request) link;
};

// ---- server.c -------------------------------------------------------------------------------

// Closes a connection that has an open request, which becomes `gone`.
void connection_close(struct http_connection *conn);

// ---- request.c ------------------------------------------------------------------------------

// Takes up a request that evhttp has read: checks it, finds its route, calls the handler.
void request_handle(struct http_connection *conn, struct evhttp_request *ev);
// The connection is closing: tells the handler's side.
void request_gone(struct http_request *request);
// Unlinks and frees a request; its evhttp_request too when the client has gone.
void request_free(struct http_request *request);

// ---- refusal.c ------------------------------------------------------------------------------

void refusal_init(struct http_server *server);
void refusal_fini(struct http_server *server);
void refusal_watch(struct http_connection *conn);
void refusal_forget(struct http_connection *conn);

// ---- intake.c -------------------------------------------------------------------------------

void intake_init(struct http_server *server, const struct http_server_settings *settings);
void intake_fini(struct http_server *server);
void intake_watch(struct http_connection *conn);
// `len` bytes of the request's body have gone on.
void intake_give(struct http_connection *conn, size_t len);
// The request is answered; or the connection is closed (forget).
void intake_reset(struct http_connection *conn);
void intake_forget(struct http_connection *conn);

// ---- reply.c --------------------------------------------------------------------------------

json_t *problem_new(const struct kg_error *err);
void reply_add_common_headers(struct http_request *request, int status, const char *content_type);

// ---- stream.c -------------------------------------------------------------------------------

void stream_stop_watching(struct http_request *request);

// ---- router.c -------------------------------------------------------------------------------

// The entry for the request's path and method, its parameters filled in. NULL: none, and
// `ret_methods` says which methods the path knows (0: the path is unknown).
const struct http_router_entry *router_find(const struct http_router *router,
                                            struct http_request *request, int *ret_methods);
// Writes "GET, HEAD, …".
void router_format_methods(int methods, char *ret, size_t size);

// ---- keys.c ---------------------------------------------------------------------------------

// Sets the request's owner; an error where `flags` ask for a key and none that is known came.
KG_MUST_CHECK int keys_check(const struct http_keys *keys, struct http_request *request, int flags,
                             struct kg_error *err);

// ---- origin.c -------------------------------------------------------------------------------

// Refuses requests of foreign web pages; adds the CORS headers for allowed origins.
KG_MUST_CHECK int origin_check(const struct http_server *server, struct http_request *request,
                               struct kg_error *err);
// Whether a proxy says that the request comes from another machine.
bool origin_is_elsewhere(const struct http_request *request);

// ---- text.c ---------------------------------------------------------------------------------

// How many bytes at the start are valid UTF-8.
size_t utf8_valid_prefix(const char *data, size_t len);
// Decodes %XX in place, with `plus` also + as a space. Fails for a broken escape and for %00.
KG_MUST_CHECK int percent_decode(char *data, size_t *len, bool plus);
