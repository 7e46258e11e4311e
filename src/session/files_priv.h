// SPDX-License-Identifier: Apache-2.0
// File operations, for the files that implement them.
#pragma once

#include "session_files.h"
#include "sessions_priv.h"

enum { FILE_CALL_MS = 30 * 1000 };

// One operation. Its kind is given by the callback that is set.
struct session_file_op {
    struct session *session;
    struct sandbox_call *call;
    char *path;
    void *arg;
    session_files_fn list_fn;
    bool details; // of list_fn
    session_file_fn stat_fn;
    session_file_done_fn done_fn;
    session_entry_fn entry_fn;
    session_number_fn number_fn;
    struct session_file_events events;
    int64_t left; // of the announced bytes
    session_file_data_fn data_fn;
    void *data_arg;
    size_t max_bytes; // of session_file_read(), session_file_append()
    struct session_file file;
    struct buf data;
    session_file_put_fn put_fn;
};

// NULL if the session has no sandbox, or the path is not valid. `path` may be NULL for an operation
// without a path.
struct session_file_op *file_op_new(struct session *session, const char *path, bool is_new,
                                    void *arg, struct kg_error *err);
// Frees the operation. Its call must have ended.
void file_op_free(struct session_file_op *op);
// After its call was started with `params` (NULL: a path is not UTF-8): returns the operation, or
// frees it where there is no call.
struct session_file_op *file_op_started(struct session_file_op *op, const json_t *params,
                                        struct kg_error *err);
// Calls a method of the agent with these parameters; file_op_started().
struct session_file_op *file_op_start(struct session_file_op *op, const char *method,
                                      const json_t *params, int64_t timeout_ms, sandbox_agent_fn fn,
                                      struct kg_error *err);
// Parses the agent's description of a file; the strings of `ret` are borrowed from `op`.
KG_MUST_CHECK int file_parse(const struct session_file_op *op, const json_t *body,
                             struct session_file *ret, struct kg_error *err);

// Adds {"mode", "permissions", "uid", "gid"} to an object, as far as they are known.
struct agent_entry;
void file_add_details(json_t *file, int mode, int64_t uid, int64_t gid);
// The time, moved into the years 1970 to 9999, which every client can read.
int64_t file_clip_mtime(int64_t mtime_ms);

// Copies the agent's ETag; -1 if it is not valid.
KG_MUST_CHECK int session_etag_copy(const char *etag, char ret[SESSION_ETAG_LEN + 1]);
