// SPDX-License-Identifier: Apache-2.0
// The HTTP server on evhttp: routes, authentication, problem details (RFC 9457), streams.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

struct http_server;
struct http_request;

// ---- Server ---------------------------------------------------------------------------------

// What one owner may have at a time; 0: any number.
struct http_quota {
    double requests_per_second; // in bursts of up to two seconds' worth
    int max_connections;        // which have shown its credential; further ones get 429
    int64_t max_sessions;       // for session/, which asks the authenticator itself
};

struct http_server_settings {
    const char *host;
    int port;                           // 0: any free one
    size_t max_body_bytes;              // 413 above
    size_t max_small_body_bytes;        // the same for routes without HTTP_LARGE_BODY; 0: no other
    size_t max_held_bytes;              // of all bodies that are being read or wait to be taken,
                                        // of one owner's half of that; beyond that readers wait
                                        // for one another; 0: any
    size_t max_header_bytes;            // 400 above
    int max_connections;                // further ones are closed at once
    int idle_timeout_s;                 // a connection without a request
    int head_timeout_s;                 // from the first byte of a request, or from accepting, to
                                        // the end of its head; of its body where no key came.
                                        // 0: 15
    int max_strangers;                  // connections of one address (IPv6: a /64) that have shown
                                        // no valid key; 0: 64, and any number from this machine
    const char *const *allowed_origins; // NULL-terminated; NULL: only the server's own
    const char *const *allowed_hosts;   // NULL-terminated; "*" allows any; NULL: loopback names
    bool check_origin_and_host;
    struct http_quota anonymous_quota; // while there is no authenticator
};

// Ignores SIGPIPE from then on, for the whole process.
struct http_server *http_server_new(struct loop *loop, const struct http_server_settings *settings,
                                    struct kg_error *err) KG_MUST_CHECK;
// Ends every open stream, closes every connection, stops listening. Not from within a handler.
void http_server_free(struct http_server *server);
KG_DEFINE_AUTO(http_server, http_server_free)
int http_server_port(const struct http_server *server);
// Requests whose answer has not been sent completely.
int http_server_open_requests(const struct http_server *server);

// ---- Who asks -------------------------------------------------------------------------------

// An owner's name has at most so many bytes.
enum { HTTP_OWNER_MAX = 64 };

// Turns credentials into owners. The server asks once for each request that carries one, when its
// head is complete and nothing of its body was read. The answer holds for that request until its
// end, whatever becomes of the credential.
struct http_authenticator {
    const struct http_authenticator_ops *ops;
};
struct http_check; // the authenticator's own: a check under way
// `owner`: as `ret_owner` below.
typedef void (*http_checked_fn)(const char *owner, void *arg);
struct http_authenticator_ops {
    // Either writes the owner's name to `ret_owner` (HTTP_OWNER_MAX + 1 bytes; empty: the
    // credential is not valid) and returns NULL, or returns a check, and calls `done` later, once,
    // on the loop. The credential is borrowed until this returns. The head timeout bounds a check.
    struct http_check *(*check)(struct http_authenticator *authenticator, const char *credential,
                                char *ret_owner, http_checked_fn done, void *arg);
    // Its client has gone: `done` is not called. NULL where check() never returns a check.
    void (*cancel)(struct http_check *check);
    // What an owner may have now. Called often, so it answers from memory.
    struct http_quota (*quota)(const struct http_authenticator *authenticator, const char *owner);
};

// The authenticator must outlive the server. Without one every request belongs to "anonymous",
// except for those that a proxy brings from another machine: they belong to nobody, and only
// HTTP_PUBLIC lets them through.
void http_server_set_authenticator(struct http_server *server,
                                   struct http_authenticator *authenticator);

// ---- Admission ------------------------------------------------------------------------------

// The server itself checks each request to a route that is not public, before its handler. Whoever
// finds an owner or a request by other means (a signed link, a batch) calls http_server_admit().

// From now on routes with HTTP_STARTS_WORK answer KG_DRAINING.
void http_server_drain(struct http_server *server);
bool http_server_is_draining(const struct http_server *server);
// Counts one request of an owner; KG_RATE_LIMITED where its quota allows no more at the moment.
KG_MUST_CHECK int http_server_admit(struct http_server *server, const char *owner,
                                    struct kg_error *err);

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
// Routes with HTTP_STARTS_WORK are refused while the server drains. With HTTP_JSON_BODY a large
// body is parsed on a worker before the handler is called, which takes the value by
// http_request_json().
enum {
    HTTP_PUBLIC = 1,
    HTTP_KEY_IN_QUERY = 2,
    HTTP_STARTS_WORK = 4,
    HTTP_LARGE_BODY = 8,
    HTTP_JSON_BODY = 16,
};

// Must answer, now or later: with http_reply*() or with a stream.
typedef void (*http_handler_fn)(struct http_request *request, void *arg);

// A `{name}` segment matches one path segment, `{name...}` as the last one the rest, which may be
// empty. GET routes answer HEAD too. A known path with another method is 405 with `Allow`.
struct http_route {
    enum http_method method;
    const char *pattern;
    http_handler_fn handler;
    int flags;
};
void http_server_add_routes(struct http_server *server, const struct http_route *routes, size_t n,
                            void *arg);

// ---- Requests -------------------------------------------------------------------------------

