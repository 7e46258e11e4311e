// SPDX-License-Identifier: Apache-2.0
// The HTTP server: routes, authentication, problem details (RFC 9457), streams.
#pragma once

#include <jansson.h>

#include "base.h"
#include "ip_network.h"
#include "loop.h"

struct http_server;
struct http_request;

// ---- Server ---------------------------------------------------------------------------------

// The limits of one owner; 0: no limit.
struct http_quota {
    double requests_per_second; // bursts may have two seconds' worth
    int max_connections;        // those that have sent its credential; a further one gets 429
    int64_t max_sessions;       // for session/, which asks the authenticator itself
    int64_t max_memory_mb;      // of each sandbox's processes; 0: the gateway's. The same
};

struct http_server_settings {
    const char *host;
    int port;                           // 0: any free port
    int socket;                         // of http_listen(), owned from then on; 0: it listens
                                        // on `host` and `port` itself
    size_t max_body_bytes;              // larger bodies get 413
    size_t max_small_body_bytes;        // the same, on routes without HTTP_LARGE_BODY; 0: no
                                        // separate limit
    size_t max_held_bytes;              // of all bodies that are being read or not yet taken by a
                                        // handler; one owner may have half of it. Beyond that
                                        // bodies wait for each other. 0: no limit
    size_t max_header_bytes;            // larger heads get 400
    int max_connections;                // for a further one an idle one is closed, or it is
    int idle_timeout_s;                 // of a connection without a request
    int head_timeout_s;                 // from accepting a connection, or from the first byte of a
                                        // later request, to the end of its head, and of its body
                                        // if it has no valid key. 0: 15
    int max_strangers;                  // connections of one address (IPv6: of one /64; two times
                                        // that of one /56, four times of one /48) without a valid
                                        // key so far; 0: 64, but no limit on loopback
    const char *const *trusted_proxies; // NULL-terminated: addresses and networks of proxies whose
                                        // X-Forwarded-For is believed, besides loopback; "private":
                                        // RFC 1918 and 4193. NULL: none
    const char *const *allowed_origins; // NULL-terminated; NULL: only the server's own
    const char *const *allowed_hosts;   // NULL-terminated; "*" allows any; NULL: loopback names
    bool check_origin_and_host;
    struct http_quota anonymous_quota; // of all requests, without an authenticator
};

// Starts to listen. Makes the process ignore SIGPIPE.
// Binds a port of a host, 0: any free one, for http_server_new(): before the process gives up the
// right to bind it. Returns a listening socket that the caller owns.
KG_MUST_CHECK int http_listen(const char *host, int port, struct kg_error *err);
struct http_server *http_server_new(struct loop *loop, const struct http_server_settings *settings,
                                    struct kg_error *err) KG_MUST_CHECK;
// Closes all connections, open answers included, and stops listening. Not from within a handler.
void http_server_free(struct http_server *server);
KG_DEFINE_AUTO(http_server, http_server_free)
int http_server_port(const struct http_server *server);
// The number of requests whose answer has not been sent completely.
int http_server_open_requests(const struct http_server *server);

// ---- Authentication -------------------------------------------------------------------------

// The longest name of an owner, in bytes.
enum { HTTP_OWNER_MAX = 64 };
// The owner of all requests, without an authenticator.
#define HTTP_ANONYMOUS "anonymous"

// Turns credentials into owners. The server asks once for each request that has a credential, when
// its head is complete and none of its body has been read. The owner stays the owner of the request
// until its end, even if the credential is revoked; see http_credential_check().
struct http_authenticator {
    const struct http_authenticator_ops *ops;
};
struct http_check; // a check in progress, defined by the authenticator
// `owner`: as `ret_owner` below. `err`: the credential could not be checked, and this is the
// answer, except on HTTP_PUBLIC routes; NULL: it was checked. Both are borrowed for the time of the
// call.
typedef void (*http_checked_fn)(const char *owner, const struct kg_error *err, void *arg);
struct http_authenticator_ops {
    // Either writes the owner's name to `ret_owner` (HTTP_OWNER_MAX + 1 bytes; empty: the
    // credential is not valid) and returns NULL, or returns a check and calls `done` later, once,
    // on the loop. The credential is borrowed until this returns. A check may take as long as the
    // head timeout.
    struct http_check *(*check)(struct http_authenticator *authenticator, const char *credential,
                                char *ret_owner, http_checked_fn done, void *arg);
    // The client has disconnected: `done` must not be called. NULL if check() never returns a
    // check.
    void (*cancel)(struct http_check *check);
    // The owner's current limits. Called often, so it must not block.
    struct http_quota (*quota)(const struct http_authenticator *authenticator, const char *owner);
    // Whether some valid credential is this owner's. NULL: not known.
    bool (*has_owner)(const struct http_authenticator *authenticator, const char *owner);
    // As check(), of an owner for whom a token speaks (below): writes the name, or an empty one if
    // nobody is this owner any more. NULL: no token is valid.
    struct http_check *(*check_owner)(struct http_authenticator *authenticator, const char *owner,
                                      char *ret_owner, http_checked_fn done, void *arg);
};

