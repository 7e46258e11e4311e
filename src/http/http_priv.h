// SPDX-License-Identifier: Apache-2.0
// What the files of the HTTP server share: its connections, requests and routes. Of the files at
// the end, each uses those before it, except that pipeline.c and dispatch.c call each other.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <sys/queue.h>
#include <sys/time.h>

#include "budget.h"
#include "http.h"
#include "ip_network.h"

struct sockaddr;
struct http_linger;
struct http_parsed;
struct http_connection;
struct gunzip;
struct gzip;

// The credential of the connection's request has been checked.
typedef void (*http_identified_fn)(struct http_connection *conn);

enum {
    HTTP_ID_LEN = 20,
    HTTP_PARAMS_MAX = 6,
    // What a client may send ahead while its request is being answered.
    HTTP_READ_AHEAD_MAX = 64 * 1024,
    // What one connection writes at a time. libevent's 16 KiB would delay streams while other work
    // makes turns long.
    HTTP_TURN_BYTES = 1 << 20,
    // The largest body that is read without a valid key.
    HTTP_STRANGER_BYTES_MAX = 64 * 1024,
    HTTP_PEER_SLOTS = 1024,
    HTTP_OWNER_SLOTS = 256,
};

// The state of reading a body (RFC 9112, section 6).
struct http_framing {
    enum {
        FRAMING_SIZE, // of a chunk
        FRAMING_SIZE_LF,
        FRAMING_DATA,
        FRAMING_DATA_CR,
        FRAMING_DATA_LF,
        FRAMING_LAST_CR, // after the chunk of size 0: trailers are refused
        FRAMING_LAST_LF,
        FRAMING_END, // of the body
    } state;
    bool chunked;
    bool in_parts; // what has come of a chunk, or of the body, is taken at once
    int digits;
    uint64_t left; // bytes of this chunk, or of the body
};

// An address, or a network of IPv6, that has open connections, or that has sent wrong keys.
struct http_peer {
    struct ip_network network;
    struct http_peer *within; // the next larger network that is counted; NULL: none
    int factor;               // how many times a single address's limits it has
    int n_open;
    int n_strangers; // those of them without a valid key so far
    int n_failures;  // wrong keys since `window_ms`
    int64_t window_ms;
    LIST_ENTRY(http_peer) slot_link;
    TAILQ_ENTRY(http_peer) remembered_link; // if it has no connection
};

struct http_peers {
    LIST_HEAD(, http_peer) slots[HTTP_PEER_SLOTS];
    TAILQ_HEAD(, http_peer) remembered; // in the order in which they disconnected
    size_t n_remembered;
    int max_strangers;
    bool spare_local; // no limit on loopback, where proxies connect from
};

// Those whose X-Forwarded-For is believed, besides those on loopback.
struct http_proxies {
    struct ip_network *networks;
    size_t n;
};

// An owner that has open connections, or that has sent requests in the last two seconds.
struct http_owner {
    char name[HTTP_OWNER_MAX + 1];
    int n_connections;
    double tokens;     // requests that it might send at once, at `filled_us`
    int64_t filled_us; // 0: never
    LIST_ENTRY(http_owner) slot_link;
    TAILQ_ENTRY(http_owner) quiet_link; // if it has no connection
};

struct http_owners {
    LIST_HEAD(, http_owner) slots[HTTP_OWNER_SLOTS];
    TAILQ_HEAD(, http_owner) quiet; // the longest without a connection or request first
    size_t n_quiet;
};

