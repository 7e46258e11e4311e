// SPDX-License-Identifier: Apache-2.0
// Bodies, streamed answers and helpers that endpoints share.
#pragma once

#include <jansson.h>

#include "account_store.h"
#include "accounts.h"
#include "api.h"
#include "face.h"
#include "file_links.h"
#include "http.h"
#include "kernel.h"
#include "loop.h"
#include "routes.h"
#include "session.h"
#include "session_downloads.h"

// ---- Bodies (bodies.c) ----------------------------------------------------------------------

// The body of POST execute and execute_sync. Strings and values are borrowed from the JSON.
struct execute_body {
    const char *code;
    const char *session_id; // or NULL
    const struct kernelspec *spec;
    int64_t timeout_ms;
    const json_t *variables; // or NULL
    const json_t *env;       // or NULL
    bool keep_running;
    bool allow_stdin;
    bool savepoint;      // one is made before it runs
    const char *branch;  // the kernel's name; NULL: the default one of `spec`
    const json_t *tools; // tool_list_new(); or NULL
};
KG_MUST_CHECK int execute_body_parse(const struct api_context *context, const json_t *root,
                                     struct execute_body *ret, struct kg_error *err);

// The bodies of POST sessions/{id}/complete and …/inspect; borrowed.
struct question_body {
    const char *code;
    int64_t cursor_pos; // in characters; by default the end of the code
    int64_t detail_level;
    const char *branch;            // the kernel's name; or NULL
    const struct kernelspec *spec; // its default kernel; or NULL
};
KG_MUST_CHECK int question_body_parse(const struct api_context *context, const json_t *root,
                                      struct question_body *ret, struct kg_error *err);

// The bodies of POST sessions/{id}/savepoints and of …/branches; borrowed.
struct savepoint_body {
    const char *name;              // or NULL; of a branch always there
    const char *from;              // a savepoint's id, of a branch; or NULL
    const char *branch;            // the kernel's name; or NULL
    const struct kernelspec *spec; // its default kernel; or NULL
    bool files;                    // of a savepoint: it keeps them, too
};
KG_MUST_CHECK int savepoint_body_parse(const struct api_context *context, const json_t *root,
                                       struct savepoint_body *ret, struct kg_error *err);
KG_MUST_CHECK int branch_body_parse(const struct api_context *context, const json_t *root,
                                    struct savepoint_body *ret, struct kg_error *err);
// An object without members.
KG_MUST_CHECK int empty_body_parse(const json_t *root, struct kg_error *err);

// The body of POST executions/{id}/tool_results; borrowed. `wait`: the answer comes when the code
// has ended, or its calls wait again.
struct tool_results_body {
    const json_t *results; // tool_results_new()
    bool wait;
};
KG_MUST_CHECK int tool_results_body_parse(const json_t *root, struct tool_results_body *ret,
                                          struct kg_error *err);

// The body of POST executions/{id}/input; borrowed.
KG_MUST_CHECK int execution_input_body_parse(const json_t *root, const char **ret,
                                             struct kg_error *err);

// The body of POST sessions.
struct session_body {
    const char *session_id;
    const struct kernelspec *spec;
    const json_t *env;
    struct session_change own; // 0: the default
    struct session_download downloads[SESSION_DOWNLOADS_MAX];
    size_t n_downloads;
};
KG_MUST_CHECK int session_body_parse(const struct api_context *context, const json_t *root,
                                     struct session_body *ret, struct kg_error *err);

// The body of PATCH sessions/{id}; borrowed.
KG_MUST_CHECK int session_patch_body_parse(const struct api_context *context, const json_t *root,
                                           struct session_change *ret, struct kg_error *err);

// The body of POST sessions/{id}/tokens.
struct token_body {
    int scopes; // HTTP_SCOPE_…
    int64_t life_s;
};
KG_MUST_CHECK int token_body_parse(const json_t *root, struct token_body *ret,
                                   struct kg_error *err);

// The body of POST sessions/{id}/packages; `ret` is borrowed from it.
KG_MUST_CHECK int packages_body_parse(const json_t *root, const json_t **ret, struct kg_error *err);