// The authenticator must outlive the server. Without one, all requests belong to the owner
// "anonymous", except for those that a proxy forwards from another machine: they have no owner, and
// only HTTP_PUBLIC routes accept them.
void http_server_set_authenticator(struct http_server *server,
                                   struct http_authenticator *authenticator);

// The credential by which a request's owner was found, for connections that outlive the request: it
// can be checked again.
struct http_credential;
enum http_validity { HTTP_VALID, HTTP_INVALID, HTTP_UNKNOWN };
// What a check has found that could not be answered at once. HTTP_UNKNOWN: the credential could not
// be checked. The callback may free the credential, but not check it again.
typedef void (*http_rechecked_fn)(enum http_validity validity, void *arg);
// NULL: the owner was not found by a credential (no authenticator, http_request_set_owner()). The
// authenticator must outlive it.
struct http_credential *http_credential_new(const struct http_request *request,
                                            http_rechecked_fn on_checked, void *arg);
void http_credential_free(struct http_credential *credential);
// As for a new request with this credential, and at the same cost. It is valid as long as it is the
// same owner's. HTTP_UNKNOWN: `on_checked` is called later, once for the checks that were asked for
// until then, and never from inside this function.
KG_MUST_CHECK enum http_validity http_credential_check(struct http_credential *credential);

// ---- Tokens ---------------------------------------------------------------------------------

// A credential for one session of an owner's, for what its scopes allow. A route's flags have the
// scope that it needs (HTTP_SCOPE_…); one without refuses tokens, and public ones ignore them. A
// request must concern the token's session by its first rule. token.c decides this, for all routes.
#define HTTP_TOKEN_PREFIX "kgs_"
enum { HTTP_TOKEN_SESSION_MAX = 64 };
struct http_token {
    int scopes; // 0: none, the credential is another one
    char session_id[HTTP_TOKEN_SESSION_MAX + 1];
};
enum http_token_state {
    HTTP_TOKEN_NONE,      // it is not one that was made here
    HTTP_TOKEN_ENDED,     // by its time, by being revoked, or with its session
    HTTP_TOKEN_ELSEWHERE, // this gateway does not have the session: another one knows more
    HTTP_TOKEN_VALID,
};
struct http_tokens {
    // Reads a credential with the prefix. `ret_owner` has HTTP_OWNER_MAX + 1 bytes.
    enum http_token_state (*read)(const char *credential, struct http_token *ret, char *ret_owner,
                                  void *arg);
    // The session to which something with an id belongs (HTTP_CONCERNS_MADE), borrowed; NULL: none.
    const char *(*session_of)(const char *id, const char *owner, const struct http_token *token,
                              void *arg);
    void *arg;
};
// Whether the request's credential is one.
bool http_request_has_token(const struct http_request *request);
// Whether that token is still valid, or there is none. For a request that has waited, before it
// uses its session: that one may have ended, and another one may have its name.
KG_MUST_CHECK int http_request_check_token(const struct http_request *request,
                                           struct kg_error *err);
void http_server_set_tokens(struct http_server *server, const struct http_tokens *tokens);
// The scope of a name; 0: there is none.
int http_scope_find(const char *name);
// The names of the scopes, a new reference: ["read", "files"].
json_t *http_scopes_describe(int scopes);
// What is stored of scopes: their names with spaces between them (as in RFC 6749, section 3.3).
// Flags are not stored, so they may be renumbered.
enum { HTTP_SCOPES_TEXT_MAX = 63 };
void http_scopes_format(int scopes, char ret[HTTP_SCOPES_TEXT_MAX + 1]);
// The scopes that a text names. Names that this gateway does not know grant nothing.
int http_scopes_parse(const char *text);

