// SPDX-License-Identifier: Apache-2.0
// read_file: text in parts, images as images, the output of an execution.

#include <string.h>

#include "charset.h"
#include "file_kind.h"
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

static void finish_part(struct job *job);

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
    if (!image_size_read(data, len, &size)) { // whatever its name is
        job->file.size = (int64_t)len;
        buf_append(&job->file.data, data, len < READ_BYTES ? len : READ_BYTES);
        finish_part(job);
        return;
    }
    bool is_huge = !image_fits(job, &size);
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

// "[bytes 0 to 20000 of 50000; go on with offset=20000]", if that is not everything.
static void
append_range(struct buf *text, const struct job *job, int64_t offset, int64_t end)
{
    const char *encoding = job_string(job, "encoding");
    if (offset == 0 && end >= job->file.size)
        return;
    buf_printf(text, "\n[bytes %lld to %lld of %lld", (long long)offset, (long long)end,
               (long long)job->file.size);
    if (end < job->file.size)
        buf_printf(text, "; go on with offset=%lld", (long long)end);
    if (end < job->file.size && encoding)
        buf_printf(text, ", encoding=\"%s\"", job->file.charset->name);
    buf_append_str(text, "]");
}

// What the reader should know about an encoding that it has not named.
static void
append_encoding(struct buf *text, const struct job *job, const struct charset *charset)
{
    if (job_string(job, "encoding") || (charset == &charset_utf_8 && job->file.mark_len == 0))
        return;
    KG_AUTO_FREE char *names = charset_names();
    if (job->file.mark_len == 0)
        buf_printf(
            text,
            "\n[encoding: %s, assumed since this is not UTF-8. If characters look wrong, pass "
            "another encoding: %s]",
            charset->name, names);
    else if (charset == &charset_utf_8)
        buf_append_str(text, "\n[encoding: utf-8 with a byte order mark, in Python \"utf-8-sig\"]");
    else
        buf_printf(text, "\n[encoding: %s with a byte order mark, in Python \"utf-16\"]",
                   charset->name);
}

// The encoding of the part in job->file.data. NULL: it is not text that can be told.
static const struct charset *
charset_of_part(const struct job *job)
{
    const struct buf *data = &job->file.data;
    if (job->file.charset)
        return job->file.charset;
    size_t begin = job->file.offset > 0 ? text_begin(data->data, data->len) : 0;
    size_t end = text_whole(data->data, data->len);
    if (end <= begin || text_is_readable(data->data + begin, end - begin))
        return &charset_utf_8;
    return charset_may_be_windows_1252(data->data, data->len) ? &charset_windows_1252 : NULL;
}

// Appends the whole characters of the part in job->file.data. A character that is cut at the end
// belongs to the next part.
static int
append_part(struct buf *text, const struct job *job, const struct charset *charset,
            struct kg_error *err)
{
    const char *data = job->file.data.data;
    size_t len = job->file.data.len, begin = job->file.offset == 0 ? job->file.mark_len : 0;
    int64_t offset = job->file.offset;
    if (offset > 0 && charset == &charset_utf_8)
        begin = text_begin(data, len);
    bool last = offset + (int64_t)len >= job->file.size;
    int64_t n = charset_decode(charset, data + begin, len - begin, last, text, err);
    if (n < 0)
        return -1;
    int64_t end = offset + (int64_t)begin + n;
    if (offset > 0)
        offset += (int64_t)begin;
    append_encoding(text, job, charset);
    append_range(text, job, offset, end);
    return 0;
}

static json_t *
result_of_binary(const struct job *job)
{
    const char *path = job_file_path(job);
    KG_AUTO_FREE char *text = file_kind_advice(job->file.kind, path, job->file.size);
    json_t *result = result_of_text(job, text, NULL);
    KG_AUTO_FREE char *uri = file_uri(job->session.id, path);
    json_array_append_new(json_object_get(result, "content"),
                          mcp_resource_link(uri, path, NULL, NULL, job->file.size));
    return result;
}

// What the first bytes of the file show. A caller who names the encoding wants text; a mark of the
// same family says which of it.
static void
note_head(struct job *job)
{
    const struct buf *data = &job->file.data;
    const struct charset *named = job->file.charset;
    if (data->len == 0 || (named && !charset_has_marks(named)))
        return;
    const struct charset *marked = charset_of_mark(data->data, data->len, &job->file.mark_len);
    if (marked || !named)
        job->file.charset = marked;
    if (!marked && !named)
        job->file.kind = file_kind_find(job_file_path(job), data->data, data->len);
}