// One accepted connection. It has a request from the end of a head until the answer is complete.
struct http_connection {
    struct http_server *server;
    struct bufferevent *bev;
    int fd; // of `bev`
    enum {
        CONNECTION_HEAD,      // waits for a request, or reads its head
        CONNECTION_CHECKING,  // its credential is being checked
        CONNECTION_BODY,      // reads its body
        CONNECTION_ANSWERING, // a handler is to answer
        CONNECTION_SENDING,   // the answer is complete, and is being sent
        CONNECTION_ENDING,    // the same, and the connection closes afterwards
        CONNECTION_UPGRADED,  // carries bytes both ways
    } state;
    bool busy;           // a request is counted in `n_busy` of the server
    bool must_close;     // after this answer
    bool lingers;        // after its end, since its client may still be sending
    bool is_half_closed; // the client sends nothing more
    bool tunnelled;      // upgraded to carry an answer: the request still counts as open
    bool trusted;        // a request had a valid key
    bool is_ready;       // in the server's list: its answer was sent
    bool is_full;        // it does not read, since HTTP_READ_AHEAD_MAX bytes wait
    size_t head_seen;    // bytes that were searched for the end of the head
    struct http_request *request;
    struct http_peer *peer;
    TAILQ_ENTRY(http_connection) ready_link;
    LIST_ENTRY(http_connection) link;
    // deadlines.c:
    int64_t deadline_ms; // 0: none
    TAILQ_ENTRY(http_connection) deadline_link;
    // places.c:
    bool idle; // it waits for nothing
    TAILQ_ENTRY(http_connection) queue_link;
    // identify.c, about the request that is being read:
    char owner[HTTP_OWNER_MAX + 1]; // empty: none, or not known yet
    struct http_token token;        // by which the owner was found; or zeroed
    bool has_credential;
    bool lacks_csrf_token;      // the credential is a login's, and was not asked for
    struct kg_error *unchecked; // why the credential could not be checked; NULL: it was
    struct http_check *check;   // in progress
    http_identified_fn on_identified;
    struct http_owner *counted_for; // NULL: no request had an owner so far
    // intake.c:
    struct budget_hold held; // of the intake's bytes: read, and not yet taken by a handler
    size_t received;         // bytes read of this request
    size_t look_received;    // the same at the last look
    bool look_skipped;       // the next look ignores it, since it was not reading all the time
    bool is_large;           // in the intake's list
    bool intake_paused;      // does not read, since others come first
    bool is_waited_for;      // it reads while others wait
    TAILQ_ENTRY(http_connection) intake_link;
};
LIST_HEAD(http_connections, http_connection);

TAILQ_HEAD(http_queue, http_connection);

// The connections that have no request, or one whose head or body is not complete; the longest idle
// first.
struct http_places {
    struct http_queue idle;
    struct http_queue idle_strangers; // those without a valid key so far
    int n;                            // open connections
    int n_strangers;
    int max;
};

// The bytes that all connections hold: of requests that are being read, and of bodies that no
// handler has taken yet.
struct http_intake {
    TAILQ_HEAD(, http_connection) large; // in the order in which they became large
    struct budget bytes;                 // a share's mark: one of its large connections reads
    size_t max_body;
    bool was_large;       // memory should be returned to the system
    struct event *decide; // decides which connections may read
    struct loop_timer *look;
    int64_t look_ms;
};

struct http_deadlines {
    TAILQ_HEAD(, http_connection) list; // in the order of the deadlines
    struct loop_timer *timer;
    int64_t timeout_ms;
};

struct http_param {
    const char *name; // in the pattern
    size_t name_len;
    char *value;
};

struct http_router_entry {
    struct http_route route;
    const struct http_dialect *dialect; // NULL: the server's own
    void *arg;
};

struct http_router {
    struct http_router_entry *entries;
    size_t n;
};

