// SPDX-License-Identifier: Apache-2.0
// /api/contents: the files of an owner's sessions. Each session is a folder of the root. Each
// source file uses only those below it:
//
//     contents.c            the routes
//     contents_save.c       PUT
//     contents_change.c     POST, PATCH, DELETE, checkpoints
//     contents_untitled.c   new files, folders and copies, whose names are not used yet
//     contents_show.c       models of files and folders as answers
//     contents_call.c       requests, paths, limits
//     contents_models.c     the JSON of models
#pragma once

#include "notebook_priv.h"

struct session_entry;
struct session_file_op;

enum contents_type { CONTENTS_ANY, CONTENTS_DIRECTORY, CONTENTS_FILE, CONTENTS_NOTEBOOK };

// An empty notebook, as nbformat makes it.
#define CONTENTS_EMPTY_NOTEBOOK                                                                    \
    "{\n \"cells\": [],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n"

#define CONTENTS_NO_LINKS "Symbolic links are not followed."

enum {
    CONTENTS_FILE_MAX = 16 << 20, // bytes of one file; the setting for uploads also applies
    // Bytes of all files that are being read or written, and of answers until they are sent.
    CONTENTS_HELD_MAX = 256 << 20,
};

// ---- contents_models.c ----------------------------------------------------------------------

struct contents_model {
    const char *path; // the name is its last part
    enum contents_type type;
    bool is_writable;
    const char *created; // RFC 3339
    const char *last_modified;
    int64_t size;         // -1: null
    const char *mimetype; // or NULL; without the charset it may have
    const char *hash;     // SHA-256 in hexadecimal, or NULL
    const char *format;   // or NULL
};

// NULL and "" are CONTENTS_ANY; an unknown type is CONTENTS_FILE.
enum contents_type contents_type_parse(const char *name);
// Appends the model up to its content; the caller appends the content and "}".
void contents_model_begin(struct buf *ret, const struct contents_model *model);

// ---- contents_call.c ------------------------------------------------------------------------

// Counts the bytes that a request holds in memory. Freed when the answer has been sent.
struct contents_hold;
struct contents_hold *contents_hold_new(struct notebook *notebook, const char *owner, size_t bytes,
                                        struct kg_error *err);
// Sets the number of bytes. Fails, and changes nothing, if that exceeds a limit.
KG_MUST_CHECK int contents_hold_set(struct contents_hold *hold, size_t bytes, struct kg_error *err);
void contents_hold_free(struct contents_hold *hold);

// A name that nothing has yet, for what is made: an empty file or folder, or a copy.
struct contents_untitled {
    enum contents_type type;
    char *start;  // the name before its number
    char *insert; // before the number, if there is one
    char *end;    // after the number
    char *file;   // the path in the session with the name that was found
    int n_tries;
};

// A request whose answer is a model. The request owns the call, which ends with it.
struct contents_call {
    struct notebook *notebook;
    struct http_request *request;
    char *path;       // without slashes at its ends; "": the root
    const char *file; // behind the session's id; "": the session's folder, or the root
    int status;
    bool with_location;
    const char *location_end; // what follows the path there, or NULL
    enum contents_type type;  // requested by the client
    const char *format;       // requested by the client: "text", "base64" or NULL
    bool with_content;
    bool with_hash;
    // At most one of these is running.
    struct session_file_op *op;
    struct loop_work *work; // contents_encoding_free() frees its job
    struct buf data;        // a file, the entries of a folder
    int n_entries;
    int n_pages;
    int64_t mtime_ms;
    struct contents_hold *hold;
    const char *missing; // from the body of a PUT: "type", "content" or NULL
    int chunk;           // the same: 1 begins a file, others are appended; 0: it is all of the file
    char *from;          // what is copied or moved, in the session
    char *checkpoint;    // the path of a checkpoint's file in the session
    bool restores;       // the file from its checkpoint
    struct contents_untitled untitled;
};

struct contents_call *contents_call_new(struct notebook *notebook, struct http_request *request,
                                        const char *path);
// Changes the path, which is copied.
void contents_call_set_path(struct contents_call *call, const char *path);
void contents_encoding_free(void *encoding);
// Answer the request, which frees the call.
void contents_fail(struct contents_call *call, const struct kg_error *err);
void contents_fail_as(struct contents_call *call, int status, const struct kg_error *err);
// The same in Jupyter's words where nothing is at `path` in the session, or something is where
// nothing may be.
void contents_fail_at(struct contents_call *call, const char *path, const struct kg_error *err);
// Takes over the text. The call's bytes count until it is sent, as the length of the text alone.
void contents_finish(struct contents_call *call, struct buf *text);

// The session whose folder has the path, borrowed; NULL if there is none.
struct session *contents_session(const struct contents_call *call, struct kg_error *err);
// The same for a path that is to be created, changed or removed. Returns NULL if that is forbidden,
// and answers the request.
struct session *contents_writable(struct contents_call *call);
// Checks a path in a session: names that begin with a dot are hidden.
KG_MUST_CHECK int contents_check_file(const char *file, bool is_new, struct kg_error *err);
// The part of a path behind the session's id, if it is that of the call; NULL with an error.
const char *contents_same_session(const struct contents_call *call, const char *path, bool is_new,
                                  struct kg_error *err);
// Gives the call an operation to wait for; if `op` is NULL, answers with the error.
void contents_wait_op(struct contents_call *call, struct session_file_op *op,
                      const struct kg_error *err);

// ---- contents_show.c ------------------------------------------------------------------------

// Answers with the model of the file or folder at the path.
void contents_show(struct contents_call *call);
// The model of a file, without its content.
struct session_file;
void contents_show_file(struct contents_call *call, const struct session_file *file);
// The model of what has just been made, moved or copied, without its content.
void contents_show_entry(struct contents_call *call, const struct session_entry *entry);
// Answers with {id, last_modified} of the call's checkpoint; as a list, which is empty without one.
void contents_show_checkpoint(struct contents_call *call, const struct session_entry *entry);
void contents_list_checkpoints(struct contents_call *call);

// ---- contents_untitled.c --------------------------------------------------------------------

// Creates an empty file, notebook or folder with an unused name in the call's folder.
void contents_make_untitled(struct contents_call *call, enum contents_type type, const char *ext);
// Copies `from`, a path in the session, into the call's folder, with an unused name.
void contents_copy(struct contents_call *call, const char *from);

// ---- contents_change.c ----------------------------------------------------------------------

void contents_make_folder(struct contents_call *call);
void contents_post(struct contents_call *call);
void contents_rename(struct contents_call *call);
void contents_delete(struct contents_call *call);
void contents_checkpoint_make(struct contents_call *call);
void contents_checkpoint_restore(struct contents_call *call);
void contents_checkpoint_delete(struct contents_call *call);
