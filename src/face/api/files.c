// SPDX-License-Identifier: Apache-2.0
// The resource …/sessions/{id}/files: lists files in pages, writes and deletes them.

#include <inttypes.h>
#include <string.h>

#include "api_priv.h"
#include "file_links.h"
#include "metrics.h"
#include "session.h"
#include "session_files.h"

// A request that waits for a file operation.
struct waiting {
    struct http_request *request;
    struct api_context *context;
    struct session_file_op *op;
    char *session_id;
    char *path; // as the client calls it, of those that show an entry; or NULL
    int status; // of these
};

static void
waiting_free(void *arg)
{
    struct waiting *waiting = arg;
    session_file_op_cancel(waiting->op);
    free(waiting->session_id);
    free(waiting->path);
    free(waiting);
}

static struct waiting *
waiting_new(struct http_request *request, struct api_context *context, struct session *session)
{
    struct waiting *waiting = KG_NEW(struct waiting);
    waiting->request = request;
    waiting->context = context;
    waiting->session_id = kg_strdup(session_id(session));
    http_request_own(request, waiting, waiting_free);
    return waiting;
}

// Called after the start of the operation: waits for it, or answers the error if it has not
// started.
static void
wait_for(struct waiting *waiting, struct session_file_op *op, const struct kg_error *err)
{
    waiting->op = op;
    if (!op)
        http_reply_error(waiting->request, err);
}

// ---- Listing --------------------------------------------------------------------------------

static void
list_on_page(const json_t *page, const struct kg_error *err, void *arg)
{
    struct waiting *waiting = arg;
    waiting->op = NULL;
    if (page)
        http_reply_json(waiting->request, 200, json_incref((json_t *)(uintptr_t)page));
    else
        http_reply_error(waiting->request, err);
}

static int
parse_limit(const char *text, int *ret, struct kg_error *err)
{
    size_t len = text ? strlen(text) : 0;
    *ret = 0;
    if (!text)
        return 0;
    if (len > 0 && len < 6 && strspn(text, "0123456789") == len)
        *ret = (int)strtol(text, NULL, 10);
    if (*ret < 1 || *ret > SESSION_FILES_PAGE_MAX)
        return kg_error_set(err, KG_INVALID, 0, "limit must be a number from 1 to %d",
                            SESSION_FILES_PAGE_MAX);
    return 0;
}

void
handle_file_list(struct http_request *request, void *arg)
{
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    struct kg_error err = {0};
    bool recursive = true;
    struct session_files_query query = {.after = http_request_query(request, "after")};
    int result = parse_limit(http_request_query(request, "limit"), &query.limit, &err);
    if (result == 0)
        result = api_query_flag(request, "recursive", true, &recursive, &err);
    if (result == 0)
        result = api_query_flag(request, "details", false, &query.details, &err);
    KG_AUTO_FREE char *folder =
        result == 0
            ? api_file_path(request, http_request_query(request, "path"), API_PATH_FOLDER, &err)
            : NULL;
    if (!folder) {
        http_reply_error(request, &err);
        return;
    }
    query.folder = folder;
    query.shallow = !recursive;
    struct waiting *waiting = waiting_new(request, arg, session);
    wait_for(waiting, session_files_list(session, &query, list_on_page, waiting, &err), &err);
}

// ---- Writing --------------------------------------------------------------------------------