struct http_server {
    struct loop *loop;
    struct evconnlistener *listener; // NULL: it no longer listens
    struct loop_timer *accept_pause;
    int port;
    size_t max_body_bytes;
    size_t max_small_body_bytes;
    size_t max_head;
    struct http_deadlines deadlines;
    struct http_intake intake;
    struct http_places places;
    struct http_peers peers;
    struct http_proxies proxies;
    TAILQ_HEAD(, http_linger) lingers;
    int n_lingers;
    bool ending;
    struct timeval idle_timeout;
    bool check_origin_and_host;
    char **allowed_origins;
    char **allowed_hosts;
    struct http_authenticator *authenticator; // or NULL
    struct http_tokens tokens;
    struct http_quota anonymous_quota;
    struct http_site site;   // `handler` NULL: there is none
    http_forward_fn forward; // or NULL
    void *forward_arg;
    http_replica_fn is_replica; // or NULL
    void *replica_arg;
    struct http_owners owners;
    bool draining;
    struct http_router router;
    struct http_connections connections;
    struct http_queue ready; // the answers of these were sent
    size_t n_ready;
    bool goes_on;                   // with them
    struct event *go_on;            // now
    struct loop_timer *go_on_later; // in the next turn of the loop
    int n_busy;
    int n_slowed; // requests with a wrong key whose answer is delayed
};

// The head of a request as its client sent it, or of an answer. The strings point into `text`.
struct http_header {
    const char *name, *value;
};
struct http_head {
    char *text;
    const char *method;
    const char *target;    // in origin-form
    const char *authority; // of a target in absolute-form, which counts instead of Host; NULL: none
    int status;            // of an answer
    bool is_1_0;           // HTTP/1.0; else 1.1
    struct http_header *headers;
    size_t n_headers;
    size_t n_allocated;
    int64_t content_length; // -1: not given
    bool chunked;
    int n_hosts;
    int n_framings;
};

// One request until its answer is complete. `conn` is NULL after the client has disconnected.
struct http_request {
    struct http_server *server;
    struct http_connection *conn;
    struct http_head head;
    enum http_method method; // 0: another one
    char id[HTTP_ID_LEN + 1];
    char owner[HTTP_OWNER_MAX + 1]; // empty: none
    struct http_token token;        // by which its owner was found; or zeroed
    bool wrong_key;                 // it has a key, which is not valid
    bool is_identified;             // the owner was found by its credential
    struct loop_timer *slow_timer;  // until a wrong key is refused
    const char *route;              // its pattern; NULL: none was found
    int flags;                      // of its route
    int status;                     // of the answer; 0: not started
    char *raw_path;
    char *path; // decoded segments, each ended by a NUL
    size_t path_len;
    char *query; // decoded name, NUL, value, NUL, …
    size_t query_len;
    struct http_param params[HTTP_PARAMS_MAX];
    size_t n_params;
    http_handler_fn handler;
    void *handler_arg;
    const struct http_concern *concerns;
    const struct http_dialect *dialect; // of its route; or NULL
    int known_methods;                  // of its path, if there is no route for its own
    bool is_handled;                    // it was complete: a handler, or an error, answers it
    struct kg_error err;                // why it is refused
    // Its body:
    struct http_framing framing;
    struct evbuffer *body;
    size_t max_body;
    bool body_is_unread;      // its method has none with a meaning: the connection will end
    bool body_is_cut;         // it is too large to be read: likewise
    bool body_is_streamed;    // the handler reads it from the connection; `body` has what was taken
                              // from there and not read yet
    bool body_is_coded;       // in gzip, which is still to be decoded
    struct gunzip *gunzip;    // of a streamed body; NULL: it is read as it comes
    struct kg_error body_err; // a streamed body is malformed; the connection will end
    struct loop_timer *idle_timer; // see http_request_body_idle(); NULL: the head timeout
    int64_t idle_ms;
    loop_fn on_body; // of such a body; NULL: nobody waits for it
    void *on_body_arg;
    struct http_parsed *json; // its body, where a worker has parsed it
    size_t json_len;
    bool forwarded;     // see http_request_set_forwarded()
    json_t *elsewhere;  // see http_request_set_elsewhere()
    size_t taken_len;   // of a body that was taken and is not done
    loop_fn free_owned; // NULL: it owns nothing
    void *owned;
    loop_fn on_gone;
    void *on_gone_arg;
    // Its answer:
    struct buf answer;   // header lines
    bool has_length;     // one of them is Content-Length
    bool has_connection; // one of them is Connection
    bool is_chunked;
    bool is_streaming;
    struct gzip *gzip; // encodes what is streamed; NULL: it is sent as it is
    size_t low_watermark;
    loop_fn on_drain;
    void *on_drain_arg;
    struct loop_timer *drain_timer;
    struct loop_timer *flush_timer; // of a stream
    struct evbuffer_cb_entry *output_cb;
    bool of_site;     // see http_server_set_site()
    bool to_own_name; // is_server() of struct http_site
    char *set_headers[HTTP_SET_HEADERS_MAX]; // their values
    bool is_trusted;  // the same as of_site: its body may be large, though it has no owner here
    // What upgrade.c has of an upgraded connection.
    loop_fn on_data;
    void *on_data_arg;
};

