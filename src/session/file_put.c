// SPDX-License-Identifier: Apache-2.0
// Writes a file of a session, by one call. The agent writes its body as it receives it.

#include "files_priv.h"

static void
on_written(const json_t *result, const struct kg_error *call_err, void *arg)
{
    struct session_file_op *op = arg;
    struct session_file file;
    struct kg_error err = {0};
    bool created = json_is_true(json_object_get(result, "created"));
    bool sound = result && file_parse(op, result, &file, &err) == 0;
    session_file_put_fn fn = op->put_fn;
    void *fn_arg = op->arg;
    KG_AUTO_FREE char *path = KG_STEAL(op->path); // `file` borrows it
    file_op_free(op);
    fn(sound ? &file : NULL, created, sound ? NULL : result ? &err : call_err, fn_arg);
}

struct session_file_op *
session_file_put(struct session *session, const char *path,
                 const struct session_file_source *source, bool keep_existing,
                 session_file_put_fn fn, void *arg, struct kg_error *err)
{
    static const struct sandbox_stream_events events = {.on_end = on_written};
    struct session_file_op *op = file_op_new(session, path, true, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params = json_pack("{s:s, s:b}", "path", path, "keep", keep_existing);
    const struct sandbox_stream_spec spec = {
        .method = "files.write",
        .params = params,
        .body = {source->data, source->read, source->arg, source->len},
        .head_timeout_ms = FILE_CALL_MS,
    };
    op->put_fn = fn;
    if (params)
        op->call = sandbox_agent_stream(session->sandbox, &spec, &events, op, err);
    else
        kg_error_set(err, KG_INVALID_PATH, 0, "the path is not UTF-8");
    if (op->call)
        return op;
    file_op_free(op);
    return NULL;
}
