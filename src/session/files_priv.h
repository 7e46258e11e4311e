// SPDX-License-Identifier: Apache-2.0
// File operations, as the files that carry them out see them.
#pragma once

#include "session_files.h"
#include "sessions_priv.h"

enum { FILE_CALL_MS = 30 * 1000 };

// One operation. Which of the callbacks is set says which one it is.
struct session_file_op {
    struct session *session;
    struct sandbox_call *call;
    char *path;
    void *arg;
    session_files_fn list_fn;
    session_file_fn stat_fn;
    session_file_done_fn done_fn;
    struct session_file_events events;
    int64_t left; // of what was announced
    session_file_data_fn data_fn;
    void *data_arg;
    size_t max_bytes;
    struct session_file file;
    struct buf data;
    session_file_put_fn put_fn;
};

// NULL where the session has no sandbox, or the path is a bad one (NULL is none at all).
struct session_file_op *file_op_new(struct session *session, const char *path, bool is_new,
                                    void *arg, struct kg_error *err);
// Frees the operation, whose call has ended.
void file_op_free(struct session_file_op *op);
// What the agent says of a file; strings of `ret` are borrowed from `op`.
KG_MUST_CHECK int file_parse(const struct session_file_op *op, const json_t *body,
                             struct session_file *ret, struct kg_error *err);

// A file's time between 1970 and the year 9999: others have no form that clients can read.
int64_t file_clip_mtime(int64_t mtime_ms);

// Copies an ETag of the agent's; -1 where it is none.
KG_MUST_CHECK int session_etag_copy(const char *etag, char ret[SESSION_ETAG_LEN + 1]);
