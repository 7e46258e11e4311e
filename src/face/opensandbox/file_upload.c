// SPDX-License-Identifier: Apache-2.0
// POST …/files/upload: multipart/form-data, in which each file follows its metadata, a JSON object
// with path and mode.

#include <string.h>

#include "multipart.h"
#include "opensandbox_priv.h"
#include "session_files.h"

enum { METADATA_BYTES_MAX = 16 << 10 };

struct upload {
    struct http_request *request;
    struct opensandbox *self;
    struct http_body *body;
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    struct loop_work *work; // reads the body; while it runs, it alone uses what follows
    struct multipart parts;
    struct kg_error err;
};

static void
upload_free(void *arg)
{
    struct upload *upload = arg;
    multipart_fini(&upload->parts);
    http_body_free(upload->body);
    free(upload);
}

// The request ends.
static void
upload_on_end(void *arg)
{
    struct upload *upload = arg;
    http_request_body_done(upload->request);
    if (upload->work)
        loop_work_cancel(upload->work, upload_free);
    else
        upload_free(upload);
}

// ---- Writing --------------------------------------------------------------------------------

static void
on_written(const struct session_file *file, bool created, const struct kg_error *err, void *arg)
{
    (void)created;
    struct file_batch *batch = arg;
    struct kg_error own = {0};
    const struct batch_item *item = &batch->items[batch->next];
    batch->op = NULL;
    if (file && item->mode < 0) {
        file_batch_step_done(batch);
        return;
    }
    struct session *session = file ? sandbox_of(batch->request, batch->self, &own) : NULL;
    if (session)
        batch->op =
            session_entry_chmod(session, item->path, item->mode, file_batch_on_entry, batch, &own);
    if (!batch->op)
        file_batch_step_failed(batch, file ? &own : err);
}

static struct session_file_op *
start(struct file_batch *batch, struct session *session, struct batch_item *item,
      struct kg_error *err)
{
    const struct session_file_source source = {.data = item->data, .len = item->len};
    return session_file_put(session, item->path, &source, false, on_written, batch, err);
}

static int
add_pair(struct file_batch *batch, const struct multipart_file *metadata,
         const struct multipart_file *file, struct kg_error *err)
{
    struct kg_error why = {0};
    const char *path;
    if (metadata->len > METADATA_BYTES_MAX)
        return kg_error_set(err, KG_INVALID, 0, "metadata has more than %d bytes",
                            METADATA_BYTES_MAX);
    json_auto_t *root = http_json_parse(metadata->data, metadata->len, &why);
    if (!root)
        return kg_error_set(err, KG_INVALID, 0, "metadata: %s", why.message);
    if (os_take_string(root, "path", &path, err) < 0)
        return -1;
    if (!path || !*path)
        return kg_error_set(err, KG_INVALID, 0, "metadata: path is missing");
    struct batch_item *item = file_batch_add(batch, path, true, err);
    if (!item || parse_mode(root, -1, &item->mode, err) < 0)
        return -1;
    item->data = file->data;
    item->len = file->len;
    return 0;
}

static int
add_all(struct file_batch *batch, const struct multipart *parts, struct kg_error *err)
{
    if (parts->n % 2 != 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "each file must follow its metadata, a part with a JSON object");
    for (size_t i = 0; i < parts->n; i += 2)
        if (add_pair(batch, &parts->files[i], &parts->files[i + 1], err) < 0)
            return -1;
    return 0;
}

// ---- Reading --------------------------------------------------------------------------------

static void
upload_read(void *arg)
{
    struct upload *upload = arg;
    size_t len;
    const char *data = http_body_data(upload->body, &len);
    (void)!multipart_parse(data ? data : "", len, upload->boundary, &upload->parts, &upload->err);
}

// Every path is checked before the first file is written.
static void
upload_on_read(void *arg)
{
    struct upload *upload = arg;
    struct http_request *request = upload->request;
    struct kg_error err = upload->err;
    upload->work = NULL;
    if (err.code != KG_OK || http_request_check_token(request, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    http_request_disown(request);
    http_request_body_done(request);
    struct file_batch *batch = file_batch_new(request, upload->self, start);
    batch->more = upload;
    batch->free_more = upload_free;
    if (add_all(batch, &upload->parts, &err) < 0)
        http_reply_error(request, &err);
    else
        file_batch_run(batch);
}

void
handle_os_file_upload(struct http_request *request, void *arg)
{
    struct opensandbox *self = arg;
    struct kg_error err = {0};
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    if (!find_sandbox(request, self))
        return;
    if (multipart_boundary(http_request_header(request, "Content-Type"), boundary, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    struct upload *upload = KG_NEW(struct upload);
    size_t len = http_request_body_len(request);
    upload->request = request;
    upload->self = self;
    memcpy(upload->boundary, boundary, strlen(boundary));
    upload->body = http_request_take_body(request);
    http_request_own(request, upload, upload_on_end);
    if (len > HTTP_JSON_INLINE_MAX) {
        upload->work =
            loop_work_start(self->settings.loop, loop_lane_of(http_request_owner(request)),
                            upload_read, upload_on_read, upload);
        return;
    }
    upload_read(upload);
    upload_on_read(upload);
}
