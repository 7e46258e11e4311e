// SPDX-License-Identifier: Apache-2.0
// Files of a session: what needs one question to the agent, and reading. Answers are untrusted.

#include <string.h>

#include "agent_reply.h"
#include "files_priv.h"

// RFC 3339 has no form for years after 9999.
#define MTIME_MAX_MS (INT64_C(253402300799) * 1000)

// ---- Operations -----------------------------------------------------------------------------

struct session_file_op *
file_op_new(struct session *session, const char *path, bool is_new, void *arg, struct kg_error *err)
{
    if (path && file_any_path_check(path, is_new, err) < 0)
        return NULL;
    if (session->state != SESSION_READY) {
        kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
        return NULL;
    }
    struct session_file_op *op = KG_NEW(struct session_file_op);
    op->session = session;
    op->path = path ? kg_strdup(path) : NULL;
    op->arg = arg;
    session->n_file_ops++;
    session_touch(session);
    return op;
}

void
file_op_free(struct session_file_op *op)
{
    op->session->n_file_ops--;
    session_touch(op->session);
    buf_fini(&op->data);
    free(op->path);
    free(op);
}

void
session_file_op_cancel(struct session_file_op *op)
{
    if (!op)
        return;
    sandbox_call_cancel(op->call);
    file_op_free(op);
}

struct session_file_op *
file_op_started(struct session_file_op *op, const json_t *params, struct kg_error *err)
{
    if (!params)
        kg_error_set(err, KG_INVALID_PATH, 0, "the path is not UTF-8");
    if (op->call)
        return op;
    file_op_free(op);
    return NULL;
}

struct session_file_op *
file_op_start(struct session_file_op *op, const char *method, const json_t *params,
              int64_t timeout_ms, sandbox_agent_fn fn, struct kg_error *err)
{
    if (params)
        op->call =
            sandbox_agent_call(op->session->sandbox, method, params, timeout_ms, fn, op, err);
    return file_op_started(op, params, err);
}

// Calls a method whose one parameter is the operation's path.
static struct session_file_op *
start_with_path(struct session_file_op *op, const char *method, sandbox_agent_fn fn,
                struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:s}", "path", op->path);
    return file_op_start(op, method, params, FILE_CALL_MS, fn, err);
}

// ---- What the agent says --------------------------------------------------------------------

int64_t
file_clip_mtime(int64_t mtime_ms)
{
    return mtime_ms < 0 ? 0 : mtime_ms > MTIME_MAX_MS ? MTIME_MAX_MS : mtime_ms;
}

int
session_etag_copy(const char *etag, char ret[SESSION_ETAG_LEN + 1])
{
    size_t len = etag ? strlen(etag) : 0;
    if (len < 3 || len > SESSION_ETAG_LEN || etag[0] != '"' ||
        strspn(etag + 1, "0123456789abcdef-") != len - 2 || etag[len - 1] != '"')
        return -1;
    memcpy(ret, etag, len + 1);
    return 0;
}

int
file_parse(const struct session_file_op *op, const json_t *body, struct session_file *ret,
           struct kg_error *err)
{
    const json_t *size = json_object_get(body, "size");
    const char *etag = json_string_value(json_object_get(body, "etag"));
    *ret = (struct session_file){
        .path = op->path,
        .mime = mime_of_path(op->path),
        .size = json_is_integer(size) ? json_integer_value(size) : -1,
        .mtime_ms = file_clip_mtime(json_integer_value(json_object_get(body, "mtime_ms"))),
    };
    if (ret->size < 0 || session_etag_copy(etag, ret->etag) < 0)
        return kg_error_set(err, KG_INTERNAL, 0, "the agent's answer about a file is malformed");
    return 0;
}

// ---- Listing --------------------------------------------------------------------------------

