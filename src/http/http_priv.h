// SPDX-License-Identifier: Apache-2.0
// What the files of the HTTP server share: its connections, requests and routes. evhttp's types are
// used in this folder only. Of the files at the end, each uses those before it.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <sys/queue.h>
#include <sys/time.h>

#include "http.h"

struct sockaddr;
struct http_linger;
struct http_parsed;
struct http_share;
struct http_connection;

// A connection's credential has been checked.
typedef void (*http_identified_fn)(struct http_connection *conn);

enum {
    HTTP_ID_LEN = 20,
    HTTP_PARAMS_MAX = 6,
    // What a client may send ahead while its request is being answered.
    HTTP_READ_AHEAD_MAX = 64 * 1024,
    // The body that a request may have although its head shows no right to it.
    HTTP_STRANGER_BYTES_MAX = 64 * 1024,
    HTTP_ADDRESS_LEN = 16,
    HTTP_PEER_SLOTS = 1024,
    HTTP_OWNER_SLOTS = 256,
};

// How far a chunked body has been read.
struct http_chunks {
    enum {
        CHUNK_SIZE,
        CHUNK_SIZE_LF,
        CHUNK_DATA,
        CHUNK_DATA_CR,
        CHUNK_DATA_LF,
        CHUNKS_LAST_CR, // behind the chunk of size 0: no trailers are taken
        CHUNKS_LAST_LF,
        CHUNKS_END, // of the body, or there are no chunks
    } state;
    int digits;
    uint64_t left; // of the chunk
};

// An address, for IPv6 a /64 network, with open connections or failures to remember.
struct http_peer {
    unsigned char address[HTTP_ADDRESS_LEN];
    int n_open;
    int n_strangers; // of these: without a valid key so far
    int n_failures;  // wrong keys since `window_ms`
    int64_t window_ms;
    LIST_ENTRY(http_peer) slot_link;
    TAILQ_ENTRY(http_peer) remembered_link; // without a connection
};

struct http_peers {
    LIST_HEAD(, http_peer) slots[HTTP_PEER_SLOTS];
    TAILQ_HEAD(, http_peer) remembered; // the longest gone first
    size_t n_remembered;
    int max_strangers;
    bool spare_local; // loopback: proxies connect from there
};

// An owner with open connections, or with requests within the last seconds.
struct http_owner {
    char name[HTTP_OWNER_MAX + 1];
    int n_connections;
    double tokens;     // requests that it may make at once
    int64_t filled_us; // when `tokens` was true; 0: never
    LIST_ENTRY(http_owner) slot_link;
    TAILQ_ENTRY(http_owner) quiet_link; // without a connection
};

struct http_owners {
    LIST_HEAD(, http_owner) slots[HTTP_OWNER_SLOTS];
    TAILQ_HEAD(, http_owner) quiet; // the longest quiet first
    size_t n_quiet;
};

