// SPDX-License-Identifier: Apache-2.0
// Changes other than writing files: folders, other names, deleting, checkpoints.

#include <string.h>

#include "contents_priv.h"
#include "session_files.h"

enum { EXT_BYTES_MAX = 64 };

// ---- New files and folders ------------------------------------------------------------------

void
contents_post(struct contents_call *call)
{
    struct kg_error err = {0};
    const char *copy_from = NULL, *type = NULL, *ext = NULL;
    json_auto_t *body =
        http_request_body_len(call->request) > 0 ? body_object(call->request, &err) : json_object();
    if (!body || body_string(body, "copy_from", FILE_PATH_MAX, &copy_from, &err) < 0 ||
        body_string(body, "type", EXT_BYTES_MAX, &type, &err) < 0 ||
        body_string(body, "ext", EXT_BYTES_MAX, &ext, &err) < 0)
        contents_fail(call, &err);
    else if (copy_from && *copy_from)
        contents_copy(call, copy_from);
    else
        contents_make_untitled(call, contents_type_parse(type), ext ? ext : "");
}

static void
on_folder(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    call->op = NULL;
    if (entry) {
        contents_show_entry(call, entry);
        return;
    }
    struct kg_error own = *err;
    if (err->code == KG_FILE_EXISTS)
        own.code = KG_INVALID_PATH;
    contents_fail(call, &own);
}

void
contents_make_folder(struct contents_call *call)
{
    struct kg_error err = {0};
    struct session *session = contents_writable(call);
    if (!session)
        return;
    call->status = 201;
    call->with_location = true;
    contents_wait_op(call, session_folder_make(session, call->file, 0, on_folder, call, &err),
                     &err);
}

// ---- Renaming, deleting ---------------------------------------------------------------------

static void
on_moved(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    call->op = NULL;
    if (entry)
        contents_show_entry(call, entry);
    else
        contents_fail_at(call, call->from, err);
}

void
contents_rename(struct contents_call *call)
{
    struct kg_error err = {0};
    const char *path = NULL;
    struct session *session = contents_writable(call);
    if (!session)
        return;
    json_auto_t *body = body_object(call->request, &err);
    const char *to = NULL;
    if (body && body_string(body, "path", FILE_PATH_MAX, &path, &err) == 0)
        to = contents_same_session(call, path ? path : call->path, true, &err);
    if (!to) {
        contents_fail(call, &err);
        return;
    }
    call->with_location = true;
    if (strcmp(to, call->file) == 0) {
        contents_show(call);
        return;
    }
    call->from = kg_strdup(call->file);
    contents_call_set_path(call, path);
    contents_wait_op(
        call,
        session_entry_move(session, call->from, call->file, SESSION_KEEP, on_moved, call, &err),
        &err);
}

static void
on_deleted(const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    call->op = NULL;
    if (err)
        contents_fail(call, err);
    else
        reply_no_content(call->request);
}

void
contents_delete(struct contents_call *call)
{
    struct kg_error err = {0};
    struct session *session = contents_writable(call);
    if (session)
        contents_wait_op(call, session_file_delete(session, call->file, on_deleted, call, &err),
                         &err);
}

// ---- Checkpoints ----------------------------------------------------------------------------

static void
on_copied(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    call->op = NULL;
    if (!entry) {
        contents_fail_at(call, call->file, err);
        return;
    }
    if (!call->restores) {
        call->status = 201;
        call->with_location = true;
        call->location_end = "/checkpoints/checkpoint";
        contents_show_checkpoint(call, entry);
        return;
    }
    reply_no_content(call->request);
}

// A checkpoint is that of a file.
static void
on_looked(const struct session_entry *entry, const struct kg_error *stat_err, void *arg)
{
    struct contents_call *call = arg;
    struct kg_error err = {0};
    call->op = NULL;
    if (entry && strcmp(entry->type, "symlink") == 0)
        kg_error_set(&err, KG_INVALID_PATH, 0, CONTENTS_NO_LINKS);
    else if (entry && strcmp(entry->type, "file") != 0)
        kg_error_set(&err, KG_NOT_FOUND, 0, "it is not a file");
    else if (!entry)
        err = *stat_err;
    if (err.code != KG_OK) {
        contents_fail_at(call, call->file, &err);
        return;
    }
    struct session *session = contents_session(call, &err);
    const struct session_copy copy = {.from = call->from,
                                      .to = call->restores ? call->file : call->checkpoint,
                                      .make_folders = !call->restores};
    contents_wait_op(
        call, session ? session_entry_copy(session, &copy, on_copied, call, &err) : NULL, &err);
}

static void
copy_checkpoint(struct contents_call *call, bool restores)
{
    struct kg_error err = {0};
    struct session *session = contents_writable(call);
    if (!session)
        return;
    call->restores = restores;
    call->from = kg_strdup(restores ? call->checkpoint : call->file);
    contents_wait_op(call, session_entry_stat(session, call->from, on_looked, call, &err), &err);
}

void
contents_checkpoint_make(struct contents_call *call)
{
    copy_checkpoint(call, false);
}

void
contents_checkpoint_restore(struct contents_call *call)
{
    copy_checkpoint(call, true);
}

void
contents_checkpoint_delete(struct contents_call *call)
{
    struct kg_error err = {0};
    struct session *session = contents_writable(call);
    if (session)
        contents_wait_op(
            call, session_file_delete(session, call->checkpoint, on_deleted, call, &err), &err);
}