// ---- Admission ------------------------------------------------------------------------------

// Before it calls the handler of a route that is not public, the server counts the request and
// checks whether it drains. Handlers that find the owner by other means (a signed link), or get
// several requests in one (a batch), call http_server_admit() themselves.

// From now on routes with HTTP_STARTS_WORK answer KG_DRAINING.
void http_server_drain(struct http_server *server);
bool http_server_is_draining(const struct http_server *server);
// Stops listening, once no connection waits to be accepted; false: one does, so it is to be called
// again in another turn of the loop.
KG_MUST_CHECK bool http_server_stop_listening(struct http_server *server);
// Whether a client is sending a request, or has connected and not yet begun to.
bool http_server_is_receiving(const struct http_server *server);
// The limits of an owner at the moment.
struct http_quota http_server_quota(const struct http_server *server, const char *owner);
// Counts one request of an owner; KG_RATE_LIMITED if it is more than the owner's quota allows.
KG_MUST_CHECK int http_server_admit(struct http_server *server, const char *owner,
                                    struct kg_error *err);
// For handlers of HTTP_PUBLIC routes that accept another secret than a key. If it is right: gives
// the request its owner and admits it, as a key would; KG_RATE_LIMITED, or KG_DRAINING on a route
// with HTTP_STARTS_WORK. If it is not: answers 401, and counts it as a wrong key of that address.
KG_MUST_CHECK int http_request_set_owner(struct http_request *request, const char *owner,
                                         struct kg_error *err);
void http_request_refuse_secret(struct http_request *request);

// ---- Routes ---------------------------------------------------------------------------------

enum http_method {
    HTTP_GET = 1,
    HTTP_HEAD = 2,
    HTTP_POST = 4,
    HTTP_PUT = 8,
    HTTP_DELETE = 16,
    HTTP_OPTIONS = 32,
    HTTP_PATCH = 64,
};
enum {
    HTTP_PUBLIC = 1,       // needs no credential, and is not counted
    HTTP_KEY_IN_QUERY = 2, // the credential may be the query's `api_key`
    HTTP_STARTS_WORK = 4,  // refused while the server drains
    HTTP_LARGE_BODY = 8,   // up to max_body_bytes
    HTTP_JSON_BODY = 16,   // a large body is parsed on a worker before the handler is called, which
                           // gets the value from http_request_json()
    HTTP_TOKEN_KEY =
        32, // the credential may also come as Jupyter's clients send it: `Authorization:
            // token KEY`, or the query's `token`; an empty one counts as none
    HTTP_CAN_MOVE = 64, // while the server drains, another gateway of the installation may answer
                        // what names nothing; so it is with HTTP_STARTS_WORK anyway
    HTTP_STREAMED_BODY = 128, // the handler is called before the body has come, if this is large
                              // and its length was given: see http_request_on_body()
    HTTP_OPEN_BODY = 256,     // the handler is called when the head has come, however long the body
                              // is, and counts its bytes itself: see http_request_body_ended()
    HTTP_GZIP_BODY = 512, // the body may come in gzip (Content-Encoding), and the handler gets it
                          // decoded; the limits are for what it becomes. Other codings get 415.
                          // Without this flag no coding is looked at
    HTTP_GZIP_ANSWER = 1024, // a stream of status 200 is sent in gzip to clients that accept it
                             // (RFC 9110, section 12.5.3), unless its type is compressed already;
                             // then it has neither Content-Length nor ranges, and its ETag is weak.
                             // What is written may wait for what follows
    // The scope that a token needs for the route. Only their names are stored.
    HTTP_SCOPE_READ = 1 << 16,       // describes the session, and follows its output
    HTTP_SCOPE_RUN = 1 << 17,        // runs code and commands; includes the former
    HTTP_SCOPE_FILES_READ = 1 << 18, // reads files
    HTTP_SCOPE_FILES = 1 << 19,      // reads and changes files
    HTTP_SCOPE_TERMINAL = 1 << 20,   // uses terminals
    HTTP_SCOPE_PORTS = 1 << 21,      // reaches ports
    HTTP_SCOPES = 0x3f << 16,
};

