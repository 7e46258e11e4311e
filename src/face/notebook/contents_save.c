// SPDX-License-Identifier: Apache-2.0
// PUT of a file, a notebook or a folder. A worker parses large bodies and prepares the bytes to be
// written.

#include <limits.h>
#include <sodium.h>
#include <string.h>

#include "contents_priv.h"
#include "metrics.h"
#include "session_files.h"

// The members of a body. While it is parsed, only the worker uses it.
struct contents_put {
    struct notebook *notebook;
    bool is_notebook_path;
    bool is_empty; // no body, or an empty one
    bool has_type;
    bool has_content;
    int chunk; // see struct contents_call
    enum contents_type type;
    struct buf bytes; // of the file
    struct kg_error err;
};

static void
put_free(void *job)
{
    struct contents_put *put = job;
    buf_fini(&put->bytes);
    free(put);
}

// ---- The body -------------------------------------------------------------------------------

static int
decode_base64(struct contents_put *put, const json_t *content, struct kg_error *err)
{
    const char *text = json_string_value(content), *end = NULL;
    size_t len = json_string_length(content), n = 0;
    unsigned char *to = (unsigned char *)buf_reserve(&put->bytes, len / 4 * 3 + 3);
    if (sodium_base642bin(to, len / 4 * 3 + 3, text, len, "\r\n ", &n, &end,
                          sodium_base64_VARIANT_ORIGINAL) != 0 ||
        end != text + len)
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "content is not base64");
    put->bytes.len = n;
    return 0;
}

static size_t
file_max(const struct notebook *notebook)
{
    size_t max = notebook->face->max_upload_bytes;
    return max < CONTENTS_FILE_MAX ? max : CONTENTS_FILE_MAX;
}

static int
fail_too_large(const struct notebook *notebook, struct kg_error *err)
{
    return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0,
                        "the file has more than %zu bytes; the REST API takes larger ones",
                        file_max(notebook));
}

static int
append_dumped(const char *text, size_t len, void *arg)
{
    struct contents_put *put = arg;
    if (len > file_max(put->notebook) - put->bytes.len)
        return -1;
    buf_append(&put->bytes, text, len);
    return 0;
}

// As nbformat writes notebooks: indented by one space, with a newline at the end.
static int
take_notebook(struct contents_put *put, const json_t *content, struct kg_error *err)
{
    if (!json_is_object(content))
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "the content of a notebook is an object");
    // jansson can write every value that it has read.
    if (json_dump_callback(content, append_dumped, put, JSON_INDENT(1)) != 0)
        return fail_too_large(put->notebook, err);
    buf_append_str(&put->bytes, "\n");
    return 0;
}

static int
take_content(struct contents_put *put, const json_t *body, struct kg_error *err)
{
    const json_t *content = json_object_get(body, "content");
    const char *format;
    if (body_string(body, "format", 64, &format, err) < 0)
        return -1;
    if (put->type == CONTENTS_DIRECTORY)
        return 0;
    if (!content) {
        if (put->type == CONTENTS_NOTEBOOK)
            buf_append_str(&put->bytes, CONTENTS_EMPTY_NOTEBOOK);
        return 0;
    }
    put->has_content = true;
    if (put->type == CONTENTS_NOTEBOOK)
        return take_notebook(put, content, err);
    if (!json_is_string(content))
        return kg_error_set(err, KG_INVALID_CONTENT, 0, "the content of a file is a string");
    if (format && strcmp(format, "base64") == 0)
        return decode_base64(put, content, err);
    if (!format || strcmp(format, "text") != 0)
        return kg_error_set(err, KG_INVALID_CONTENT, 0,
                            "Must specify format of file contents as 'text' or 'base64'");
    buf_append(&put->bytes, json_string_value(content), json_string_length(content));
    return 0;
}

static int
take_chunk(struct contents_put *put, const json_t *chunk, struct kg_error *err)
{
    json_int_t number = json_integer_value(chunk);
    if (!chunk || json_is_null(chunk))
        return 0;
    if (!json_is_integer(chunk) || number == 0 || number < -1 || number > INT_MAX)
        return kg_error_set(err, KG_INVALID, 0, "chunk is 1, 2 and so on, and -1 for the last one");
    if (!put->has_type || put->type != CONTENTS_FILE || !put->has_content)
        return kg_error_set(err, KG_INVALID, 0, "a chunk has the type file, and content");
    put->chunk = (int)number;
    return 0;
}