// One accepted connection. `evcon` is evhttp's, known once the connection was adopted; `request` is
// set while a handler owes an answer, `busy` until that answer has been sent. `refused` while a
// page of evhttp's own is in the output, `closing` while one of ours is and nothing else follows.
struct http_connection {
    struct http_server *server;
    struct bufferevent *bev;
    struct evhttp_connection *evcon;
    int fd;
    bool busy;
    bool refused;
    bool closing;
    bool lingers; // after its end: its client may still be sending
    struct http_peer *peer;
    bool trusted; // a request has shown a valid key
    // What identify.c knows of the request that is being read.
    char owner[HTTP_OWNER_MAX + 1]; // empty: nobody's, or not known yet
    bool has_credential;
    struct http_check *check; // under way: the gate waits for `on_identified`
    http_identified_fn on_identified;
    struct http_owner *counted_for; // NULL: no request had an owner so far
    // What gate.c knows of the request that is being read.
    bool checked;      // its credential was
    bool gated;        // evhttp reads nothing
    bool gate_looks;   // in the gate's list
    size_t head_seen;  // bytes in which the head does not end
    uint64_t body_len; // as announced
    bool body_unread;  // one was announced that evhttp does not read: the connection will end
    bool body_cut;     // since it was taken away
    bool chunks_bad;
    struct http_chunks chunks;
    struct evbuffer *early; // came behind the last request
    int64_t deadline_ms;    // for its head, or a body without a key; 0: none
    LIST_ENTRY(http_connection) gate_link;
    TAILQ_ENTRY(http_connection) awaited_link;
    // What intake.c counts.
    size_t held;              // bytes read and not yet given away
    size_t received;          // of this request
    size_t look_received;     // at the last look
    bool look_skipped;        // not to be judged by the next look: it was not reading
    bool is_large;            // in the intake's list
    bool intake_paused;       // does not read: others go first
    bool is_waited_for;       // it reads, and others do not
    struct http_share *share; // its owner's, while it is large
    TAILQ_ENTRY(http_connection) intake_link;
    struct http_request *request;
    LIST_ENTRY(http_connection) link;
    LIST_ENTRY(http_connection) refused_link;
};
LIST_HEAD(http_connections, http_connection);

// What all connections hold of requests that they read, or whose body nobody has taken yet.
struct http_intake {
    TAILQ_HEAD(, http_connection) large; // in the order in which they became so
    LIST_HEAD(, http_share) shares;
    size_t held;
    size_t max;
    size_t max_body;
    bool was_large;       // so that memory is to be given back to the system
    struct event *decide; // who may read
    struct loop_timer *look;
    int64_t look_ms;
};

// Which requests wait for their head to be complete, and until when.
struct http_gate {
    struct http_connections look; // something has come
    struct event *look_event;
    TAILQ_HEAD(, http_connection) awaited; // in the order of their deadlines
    struct loop_timer *timer;
    int64_t timeout_ms;
    size_t max_head;
    bufferevent_data_cb evhttp_read;
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
    int port;
    int max_connections;
    size_t max_body_bytes;
    size_t max_small_body_bytes;
    struct http_gate gate;
    struct http_intake intake;
    struct http_peers peers;
    TAILQ_HEAD(, http_linger) lingers;
    int n_lingers;
    bool ending;
    struct timeval idle_timeout;
    bool check_origin_and_host;
    char **allowed_origins;
    char **allowed_hosts;
    struct http_authenticator *authenticator; // or NULL
    struct http_quota anonymous_quota;
    struct http_owners owners;
    bool draining;
    struct http_router router;
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
    int n_slowed; // requests with a wrong key that wait for their answer
    LIST_HEAD(, http_request) requests;
    // The request whose handler is on the stack, until it is answered.
    struct http_request *handling;
    struct evbuffer *scratch;
};