// NULL if the entry is malformed.
static json_t *
convert_entry(const json_t *entry, bool details)
{
    const char *path = json_string_value(json_object_get(entry, "path"));
    struct agent_entry parsed;
    char mtime[CLOCK_RFC3339_LEN];
    if (!path || agent_entry_parse(entry, &parsed, NULL) < 0)
        return NULL;
    clock_format_rfc3339(file_clip_mtime(parsed.mtime_ms), mtime);
    json_t *file = json_pack("{s:s, s:s, s:I, s:s}", "path", path, "type", parsed.type, "size",
                             (json_int_t)parsed.size, "mtime", mtime);
    if (strcmp(parsed.type, "file") == 0)
        json_object_set_new(file, "mime", json_string(mime_of_path(path)));
    if (details)
        file_add_details(file, parsed.mode, parsed.uid, parsed.gid);
    return file;
}

static void
on_list(const json_t *body, const struct kg_error *err, void *arg)
{
    struct session_file_op *op = arg;
    session_files_fn fn = op->list_fn;
    void *fn_arg = op->arg;
    bool details = op->details;
    file_op_free(op);
    if (!body) {
        fn(NULL, err, fn_arg);
        return;
    }
    json_auto_t *page = json_pack("{s:[]}", "files");
    json_t *files = json_object_get(page, "files");
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(body, "files"), i, entry) {
        json_t *file = convert_entry(entry, details);
        if (file)
            json_array_append_new(files, file);
    }
    json_t *next = json_object_get(body, "next");
    if (json_is_string(next))
        json_object_set(page, "next", next);
    fn(page, NULL, fn_arg);
}

struct session_file_op *
session_files_list(struct session *session, const struct session_files_query *query,
                   session_files_fn fn, void *arg, struct kg_error *err)
{
    bool whole = !query->folder || !*query->folder;
    struct session_file_op *op =
        file_op_new(session, whole ? NULL : query->folder, false, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params =
        json_pack("{s:i, s:s, s:s*}", "limit", query->limit ? query->limit : SESSION_FILES_PAGE_MAX,
                  "path", whole ? "" : query->folder, "after", query->after);
    // An older agent does not know these.
    if (params && query->shallow)
        json_object_set_new(params, "shallow", json_true());
    if (params && query->details)
        json_object_set_new(params, "details", json_true());
    op->details = query->details;
    op->list_fn = fn;
    return file_op_start(op, "files.list", params, FILE_CALL_MS, on_list, err);
}

// ---- One file -------------------------------------------------------------------------------

static void
on_stat(const json_t *body, const struct kg_error *call_err, void *arg)
{
    struct session_file_op *op = arg;
    struct session_file file;
    struct kg_error err = {0};
    bool sound = body && file_parse(op, body, &file, &err) == 0;
    KG_AUTO_FREE char *path = KG_STEAL(op->path); // the callback's
    session_file_fn fn = op->stat_fn;
    void *fn_arg = op->arg;
    file_op_free(op);
    fn(sound ? &file : NULL, sound ? NULL : body ? &err : call_err, fn_arg);
}

struct session_file_op *
session_file_stat(struct session *session, const char *path, session_file_fn fn, void *arg,
                  struct kg_error *err)
{
    struct session_file_op *op = file_op_new(session, path, false, arg, err);
    if (!op)
        return NULL;
    op->stat_fn = fn;
    return start_with_path(op, "files.describe", on_stat, err);
}

static void
on_deleted(const json_t *body, const struct kg_error *err, void *arg)
{
    struct session_file_op *op = arg;
    session_file_done_fn fn = op->done_fn;
    void *fn_arg = op->arg;
    file_op_free(op);
    fn(body ? NULL : err, fn_arg);
}

struct session_file_op *
session_file_delete(struct session *session, const char *path, session_file_done_fn fn, void *arg,
                    struct kg_error *err)
{
    struct session_file_op *op = file_op_new(session, path, false, arg, err);
    if (!op)
        return NULL;
    op->done_fn = fn;
    return start_with_path(op, "files.delete", on_deleted, err);
}