static int
take_body(struct contents_put *put, const json_t *body, struct kg_error *err)
{
    const char *type, *copy_from;
    if (!json_is_object(body))
        return kg_error_set(err, KG_INVALID, 0, "the body must be a JSON object");
    if (body_string(body, "type", 64, &type, err) < 0 ||
        body_string(body, "copy_from", FILE_PATH_MAX, &copy_from, err) < 0)
        return -1;
    if (copy_from && *copy_from)
        return kg_error_set(err, KG_INVALID, 0, "Cannot copy with PUT, only POST");
    put->type = contents_type_parse(type);
    put->has_type = put->type != CONTENTS_ANY;
    if (!put->has_type)
        put->type = put->is_notebook_path ? CONTENTS_NOTEBOOK : CONTENTS_FILE;
    if (take_content(put, body, err) < 0)
        return -1;
    return take_chunk(put, json_object_get(body, "chunk"), err);
}

static void
put_read(const char *text, size_t len, void *job)
{
    struct contents_put *put = job;
    put->is_empty = len == 0 || (len == 4 && memcmp(text, "null", 4) == 0);
    if (put->is_empty)
        return;
    json_auto_t *body = http_json_parse(text, len, &put->err);
    put->is_empty = json_is_object(body) && json_object_size(body) == 0;
    if (body && !put->is_empty)
        (void)!take_body(put, body, &put->err);
}

// ---- Writing --------------------------------------------------------------------------------

static bool
is_appended(const struct contents_call *call)
{
    return call->chunk != 0 && call->chunk != 1;
}

static void
on_written(const struct session_file *file, bool created, const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    struct kg_error own_err = {0};
    call->op = NULL;
    if (file) {
        metric_add(METRIC_FILE_BYTES, (double)call->data.len, "in");
        if (is_appended(call))
            call->type = CONTENTS_ANY;
        else
            call->status = created ? 201 : 200;
        contents_show_file(call, file);
        return;
    }
    if (err->code != KG_FILE_EXISTS || !call->missing) {
        contents_fail(call, err);
        return;
    }
    kg_error_set(&own_err, KG_INVALID, 0, "No file %s provided", call->missing);
    contents_fail(call, &own_err);
}

// Writes the call's data. An existing file is replaced only if the body is complete.
static void
write_file(struct contents_call *call)
{
    struct session *session = contents_writable(call);
    if (!session)
        return;
    struct kg_error err = {0};
    if (call->data.len > file_max(call->notebook))
        (void)!fail_too_large(call->notebook, &err);
    else
        call->hold = contents_hold_new(call->notebook, http_request_owner(call->request),
                                       call->data.len, &err);
    if (!call->hold) {
        contents_fail(call, &err);
        return;
    }
    const struct session_file_source source = {.data = call->data.data ? call->data.data : "",
                                               .len = call->data.len};
    call->with_location = true;
    contents_wait_op(
        call,
        is_appended(call)
            ? session_file_append(session, call->file, &source,
                                  call->notebook->face->max_upload_bytes, on_written, call, &err)
            : session_file_put(session, call->file, &source, call->missing, on_written, call, &err),
        &err);
}

static void
put_done(struct http_request *request, void *job)
{
    struct contents_put *put = job;
    struct contents_call *call =
        contents_call_new(put->notebook, request, http_request_param(request, "path"));
    const struct kg_error err = put->err;
    bool is_empty = put->is_empty;
    call->type = put->type;
    call->missing = !put->has_type ? "type" : !put->has_content ? "content" : NULL;
    call->chunk = put->chunk;
    call->data = put->bytes;
    put->bytes = (struct buf){0};
    put_free(put);
    if (err.code != KG_OK)
        contents_fail(call, &err);
    else if (is_empty)
        contents_make_untitled(call, CONTENTS_ANY, "");
    else if (call->type == CONTENTS_DIRECTORY)
        contents_make_folder(call);
    else
        write_file(call);
}

void
handle_contents_put(struct http_request *request, void *arg)
{
    static const struct http_body_reader reader = {put_read, put_done, put_free};
    const char *path = http_request_param(request, "path");
    size_t len = strlen(path);
    struct contents_put *put = KG_NEW(struct contents_put);
    put->notebook = arg;
    put->is_notebook_path = len > 6 && strcmp(path + len - 6, ".ipynb") == 0;
    http_request_read_body(request, &reader, put);
}