// Makes the connection one of bytes both ways: see http_upgrade_start() and http_tunnel_start().
void upgrade_take(struct http_request *request, loop_fn on_data, void *arg);

// ---- head.c ---------------------------------------------------------------------------------

// The length of the head that `text` begins with; 0: it is not complete. The first `from` bytes
// have been searched before.
size_t head_end(const char *text, size_t len, size_t from);
// Reads a complete head. head_fini() frees `ret`, also after an error.
KG_MUST_CHECK int head_parse(const char *text, size_t len, struct http_head *ret,
                             struct kg_error *err);
// The same for an answer of a server that is not trusted: what a browser might read differently is
// refused, too. KG_PORT_ANSWER.
KG_MUST_CHECK int head_parse_answer(const char *text, size_t len, struct http_head *ret,
                                    struct kg_error *err);
void head_fini(struct http_head *head);
// Adds a header, which stays borrowed.
void head_add(struct http_head *head, const char *name, const char *value);
// The first value of a header; NULL: there is none.
const char *head_find(const struct http_head *head, const char *name);
// Whether one of the lists of that name has the token, in any case.
bool head_has_token(const struct http_head *head, const char *name, const char *token);

// ---- framing.c ------------------------------------------------------------------------------

void framing_init(struct http_framing *framing, bool chunked, uint64_t len);
// Moves what has come of the body, at most to its end. False: the chunks are malformed.
KG_MUST_CHECK bool framing_take(struct http_framing *framing, struct evbuffer *input,
                                struct evbuffer *body);
// The error of malformed chunks.
int framing_fail(struct kg_error *err);

// ---- coding.c -------------------------------------------------------------------------------

// Whether a body is in gzip. KG_UNSUPPORTED_CODING: in something else.
KG_MUST_CHECK int coding_of_body(const struct http_head *head, bool *ret_gzip,
                                 struct kg_error *err);
// Decodes gzip. On any thread.
struct gunzip *gunzip_new(void);
void gunzip_free(struct gunzip *gunzip);
// Decodes from the start of `from` and removes what it has read; writes at most `len` bytes. 0
// bytes: more must come, or the end was reached. KG_INVALID: it is not gzip.
KG_MUST_CHECK int gunzip_take(struct gunzip *gunzip, struct evbuffer *from, void *to, size_t len,
                              size_t *ret_len, struct kg_error *err);
// Whether the bytes may end here.
bool gunzip_is_between(const struct gunzip *gunzip);
// The error of a body that ends elsewhere.
int gunzip_cut(struct kg_error *err);
// Encodes gzip. On the loop.
struct gzip *gzip_new(void);
void gzip_free(struct gzip *gzip);
// Appends what was encoded to `to`; `last`: all of it, and nothing follows.
void gzip_add(struct gzip *gzip, const void *data, size_t len, bool last, struct evbuffer *to);

// ---- connection.c ---------------------------------------------------------------------------

