// SPDX-License-Identifier: Apache-2.0
// The files of this module. Each uses only those below it:
//
//     envd.c                       routes
//     file_get.c, file_post.c      /files
//     filesystem.c, list_dir.c     calls about files; entries.c: files as clients see them
//     watch_dir.c, watchers.c      watching; watch_events.c: what is reported
//     process_calls.c, process_input.c   calls about commands; process_find.c: which one is meant
//     process_start.c              commands that are started or joined; process_stream.c
//     link_walk.c                  symbolic links on the way
//     envd_access.c                who asks; errors; signature.c: URLs that are signed
//     connect_stream.c, connect.c, envelope.c   the Connect protocol; message.c: fields
//     envd_path.c                  paths
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "connect.h"
#include "e2b.h"
#include "envd.h"
#include "envd_path.h"
#include "face.h"
#include "sandbox.h"
#include "session.h"

struct process_stream;
struct session_entry;
struct session_file_op;
struct session_watch_event;
struct watcher;

struct envd {
    const struct e2b *e2b;
    LIST_HEAD(, process_stream) streams; // that go on as long as their commands
    LIST_HEAD(, watcher) watchers;
    struct loop_timer *sweep; // of the watchers
};

// ---- Who asks (envd_access.c) ----------------------------------------------------------------

// The argument of the routes is the struct envd. Errors are those of /files, or of the protocol.
extern const struct http_dialect envd_file_dialect;
extern const struct http_dialect envd_call_dialect;

// The sandbox that a request concerns, after a check of the user that the client wants to be: there
// is one user, who is called `user` and `root`. KG_UNAUTHORIZED: it is another one.
KG_MUST_CHECK struct session *envd_sandbox(struct http_request *request, const struct envd *envd,
                                           struct kg_error *err);
KG_MUST_CHECK int envd_user_check(const char *name, struct kg_error *err);
// The path in the query, and the check of the query's user.
KG_MUST_CHECK int envd_query_path(const struct http_request *request, struct envd_path *ret,
                                  struct kg_error *err);

// ---- URLs that are signed (signature.c) ------------------------------------------------------

// Of a request with a signed URL: sets the headers that one with its sandbox's token has.
void signature_prepare(struct http_request *request);
// Whether it has found a signature that is not right. A gateway without keys serves everybody, but
// not those who bring a wrong one.
bool signature_is_wrong(const struct http_request *request);

// ---- Files as clients see them (entries.c) ---------------------------------------------------

// The message EntryInfo, a new reference. `client`: the path as the client calls it.
json_t *entry_describe(const struct session_entry *entry, const char *client);
// The same of an entry in a page of session_files_list(), with details. Of a link nothing says
// where it leads.
json_t *entry_describe_listed(const json_t *listed, const char *client);

// ---- What is reported of a watch (watch_events.c) --------------------------------------------

// Messages FilesystemEvent, new references, at most two: a rename ends one path, and makes another
// one. Returns how many. What was lost is an event without a type.
enum { WATCH_MESSAGES_MAX = 2 };
int watch_describe(const struct session_watch_event *event, const struct envd_path *folder,
                   json_t *ret[WATCH_MESSAGES_MAX]);
// `path` and `recursive` of a request. `ret` is to be freed.
KG_MUST_CHECK int watch_message_parse(const json_t *message, struct envd_path *ret,
                                      bool *ret_recursive, struct kg_error *err);
void watchers_end(struct envd *envd);
void watchers_on_sweep(void *envd);

// ---- Which command (process_find.c) ----------------------------------------------------------

// By the number of its process, or by its tag.
struct process_selector {
    int64_t pid; // 0: by `tag`
    char tag[SANDBOX_COMMAND_NOTE_MAX + 1];
};
// Of the member `process` of a message.
KG_MUST_CHECK int process_selector_parse(const json_t *message, struct process_selector *ret,
                                         struct kg_error *err);
// A tag of a message; borrowed, NULL: it has none.
KG_MUST_CHECK int process_tag_parse(const json_t *message, const char **ret, struct kg_error *err);

struct process_found {
    const char *id; // of the command; borrowed
    bool terminal;
};
// `pty` of a message; 0: it has none.
KG_MUST_CHECK int process_size_parse(const json_t *message, int64_t *ret_cols, int64_t *ret_rows,
                                     struct kg_error *err);
// Whether it takes input of that kind.
KG_MUST_CHECK int process_input_check(const struct process_found *found, bool pty,
                                      struct kg_error *err);
// Looks for it among the sandbox's commands. `fn` fires once, later; `found` is NULL if `err` is
// set (KG_NOT_FOUND). Ended ones are found only `with_ended`.
struct process_search;
typedef void (*process_found_fn)(const struct process_found *found, const struct kg_error *err,
                                 void *arg);
KG_MUST_CHECK struct process_search *process_search_start(struct session *session,
                                                          const struct process_selector *selector,
                                                          bool with_ended, process_found_fn fn,
                                                          void *arg, struct kg_error *err);
// NULL is fine.
void process_search_cancel(struct process_search *search);

// ---- What a command writes (process_stream.c) ------------------------------------------------

// Sends it as events of the messages StartResponse and ConnectResponse, whose shape is the same.
// The request owns the stream.
struct process_stream *process_stream_new(struct http_request *request, struct envd *envd,
                                          int64_t timeout_ms);
// Each fails without an answer.
KG_MUST_CHECK int process_stream_start(struct process_stream *stream, struct session *session,
                                       const struct sandbox_command_spec *spec,
                                       struct kg_error *err);
KG_MUST_CHECK int process_stream_find(struct process_stream *stream, struct session *session,
                                      const struct process_selector *selector,
                                      struct kg_error *err);
// Ends the answer, and with it the stream.
void process_stream_fail(struct process_stream *stream, const struct kg_error *err);

// ---- Handlers -------------------------------------------------------------------------------

// The sandbox's files.
void handle_envd_file_get(struct http_request *request, void *arg);
void handle_envd_file_post(struct http_request *request, void *arg);
void handle_stat(struct http_request *request, void *arg);
void handle_make_dir(struct http_request *request, void *arg);
void handle_move(struct http_request *request, void *arg);
void handle_remove(struct http_request *request, void *arg);
void handle_list_dir(struct http_request *request, void *arg);
void handle_watch_dir(struct http_request *request, void *arg);
void handle_create_watcher(struct http_request *request, void *arg);
void handle_watcher_events(struct http_request *request, void *arg);
void handle_remove_watcher(struct http_request *request, void *arg);
// Its processes.
void handle_process_start(struct http_request *request, void *arg);
void handle_process_connect(struct http_request *request, void *arg);
void handle_process_list(struct http_request *request, void *arg);
void handle_process_update(struct http_request *request, void *arg);
void handle_process_signal(struct http_request *request, void *arg);
void handle_process_close_stdin(struct http_request *request, void *arg);
void handle_process_input(struct http_request *request, void *arg);
void handle_process_stream_input(struct http_request *request, void *arg);