// All strings are borrowed until the request is answered.
enum http_method http_request_method(const struct http_request *request);
struct http_server *http_request_server(const struct http_request *request);
// A decoded path parameter, never NULL for one that the pattern names.
const char *http_request_param(const struct http_request *request, const char *name);
// A decoded query value, or NULL.
const char *http_request_query(const struct http_request *request, const char *name);
const char *http_request_header(const struct http_request *request, const char *name);
// Whose key came with the request; NULL: nobody's, which only HTTP_PUBLIC lets through.
const char *http_request_owner(const struct http_request *request);
const void *http_request_body(struct http_request *request, size_t *ret_len);
size_t http_request_body_len(const struct http_request *request);
// Takes the next bytes of the body, at most `len`, for good; returns how many. For large ones:
// memory goes as it is taken.
size_t http_request_body_read(struct http_request *request, void *to, size_t len);
enum {
    HTTP_JSON_DEPTH_MAX = 64,
    // What the values may take in memory, beside their strings: two million numbers, or 370,000
    // empty objects. "[{},{},…" takes eighty times its text.
    HTTP_JSON_VALUE_BYTES_MAX = 96 << 20,
    // A text above this size is parsed, and its values are freed, on a worker: both take some ten
    // milliseconds a megabyte.
    HTTP_JSON_INLINE_MAX = 64 << 10,
    // What the values of such a text may take with HTTP_JSON_BODY, as a handler frees them.
    HTTP_JSON_BODY_VALUE_BYTES_MAX = 4 << 20,
};
// Takes the whole body, so that it can be read on another thread: on a worker, say.
struct http_body;
struct http_body *http_request_take_body(struct http_request *request);
// Makes one text of it, which ends in a NUL beside its bytes. On any thread; frees the body.
char *http_body_text(struct http_body *body, size_t *ret_len) KG_MUST_CHECK;
void http_body_free(struct http_body *body);
// The body that was taken has become values, or was refused: the server counts its bytes no longer.
// Until then they count, as bodies may queue for a worker.
void http_request_body_done(struct http_request *request);
// Reads the whole body as one text, on a worker if it is larger than HTTP_JSON_INLINE_MAX: calls
// `read` with the text (borrowed, a NUL after its `len` bytes), then `done` on the loop, maybe
// before this returns. On a worker `read` may touch `job` only. If the client leaves first, `done`
// is not called, `discard` frees the job and the request is abandoned.
struct http_body_reader {
    void (*read)(const char *text, size_t len, void *job);
    void (*done)(struct http_request *request, void *job);
    void (*discard)(void *job);
};
void http_request_read_body(struct http_request *request, const struct http_body_reader *reader,
                            void *job);
// The body as JSON, whatever its Content-Type says; within the bounds above, duplicate keys and bad
// UTF-8 refused. An empty body is NULL with KG_INVALID. The caller owns the value. Once a request.
KG_MUST_CHECK json_t *http_request_json(struct http_request *request, struct kg_error *err);
// The same for bytes that came another way.
KG_MUST_CHECK json_t *http_json_parse(const char *body, size_t len, struct kg_error *err);
// The same with a bound of the caller's. Where it is NULL, `ret_beyond` is true for a text beyond
// HTTP_JSON_DEPTH_MAX or whose values take more than `max_value_bytes`.
KG_MUST_CHECK json_t *http_json_parse_within(const char *body, size_t len, size_t max_value_bytes,
                                             bool *ret_beyond, struct kg_error *err);

// `on_gone` fires at most once: when the client closed before the answer was complete. After that
// the request still takes calls, which do nothing, until http_reply*() or http_stream_end().
void http_request_on_gone(struct http_request *request, loop_fn on_gone, void *arg);

// ---- Answers --------------------------------------------------------------------------------

// Before the answer starts.
void http_reply_header(struct http_request *request, const char *name, const char *value);
// Each of these completes the answer; the request is gone afterwards. http_request_abandon() is for
// one whose client has gone.
void http_request_abandon(struct http_request *request);
void http_reply(struct http_request *request, int status, const char *content_type,
                const void *data, size_t len);
// Takes `text`, which is not copied.
void http_reply_take(struct http_request *request, int status, const char *content_type, char *text,
                     size_t len);
// The same without a copy: `data` stays until release(arg) is called, on the loop, once it was sent
// or cannot be any more; maybe before this returns.
void http_reply_shared(struct http_request *request, int status, const char *content_type,
                       const void *data, size_t len, loop_fn release, void *arg);
// Takes the reference of `body`. Its numbers are our own: reals are written with 15 digits.
void http_reply_json(struct http_request *request, int status, json_t *body);
void http_reply_error(struct http_request *request, const struct kg_error *err);

// Starts a streamed (chunked) answer: the header goes out at once. `on_drain` (may be NULL) fires
// whenever what was queued has fallen from above `low_watermark` bytes to there or below.
void http_stream_start(struct http_request *request, int status, const char *content_type);
void http_stream_on_drain(struct http_request *request, size_t low_watermark, loop_fn on_drain,
                          void *arg);
void http_stream_write(struct http_request *request, const void *data, size_t len);
// The same without a copy: `data` stays until release(arg) is called, on the loop, once it was sent
// or cannot be any more; maybe before this returns.
void http_stream_write_shared(struct http_request *request, const void *data, size_t len,
                              loop_fn release, void *arg);
// Bytes written and not yet taken by the client's socket.
size_t http_stream_backlog(const struct http_request *request);
// Completes the answer once all is sent; the request is gone afterwards.
void http_stream_end(struct http_request *request);
// Cuts the connection without the closing chunk, so that the client sees a failure.
void http_stream_abort(struct http_request *request);