// Closes and frees it; an open request is `gone`.
void connection_close(struct http_connection *conn);
// Writes what is in the output now.
void connection_flush(struct http_connection *conn);
// Of what waits in the input: it is full, or some was taken. At the high watermark libevent calls
// on_readable() again in each turn until it is lower, and would keep the processor busy.
void connection_fill(struct http_connection *conn);
void connection_drain(struct http_connection *conn);
// Its input is looked at in a turn of its own, whether more has come or not.
void connection_look_soon(const struct http_connection *conn);
// The answer is in the output, and the request was freed.
void connection_finish_answer(struct http_connection *conn);
// The output is empty: if an answer was sent, the connection goes on in a turn of its own, since a
// handler may be on the stack.
void connection_has_sent(struct http_connection *conn);

// ---- peers.c --------------------------------------------------------------------------------

// `max_strangers`: as in struct http_server_settings.
void peers_init(struct http_peers *peers, int max_strangers);
void peers_fini(struct http_peers *peers);
// Counts a connection; NULL: its address has too many without a valid key, and is not `spared`.
struct http_peer *peer_take(struct http_peers *peers, const struct sockaddr *from, bool spared);
// One of its connections had its first valid key.
void peer_trust(struct http_peer *peer);
// A connection was closed. An address that has sent wrong keys is remembered for a minute.
void peer_leave(struct http_peers *peers, struct http_peer *peer, bool was_trusted, int64_t now_ms);
// The address has sent a wrong key; true: too many.
KG_MUST_CHECK bool peer_failed(struct http_peer *peer, int64_t now_ms);

// ---- deadlines.c ----------------------------------------------------------------------------

// 0: 15 s.
void deadlines_init(struct http_deadlines *deadlines, struct loop *loop, int timeout_s);
void deadlines_fini(struct http_deadlines *deadlines);
// The connection closes at its deadline. One that has a deadline keeps it.
void deadline_start(struct http_connection *conn);
void deadline_stop(struct http_connection *conn);

// ---- places.c -------------------------------------------------------------------------------

void places_init(struct http_places *places, int max);
// Before a connection takes a place: closes an idle one if places are short. False: none is idle.
KG_MUST_CHECK bool places_make_room(struct http_places *places);
void place_take(struct http_connection *conn);
// The connection has a valid key.
void place_trust(struct http_connection *conn);
void place_is_idle(struct http_connection *conn);
void place_is_busy(struct http_connection *conn);
void place_leave(struct http_connection *conn);

// ---- owners.c -------------------------------------------------------------------------------

void owners_init(struct http_owners *owners);
// After the last connection.
void owners_fini(struct http_owners *owners);
// Counts a connection of an owner, until owner_leave().
struct http_owner *owner_join(struct http_owners *owners, const char *name);
void owner_leave(struct http_owners *owners, struct http_owner *owner, int64_t now_us);
// Counts a request; KG_RATE_LIMITED if there are too many. `per_second` 0: no limit.
KG_MUST_CHECK int owner_take_request(struct http_owners *owners, const char *name,
                                     double per_second, int64_t now_us, struct kg_error *err);

// ---- linger.c -------------------------------------------------------------------------------

// Reads from a duplicate of `fd` for a while, and drops what it reads.
void linger_start(struct http_server *server, int fd);
void linger_end_all(struct http_server *server);

// ---- json_parse.c ---------------------------------------------------------------------------

// A body that a worker has parsed; where `value` is NULL, `err` says why.
struct http_parsed {
    json_t *value;
    struct kg_error err;
};
void parsed_free(void *parsed);

// ---- intake.c -------------------------------------------------------------------------------

void intake_init(struct http_server *server, const struct http_server_settings *settings);
void intake_fini(struct http_server *server);
void intake_watch(struct http_connection *conn);
// The body has come: the connection reads, so that its client's end is noticed.
void intake_unpause(struct http_connection *conn);
// A handler has taken `len` bytes of the request's body.
void intake_give(struct http_connection *conn, size_t len);
// Of its body `from` bytes have become `to` bytes.
void intake_change(struct http_connection *conn, size_t from, size_t to);
// The request is answered.
void intake_reset(struct http_connection *conn);
// The connection is closed.
void intake_forget(struct http_connection *conn);

