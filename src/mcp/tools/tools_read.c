// SPDX-License-Identifier: Apache-2.0
// read_file: text in parts, images as images, the output of an execution.

#include <string.h>

#include "tools_priv.h"

enum {
    READ_BYTES = 20000,
    LEAST_BYTES = 4,                   // the longest character, so that each part has one
    MAX_IMAGE_FILE_BYTES = 3750 << 10, // 5 MB as base64
};

// ---- Images ---------------------------------------------------------------------------------

// Whether the model can see it.
static bool
is_image(const struct session_file *file)
{
    static const char *const mimes[] = {"image/png", "image/jpeg", "image/gif", "image/webp"};
    for (size_t i = 0; i < KG_ARRAY_LEN(mimes); i++) {
        if (strcmp(file->mime, mimes[i]) == 0)
            return file->size > 0 && file->size <= MAX_IMAGE_FILE_BYTES;
    }
    return false;
}

static void
finish_image(struct job *job, json_t *base64, bool is_text)
{
    (void)is_text;
    json_t *result = KG_STEAL(job->list.gathered);
    json_array_append_new(json_object_get(result, "content"),
                          mcp_image_string(base64, job->file.mime));
    job_finish(job, result);
}

// The text of an image that no model would take.
static char *
words_on_huge(const struct job *job, const char *path, const struct image_size *size)
{
    int max = job->tools->settings.max_image_side;
    return kg_asprintf(
        "%s (%s) has %d x %d pixels, and a side may have %d at most: make a smaller "
        "copy, for example with PIL.Image.open(…).thumbnail((%d, %d)), or show a part",
        path, size->mime, size->width, size->height, max, max, max);
}

static void
on_image(const struct session_file *file, const void *data, size_t len, const struct kg_error *err,
         void *arg)
{
    struct job *job = job_after_work(arg, file, err);
    if (!job)
        return;
    struct image_size size = {.mime = file->mime};
    bool is_huge = image_size_read(data, len, &size) && !image_fits(job, &size);
    KG_AUTO_FREE char *text = is_huge
                                  ? words_on_huge(job, file->path, &size)
                                  : kg_asprintf("%s (%s, %zu bytes)", file->path, size.mime, len);
    if (is_huge) {
        job_finish(job, result_of_text(job, text, NULL));
        return;
    }
    job->list.gathered = result_of_text(job, text, NULL);
    job->file.mime = kg_strdup(size.mime);
    job_bytes_as_string(job, data, len, false, finish_image);
}

// ---- Text -----------------------------------------------------------------------------------

static void
on_read_head(const struct session_file *file, bool is_part, int64_t offset, int64_t length,
             void *arg)
{
    (void)is_part;
    (void)length;
    struct job *job = arg;
    job->file.size = file->size;
    job->file.offset = offset;
}

static void
on_read_data(const void *data, size_t len, void *arg)
{
    struct job *job = arg;
    buf_append(&job->file.data, data, len);
}

// Appends the whole characters of a part that begins at `offset`. If that is not everything, a note
// follows: "[bytes 0 to 20000 of 50000; go on with offset=20000]".
static void
append_part(struct buf *text, const char *data, size_t len, int64_t offset, int64_t size)
{
    size_t begin = offset > 0 ? text_begin(data, len) : 0;
    // A character that is cut at the end belongs to the next part.
    bool last = offset + (int64_t)len >= size;
    int64_t end = offset + (int64_t)(last ? len : text_whole(data, len));
    offset += (int64_t)begin;
    buf_append(text, data + begin, (size_t)(end - offset));
    if (offset == 0 && end >= size)
        return;
    buf_printf(text, "\n[bytes %lld to %lld of %lld", (long long)offset, (long long)end,
               (long long)size);
    if (end < size)
        buf_printf(text, "; go on with offset=%lld", (long long)end);
    buf_append_str(text, "]");
}

static bool
part_is_text(const struct job *job)
{
    const struct buf *data = &job->file.data;
    size_t begin = job->file.offset > 0 ? text_begin(data->data, data->len) : 0;
    return text_is_readable(data->data + begin, text_whole(data->data, data->len) - begin);
}

static json_t *
result_of_binary(const struct job *job)
{
    const char *path = job_file_path(job);
    KG_AUTO_FREE char *text =
        kg_asprintf("%s is not text (%lld bytes): read it with code, or by its link.", path,
                    (long long)job->file.size);
    json_t *result = result_of_text(job, text, NULL);
    KG_AUTO_FREE char *uri = file_uri(job->session.id, path);
    json_array_append_new(json_object_get(result, "content"),
                          mcp_resource_link(uri, path, NULL, NULL, job->file.size));
    return result;
}