// One request until its answer is complete. `conn` is NULL once the client has gone; `ev` is
// evhttp's request, which is ours to free from then on.
struct http_request {
    struct http_server *server;
    struct http_connection *conn;
    struct evhttp_request *ev;
    const struct evkeyvalq *headers;
    enum http_method method;
    char id[HTTP_ID_LEN + 1];
    char owner[HTTP_OWNER_MAX + 1]; // empty: nobody
    bool wrong_key;                 // one was sent, and it is nobody's
    struct loop_timer *slow_timer;  // until a wrong key is refused
    const char *route;              // its pattern; NULL: none was found
    int flags;                      // its route's
    int status;                     // of the answer; 0: not begun
    char *raw_path;
    char *path; // decoded segments, each ended by a NUL
    size_t path_len;
    char *query; // decoded name, NUL, value, NUL, …
    size_t query_len;
    struct http_param params[HTTP_PARAMS_MAX];
    size_t n_params;
    http_handler_fn handler;
    void *handler_arg;
    struct http_parsed *json; // its body, where a worker has parsed it
    size_t json_len;
    size_t taken_len; // of a body that was taken and still counts
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

// The head of a request as its client sent it. Strings are in `text`.
struct http_head {
    char *text;
    const char *method;
    const char *target;
    struct evkeyvalq headers;
    int64_t content_length; // -1: not given
    bool chunked;
    int n_hosts;
    int n_framings;
};

// ---- head.c ---------------------------------------------------------------------------------

// The length of the head that `text` begins with; 0: its end is not there. It is not before `from`.
size_t head_end(const char *text, size_t len, size_t from);
// Reads a whole head. `ret` is to be freed in any case.
KG_MUST_CHECK int head_parse(const char *text, size_t len, struct http_head *ret,
                             struct kg_error *err);
void head_fini(struct http_head *head);
// The same head, announcing that no body follows.
void head_write_without_body(const struct http_head *head, struct evbuffer *out);
// Whether the next bytes of a chunked body are as they should be.
KG_MUST_CHECK bool chunks_scan(struct http_chunks *chunks, const char *data, size_t len);

// ---- peers.c --------------------------------------------------------------------------------

// `max_strangers`: connections without a valid key of one address; 0: 64, and any from this
// machine.
void peers_init(struct http_peers *peers, int max_strangers);
void peers_fini(struct http_peers *peers);
// Counts a connection; NULL: its address has too many.
struct http_peer *peer_take(struct http_peers *peers, const struct sockaddr *from);
// One of its connections has shown a valid key.
void peer_trust(struct http_peer *peer);
// An address with wrong keys is remembered until its minute is over.
void peer_leave(struct http_peers *peers, struct http_peer *peer, bool was_trusted, int64_t now_ms);
// A wrong key came; true: one of too many.
KG_MUST_CHECK bool peer_failed(struct http_peer *peer, int64_t now_ms);

// ---- owners.c -------------------------------------------------------------------------------

void owners_init(struct http_owners *owners);
// After the last connection.
void owners_fini(struct http_owners *owners);
// Counts a connection of an owner, until it leaves.
struct http_owner *owner_join(struct http_owners *owners, const char *name);
void owner_leave(struct http_owners *owners, struct http_owner *owner, int64_t now_us);
// Counts a request; KG_RATE_LIMITED where it is one too many. `per_second` 0: any number.
KG_MUST_CHECK int owner_take_request(struct http_owners *owners, const char *name,
                                     double per_second, int64_t now_us, struct kg_error *err);

// ---- linger.c -------------------------------------------------------------------------------

// Keeps the socket for a while, reads and drops. `fd` stays the caller's.
void linger_start(struct http_server *server, int fd);
void linger_end_all(struct http_server *server);

// ---- json_parse.c ---------------------------------------------------------------------------

// A body that a worker has parsed; where `value` is NULL, `err` says why.
struct http_parsed {
    json_t *value;
    struct kg_error err;
};
void parsed_free(void *parsed);

// ---- connection.c ---------------------------------------------------------------------------

// Closes a connection that has an open request, which becomes `gone`.
void connection_close(struct http_connection *conn);
// One of its requests has an owner.
void connection_trust(struct http_connection *conn);
// Who reads its input; NULL: nobody, it waits.
void connection_set_reader(struct http_connection *conn, bufferevent_data_cb on_read);

// ---- intake.c -------------------------------------------------------------------------------

void intake_init(struct http_server *server, const struct http_server_settings *settings);
void intake_fini(struct http_server *server);
void intake_watch(struct http_connection *conn);
// `len` bytes of the request's body have gone on.
void intake_give(struct http_connection *conn, size_t len);
// The request is answered; or the connection is closed (forget).
void intake_reset(struct http_connection *conn);
void intake_forget(struct http_connection *conn);

// ---- request.c ------------------------------------------------------------------------------

// 0: not one that any route has.
enum http_method method_by_name(const char *name);
// Writes "GET, HEAD, …" for a set of methods.
void methods_format(int set, char *ret, size_t size);
struct http_request *request_new(struct http_connection *conn, struct evhttp_request *ev);
// Reads the path and the query; request_fini_target() frees them in any case.
KG_MUST_CHECK int request_parse_target(struct http_request *request, const char *target,
                                       struct kg_error *err);
void request_fini_target(struct http_request *request);
// `on_drain` is not called any more.
void request_stop_drain(struct http_request *request);
// The connection is closing: tells the handler's side.
void request_gone(struct http_request *request);
// Unlinks and frees a request; its evhttp_request too when the client has gone.
void request_free(struct http_request *request);

// ---- body.c ---------------------------------------------------------------------------------

// Where the route says HTTP_JSON_BODY and the body is large: parses it on a worker, then calls the
// handler. False: there is nothing to do.
bool body_parse_before_handler(struct http_request *request);

// ---- reply.c --------------------------------------------------------------------------------

json_t *problem_new(const struct kg_error *err);
// See http_reply_shared().
void reply_add_shared(struct evbuffer *to, const void *data, size_t len, loop_fn release,
                      void *arg);
void reply_add_common_headers(struct http_request *request, int status, const char *content_type);

// ---- refusal.c ------------------------------------------------------------------------------

void refusal_init(struct http_server *server);
void refusal_fini(struct http_server *server);
void refusal_watch(struct http_connection *conn);
void refusal_forget(struct http_connection *conn);
// Answers a request that evhttp has not read completely, and closes.
void refusal_send(struct http_connection *conn, const struct kg_error *err);

// ---- origin.c -------------------------------------------------------------------------------

// Refuses requests of foreign web pages.
KG_MUST_CHECK int origin_check(const struct http_server *server, const struct http_request *request,
                               struct kg_error *err);
// Adds the CORS headers for allowed origins, after origin_check().
void origin_add_headers(struct http_request *request);
// Whether a proxy says that the request comes from another machine.
bool origin_is_elsewhere(const struct http_request *request);

// ---- router.c -------------------------------------------------------------------------------

// The entry for the request's path and method, its parameters filled in. NULL: none, and
// `ret_methods` says which methods the path knows (0: the path is unknown).
const struct http_router_entry *router_find(const struct http_router *router,
                                            struct http_request *request, int *ret_methods);

// ---- identify.c -----------------------------------------------------------------------------

// Finds out whose the request is that a connection brings, from its head, path and query; true: the
// answer is under way, and `on_identified` is called with it.
bool identify_start(struct http_connection *conn, const struct http_request *request,
                    http_identified_fn on_identified);
// Forgets whose the last request was; the connection counts for that owner until the next one.
void identify_reset(struct http_connection *conn);
// The connection is closed.
void identify_forget(struct http_connection *conn);
// Sets the request's owner. An error where its route asks for one and there is none, or where the
// owner has too many connections.
KG_MUST_CHECK int identify_check(struct http_connection *conn, struct http_request *request,
                                 struct kg_error *err);

// ---- dispatch.c -----------------------------------------------------------------------------

// Whether the head entitles to its body: a valid key, an origin, a path and a length that are fine.
// DISPATCH_LATER: the key is being checked; to be asked again when `on_identified` is called.
enum dispatch_verdict { DISPATCH_REFUSED, DISPATCH_ADMITTED, DISPATCH_LATER };
enum dispatch_verdict dispatch_judge(struct http_connection *conn, const struct http_head *head,
                                     http_identified_fn on_identified);
// Takes up a request that evhttp has read: checks it, finds its route, calls the handler.
void dispatch_handle(struct http_connection *conn, struct evhttp_request *ev);

// ---- gate.c ---------------------------------------------------------------------------------

void gate_init(struct http_server *server, const struct http_server_settings *settings);
void gate_fini(struct http_server *server);
void gate_watch(struct http_connection *conn);
void gate_await_no_more(struct http_connection *conn);
// A request is answered, the next may come.
void gate_close_again(struct http_connection *conn);
void gate_forget(struct http_connection *conn);