// ---- request.c ------------------------------------------------------------------------------

// 0: none of them.
enum http_method method_by_name(const char *name);
enum {
    HTTP_METHODS_TEXT_SIZE = 64,
    // Only these have a body with a meaning (RFC 9110, section 9.3).
    HTTP_METHODS_WITH_BODY = HTTP_POST | HTTP_PUT | HTTP_PATCH,
};
// Writes "GET, HEAD, …" for a set of methods; all of them fit into HTTP_METHODS_TEXT_SIZE.
void methods_format(int set, char *ret, size_t size);
struct http_request *request_new(struct http_connection *conn);
// Reads the path and the query.
KG_MUST_CHECK int request_parse_target(struct http_request *request, const char *target,
                                       struct kg_error *err);
// Stops calling `on_drain`.
void request_stop_drain(struct http_request *request);
// Its connection closes: takes it away from it, and then ends the request or calls `on_gone`.
void request_detach(struct http_request *request);
void request_gone(struct http_request *request);
void request_free(struct http_request *request);

// ---- body.c ---------------------------------------------------------------------------------

// Bytes have come behind the head of a request that is being answered. A malformed body sets
// `body_err`, in this function or when it is read; on_readable() of the connection follows.
void body_has_more(struct http_request *request);
// From now on a streamed body is read without being decoded. True: it comes in chunks, without a
// length.
bool body_pass_on(struct http_request *request);
// The answer begins. True: the client may still be sending the body.
bool body_is_left(struct http_request *request);

// ---- decode.c -------------------------------------------------------------------------------

// If the body is whole and coded, decodes it, and then calls `then` unless it is answered. False:
// there is nothing to decode, and `then` is not called.
typedef void (*decoded_fn)(struct http_request *request);
KG_MUST_CHECK bool decode_start(struct http_request *request, decoded_fn then);

// ---- stream.c -------------------------------------------------------------------------------

// Before anything is written by http_stream_write*().
void stream_init_flush(struct http_request *request);

// ---- reply.c --------------------------------------------------------------------------------

// A problem document (RFC 9457).
json_t *problem_new(const struct kg_error *err);
// See http_reply_shared().
void reply_add_shared(struct evbuffer *to, const void *data, size_t len, loop_fn release,
                      void *arg);
// Removes Content-Length and Accept-Ranges from the headers that were added, and makes the ETag a
// weak one (RFC 9110, section 8.8.3.3): of what is sent in a coding.
void reply_change_for_coding(struct http_request *request);
// Starts a stream whose head has the headers that were added, the date, and what frames it.
void stream_begin(struct http_request *request, int status);
void reply_add_common_headers(struct http_request *request, int status, const char *content_type);
// The connection closes after the answer.
void reply_close(struct http_request *request);
// Writes the head of the answer, with the headers that were added. `content_length` -1: not known.
void reply_write_head(struct http_request *request, int status, int64_t content_length);

// ---- origin.c -------------------------------------------------------------------------------

// Refuses requests of other sites' web pages, and hosts that are not allowed.
KG_MUST_CHECK int origin_check(const struct http_server *server, const struct http_request *request,
                               struct kg_error *err);
// Adds the CORS headers for allowed origins, after origin_check().
void origin_add_headers(struct http_request *request);

// ---- proxies.c ------------------------------------------------------------------------------

// `trusted`: as in the settings; NULL: none but loopback. KG_INVALID: one is no network. To be
// freed by proxies_fini() also then.
KG_MUST_CHECK int proxies_init(struct http_proxies *proxies, const char *const *trusted,
                               struct kg_error *err);
void proxies_fini(struct http_proxies *proxies);
// Whether a proxy has forwarded the request from another machine.
bool proxies_say_elsewhere(const struct http_request *request);