// Must answer, now or later: with http_reply*() or with a stream.
typedef void (*http_handler_fn)(struct http_request *request, void *arg);

// What a request concerns, so that it is answered by that gateway of an installation which has it
// (http_server_set_forward()). A route has rules, which end with a zeroed one; they are tried in
// their order, and the first counts that finds the name of something which a gateway has. If there
// is none, each gateway can answer.
enum http_concern_kind {
    HTTP_CONCERNS_END,
    HTTP_CONCERNS_SESSION, // the owner's session of that name
    HTTP_CONCERNS_SANDBOX, // the session that has the sandbox of that id
    HTTP_CONCERNS_MADE,    // something whose name ends with the id of the gateway that made it
    HTTP_CONCERNS_ENTRY,   // the entry of the collection that the path is in, of which `member` is
                           // the name; only the gateway that has it lists it
    HTTP_CONCERNS_ALL,     // what all gateways have together: the handler lists it with
                           // http_request_elsewhere(), which others answer to GET `target`
    HTTP_CONCERNS_EACH,    // this gateway, which answers; the others are sent the request, too
    HTTP_CONCERNS_HERE,    // this gateway alone
    HTTP_CONCERNS_ASKED,   // what `ask` says
};
// Where the name is.
enum http_part {
    HTTP_IN_NOTHING,
    HTTP_IN_PATH, // a parameter of the path; of several segments the first one
    HTTP_IN_QUERY,
    HTTP_IN_HEADER,
    HTTP_IN_BODY, // a string, a member of a JSON object; ASCII without a backslash
};
struct http_request;
struct http_concern {
    enum http_concern_kind kind;
    enum http_part part;
    const char *name;   // of the parameter, header or member
    const char *within; // a JSON Pointer (RFC 6901) to the object in the body; NULL: the body
    const char *member; // of HTTP_CONCERNS_ENTRY
    const char *target; // of HTTP_CONCERNS_ALL; NULL: the request's own
    // Of HTTP_CONCERNS_EACH: the headers that the others need besides Host and the credential,
    // NULL-terminated.
    const char *const *headers;
    const char *owner; // the query's parameter that says whose session it is; NULL: the client's
    // Answers one other rule, without names, and as `ret_name` (to be freed) what it would find.
    // `arg` is the route's.
    void (*ask)(struct http_request *request, struct http_concern *ret, char **ret_name, void *arg);
};

// In `pattern`, `{name}` matches one segment of the path; `{name...}`, which must be the last one,
// matches the rest, which may be empty. GET routes also answer HEAD. A known path with another
// method gets 405 with `Allow`.
struct http_route {
    enum http_method method;
    const char *pattern; // borrowed
    http_handler_fn handler;
    int flags;
    const struct http_concern *concerns; // borrowed; or NULL. The pattern has what they name
};
// How the clients of a protocol that is not ours send their credential, and what they read of an
// error. The cookie of a login does not count on such routes.
struct http_dialect {
    // The credential in the request's head, to be freed; NULL: there is none of the protocol's, but
    // maybe `Authorization: Bearer`.
    char *(*credential)(const struct http_request *request);
    // The JSON body of an answer in place of a problem document, a new reference. It may change
    // `status`, which is the error's, and add headers. http_request_arg() is the route's argument.
    json_t *(*describe_error)(struct http_request *request, const struct kg_error *err,
                              int *status);
    // The head of a request has come, and its client has not been identified: may set headers in
    // place of what the client says elsewhere (http_request_set_header()). NULL: nothing is done.
    void (*prepare)(struct http_request *request);
};
void http_server_add_routes(struct http_server *server, const struct http_route *routes, size_t n,
                            void *arg);
// The same, of a dialect, which is borrowed.
void http_server_add_dialect(struct http_server *server, const struct http_dialect *dialect,
                             const struct http_route *routes, size_t n, void *arg);

// ---- Sites ----------------------------------------------------------------------------------

