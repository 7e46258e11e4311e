// SPDX-License-Identifier: Apache-2.0
// Reads, writes and appends to files of a session, as streams; reads small ones as a whole. It is
// an error if the agent does not send exactly the announced number of bytes.

#include <inttypes.h>
#include <string.h>

#include "files_priv.h"

enum { SILENCE_MS = 30 * 1000 };

// Starts the operation's call, or frees the operation.
static struct session_file_op *
transfer_start(struct session_file_op *op, const struct sandbox_stream_spec *spec,
               const struct sandbox_stream_events *events, struct kg_error *err)
{
    if (spec->params)
        op->call = sandbox_agent_stream(op->session->sandbox, spec, events, op, err);
    return file_op_started(op, spec->params, err);
}

// ---- Reading --------------------------------------------------------------------------------

// The end of session_file_read().
static void
read_end(struct session_file_op *op, const struct kg_error *err)
{
    session_file_data_fn fn = op->data_fn;
    void *arg = op->data_arg;
    struct session_file file = op->file;
    KG_AUTO_BUF data = op->data;
    KG_AUTO_FREE char *path = KG_STEAL(op->path);
    op->data = (struct buf){0};
    file_op_free(op);
    if (err)
        fn(NULL, NULL, 0, err, arg);
    else
        fn(&file, data.data ? data.data : "", data.len, NULL, arg);
}

static void
get_end(struct session_file_op *op, const struct kg_error *err)
{
    if (op->data_fn) {
        read_end(op, err);
        return;
    }
    const struct session_file_events events = op->events;
    void *arg = op->arg;
    file_op_free(op);
    events.on_end(err, arg);
}

static int
parse_head(struct session_file_op *op, const json_t *head, bool *ret_is_part, int64_t *ret_offset,
           int64_t *ret_length, struct kg_error *err)
{
    json_int_t offset, length;
    int is_part;
    if (file_parse(op, head, &op->file, err) < 0)
        return -1;
    int64_t size = op->file.size;
    if (json_unpack((json_t *)(uintptr_t)head, "{s:I, s:I, s:b}", "offset", &offset, "length",
                    &length, "part", &is_part) < 0 ||
        offset < 0 || length < 0 || offset > INT64_MAX - length ||
        (length > 0 && offset + length > size) || (!is_part && length != size))
        return kg_error_set(err, KG_INTERNAL, 0, "the agent's answer about a file is malformed");
    *ret_is_part = is_part;
    *ret_offset = offset;
    *ret_length = length;
    return 0;
}

static void
get_on_head(const json_t *head, void *arg)
{
    struct session_file_op *op = arg;
    struct kg_error err = {0};
    bool is_part = false;
    int64_t offset = 0;
    if (parse_head(op, head, &is_part, &offset, &op->left, &err) < 0) {
        sandbox_call_cancel(op->call);
        get_end(op, &err);
        return;
    }
    op->events.on_head(&op->file, is_part, offset, op->left, op->arg);
}

static void
get_on_data(const void *data, size_t len, void *arg)
{
    struct session_file_op *op = arg;
    struct kg_error err = {0};
    if ((int64_t)len <= op->left) {
        op->left -= (int64_t)len;
        op->events.on_data(data, len, op->arg);
        return;
    }
    // The agent might never stop.
    kg_error_set(&err, KG_INTERNAL, 0, "the agent sent more of the file than it announced");
    sandbox_call_cancel(op->call);
    get_end(op, &err);
}

static void
get_on_end(const json_t *result, const struct kg_error *err, void *arg)
{
    (void)result;
    struct session_file_op *op = arg;
    struct kg_error short_err = {0};
    op->call = NULL;
    if (!err && op->left > 0) {
        kg_error_set(&short_err, KG_INTERNAL, 0,
                     "the agent sent less of the file than it announced");
        err = &short_err;
    }
    get_end(op, err);
}

struct session_file_op *
session_file_get(struct session *session, const char *path, const struct session_file_range *range,
                 const struct session_file_events *events, void *arg, struct kg_error *err)
{
    static const struct sandbox_stream_events stream_events = {
        .on_head = get_on_head, .on_data = get_on_data, .on_end = get_on_end};
    struct session_file_op *op = file_op_new(session, path, false, arg, err);
    if (!op)
        return NULL;
    bool whole = range->first == 0 && range->last == -1;
    json_auto_t *params = json_pack("{s:s}", "path", path);
    if (params && !whole)
        json_object_update_new(
            params, json_pack("{s:I, s:I, s:s*}", "first", (json_int_t)range->first, "last",
                              (json_int_t)range->last, "if_etag", range->if_etag));
    const struct sandbox_stream_spec spec = {
        .method = "files.read",
        .params = params,
        .head_timeout_ms = FILE_CALL_MS,
        .silence_timeout_ms = SILENCE_MS,
    };
    op->events = *events;
    return transfer_start(op, &spec, &stream_events, err);
}

