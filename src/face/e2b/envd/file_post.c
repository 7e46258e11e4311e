// SPDX-License-Identifier: Apache-2.0
// POST /files: writes files, which replace others, and the folders on the way to them. The body is
// one file as it is, or several ones as multipart/form-data; these are written one after the other.
#include "envd_priv.h"

#include <string.h>
#include <strings.h>

#include "metrics.h"
#include "multipart.h"
#include "session_files.h"

struct file_post {
    struct http_request *request;
    struct envd *envd;
    struct http_body *body;
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    struct loop_work *work; // reads the body; while it runs, it alone uses what follows
    struct multipart files;
    struct kg_error err;
    size_t next;           // of them, to be written
    struct envd_path path; // of the file that is being written
    struct session_file_op *op;
    json_t *written;
};

static void
file_post_free(void *arg)
{
    struct file_post *self = arg;
    multipart_fini(&self->files);
    http_body_free(self->body);
    envd_path_fini(&self->path);
    json_decref(self->written);
    free(self);
}

// The request ends.
static void
file_post_on_end(void *arg)
{
    struct file_post *self = arg;
    session_file_op_cancel(self->op);
    if (self->body)
        http_request_body_done(self->request);
    if (self->work)
        loop_work_cancel(self->work, file_post_free);
    else
        file_post_free(self);
}

// ---- Writing --------------------------------------------------------------------------------

static void file_post_write_next(struct file_post *self);

static void
file_post_on_written(const struct session_file *file, bool created, const struct kg_error *err,
                     void *arg)
{
    (void)created;
    struct file_post *self = arg;
    self->op = NULL;
    if (!file) {
        http_reply_error(self->request, err);
        return;
    }
    metric_add(METRIC_FILE_BYTES, (double)file->size, "in");
    json_array_append_new(self->written,
                          json_pack("{s:s, s:s, s:s}", "name", envd_path_name(self->path.client),
                                    "type", "file", "path", self->path.client));
    self->next++;
    file_post_write_next(self);
}

// The path in the query is that of the only file.
static int
file_post_find_path(struct file_post *self, size_t i, struct kg_error *err)
{
    const char *path = http_request_query(self->request, "path");
    envd_path_fini(&self->path);
    self->path = (struct envd_path){0};
    return envd_path_parse(path && self->files.n == 1 ? path : self->files.files[i].name,
                           &self->path, err);
}

static void
file_post_write_next(struct file_post *self)
{
    struct kg_error err = {0};
    if (self->next == self->files.n) {
        http_reply_json(self->request, 200, json_incref(self->written));
        return;
    }
    const struct multipart_file *file = &self->files.files[self->next];
    const struct session_file_source source = {.data = file->data, .len = file->len};
    struct session *session = file_post_find_path(self, self->next, &err) == 0
                                  ? envd_sandbox(self->request, self->envd, &err)
                                  : NULL;
    if (session)
        self->op = session_file_put(session, self->path.session, &source, false,
                                    file_post_on_written, self, &err);
    if (!self->op)
        http_reply_error(self->request, &err);
}

// ---- multipart/form-data --------------------------------------------------------------------

static void
file_post_read(void *arg)
{
    struct file_post *self = arg;
    size_t len;
    const char *data = http_body_data(self->body, &len);
    (void)!multipart_parse(data ? data : "", len, self->boundary, &self->files, &self->err);
}

// Every path is checked before the first file is written.
static void
file_post_on_read(void *arg)
{
    struct file_post *self = arg;
    self->work = NULL;
    if (self->err.code == KG_OK)
        (void)!http_request_check_token(self->request, &self->err);
    for (size_t i = 0; i < self->files.n && self->err.code == KG_OK; i++)
        (void)!file_post_find_path(self, i, &self->err);
    if (self->err.code != KG_OK)
        http_reply_error(self->request, &self->err);
    else
        file_post_write_next(self);
}

static void
file_post_take_parts(struct file_post *self)
{
    size_t len = http_request_body_len(self->request);
    self->body = http_request_take_body(self->request);
    if (len > HTTP_JSON_INLINE_MAX) {
        self->work = loop_work_start(e2b_loop(self->envd->e2b),
                                     loop_lane_of(http_request_owner(self->request)),
                                     file_post_read, file_post_on_read, self);
        return;
    }
    file_post_read(self);
    file_post_on_read(self);
}

// ---- A body that is the file ----------------------------------------------------------------

static size_t
file_post_read_body(void *to, size_t len, void *arg)
{
    return http_request_body_read(arg, to, len);
}

static int
file_post_take_whole(struct file_post *self, struct session *session, struct kg_error *err)
{
    const struct session_file_source source = {.read = file_post_read_body,
                                               .arg = self->request,
                                               .len = http_request_body_len(self->request)};
    if (!http_request_query(self->request, "path"))
        return kg_error_set(err, KG_INVALID, 0, "path is missing");
    if (envd_query_path(self->request, &self->path, err) < 0)
        return -1;
    self->files.n = 1; // without a name of its own
    self->op = session_file_put(session, self->path.session, &source, false, file_post_on_written,
                                self, err);
    return self->op ? 0 : -1;
}

static bool
is_multipart(const struct http_request *request)
{
    static const char type[] = "multipart/";
    const char *value = http_request_header(request, "Content-Type");
    return value && strncasecmp(value, type, sizeof type - 1) == 0;
}

static int
check_size(const struct http_request *request, const struct envd *envd, struct kg_error *err)
{
    size_t max = e2b_face(envd->e2b)->max_upload_bytes;
    if (http_request_body_len(request) <= max)
        return 0;
    return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0,
                        "the body is larger than %zu bytes (setting max-upload-bytes)", max);
}

void
handle_envd_file_post(struct http_request *request, void *arg)
{
    struct envd *envd = arg;
    struct kg_error err = {0};
    struct file_post *self = KG_NEW(struct file_post);
    self->request = request;
    self->envd = envd;
    self->written = json_array();
    http_request_own(request, self, file_post_on_end);
    struct session *session = envd_sandbox(request, envd, &err);
    const char *type = http_request_header(request, "Content-Type");
    bool parts = is_multipart(request);
    if (!session || check_size(request, envd, &err) < 0 ||
        envd_user_check(http_request_query(request, "username"), &err) < 0 ||
        (parts && multipart_boundary(type, self->boundary, &err) < 0) ||
        (!parts && file_post_take_whole(self, session, &err) < 0))
        http_reply_error(request, &err);
    else if (parts)
        file_post_take_parts(self);
}