// Hosts that are not the server's own: requests for them go to one handler, whatever their path,
// and never to a route. Their Origin, credential and cookie of a login are not looked at.
struct http_site {
    const char *name; // in the metrics
    // Whether a host (as in the header) is one of the site's.
    bool (*claims)(const char *host, void *arg);
    // The head of a request has come: 0, and `ret_owner` (HTTP_OWNER_MAX + 1 bytes) is whose
    // request it is, or empty, and then its body must be small unless `ret_trusted` (false before)
    // is set; -1: it is answered with `err`.
    int (*admit)(const struct http_request *request, char *ret_owner, bool *ret_trusted, void *arg,
                 struct kg_error *err);
    http_handler_fn handler;
    const struct http_concern *concerns;
    // Whether a host of the site's domain is another name of the server itself: its requests go to
    // the routes, whatever allowed-hosts says. `ret_value` (HTTP_NAMED_MAX + 1 bytes, empty
    // before): if it is set, the host names something, which a request has in the header `named_in`
    // then, in place of what its client says there. NULL: none is.
    bool (*is_server)(const char *host, char *ret_value, void *arg);
    const char *named_in;
    void *arg;
};
enum { HTTP_NAMED_MAX = 64 };
// Copies `site`, whose pointers stay borrowed.
void http_server_set_site(struct http_server *server, const struct http_site *site);

// ---- Requests -------------------------------------------------------------------------------

// All strings are borrowed until the request is answered. A request stays valid until then, even
// when its client has disconnected.
enum http_method http_request_method(const struct http_request *request);
struct http_server *http_request_server(const struct http_request *request);
// A decoded path parameter. The route's pattern must name it.
const char *http_request_param(const struct http_request *request, const char *name);
// The first value of that name in the query, decoded; NULL: none.
const char *http_request_query(const struct http_request *request, const char *name);
// The value of that name after `previous`, which is the one that this or http_request_query() has
// returned; NULL: there are no more.
const char *http_request_query_next(const struct http_request *request, const char *name,
                                    const char *previous);