static void
finish_part(struct job *job)
{
    const struct buf *data = &job->file.data;
    KG_AUTO_BUF text = {0};
    struct kg_error err = {0};
    if (job->file.offset == 0)
        note_head(job);
    const struct charset *charset = data->len > 0 ? charset_of_part(job) : &charset_utf_8;
    if (job->file.kind || !charset) {
        job_finish(job, result_of_binary(job));
        return;
    }
    if (job->file.size == 0)
        buf_printf(&text, "[%s is empty]", job_file_path(job));
    if (append_part(&text, job, charset, &err) < 0)
        job_fail(job, &err);
    else
        job_finish(job, result_of_text(job, text.data ? text.data : "", NULL));
}

static void read_part(struct job *job, struct session *session);

static void
on_read_end(const struct kg_error *read_err, void *arg)
{
    struct job *job = arg;
    struct kg_error err = {0};
    job->work = NULL;
    if (read_err) {
        job_fail(job, read_err);
        return;
    }
    if (!job->file.is_head) {
        finish_part(job);
        return;
    }
    note_head(job);
    job->file.is_head = false;
    job->file.data.len = 0;
    struct session *session = job_find_session(job, job->session.id, &err);
    if (session)
        read_part(job, session);
    else
        job_fail(job, &err);
}

static void
read_bytes(struct job *job, struct session *session, int64_t first, int64_t len)
{
    static const struct session_file_events events = {
        .on_head = on_read_head, .on_data = on_read_data, .on_end = on_read_end};
    const struct session_file_range range = {.first = first, .last = first + len - 1};
    struct kg_error err = {0};
    job_set_file_work(
        job, session_file_get(session, job_file_path(job), &range, &events, job, &err), &err);
}

static void
read_part(struct job *job, struct session *session)
{
    int64_t offset = (int64_t)job_number(job, "offset", 0);
    if (job->file.charset)
        offset -= offset % charset_unit(job->file.charset);
    read_bytes(job, session, offset, (int64_t)job_number(job, "limit", READ_BYTES));
}

static void
read_file_on_found(struct job *job, struct session *session, const struct session_file *file)
{
    struct kg_error err = {0};
    const char *path = job_file_path(job), *encoding = job_string(job, "encoding");
    job->file.charset = encoding ? charset_find(encoding) : NULL;
    if (is_image(file) && !job_value(job, "offset") && !encoding) {
        job_set_file_work(
            job, session_file_read(session, path, MAX_IMAGE_FILE_BYTES, on_image, job, &err), &err);
    } else if (file->size == 0) {
        finish_part(job);
    } else if (job_number(job, "offset", 0) > 0 &&
               (!encoding || charset_has_marks(job->file.charset))) {
        job->file.is_head = true;
        read_bytes(job, session, 0, FILE_KIND_HEAD);
    } else {
        read_part(job, session);
    }
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
    size_t offset = (size_t)job_number(job, "offset", 0);
    size_t limit = (size_t)job_number(job, "limit", READ_BYTES);
    if (offset > len)
        offset = len;
    job->file.size = (int64_t)len;
    job->file.offset = (int64_t)offset;
    buf_append(&job->file.data, data + offset, len - offset < limit ? len - offset : limit);
    KG_AUTO_BUF text = {0};
    struct kg_error err = {0};
    if (append_part(&text, job, &charset_utf_8, &err) < 0)
        job_fail(job, &err);
    else
        job_finish(job, result_of_text(job, text.data ? text.data : "", NULL));
}

static void
read_output(struct job *job, const char *id)
{
    struct kg_error err = {0};
    job->work = output_read_start(job->tools, mcp_call_owner(job->call), id, read_file_on_output,
                                  job, &err);
    job->cancel_work = output_read_cancel;
    if (job->work)
        return;
    buf_append_str(&job->advice, "To see the output again, run the code again.");
    job_fail(job, &err);
}

static int
check_encoding(struct job *job, struct kg_error *err)
{
    const char *name = job_string(job, "encoding");
    if (!name || charset_find(name))
        return 0;
    KG_AUTO_FREE char *names = charset_names();
    buf_printf(&job->advice,
               "Known are: %s. Others can be read with code: open(path, encoding=\"…\").", names);
    return kg_error_set(err, KG_INVALID, 0, "encoding \"%.40s\" is not known", name);
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
    if (check_range(job, &err) < 0 || check_encoding(job, &err) < 0)
        job_fail(job, &err);
    else if (id)
        read_output(job, id);
    else
        job_with_files(job, is_link, read_in);
}