// The body of POST sessions/{id}/commands.
struct command_body {
    const char *command; // NULL: a shell in a terminal
    const char *cwd;     // or NULL
    const json_t *env;   // or NULL
    int64_t timeout_ms;  // 0: none
    const char *id;      // or NULL
    bool keep;           // when the client leaves
    bool background;     // it is answered at once
    bool with_stdin;
    int cols, rows; // of its terminal; 0: none
    bool has_id;    // the client uses ids: it names one of the members above, from `id` on
};
KG_MUST_CHECK int command_body_parse(const struct api_context *context, const json_t *root,
                                     struct command_body *ret, struct kg_error *err);
// Whether a client may give a command that id; those with a _ first are made.
KG_MUST_CHECK int command_id_parse(const char *id, struct kg_error *err);
enum { TERMINAL_COLS = 80, TERMINAL_ROWS = 24 }; // by default
// The size of a terminal: {"cols", "rows"}. Also of POST …/resize.
KG_MUST_CHECK int terminal_size_parse(const json_t *size, int *ret_cols, int *ret_rows,
                                      struct kg_error *err);
// The body of POST …/signal, borrowed.
KG_MUST_CHECK int signal_body_parse(const json_t *root, const char **ret, struct kg_error *err);

// The body of POST sessions/{id}/ports/{port}. `ret_has_public`: it says whether it is public.
KG_MUST_CHECK int port_body_parse(const json_t *root, bool *ret_has_public, bool *ret_public,
                                  struct kg_error *err);

// The body of POST sessions/{id}/files/{path}; `to` is borrowed.
struct file_action_body {
    enum file_action { FILE_MKDIR, FILE_MOVE, FILE_COPY, FILE_CHMOD } action;
    const char *to; // of FILE_MOVE, FILE_COPY: as the client calls it
    bool overwrite; // of these
    int mode;       // of FILE_CHMOD
};
KG_MUST_CHECK int file_action_body_parse(const json_t *root, struct file_action_body *ret,
                                         struct kg_error *err);

// The bodies of POST keys, POST users and PATCH users/{id}. `ret` borrows from the JSON, and points
// into itself.
struct account_body {
    const char *name; // of the key or user; or NULL
    struct account_change change;
    bool disabled, administrator;
    int64_t max_sessions;
    double max_requests_per_second;
    int64_t max_memory_mb;
};
typedef int (*account_body_fn)(const json_t *root, struct account_body *ret, struct kg_error *err);
KG_MUST_CHECK int key_body_parse(const json_t *root, struct account_body *ret,
                                 struct kg_error *err);
KG_MUST_CHECK int user_body_parse(const json_t *root, struct account_body *ret,
                                  struct kg_error *err);
KG_MUST_CHECK int user_change_body_parse(const json_t *root, struct account_body *ret,
                                         struct kg_error *err);

// The bodies with passwords. Borrowed from the JSON; NULL: absent.
struct password_body {
    const char *name;
    const char *password;
    const char *old_password;
    const char *new_password;
    const char *token;
};
// `required` and `optional` are names of the fields above, each ended by NULL; others are refused.
KG_MUST_CHECK int password_body_parse(const json_t *root, const char *const *required,
                                      const char *const *optional, struct password_body *ret,
                                      struct kg_error *err);

// ---- Streamed answers -----------------------------------------------------------------------

enum {
    STREAM_HIGH_WATERMARK = 64 << 10, // bytes queued for the client: above it, no more are taken
    STREAM_LOW_WATERMARK = 16 << 10,
    STREAM_TICK_MS = 15 * 1000,
};