json_t *
file_written_describe(const struct http_request *request, const struct api_context *context,
                      const char *session_id, const struct session_file *file)
{
    char mtime[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(file->mtime_ms, mtime);
    KG_AUTO_FREE char *url =
        file_links_make(context->face->links, http_request_owner(request), session_id, file->path);
    metric_add(METRIC_FILE_BYTES, (double)file->size, "in");
    return json_pack("{s:s, s:I, s:s, s:s, s:s, s:s}", "path", api_client_path(file->path), "size",
                     (json_int_t)file->size, "mime", file->mime, "mtime", mtime, "etag", file->etag,
                     "url", url);
}

static void
put_on_done(const struct session_file *file, bool created, const struct kg_error *err, void *arg)
{
    struct waiting *waiting = arg;
    waiting->op = NULL;
    struct http_request *request = waiting->request;
    if (!file) {
        http_reply_error(request, err);
        return;
    }
    http_reply_header(request, "ETag", file->etag);
    http_reply_json(request, created ? 201 : 200,
                    file_written_describe(request, waiting->context, waiting->session_id, file));
}

static size_t
put_read_body(void *to, size_t len, void *arg)
{
    return http_request_body_read(arg, to, len);
}

static void
put_on_body(void *arg)
{
    const struct waiting *waiting = arg;
    if (waiting->op)
        session_file_source_is_ready(waiting->op);
}

static int
parse_overwrite(const char *text, bool *ret_keep, struct kg_error *err)
{
    *ret_keep = text && (strcmp(text, "0") == 0 || strcmp(text, "false") == 0);
    if (!text || *ret_keep || strcmp(text, "1") == 0 || strcmp(text, "true") == 0)
        return 0;
    return kg_error_set(err, KG_INVALID, 0, "overwrite must be 0 or 1");
}

void
handle_file_put(struct http_request *request, void *arg)
{
    struct api_context *context = arg;
    struct session *session = api_find_session(request, context);
    if (!session)
        return;
    struct kg_error err = {0};
    bool keep;
    struct session_file_source source = {
        .read = put_read_body, .arg = request, .len = http_request_body_len(request)};
    int result = parse_overwrite(http_request_query(request, "overwrite"), &keep, &err);
    if (source.len > context->face->max_upload_bytes)
        result = kg_error_set(&err, KG_UPLOAD_TOO_LARGE, 0,
                              "the file is larger than %zu bytes (setting max-upload-bytes)",
                              context->face->max_upload_bytes);
    KG_AUTO_FREE char *path =
        result == 0
            ? api_file_path(request, http_request_param(request, "path"), API_PATH_NEW, &err)
            : NULL;
    if (!path) {
        http_reply_error(request, &err);
        return;
    }
    struct waiting *waiting = waiting_new(request, context, session);
    http_request_on_body(request, put_on_body, waiting);
    wait_for(waiting, session_file_put(session, path, &source, keep, put_on_done, waiting, &err),
             &err);
}

// ---- Deleting -------------------------------------------------------------------------------

static void
delete_on_done(const struct kg_error *err, void *arg)
{
    struct waiting *waiting = arg;
    waiting->op = NULL;
    if (err)
        http_reply_error(waiting->request, err);
    else
        reply_message(waiting->request, NULL, "deleted");
}

void
handle_file_delete(struct http_request *request, void *arg)
{
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    struct kg_error err = {0};
    KG_AUTO_FREE char *path =
        api_file_path(request, http_request_param(request, "path"), API_PATH_FILE, &err);
    if (!path) {
        http_reply_error(request, &err);
        return;
    }
    struct waiting *waiting = waiting_new(request, arg, session);
    wait_for(waiting, session_file_delete(session, path, delete_on_done, waiting, &err), &err);
}

// ---- Files and folders as entries -----------------------------------------------------------

static void
entry_on_done(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct waiting *waiting = arg;
    waiting->op = NULL;
    if (entry)
        http_reply_json(waiting->request, waiting->status,
                        session_entry_describe(entry, waiting->path));
    else
        http_reply_error(waiting->request, err);
}

// `path` is as session_files.h has it.
static struct waiting *
waiting_for_entry(struct http_request *request, struct api_context *context,
                  struct session *session, const char *path, int status)
{
    struct waiting *waiting = waiting_new(request, context, session);
    waiting->path = kg_strdup(api_client_path(path));
    waiting->status = status;
    return waiting;
}

void
file_show_start(struct http_request *request, struct api_context *context, struct session *session,
                const char *path)
{
    struct kg_error err = {0};
    struct waiting *waiting = waiting_for_entry(request, context, session, path, 200);
    wait_for(waiting, session_entry_stat(session, path, entry_on_done, waiting, &err), &err);
}

static void
move_or_copy(struct http_request *request, struct api_context *context, struct session *session,
             const char *path, const struct file_action_body *body)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *to = api_file_path(request, body->to, API_PATH_NEW, &err);
    if (!to) {
        http_reply_error(request, &err);
        return;
    }
    struct waiting *waiting = waiting_for_entry(request, context, session, to, 200);
    const struct session_copy copy = {
        .from = path, .to = to, .keep_existing = !body->overwrite, .make_folders = true};
    unsigned flags = SESSION_PARENTS | (body->overwrite ? 0 : SESSION_KEEP);
    wait_for(waiting,
             body->action == FILE_COPY
                 ? session_entry_copy(session, &copy, entry_on_done, waiting, &err)
                 : session_entry_move(session, path, to, flags, entry_on_done, waiting, &err),
             &err);
}

static void
make_folder(struct http_request *request, struct api_context *context, struct session *session,
            const char *path)
{
    struct kg_error err = {0};
    struct waiting *waiting = waiting_for_entry(request, context, session, path, 201);
    wait_for(waiting,
             session_folder_make(session, path, SESSION_KEEP | SESSION_PARENTS, entry_on_done,
                                 waiting, &err),
             &err);
}

static void
change_mode(struct http_request *request, struct api_context *context, struct session *session,
            const char *path, int mode)
{
    struct kg_error err = {0};
    struct waiting *waiting = waiting_for_entry(request, context, session, path, 200);
    wait_for(waiting, session_entry_chmod(session, path, mode, entry_on_done, waiting, &err), &err);
}

void
handle_file_action(struct http_request *request, void *arg)
{
    struct api_context *context = arg;
    struct file_action_body body;
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = NULL;
    json_auto_t *root = http_request_json(request, &err);
    struct session *session = root ? api_session(request, context, &err) : NULL;
    if (session && file_action_body_parse(root, &body, &err) == 0)
        path = api_file_path(request, http_request_param(request, "path"),
                             body.action == FILE_MKDIR ? API_PATH_NEW : API_PATH_FILE, &err);
    if (!path)
        http_reply_error(request, &err);
    else if (body.action == FILE_MKDIR)
        make_folder(request, context, session, path);
    else if (body.action == FILE_CHMOD)
        change_mode(request, context, session, path, body.mode);
    else
        move_or_copy(request, context, session, path, &body);
}