static json_t *
result_of_part(const struct job *job)
{
    const struct buf *data = &job->file.data;
    if (data->len > 0 && !part_is_text(job))
        return result_of_binary(job);
    KG_AUTO_BUF text = {0};
    if (job->file.size == 0)
        buf_printf(&text, "[%s is empty]", job_file_path(job));
    append_part(&text, data->data ? data->data : "", data->len, job->file.offset, job->file.size);
    return result_of_text(job, text.data ? text.data : "", NULL);
}

static void
on_read_end(const struct kg_error *err, void *arg)
{
    struct job *job = arg;
    job->work = NULL;
    if (err)
        job_fail(job, err);
    else
        job_finish(job, result_of_part(job));
}

static void
read_part(struct job *job, struct session *session, const char *path)
{
    static const struct session_file_events events = {
        .on_head = on_read_head, .on_data = on_read_data, .on_end = on_read_end};
    int64_t offset = (int64_t)job_number(job, "offset", 0);
    int64_t limit = (int64_t)job_number(job, "limit", READ_BYTES);
    const struct session_file_range range = {.first = offset, .last = offset + limit - 1};
    struct kg_error err = {0};
    job_set_file_work(job, session_file_get(session, path, &range, &events, job, &err), &err);
}

static void
read_file_on_found(struct job *job, struct session *session, const struct session_file *file)
{
    struct kg_error err = {0};
    const char *path = job_file_path(job);
    if (is_image(file) && !job_value(job, "offset"))
        job_set_file_work(
            job, session_file_read(session, path, MAX_IMAGE_FILE_BYTES, on_image, job, &err), &err);
    else if (file->size == 0)
        job_finish(job, result_of_part(job));
    else
        read_part(job, session, path);
}

static void
read_in(struct job *job, struct session *session, struct kernel *kernel)
{
    (void)kernel;
    job_find_file(job, session, read_file_on_found);
}

// ---- Output ---------------------------------------------------------------------------------

static void
read_file_on_output(const char *data, size_t len, void *arg)
{
    struct job *job = arg;
    job->work = NULL;
    KG_AUTO_BUF text = {0};
    size_t offset = (size_t)job_number(job, "offset", 0);
    size_t limit = (size_t)job_number(job, "limit", READ_BYTES);
    if (offset > len)
        offset = len;
    append_part(&text, data + offset, len - offset < limit ? len - offset : limit, (int64_t)offset,
                (int64_t)len);
    job_finish(job, result_of_text(job, text.data ? text.data : "", NULL));
}

static void
read_output(struct job *job, const char *id)
{
    struct kg_error err = {0};
    job->work = output_read_start(job->tools, mcp_call_owner(job->call), id, read_file_on_output,
                                  job, &err);
    job->cancel_work = output_read_cancel;
    if (!job->work)
        job_fail(job, &err);
}

static int
check_range(const struct job *job, struct kg_error *err)
{
    double offset = job_number(job, "offset", 0), limit = job_number(job, "limit", READ_BYTES);
    if (offset < 0 || offset > 1e15)
        return kg_error_set(err, KG_INVALID, 0, "offset must not be negative");
    if (limit < LEAST_BYTES || limit > READ_BYTES)
        return kg_error_set(err, KG_INVALID, 0, "limit must be %d to %d bytes", LEAST_BYTES,
                            READ_BYTES);
    return 0;
}

// A link to a file, from a result, also names the session. False: the path is not a link.
static bool
take_link_apart(struct job *job)
{
    KG_AUTO_FREE char *session_id = NULL;
    KG_AUTO_FREE char *path = NULL;
    json_t *args = (json_t *)(uintptr_t)job->args;
    if (!file_uri_parse(job_string(job, "path"), &session_id, &path))
        return false;
    json_object_set_new(args, "session_id", json_string(session_id));
    json_object_set_new(args, "path", json_string(path));
    return true;
}

void
tool_read_file(struct job *job)
{
    struct kg_error err = {0};
    bool is_link = take_link_apart(job); // a new session would not have the file
    const char *id = output_uri_id(job_string(job, "path"));
    if (check_range(job, &err) < 0)
        job_fail(job, &err);
    else if (id)
        read_output(job, id);
    else
        job_with_files(job, is_link, read_in);
}
