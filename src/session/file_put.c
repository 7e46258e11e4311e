// SPDX-License-Identifier: Apache-2.0
// Writing a file of a session: a small one in one call, a larger one in pieces.

#include <inttypes.h>
#include <string.h>

#include "files_priv.h"

enum { PIECE_BYTES = 1 << 20, REPLY_MAX = 4096, UPLOAD_ID_MAX = 32 };

struct file_put {
    struct session_file_source source;
    bool keep_existing;
    size_t sent;
    char id[UPLOAD_ID_MAX + 1]; // the agent's, of one in pieces; empty: none
    struct buf reply;
};

static void
on_forgotten(const json_t *body, const struct kg_error *err, void *arg)
{
    (void)body;
    (void)err;
    (void)arg;
}

void
file_put_free(struct session_file_op *op)
{
    struct file_put *put = op->put;
    if (!put)
        return;
    if (put->id[0]) {
        KG_AUTO_FREE char *path = kg_asprintf("/uploads/%s", put->id);
        (void)!sandbox_agent_call(op->session->sandbox, "DELETE", path, NULL, FILE_CALL_MS,
                                  on_forgotten, NULL, NULL);
    }
    buf_fini(&put->reply);
    free(put);
}

static void
put_end(struct session_file_op *op, const json_t *body, const struct kg_error *put_err)
{
    struct session_file file;
    struct kg_error err = {0};
    bool created = json_is_true(json_object_get(body, "created"));
    if (body)
        op->put->id[0] = '\0';
    bool sound = body && file_parse(op, body, &file, &err) == 0;
    session_file_put_fn fn = op->put_fn;
    void *arg = op->arg;
    KG_AUTO_FREE char *path = KG_STEAL(op->path); // the callback's
    file_op_free(op);
    fn(sound ? &file : NULL, created, sound ? NULL : body ? &err : put_err, arg);
}

static void
on_committed(const json_t *body, const struct kg_error *err, void *arg)
{
    struct session_file_op *op = arg;
    op->call = NULL;
    put_end(op, body, err);
}

static void
commit(struct session_file_op *op)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = kg_asprintf("/uploads/%s/commit", op->put->id);
    op->call = sandbox_agent_call(op->session->sandbox, "POST", path, NULL, FILE_CALL_MS,
                                  on_committed, op, &err);
    if (!op->call)
        put_end(op, NULL, &err);
}

// ---- Bytes ----------------------------------------------------------------------------------

static int send_bytes(struct session_file_op *op, const char *path, struct kg_error *err);

static void
send_piece(struct session_file_op *op)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *path = kg_asprintf("/uploads/%s?offset=%zu", op->put->id, op->put->sent);
    if (send_bytes(op, path, &err) < 0)
        put_end(op, NULL, &err);
}

static void
on_reply_data(const void *data, size_t len, void *arg)
{
    struct session_file_op *op = arg;
    struct kg_error err = {0};
    if (len <= REPLY_MAX - op->put->reply.len) {
        buf_append(&op->put->reply, data, len);
        return;
    }
    // It might never end.
    kg_error_set(&err, KG_INTERNAL, 0, "the agent's answer about a file is too long");
    sandbox_call_cancel(KG_STEAL(op->call));
    put_end(op, NULL, &err);
}

static void
on_sent(const struct kg_error *err, void *arg)
{
    struct session_file_op *op = arg;
    struct file_put *put = op->put;
    op->call = NULL;
    if (err) {
        put_end(op, NULL, err);
        return;
    }
    json_auto_t *body = json_loadb(put->reply.data ? put->reply.data : "", put->reply.len,
                                   JSON_REJECT_DUPLICATES, NULL);
    put->reply.len = 0;
    if (!json_is_object(body)) {
        struct kg_error bad;
        kg_error_set(&bad, KG_INTERNAL, 0, "the agent's answer is no JSON object");
        put_end(op, NULL, &bad);
    } else if (!put->id[0]) {
        put_end(op, body, NULL);
    } else if (put->sent < put->source.len) {
        send_piece(op);
    } else {
        commit(op);
    }
}

// The next bytes of the source, at most a piece, as the body of a PUT.
static int
send_bytes(struct session_file_op *op, const char *path, struct kg_error *err)
{
    static const struct sandbox_stream_events events = {.on_data = on_reply_data,
                                                        .on_end = on_sent};
    struct file_put *put = op->put;
    size_t left = put->source.len - put->sent;
    size_t len = left < PIECE_BYTES ? left : PIECE_BYTES;
    KG_AUTO_FREE char *copy = NULL;
    const char *bytes = put->source.data ? (const char *)put->source.data + put->sent : "";
    if (!put->source.data && len > 0) {
        bytes = copy = kg_calloc(1, len);
        put->source.read(copy, len, put->source.arg);
    }
    put->sent += len;
    const struct sandbox_stream_spec spec = {
        .method = "PUT",
        .path = path,
        .content_type = "application/octet-stream",
        .body = bytes,
        .body_len = len,
        .head_timeout_ms = FILE_CALL_MS,
        .silence_timeout_ms = FILE_CALL_MS,
    };
    op->call = sandbox_agent_stream(op->session->sandbox, &spec, &events, op, err);
    return op->call ? 0 : -1;
}

// ---- Starting -------------------------------------------------------------------------------

static void
on_begun(const json_t *body, const struct kg_error *call_err, void *arg)
{
    struct session_file_op *op = arg;
    const char *id = json_string_value(json_object_get(body, "id"));
    op->call = NULL;
    if (!body) {
        put_end(op, NULL, call_err);
        return;
    }
    size_t len = id ? strlen(id) : 0;
    if (len == 0 || len > UPLOAD_ID_MAX ||
        strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") != len) {
        struct kg_error err;
        kg_error_set(&err, KG_INTERNAL, 0, "the agent's answer names no upload");
        put_end(op, NULL, &err);
        return;
    }
    memcpy(op->put->id, id, len + 1);
    send_piece(op);
}

static int
begin_pieces(struct session_file_op *op, struct kg_error *err)
{
    json_auto_t *body = json_pack("{s:s, s:I, s:b}", "path", op->path, "size",
                                  (json_int_t)op->put->source.len, "keep", op->put->keep_existing);
    if (!body)
        return kg_error_set(err, KG_INVALID_PATH, 0, "the path is not UTF-8");
    op->call = sandbox_agent_call(op->session->sandbox, "POST", "/uploads", body, FILE_CALL_MS,
                                  on_begun, op, err);
    return op->call ? 0 : -1;
}

static int
send_whole(struct session_file_op *op, struct kg_error *err)
{
    KG_AUTO_BUF url = {0};
    buf_append_str(&url, "/files/");
    percent_append(&url, op->path, "/");
    if (op->put->keep_existing)
        buf_append_str(&url, "?keep=1");
    return send_bytes(op, url.data, err);
}

struct session_file_op *
session_file_put(struct session *session, const char *path,
                 const struct session_file_source *source, bool keep_existing,
                 session_file_put_fn fn, void *arg, struct kg_error *err)
{
    struct session_file_op *op = file_op_new(session, path, true, arg, err);
    if (!op)
        return NULL;
    op->put_fn = fn;
    op->put = KG_NEW(struct file_put);
    op->put->source = *source;
    op->put->keep_existing = keep_existing;
    int result = source->len > PIECE_BYTES ? begin_pieces(op, err) : send_whole(op, err);
    if (result == 0)
        return op;
    file_op_free(op);
    return NULL;
}
