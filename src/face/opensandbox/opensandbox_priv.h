// SPDX-License-Identifier: Apache-2.0
// The files of this module. Each uses only those below it:
//
//     opensandbox.c                           the routes
//     sandboxes.c, sandbox_list.c             the lifecycle
//     endpoints.c                             where a sandbox is reached
//     code.c, commands.c, metrics.c           what runs in it
//     file_upload.c, file_download.c,         its files
//     file_list.c, file_replace.c, entries.c
//     create_body.c, contexts.c, code_events.c, command_events.c, file_batch.c
//     answer_stream.c, file_path.c, glob.c, replies.c
#pragma once

#include <jansson.h>

#include "face.h"
#include "http.h"
#include "kernel.h"
#include "loop.h"
#include "opensandbox.h"
#include "session.h"

// The port of OpenSandbox's daemon in a sandbox, and that of its network policy.
enum { EXECD_PORT = 44772, POLICY_PORT = 18080 };
// The header with a key or an endpoint's token.
#define KEY_HEADER "OPEN-SANDBOX-API-KEY"

struct session_entry;
struct session_file_op;

struct opensandbox {
    struct opensandbox_settings settings;
};

// ---- replies.c ------------------------------------------------------------------------------

// {"code", "message"}, as OpenSandbox has errors.
extern const struct http_dialect opensandbox_dialect;
// Answers that something of OpenSandbox is not there, with a status that its clients know of the
// route, so that they read the body: 409 of the lifecycle, 400 of what the sandbox answers.
void reply_not_served(struct http_request *request, int status, const char *what);
// Answers 200 without a body.
void os_reply_empty(struct http_request *request);
// The session that the path's `id` names, of the request's owner. Borrowed.
struct session *sandbox_of(const struct http_request *request, const struct opensandbox *self,
                           struct kg_error *err);
// The same; if it returns NULL, it has replied with the error.
struct session *find_sandbox(struct http_request *request, const struct opensandbox *self);
// The body as a JSON object; NULL: the error is to be answered. The caller owns it.
KG_MUST_CHECK json_t *os_body_object(struct http_request *request, struct kg_error *err);
// A member that must be a string; NULL or absent: NULL.
KG_MUST_CHECK int os_take_string(const json_t *root, const char *name, const char **ret,
                                 struct kg_error *err);
// Environment variables: an object of strings, or NULL. `name` is the member's.
KG_MUST_CHECK int os_take_env(const json_t *root, const char *name, const json_t **ret,
                              struct kg_error *err);
json_t *os_rfc3339(int64_t wall_ms);
// A number in a text of digits, at most `max`; `fallback` if `text` is NULL.
KG_MUST_CHECK int parse_number(const char *text, const char *name, int64_t fallback, int64_t max,
                               int64_t *ret, struct kg_error *err);

// ---- create_body.c --------------------------------------------------------------------------

// The body of POST /v1/sandboxes. Borrowed from the JSON.
struct create_body {
    const char *image;
    const json_t *entrypoint; // of strings
    const json_t *env;        // or NULL
    const json_t *metadata;   // or NULL
    int64_t timeout_s;        // 0: none
};
KG_MUST_CHECK int create_body_parse(const struct opensandbox *self, const json_t *root,
                                    struct create_body *ret, struct kg_error *err);
// A lifetime in seconds from now; KG_INVALID: it is not in the range of what sessions may have.
KG_MUST_CHECK int check_lifetime(const struct opensandbox *self, const char *name, int64_t seconds,
                                 struct kg_error *err);

// ---- sandboxes.c ----------------------------------------------------------------------------

// As OpenSandbox describes a sandbox: {"id", "image", "status", "metadata", "entrypoint",
// "createdAt", "expiresAt"?}. A new reference.
json_t *sandbox_describe(const struct session *session);

// ---- answer_stream.c -------------------------------------------------------------------------

// An answer of Server-Sent Events, whose data are JSON: pings while nothing is said, and an end for
// clients that do not read. The request owns what frees it.
enum {
    EVENTS_HIGH_WATERMARK = 64 << 10, // bytes queued for the client: above it, no more are taken
    EVENTS_LOW_WATERMARK = 16 << 10,
};
struct answer_stream;
struct answer_stream_settings {
    struct loop *loop;
    struct http_request *request;
    loop_fn on_drain; // the backlog is below EVENTS_LOW_WATERMARK again
    // The client has read nothing for a minute, while `waits_for_client` was true. It ends the
    // request.
    loop_fn on_stalled;
    bool (*waits_for_client)(const void *arg);
    void *arg;
};
struct answer_stream *answer_stream_new(const struct answer_stream_settings *settings);
void answer_stream_free(struct answer_stream *stream);
// Sends the head, and `init` with an id.
void answer_stream_start(struct answer_stream *stream, const char *id);
bool answer_stream_has_started(const struct answer_stream *stream);
bool answer_stream_is_full(const struct answer_stream *stream);
// Appends `data: {"type":TYPE,"timestamp":…`, to which members are added, as `,"name":value`.
void event_begin(struct buf *event, const char *type);
// Ends the event.
void event_end(struct buf *event);
// Appends a whole event whose one further member, `name`, is a string.
void event_add_string(struct buf *event, const char *type, const char *name, const char *text,
                      size_t len);
