// SPDX-License-Identifier: Apache-2.0
// POST /api/v1/sessions/{id}/files: several files in one body, which are written one after the
// other.

#include <string.h>

#include "api_priv.h"
#include "multipart.h"
#include "session.h"
#include "session_files.h"

struct upload {
    struct http_request *request;
    struct api_context *context;
    struct http_body *body;
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    struct loop_work *work; // reads the body; while it runs, it alone uses what follows
    struct multipart files;
    struct kg_error err;
    size_t next; // of them, to be written
    bool keep;
    bool created; // one of them
    struct session_file_op *op;
    json_t *written;
};

static void
upload_free(void *arg)
{
    struct upload *upload = arg;
    multipart_fini(&upload->files);
    http_body_free(upload->body);
    json_decref(upload->written);
    free(upload);
}

// The request ends.
static void
upload_on_end(void *arg)
{
    struct upload *upload = arg;
    session_file_op_cancel(upload->op);
    http_request_body_done(upload->request);
    if (upload->work)
        loop_work_cancel(upload->work, upload_free);
    else
        upload_free(upload);
}

// ---- Writing --------------------------------------------------------------------------------

static void upload_write_next(struct upload *upload);

// Names the file that the error is about; those before it have been written.
static void
upload_fail(const struct upload *upload, const struct kg_error *err)
{
    struct kg_error own = {0};
    (void)kg_error_set(&own, err->code, 0, "file %zu of %zu: %s", upload->next + 1, upload->files.n,
                       err->message);
    http_reply_error(upload->request, &own);
}

static void
upload_on_written(const struct session_file *file, bool created, const struct kg_error *err,
                  void *arg)
{
    struct upload *upload = arg;
    upload->op = NULL;
    if (!file) {
        upload_fail(upload, err);
        return;
    }
    json_array_append_new(upload->written,
                          file_written_describe(upload->request, upload->context,
                                                http_request_param(upload->request, "id"), file));
    upload->created |= created;
    upload->next++;
    upload_write_next(upload);
}

static void
upload_write_next(struct upload *upload)
{
    struct kg_error err = {0};
    if (upload->next == upload->files.n) {
        http_reply_json(upload->request, upload->created ? 201 : 200,
                        json_pack("{s:O}", "files", upload->written));
        return;
    }
    const struct multipart_file *file = &upload->files.files[upload->next];
    const struct session_file_source source = {.data = file->data, .len = file->len};
    KG_AUTO_FREE char *path = api_file_path(upload->request, file->name, API_PATH_NEW, &err);
    struct session *session = path ? api_session(upload->request, upload->context, &err) : NULL;
    if (session)
        upload->op =
            session_file_put(session, path, &source, upload->keep, upload_on_written, upload, &err);
    if (!upload->op)
        upload_fail(upload, &err);
}

// ---- Reading --------------------------------------------------------------------------------

static void
upload_read(void *arg)
{
    struct upload *upload = arg;
    size_t len;
    const char *data = http_body_data(upload->body, &len);
    (void)!multipart_parse(data ? data : "", len, upload->boundary, &upload->files, &upload->err);
}

// Every name is checked before the first file is written.
static void
upload_on_read(void *arg)
{
    struct upload *upload = arg;
    upload->work = NULL;
    if (upload->err.code != KG_OK || http_request_check_token(upload->request, &upload->err) < 0) {
        http_reply_error(upload->request, &upload->err);
        return;
    }
    for (; upload->next < upload->files.n; upload->next++) {
        KG_AUTO_FREE char *path = api_file_path(
            upload->request, upload->files.files[upload->next].name, API_PATH_NEW, &upload->err);
        if (!path) {
            upload_fail(upload, &upload->err);
            return;
        }
    }
    upload->next = 0;
    upload_write_next(upload);
}

static void
upload_start(struct http_request *request, struct api_context *context, const char *boundary,
             bool keep)
{
    struct upload *upload = KG_NEW(struct upload);
    size_t len = http_request_body_len(request);
    upload->request = request;
    upload->context = context;
    upload->keep = keep;
    memcpy(upload->boundary, boundary, strlen(boundary));
    upload->written = json_array();
    upload->body = http_request_take_body(request);
    http_request_own(request, upload, upload_on_end);
    if (len > HTTP_JSON_INLINE_MAX) {
        upload->work = loop_work_start(context->loop, loop_lane_of(http_request_owner(request)),
                                       upload_read, upload_on_read, upload);
        return;
    }
    upload_read(upload);
    upload_on_read(upload);
}

void
handle_file_upload(struct http_request *request, void *arg)
{
    struct api_context *context = arg;
    struct kg_error err = {0};
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    bool overwrite;
    if (!api_session(request, context, &err) ||
        api_query_flag(request, "overwrite", true, &overwrite, &err) < 0 ||
        multipart_boundary(http_request_header(request, "Content-Type"), boundary, &err) < 0)
        http_reply_error(request, &err);
    else
        upload_start(request, context, boundary, !overwrite);
}