// Checks a streamed answer every `tick_ms`: keeps the connection alive, detects stalled clients.
struct stream_watch_settings {
    struct loop *loop;
    struct http_request *request;
    int64_t tick_ms;
    bool of_lines; // write a keepalive line if the client has read everything
    // The client read none of its queued bytes for four ticks in a row, while `waits_for_client`
    // was true. May free the watch. NULL: the answer is aborted if there is `on_pause`; else
    // stalled clients are kept.
    loop_fn on_stalled;
    bool (*waits_for_client)(const void *arg); // NULL: while it is paused
    // To stop what the lines are made of, and to let it go on: stream_watch_line() has left more
    // than STREAM_HIGH_WATERMARK bytes for the client, and the client has read until
    // STREAM_LOW_WATERMARK. NULL: it cannot be stopped.
    void (*on_pause)(bool paused, void *arg);
    void *arg;
};
struct stream_watch;
struct stream_watch *stream_watch_new(const struct stream_watch_settings *settings);
void stream_watch_free(struct stream_watch *watch);
// (Re)starts the watch: the next tick is `tick_ms` from now. Call it after each line, too.
void stream_watch_start(struct stream_watch *watch);
// Writes one NDJSON line and restarts the watch.
void stream_watch_line(struct stream_watch *watch, const json_t *line);

// ---- The output of a command (command_stream.c) ----------------------------------------------

// Streams a command's output as lines, or collects it for one answer. The request owns it.
struct command_stream;
struct session_command;
struct command_stream_settings {
    struct api_context *context;
    const struct session *session; // borrowed
    bool waits;                    // one answer at the end
    bool starts_with_line;         // of type `started`
    bool follows;                  // the command goes on without it: api_drain() ends the stream
    int64_t deadline_ms;           // until then a client may read as slowly as it likes; 0: not
};
struct command_stream *command_stream_new(struct http_request *request,
                                          const struct command_stream_settings *settings);
// Its events, with the stream as their argument.
extern const struct sandbox_command_events command_stream_events;
// The command that was started or joined with them; the stream cancels it when the client leaves.
void command_stream_take(struct command_stream *stream, struct session_command *command);

// ---- Files (files.c) -------------------------------------------------------------------------

// Answers with what is at the path, which is as session_files.h takes it.
void file_show_start(struct http_request *request, struct api_context *context,
                     struct session *session, const char *path);
// A file that was written, as an answer describes it.
struct session_file;
json_t *file_written_describe(const struct http_request *request, const struct api_context *context,
                              const char *session_id, const struct session_file *file);

// ---- Terminals (terminal.c) ------------------------------------------------------------------

// How their clients speak: bytes, and {"resize": [cols, rows]}.
extern const struct terminal_dialect api_terminal_dialect; // terminals.h

// ---- Executing (execute.c) ------------------------------------------------------------------

// Borrows the execution; to keep it, takes a reference or subscribes.
typedef void (*execute_started_fn)(struct http_request *request, struct api_context *context,
                                   struct execution *execution);
// Opens the session that the request's body names and runs the code there. Replies to the request
// if that fails.
void execute_start(struct http_request *request, struct api_context *context,
                   execute_started_fn on_started);

// Gathers the lines that no such answer has had yet, until the execution has ended, or its calls of
// tools wait for the client.
void execution_gather_start(struct http_request *request, struct api_context *context,
                            struct execution *execution);

// Streams the execution's lines after `after_seq` as the answer, and again those of calls of tools
// that wait still.
void execution_stream_start(struct http_request *request, struct api_context *context,
                            struct execution *execution, int64_t after_seq);

// ---- Common to endpoints (answers.c) ---------------------------------------------------------

// The session that the path's `id` names, of the request's owner. Borrowed.
struct session *api_session(struct http_request *request, const struct api_context *context,
                            struct kg_error *err);
// The same; if it returns NULL, it has replied with the error.
struct session *api_find_session(struct http_request *request, const struct api_context *context);
// The kernel that a body means: a branch, the default kernel of a kernelspec, or (both NULL) the
// session's first one. Borrowed; NULL with `err`.
struct kernel *api_kernel_of(const struct session *session, const struct kernelspec *spec,
                             const char *branch, struct kg_error *err);

// A change of a session that waits until it is recorded; the request owns it.
struct api_recording {
    struct http_request *request;
    struct api_context *context;
    struct session_recording *recording;
    void (*reply)(struct api_recording *self, struct session *session);
    json_t *body;                    // for `reply`; or NULL
    char id[SESSION_MAX_ID_LEN + 1]; // the same; or empty
};
struct api_recording *api_recording_new(struct http_request *request, struct api_context *context,
                                        void (*reply)(struct api_recording *self,
                                                      struct session *session));