const char *http_request_header(const struct http_request *request, const char *name);
// Whether the client accepts gzip (RFC 9110, section 12.5.3).
bool http_request_accepts_gzip(const struct http_request *request);
// Sets a header (`name` is borrowed) in place of those that the client has sent, for the handler
// and for replicas to which the request is forwarded. Before the client is identified; at most
// HTTP_SET_HEADERS_MAX times.
enum { HTTP_SET_HEADERS_MAX = 4 };
void http_request_set_header(struct http_request *request, const char *name, const char *value);
// Whether a list of entity tags, as in If-None-Match, names `etag` (with its quotes).
bool http_etag_list_has(const char *list, const char *etag);
// The owner; NULL: none, which is possible on HTTP_PUBLIC routes only.
const char *http_request_owner(const struct http_request *request);
// What the client has sent to be identified, to be freed; NULL: nothing. `ret_is_login`: it came in
// the cookie of a login.
char *http_request_credential(const struct http_request *request, bool *ret_is_login);
// Where the client is: its address, or what trusted proxies say it is. "203.0.113.7" of IPv4,
// "2001:db8:1:2::/64" of IPv6. False: on loopback, or the client has disconnected, and then it is
// "".
bool http_request_network(const struct http_request *request, char ret[IP_NETWORK_TEXT_SIZE]);
// Whether the Origin, if there is one, is that of the request's own Host.
bool http_request_has_own_origin(const struct http_request *request);
// Whether the Host is a name of this machine: localhost, 127.0.0.1, [::1].
bool http_request_is_to_loopback(const struct http_request *request);
// Whether the client's proxy says that it speaks TLS with it (X-Forwarded-Proto). Any client can
// say so, and misleads only itself.
bool http_request_is_https(const struct http_request *request);
const void *http_request_body(struct http_request *request, size_t *ret_len);
// What was not yet read of the body, including what has not come of a streamed one. Not of a body
// with HTTP_OPEN_BODY, whose length may be unknown.
size_t http_request_body_len(const struct http_request *request);
// Removes the next bytes of the body, at most `len`, and frees their memory; returns their number.
// 0 of a streamed body: no more have come.
size_t http_request_body_read(struct http_request *request, void *to, size_t len);
// On routes with HTTP_STREAMED_BODY, whose handlers use no other functions for the body than these
// three. `on_data` fires when bytes of the body have come, never from inside a function of this
// header. At most 64 KiB wait to be read; then the client waits. A client that sends nothing for
// the head timeout after a read found nothing is disconnected. If the answer comes before the end
// of the body, the connection ends with it.
void http_request_on_body(struct http_request *request, loop_fn on_data, void *arg);
// Whether the whole body has been read. With HTTP_OPEN_BODY a body is read like one with
// HTTP_STREAMED_BODY, but it may come in chunks, or in gzip, or be empty, so a handler reads until
// there is nothing, looks here, and does both again in `on_data`, which also fires at the end. A
// body that is malformed is answered by the server, and ends the request as a client does that
// disconnects. There is no limit on its length.
bool http_request_body_ended(const struct http_request *request);
// Replaces the head timeout in which more of such a body must come: for clients that send when they
// have something to say.
void http_request_body_idle(struct http_request *request, int64_t ms);
enum {
    HTTP_JSON_DEPTH_MAX = 64,
    // The memory that values may take, without their strings: two million numbers, or 370,000
    // empty objects. "[{},{},…" takes eighty times the size of its text.
    HTTP_JSON_VALUE_BYTES_MAX = 96 << 20,
    // A larger text is parsed, and its values are freed, on a worker: both take about 10 ms per MB.
    HTTP_JSON_INLINE_MAX = 64 << 10,
    // The memory that the values of such a text may take with HTTP_JSON_BODY, since the handler
    // frees them on the loop.
    HTTP_JSON_BODY_VALUE_BYTES_MAX = 4 << 20,
};
// Takes the whole body from the request, to be read on a worker.
struct http_body;
struct http_body *http_request_take_body(struct http_request *request);
// Gives it back as it was taken.
void http_request_give_body(struct http_request *request, struct http_body *body);
// The whole body, borrowed; not NUL-terminated. Any thread that has the body may call it.
const char *http_body_data(const struct http_body *body, size_t *ret_len);
// The body as one text, with a NUL after its `ret_len` bytes, to be freed. Frees the body. On any
// thread.
char *http_body_text(struct http_body *body, size_t *ret_len) KG_MUST_CHECK;
void http_body_free(struct http_body *body);
// Call this when the body that was taken has been parsed or refused. Until then its bytes count for
// max_held_bytes, since bodies may queue for a worker.
void http_request_body_done(struct http_request *request);
// Reads the whole body as one text, on a worker if it is larger than HTTP_JSON_INLINE_MAX: calls
// `read` with the text (borrowed, with a NUL after its `len` bytes), then `done` on the loop, maybe
// before this returns. On a worker `read` may touch `job` only. If the client disconnects first,
// `done` is not called, `discard` frees the job, and the request is abandoned.
struct http_body_reader {
    void (*read)(const char *text, size_t len, void *job);
    void (*done)(struct http_request *request, void *job);
    void (*discard)(void *job);
};
void http_request_read_body(struct http_request *request, const struct http_body_reader *reader,
                            void *job);
// The body as JSON, whatever its Content-Type; KG_INVALID if it is empty, not JSON, not UTF-8, has
// duplicate keys, or exceeds the bounds above. The caller owns the value. At most once per request.
KG_MUST_CHECK json_t *http_request_json(struct http_request *request, struct kg_error *err);
// The same for any bytes, with HTTP_JSON_VALUE_BYTES_MAX.
KG_MUST_CHECK json_t *http_json_parse(const char *body, size_t len, struct kg_error *err);
// The same with another bound. `ret_beyond`: it failed because the text nests deeper than
// HTTP_JSON_DEPTH_MAX, or its values would take more than `max_value_bytes`.
KG_MUST_CHECK json_t *http_json_parse_within(const char *body, size_t len, size_t max_value_bytes,
                                             bool *ret_beyond, struct kg_error *err);

// Gives a waiting handler's state to the request, which calls free_fn(state) once when it ends: by
// any answer, or because its client disconnects, which ends the request, too. So `free_fn` cancels
// what is in progress. It may read the request, but not answer it. One state at a time.
void http_request_own(struct http_request *request, void *state, loop_fn free_fn);
// Takes the state back, if there is one: the caller frees it, and must answer the request or give
// it another one. That the client disconnects meanwhile is not noticed.
void http_request_disown(struct http_request *request);
// For what outlives the request, in place of a state. `on_gone` fires at most once: if the client
// disconnects before the answer is complete. Calls for the request do nothing from then on; the
// handler still must end it, by http_request_abandon(), http_reply*() or http_stream_end(). NULL:
// no callback.
void http_request_on_gone(struct http_request *request, loop_fn on_gone, void *arg);