void
session_file_pause(struct session_file_op *op, bool paused)
{
    sandbox_stream_pause(op->call, paused);
}

// ---- Small files, read whole ----------------------------------------------------------------

static void
read_on_head(const struct session_file *file, bool is_part, int64_t offset, int64_t length,
             void *arg)
{
    (void)is_part;
    (void)offset;
    struct session_file_op *op = arg;
    if (length <= (int64_t)op->max_bytes)
        return;
    struct kg_error err = {0};
    kg_error_set(&err, KG_ARTIFACT_TOO_LARGE, 0,
                 "%.100s has %" PRId64 " bytes, which is more than %zu", file->path, length,
                 op->max_bytes);
    sandbox_call_cancel(KG_STEAL(op->call));
    read_end(op, &err);
}

static void
read_on_data(const void *data, size_t len, void *arg)
{
    struct session_file_op *op = arg;
    buf_append(&op->data, data, len);
}

struct session_file_op *
session_file_read(struct session *session, const char *path, size_t max_bytes,
                  session_file_data_fn fn, void *arg, struct kg_error *err)
{
    static const struct session_file_events events = {.on_head = read_on_head,
                                                      .on_data = read_on_data};
    struct session_file_op *op =
        session_file_get(session, path, &SESSION_FILE_WHOLE, &events, NULL, err);
    if (!op)
        return NULL;
    op->arg = op;
    op->max_bytes = max_bytes;
    op->data_fn = fn;
    op->data_arg = arg;
    return op;
}

// ---- Writing --------------------------------------------------------------------------------

// Parses the result of a call. If an append was refused, the agent says so in its result.
static int
put_parse(const struct session_file_op *op, const json_t *result, struct session_file *ret,
          struct kg_error *err)
{
    if (json_is_false(json_object_get(result, "appended")))
        return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0,
                            "the file would have more than %zu bytes (setting max-upload-bytes)",
                            op->max_bytes);
    return file_parse(op, result, ret, err);
}

static void
put_on_end(const json_t *result, const struct kg_error *call_err, void *arg)
{
    struct session_file_op *op = arg;
    struct session_file file;
    struct kg_error err = {0};
    bool created = json_is_true(json_object_get(result, "created"));
    bool sound = result && put_parse(op, result, &file, &err) == 0;
    session_file_put_fn fn = op->put_fn;
    void *fn_arg = op->arg;
    KG_AUTO_FREE char *path = KG_STEAL(op->path); // `file` borrows it
    file_op_free(op);
    fn(sound ? &file : NULL, created, sound ? NULL : result ? &err : call_err, fn_arg);
}

static struct session_file_op *
put_start(struct session_file_op *op, const char *method, const json_t *params,
          const struct session_file_source *source, session_file_put_fn fn, struct kg_error *err)
{
    static const struct sandbox_stream_events events = {.on_end = put_on_end};
    const struct sandbox_stream_spec spec = {
        .method = method,
        .params = params,
        .body = {source->data, source->read, source->arg, source->len},
        .head_timeout_ms = FILE_CALL_MS,
    };
    op->put_fn = fn;
    return transfer_start(op, &spec, &events, err);
}

void
session_file_source_is_ready(struct session_file_op *op)
{
    sandbox_body_is_ready(op->call);
}

struct session_file_op *
session_file_put(struct session *session, const char *path,
                 const struct session_file_source *source, bool keep_existing,
                 session_file_put_fn fn, void *arg, struct kg_error *err)
{
    struct session_file_op *op = file_op_new(session, path, true, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params = json_pack("{s:s, s:b}", "path", path, "keep", keep_existing);
    return put_start(op, "files.write", params, source, fn, err);
}

struct session_file_op *
session_file_append(struct session *session, const char *path,
                    const struct session_file_source *source, size_t max, session_file_put_fn fn,
                    void *arg, struct kg_error *err)
{
    struct session_file_op *op = file_op_new(session, path, true, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params = json_pack("{s:s, s:I}", "path", path, "max", (json_int_t)max);
    op->max_bytes = max;
    return put_start(op, "files.append", params, source, fn, err);
}