// A session_recorded_fn: replies with the error, or by `reply`.
void api_on_recorded(const struct kg_error *err, void *arg);

// A path of the client's as session_files.h takes it, to be freed: below the working folder or,
// with root=/ in the query, with a / first. A folder's may be empty or NULL.
enum api_path_kind { API_PATH_FILE, API_PATH_NEW, API_PATH_FOLDER };
KG_MUST_CHECK char *api_file_path(const struct http_request *request, const char *path,
                                  enum api_path_kind kind, struct kg_error *err);
// As the client calls it, borrowed.
const char *api_client_path(const char *path);
// A query that is 0 or 1.
KG_MUST_CHECK int api_query_flag(const struct http_request *request, const char *name,
                                 bool fallback, bool *ret, struct kg_error *err);

// "SIGTERM", or the number of a signal without a name.
json_t *api_signal_name(int signum);

// {"resultCode":0, "resultMsg":"success", "data":…}; takes `data`.
void reply_envelope(struct http_request *request, json_t *data);
// {"message":…} and the members of `more` (taken; may be NULL).
void reply_message(struct http_request *request, json_t *more, const char *fmt, ...)
    KG_PRINTF(3, 4);

// ---- Accounts (account_request.c) ------------------------------------------------------------

struct account_request {
    struct http_request *request;
    const struct api_context *context;
    struct account_call *call;
    const char *what; // is done, for the log; NULL: nothing is changed
    char *owner;
    char *credential;                   // or NULL
    bool is_login;                      // the credential came in a cookie
    char network[IP_NETWORK_TEXT_SIZE]; // of the client
    account_call_fn run;
    char *subject;                       // the user or key that is concerned; or NULL
    char key_id[ACCOUNT_KEY_ID_LEN + 1]; // of the key that was made or revoked, for the log
    json_t *root;                        // `body` borrows from it
    struct account_body body;
    json_t *answer; // set by the worker
    // On the loop, when the worker has succeeded: does the rest, then account_request_reply(), now
    // or later. NULL: there is nothing more to do.
    void (*then)(struct account_request *self);
    bool ends_login; // the answer takes the cookie away
    bool succeeded;
};
struct account_request *account_request_new(struct http_request *request, const char *what,
                                            const char *subject);
// Reads the body; -1: has replied with the error and freed the request.
KG_MUST_CHECK int account_request_read(struct account_request *self, account_body_fn parse);
// Runs `run` with the account_request on a worker, and answers. The credential is checked there
// once more: it may have been revoked while the body came.
void account_request_start(struct account_request *self, const struct api_context *context,
                           account_call_fn run);
// Both free the request: with the error; with the answer.
void account_request_refuse(struct account_request *self, const struct kg_error *err);
void account_request_reply(struct account_request *self);
// null for 0.
json_t *json_time(int64_t ms);

// ---- Who has done what with accounts (account_log.c) -----------------------------------------

// What is NULL or empty is left out of the line.
struct account_event {
    const char *what;
    const char *by;         // the owner who has done it
    const char *credential; // of the request: the line has the id of the key or login
    const char *user;       // that is concerned
    const char *key_id;     // that is concerned
    const char *changed;
    const char *network; // of the client
};
void account_log(const char *event, const struct account_event *of);

// ---- Logins (login_state.c) ------------------------------------------------------------------

// Who somebody is, as the console asks, too. `login`: the credential, if it is one; or NULL. On a
// worker.
json_t *login_describe(struct account_store *store, const char *user, const char *login);
// Adds what a user has at the moment, and may have. On the loop.
void login_describe_use(json_t *answer, const struct api_context *context, const char *user);

// ---- Handlers -------------------------------------------------------------------------------

#define ROUTE(method, path, handler, flags, concerns)                                              \
    void handler(struct http_request *request, void *arg);
API_ROUTES(ROUTE)
API_ACCOUNT_ROUTES(ROUTE)
#undef ROUTE