// ---- Answers --------------------------------------------------------------------------------

// Adds a header to the answer, before it starts.
void http_reply_header(struct http_request *request, const char *name, const char *value);
// Adds the cookie of a login to the answer: browsers send the credential with each request for so
// many seconds, but no script can read it. Requests other than GET and HEAD also need the token
// that belongs to the credential (X-CSRF-Token), which no page of another origin knows. Routes with
// HTTP_TOKEN_KEY ignore the cookie.
// Behind TLS its name has the prefix __Host- (RFC 6265bis, section 4.1.3.2), with which no other
// host of the domain, and no other scheme, can set it.
#define HTTP_LOGIN_COOKIE "kernelgate_login"
enum { HTTP_CSRF_TOKEN_LEN = 32 };
void http_reply_login(struct http_request *request, const char *credential, int64_t seconds);
void http_csrf_token(const char *credential, char ret[HTTP_CSRF_TOKEN_LEN + 1]);
// Each of these completes the answer and frees the request. http_request_abandon() is for a request
// whose client has disconnected.
void http_request_abandon(struct http_request *request);
void http_reply(struct http_request *request, int status, const char *content_type,
                const void *data, size_t len);
// The same without a copy: takes `text`, and frees it with the answer.
void http_reply_take(struct http_request *request, int status, const char *content_type, char *text,
                     size_t len);
// The same without a copy: `data` must stay until release(arg) is called, on the loop, when it has
// been sent or cannot be sent; maybe before this returns.
void http_reply_shared(struct http_request *request, int status, const char *content_type,
                       const void *data, size_t len, loop_fn release, void *arg);
// Takes the reference of `body`. Reals are written with 15 digits.
void http_reply_json(struct http_request *request, int status, json_t *body);
// A problem document (RFC 9457).
void http_reply_error(struct http_request *request, const struct kg_error *err);

// Starts a streamed (chunked) answer and sends its head.
void http_stream_start(struct http_request *request, int status, const char *content_type);
// `on_drain` (may be NULL) fires each time when the backlog falls from above `low_watermark` bytes
// to that or less.
void http_stream_on_drain(struct http_request *request, size_t low_watermark, loop_fn on_drain,
                          void *arg);
void http_stream_write(struct http_request *request, const void *data, size_t len);
// The same without a copy; `release` as with http_reply_shared().
void http_stream_write_shared(struct http_request *request, const void *data, size_t len,
                              loop_fn release, void *arg);
// Bytes that were written and are not yet in the socket.
size_t http_stream_backlog(const struct http_request *request);
// Completes the answer and frees the request.
void http_stream_end(struct http_request *request);
// Frees the request and closes the connection without the last chunk, so that the client sees a
// failure.
void http_stream_abort(struct http_request *request);

// ---- Upgraded connections (RFC 9110, 7.8) ---------------------------------------------------

// Whether the client asks for that protocol, by HTTP/1.1 and without a body.
bool http_upgrade_is_asked(const struct http_request *request, const char *protocol);
// Answers 101 with the headers that were added. From then on the connection carries the new
// protocol: what is written by http_stream_write*() is sent as it is, with backlog and drain as for
// a stream, and `on_data` fires when bytes can be read, never from inside this function. It counts
// among http_server_open_requests() only while its end is being sent, has no idle timeout, and ends
// by http_upgrade_end(), by http_stream_abort(), or when the client disconnects.
void http_upgrade_start(struct http_request *request, const char *protocol, loop_fn on_data,
                        void *arg);
// Takes bytes that came, at most `len`; returns how many. At most 64 KiB wait to be taken.
size_t http_upgrade_read(struct http_request *request, void *to, size_t len);
// Paused, nothing more is read, and a client that leaves is not noticed. Afterwards `on_data` fires
// once in any case.
void http_upgrade_pause(struct http_request *request, bool paused);
// Closes the connection once all is sent; the request is gone afterwards.
void http_upgrade_end(struct http_request *request);