// ---- router.c -------------------------------------------------------------------------------

// The entry for the request's path and method; sets the request's parameters. NULL: none, and
// `ret_methods` has the methods of this path (0: the path is unknown).
const struct http_router_entry *router_find(const struct http_router *router,
                                            struct http_request *request, int *ret_methods);

// ---- cookie.c -------------------------------------------------------------------------------

// The credential in the cookie of a login, to be freed; NULL: there is none, or more than one.
char *cookie_login(const struct http_request *request);
// Whether the page that sends the request knows the login's token, or the request changes nothing.
bool cookie_is_meant(const struct http_request *request, const char *credential);

// ---- token.c --------------------------------------------------------------------------------

// HTTP_TOKEN_NONE also for a credential without the prefix; `ret` is zeroed then.
KG_MUST_CHECK enum http_token_state token_read(const struct http_server *server,
                                               const char *credential, struct http_token *ret,
                                               char *ret_owner);
// Whether a request with a token may use its route; of others all may. May reduce `max_body`.
KG_MUST_CHECK int token_check_head(struct http_request *request, struct kg_error *err);
// Whether it concerns the token's session, which this gateway must have. The body is there.
KG_MUST_CHECK int token_check_whole(struct http_request *request, struct kg_error *err);

// ---- site.c ---------------------------------------------------------------------------------

// Whether the request's host is the site's. Then the request is for its handler, or `err` says why
// not.
bool site_take(struct http_request *request, struct kg_error *err);

// ---- identify.c -----------------------------------------------------------------------------

// Asks whose a credential is. `ret->err` is set, or `ret->owner` as the authenticator does, or a
// check is returned that calls `done` later, once.
struct http_identity {
    char owner[HTTP_OWNER_MAX + 1];
    struct http_token token;
    struct kg_error err;
};
struct http_check *identify_ask(struct http_server *server, const char *credential, bool is_login,
                                struct http_identity *ret, http_checked_fn done, void *arg);
// Gives the connection and its present request an owner whom the handler has found. KG_RATE_LIMITED
// if that owner has too many connections.
KG_MUST_CHECK int identify_as(struct http_connection *conn, struct http_request *request,
                              const char *owner, struct kg_error *err);
// Finds the owner of the connection's next request from its head, path and query. True: later, and
// then `on_identified` is called.
bool identify_start(struct http_connection *conn, const struct http_request *request,
                    http_identified_fn on_identified);
// The request's connection is that owner's, whatever credential it sends. Empty: nobody's.
void identify_as_owner(struct http_connection *conn, const char *owner);
// Forgets the owner of the last request; the connection counts for that owner until the next one.
void identify_reset(struct http_connection *conn);
// The connection is closed.
void identify_forget(struct http_connection *conn);
// Sets the request's owner. An error if its route needs an owner and there is none, or if the owner
// has too many connections.
KG_MUST_CHECK int identify_check(struct http_connection *conn, struct http_request *request,
                                 struct kg_error *err);

// ---- dispatch.c -----------------------------------------------------------------------------

// Checks a request whose head has come, and lets its body be read, or answers it.
void dispatch_head(struct http_request *request);
// The request is complete, or its body is not read: checks what is left, and calls the handler.
void dispatch_handle(struct http_request *request);

// ---- pipeline.c -----------------------------------------------------------------------------

// Takes the socket, and `peer`.
struct http_connection *pipeline_new(struct http_server *server, int fd, struct http_peer *peer);
// Reads the body of the request, and then calls dispatch_handle().
void pipeline_read_body(struct http_connection *conn);
// The request counts as open until its answer has been sent.
void pipeline_is_handled(struct http_connection *conn);
// Answers a malformed request, and closes the connection.
void pipeline_refuse(struct http_connection *conn, const struct kg_error *err);
// Those whose answer was sent read the next request.
void pipelines_go_on(struct http_server *server);
