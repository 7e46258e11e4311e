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
};

static void
waiting_free(void *arg)
{
    struct waiting *waiting = arg;
    session_file_op_cancel(waiting->op);
    free(waiting->session_id);
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
    struct session_files_query query = {
        .folder = http_request_query(request, "path"),
        .after = http_request_query(request, "after"),
    };
    if (parse_limit(http_request_query(request, "limit"), &query.limit, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    struct waiting *waiting = waiting_new(request, arg, session);
    wait_for(waiting, session_files_list(session, &query, list_on_page, waiting, &err), &err);
}

// ---- Writing --------------------------------------------------------------------------------

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
    char mtime[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(file->mtime_ms, mtime);
    KG_AUTO_FREE char *url =
        file_links_make(waiting->context->face->links, http_request_owner(request),
                        waiting->session_id, file->path);
    metric_add(METRIC_FILE_BYTES, (double)file->size, "in");
    http_reply_header(request, "ETag", file->etag);
    http_reply_json(request, created ? 201 : 200,
                    json_pack("{s:s, s:I, s:s, s:s, s:s, s:s}", "path", file->path, "size",
                              (json_int_t)file->size, "mime", file->mime, "mtime", mtime, "etag",
                              file->etag, "url", url));
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
        result = kg_error_set(&err, KG_UPLOAD_TOO_LARGE, 0, "the file is larger than %zu bytes",
                              context->face->max_upload_bytes);
    if (result < 0) {
        http_reply_error(request, &err);
        return;
    }
    struct waiting *waiting = waiting_new(request, context, session);
    http_request_on_body(request, put_on_body, waiting);
    wait_for(waiting,
             session_file_put(session, http_request_param(request, "path"), &source, keep,
                              put_on_done, waiting, &err),
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
    struct waiting *waiting = waiting_new(request, arg, session);
    wait_for(waiting,
             session_file_delete(session, http_request_param(request, "path"), delete_on_done,
                                 waiting, &err),
             &err);
}