// ---- Relayed requests (relay.c) -------------------------------------------------------------

// What a server that is not trusted answers: it is read strictly (RFC 9112, section 11.2), and
// framed anew, so that nobody takes a part of one answer for another one. Of an upgraded connection
// bytes go both ways. Each side waits for the other, so what is kept is bounded.
struct http_relay;
struct http_relay_settings {
    struct loop *loop;
    const char *upgrade; // the protocol that was asked for; NULL: none. Borrowed
    // Adds a header of the answer by http_reply_header(), or not.
    void (*add)(struct http_request *request, const char *name, const char *value);
    loop_fn on_bytes; // some have come, or were sent
    void *arg;
};
// Sends `head` (borrowed) and the request's body to `fd`, which is a connected non-blocking socket
// and is the relay's from now on, and answers the request with what comes, or with an error:
// KG_PORT_ANSWER, KG_PORT_TIMEOUT. Never before this returns. The request must own what frees the
// relay.
struct http_relay *http_relay_new(struct http_request *request, int fd, const char *head,
                                  const struct http_relay_settings *settings);
void http_relay_free(struct http_relay *relay);
// The other server is gone: the request ends, if it has not been answered with `err`.
void http_relay_end(struct http_relay *relay, const struct kg_error *err);

// ---- Forwarded requests (tunnel.c) ----------------------------------------------------------

// Called before the handler of each request, when all checks have passed and the body is there,
// also of one that a draining server would refuse: another one may do the work. True: it takes the
// request, and ends it by an answer of another server (below), by any other answer, or by
// http_request_handle().
typedef bool (*http_forward_fn)(struct http_request *request, void *arg);
void http_server_set_forward(struct http_server *server, http_forward_fn fn, void *arg);
// Whether connections from that address are other gateways', which forward requests of many
// clients: they are not limited as strangers.
struct sockaddr;
typedef bool (*http_replica_fn)(const struct sockaddr *from, void *arg);
void http_server_set_replica(struct http_server *server, http_replica_fn fn, void *arg);
// Calls the handler after all, or refuses the request if the server drains. The request must not
// own a state.
void http_request_handle(struct http_request *request);
// Whether its route has HTTP_STARTS_WORK or HTTP_CAN_MOVE.
bool http_request_can_move(const struct http_request *request);
// Of its route: the rules (or NULL), and the argument of its handler.
const struct http_concern *http_request_concerns(const struct http_request *request);
void *http_request_arg(const struct http_request *request);
// It has come from another replica, which has found that it is for this one.
void http_request_set_forwarded(struct http_request *request);
bool http_request_is_forwarded(const struct http_request *request);
// What other servers have answered to the same request, an array of bodies (taken). Handlers of
// lists add it to what they list: they get it borrowed, NULL if nobody was asked.
void http_request_set_elsewhere(struct http_request *request, json_t *bodies);
json_t *http_request_elsewhere(const struct http_request *request);
// The pattern of its route, and its target as the client has sent it.
const char *http_request_route(const struct http_request *request);
const char *http_request_target(const struct http_request *request);
// Whether a header concerns one connection only (RFC 9110, section 7.6.1), or is written anew.
bool http_header_is_hop(const char *name);
void http_append_header(struct buf *head, const char *name, const char *value);
// The head to forward, with all that the client has sent in it but what concerns this connection
// only. To be freed.
struct http_tunnel_rule {
    const char *extra;   // a line ("Name: value") in place of such a line
    const char *upgrade; // the protocol that is asked for; NULL: none
    // Appends a header as it is to be forwarded, or not; those that Connection names are left out
    // already. NULL: all are appended as they are.
    void (*append)(struct buf *head, const char *name, const char *value,
                   const struct http_request *request);
};
char *http_tunnel_head(const struct http_request *request, const struct http_tunnel_rule *rule);
// From now on http_stream_write() sends bytes as they are, which begin with the head of an answer
// of that status; http_upgrade_read(), _pause() and _end() work, and the connection ends with the
// answer. Unlike an upgraded connection it counts among http_server_open_requests().
void http_tunnel_start(struct http_request *request, int status, loop_fn on_data, void *arg);
