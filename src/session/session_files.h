// SPDX-License-Identifier: Apache-2.0
// Files of a session, independent of what its kernels are doing.
//
// Paths are relative to the working folder, in UTF-8, with / between names; empty names, "." and
// ".." are KG_INVALID_PATH, and so are control characters in the path of a new file. With a / first
// they are paths of any file in the sandbox (file_any_path_check()), as far as its code may use it:
// a face that wants less checks that itself. No symlink on the way is followed. A call counts as
// activity while it is under way. Its last callback fires exactly once, and then the handle is
// gone. A session that is still being created is KG_SESSION_BUSY, one that ends during the call
// KG_SESSION_NOT_FOUND.
#pragma once

#include <jansson.h>

#include "base.h"

struct session;
struct session_file_op;

void session_file_op_cancel(struct session_file_op *op);

enum {
    SESSION_ETAG_LEN = 64,         // at most, with quotes
    SESSION_FILES_PAGE_MAX = 1000, // entries of one page
};

// Properties of a file; strings are borrowed for the time of the callback.
struct session_file {
    const char *path;
    const char *mime; // by the name
    int64_t size;
    int64_t mtime_ms;
    char etag[SESSION_ETAG_LEN + 1]; // with quotes; changes with the content
};

// Lists everything below `folder` (NULL or "": the working folder) in the order of the paths, after
// the path `after` (NULL: from the start), at most `limit` (0: SESSION_FILES_PAGE_MAX) entries.
// `page` is borrowed: {"files": [{"path", "type", "size", "mtime", "mime"}], "next"}. type is file,
// dir, symlink or other; files alone have a mime; mtime is RFC 3339. `next`, if there is more, is
// the value for `after`.
struct session_files_query {
    const char *folder;
    const char *after;
    int limit;
    bool shallow; // only what is in the folder itself
    bool details; // each has session_entry_describe()'s mode, permissions, uid and gid, too
};
typedef void (*session_files_fn)(const json_t *page, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_file_op *session_files_list(struct session *session,
                                                         const struct session_files_query *query,
                                                         session_files_fn fn, void *arg,
                                                         struct kg_error *err);

// `file` is NULL if `err` is set: KG_NOT_FOUND, KG_INVALID_PATH (not a regular file, or a symlink
// on the way), KG_FILE_EXISTS, KG_DISK_FULL, KG_UPLOAD_TOO_LARGE, …
typedef void (*session_file_fn)(const struct session_file *file, const struct kg_error *err,
                                void *arg);
KG_MUST_CHECK struct session_file_op *session_file_stat(struct session *session, const char *path,
                                                        session_file_fn fn, void *arg,
                                                        struct kg_error *err);

// Bytes `first` to `last` (-1: the end); with `first` -1 the last `last` bytes. If `if_etag` is set
// and differs from the file's, the whole file.
struct session_file_range {
    int64_t first;
    int64_t last;
    const char *if_etag;
};
#define SESSION_FILE_WHOLE ((struct session_file_range){.last = -1})

// Each callback may cancel the call.
struct session_file_events {
    // The file, and which of its bytes follow: `length` bytes from `offset`. length is 0 if the
    // range is beyond the end; `is_part` is false if the range was ignored. Once.
    void (*on_head)(const struct session_file *file, bool is_part, int64_t offset, int64_t length,
                    void *arg);
    void (*on_data)(const void *data, size_t len, void *arg);
    // NULL: exactly the announced bytes were delivered. A file that shrinks meanwhile is an error.
    void (*on_end)(const struct kg_error *err, void *arg);
};
KG_MUST_CHECK struct session_file_op *session_file_get(struct session *session, const char *path,
                                                       const struct session_file_range *range,
                                                       const struct session_file_events *events,
                                                       void *arg, struct kg_error *err);
// For a reader that cannot take more; see sandbox_stream_pause().
void session_file_pause(struct session_file_op *op, bool paused);

// Gets the whole of a small file, at most `max_bytes` (else KG_ARTIFACT_TOO_LARGE). `data` is
// borrowed, NULL if `err` is set.
typedef void (*session_file_data_fn)(const struct session_file *file, const void *data, size_t len,
                                     const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_file_op *session_file_read(struct session *session, const char *path,
                                                        size_t max_bytes, session_file_data_fn fn,
                                                        void *arg, struct kg_error *err);

// The bytes of an upload: `data`, which must stay valid until the last callback, or `read`, which
// writes the next bytes to `to`, at most `len`, and returns how many. 0: none are there yet, and
// session_file_source_is_ready() is called when there are.
struct session_file_source {
    const void *data;
    size_t (*read)(void *to, size_t len, void *arg);
    void *arg;
    size_t len;
};
void session_file_source_is_ready(struct session_file_op *op);
// Writes a file and creates missing folders. The file appears when it is complete and replaces an
// existing one, unless `keep_existing` (KG_FILE_EXISTS). `created` is false if it replaced one.
typedef void (*session_file_put_fn)(const struct session_file *file, bool created,
                                    const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_file_op *session_file_put(struct session *session, const char *path,
                                                       const struct session_file_source *source,
                                                       bool keep_existing, session_file_put_fn fn,
                                                       void *arg, struct kg_error *err);
// Appends at most SESSION_APPEND_MAX bytes to a file, all of them or none; `created` if there was
// none. KG_UPLOAD_TOO_LARGE: the file would have more than `max` bytes. No folder is made.
enum { SESSION_APPEND_MAX = 16 << 20 };
KG_MUST_CHECK struct session_file_op *session_file_append(struct session *session, const char *path,
                                                          const struct session_file_source *source,
                                                          size_t max, session_file_put_fn fn,
                                                          void *arg, struct kg_error *err);

// Deletes a file of any kind (a symlink, not its target) or a folder with everything in it.
typedef void (*session_file_done_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_file_op *session_file_delete(struct session *session, const char *path,
                                                          session_file_done_fn fn, void *arg,
                                                          struct kg_error *err);

// ---- Files and folders (session_entries.c) --------------------------------------------------

// What is at a path; strings are borrowed for the time of the callback.
struct session_entry {
    const char *path;
    const char *type; // file, dir, symlink or other
    int64_t size;     // bytes; of files only
    int64_t mtime_ms;
    int mode;                // permissions, 0 to 07777; -1: not known
    int64_t uid, gid;        // in the sandbox; -1: not known
    const char *target;      // of a symlink, or NULL
    const char *target_type; // of what it leads to, as `type`; NULL: nothing, or it is not known
};
// `entry` is NULL if `err` is set. KG_NOT_FOUND: there is nothing at the path that is looked at,
// moved or copied. KG_INVALID_PATH: a symlink on the way, a missing folder on the way to a new
// path, a folder that is to come into itself, … KG_FILE_EXISTS, KG_DISK_FULL, …
typedef void (*session_entry_fn)(const struct session_entry *entry, const struct kg_error *err,
                                 void *arg);
// NULL or "": the working folder. A symlink is an entry.
KG_MUST_CHECK struct session_file_op *session_entry_stat(struct session *session, const char *path,
                                                         session_entry_fn fn, void *arg,
                                                         struct kg_error *err);
// {"name", "path", "type", "size", "mode", "permissions" ("rw-r--r--"), "uid", "gid", "mtime",
// "mime" of a file, "target" of a symlink}, as far as they are known; a new reference. `path` is
// what the client calls it.
json_t *session_entry_describe(const struct session_entry *entry, const char *path);
enum {
    SESSION_KEEP = 1,    // nothing may be at the new path: KG_FILE_EXISTS
    SESSION_PARENTS = 2, // folders that are missing on the way are made
};
// Makes a folder. KG_FILE_EXISTS: something else is there, or, with SESSION_KEEP, anything.
KG_MUST_CHECK struct session_file_op *session_folder_make(struct session *session, const char *path,
                                                          unsigned flags, session_entry_fn fn,
                                                          void *arg, struct kg_error *err);
// Gives what is at `from`, also a symlink, the path `to`. Without SESSION_KEEP a file replaces a
// file, and a folder an empty folder. To another file system it is copied, and then deleted.
KG_MUST_CHECK struct session_file_op *session_entry_move(struct session *session, const char *from,
                                                         const char *to, unsigned flags,
                                                         session_entry_fn fn, void *arg,
                                                         struct kg_error *err);
// Sets the permissions, 0 to SESSION_MODE_MAX, of a file or folder; not of a symlink.
enum { SESSION_MODE_MAX = 0777 };
KG_MUST_CHECK struct session_file_op *session_entry_chmod(struct session *session, const char *path,
                                                          int mode, session_entry_fn fn, void *arg,
                                                          struct kg_error *err);
// Copies a file, or a folder with everything in it; symlinks in there are copied as such. It
// appears when it is complete. It may take 30 s; a cancelled one leaves nothing.
struct session_copy {
    const char *from;
    const char *to;
    bool keep_existing; // KG_FILE_EXISTS; else a file replaces a file
    bool make_folders;  // on the way to `to`
};
KG_MUST_CHECK struct session_file_op *session_entry_copy(struct session *session,
                                                         const struct session_copy *copy,
                                                         session_entry_fn fn, void *arg,
                                                         struct kg_error *err);

// Numbered names in `folder` (NULL or "": the working folder): start and end, then start, insert, 1
// and end, and so on up to 9999. `number` is that of the first one that nothing has (0: without a
// number), or -1 if `err` is set: KG_FILE_EXISTS, all are taken.
struct session_names {
    const char *folder;
    const char *start;
    const char *insert;
    const char *end;
};
typedef void (*session_number_fn)(int number, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_file_op *session_find_unused(struct session *session,
                                                          const struct session_names *names,
                                                          session_number_fn fn, void *arg,
                                                          struct kg_error *err);