// Appends an `error`, with a traceback of one line.
void event_add_error(struct buf *event, const char *name, const char *value);
// Sends whole events, or a part of one.
void answer_stream_write(struct answer_stream *stream, const struct buf *events);
// Answers the whole of a stream at once.
void answer_stream_reply(struct http_request *request, const struct buf *events);

// ---- code_events.c --------------------------------------------------------------------------

// Answers with an execution's lines as events.
void code_events_start(struct http_request *request, struct loop *loop,
                       struct execution *execution);
// Appends the events of one line of an execution, of which the log has `len` bytes. The line is not
// parsed into values.
void code_events_append(struct buf *events, const char *line, size_t len);

// ---- command_events.c -----------------------------------------------------------------------

// Text of a command's stream as clients of OpenSandbox expect it: an event for each line, without
// its end; "\n" for an empty line.
struct command_lines {
    struct buf partial; // of the line that has not ended
    bool after_cr;
};
void command_lines_append(struct command_lines *lines, struct buf *events, const char *type,
                          const char *text, size_t len);
// What is left of a last line.
void command_lines_end(struct command_lines *lines, struct buf *events, const char *type);

// ---- contexts.c -----------------------------------------------------------------------------

// The kernelspec of a language that a client names; KG_INVALID: it is not served.
const struct kernelspec *language_spec(const struct opensandbox *self, const char *language,
                                       struct kg_error *err);
// Which kernel a context of POST /code means ({"id"?, "language"?}, or NULL for the default): one
// that takes code (borrowed), or the default one of `ret_spec`, to be opened. KG_NOT_FOUND,
// KG_INVALID.
KG_MUST_CHECK int os_context_find(const struct opensandbox *self, const struct session *session,
                                  const json_t *context, struct kernel **ret_kernel,
                                  const struct kernelspec **ret_spec, struct kg_error *err);

// ---- file_path.c ----------------------------------------------------------------------------

// A client's path as session_files.h takes it, to be freed: absolute, or relative to /mnt/data.
// Empty names and "." are left out; ".." is KG_INVALID_PATH. "" is the working folder.
KG_MUST_CHECK char *sandbox_path(const char *path, bool is_new, struct kg_error *err);
// A path of session_files.h as clients see it: absolute. To be freed.
char *client_path(const char *path);
// What a directory entry looks like; `entry` is session_entry_describe()'s, or one of a listing's.
// A new reference.
json_t *file_info(const json_t *entry, const char *path);
// The digits of a mode, 755 say, as the permissions that they are in octal; KG_INVALID otherwise.
KG_MUST_CHECK int parse_mode(const json_t *permission, int fallback, int *ret,
                             struct kg_error *err);

// ---- glob.c ---------------------------------------------------------------------------------

enum { GLOB_PATTERN_MAX = 256, GLOB_STARS_MAX = 16 };
KG_MUST_CHECK int glob_check(const char *pattern, struct kg_error *err);
// Whether a relative path matches: * and ? within a name, ** across names, [abc], [a-z], [!a]. A
// pattern without a slash is for the last name. Each step of the comparison takes one of `steps`;
// below 0 they were too few, and the result means nothing.
bool glob_matches(const char *pattern, const char *path, int64_t *steps);

// ---- file_batch.c ---------------------------------------------------------------------------

// Operations on files, one after the other, that one request asks for. The first that fails is the
// answer; those before it have been done.
enum { BATCH_MAX = 100 };
struct file_batch;
struct batch_item {
    char *name; // as the client calls it: in the answer, and in errors
    char *path; // as session_files.h takes it
    char *to;   // the same; or NULL
    int mode;   // -1: none
    char *old_text, *new_text;
    size_t old_len, new_len;
    const void *data; // borrowed
    size_t len;
};
// Starts the operation of one item; it calls file_batch_step_done() or _failed() later, once.
typedef struct session_file_op *(*batch_start_fn)(struct file_batch *batch, struct session *session,
                                                  struct batch_item *item, struct kg_error *err);
struct file_batch {
    struct http_request *request;
    struct opensandbox *self;
    batch_start_fn start;
    struct batch_item items[BATCH_MAX];
    size_t n, next;
    struct session_file_op *op;
    json_t *answer; // NULL: none
    // What one operation keeps between its steps.
    json_t *stat;
    struct buf text;
    loop_fn free_more; // frees `more`
    void *more;
};
// The request owns it.
struct file_batch *file_batch_new(struct http_request *request, struct opensandbox *self,
                                  batch_start_fn start);
// Adds an item; takes nothing. KG_INVALID: there are too many, or the path is not valid.
KG_MUST_CHECK struct batch_item *file_batch_add(struct file_batch *batch, const char *path,
                                                bool is_new, struct kg_error *err);
// Starts with the first item, or answers if there is none.
void file_batch_run(struct file_batch *batch);
// The current item is done, or has failed.
void file_batch_step_done(struct file_batch *batch);
void file_batch_step_failed(struct file_batch *batch, const struct kg_error *err);
// The end of an operation, as the callbacks of session_files.h have it; their argument is a batch.
void file_batch_on_done(const struct kg_error *err, void *arg);
void file_batch_on_entry(const struct session_entry *entry, const struct kg_error *err, void *arg);

// ---- Handlers -------------------------------------------------------------------------------

#define ROUTE(method, path, handler, flags, concerns)                                              \
    void handler(struct http_request *request, void *arg);
#include "routes.h"
OPENSANDBOX_ROUTES(ROUTE)
#undef ROUTE
