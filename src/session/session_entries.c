// SPDX-License-Identifier: Apache-2.0
// Files and folders of a session as wholes: looking, making, moving, copying, unused names. Answers
// are untrusted.

#include <string.h>

#include "agent_reply.h"
#include "files_priv.h"

enum { COPY_CALL_MS = 40 * 1000 }; // the agent itself ends a copy after 30 s

void
file_add_details(json_t *file, int mode, int64_t uid, int64_t gid)
{
    static const char letters[] = "rwxrwxrwx";
    char text[sizeof letters];
    if (mode >= 0) {
        for (size_t i = 0; i < sizeof letters; i++)
            text[i] = i == sizeof letters - 1 || mode & (0400 >> i) ? letters[i] : '-';
        json_object_set_new(file, "mode", json_integer(mode));
        json_object_set_new(file, "permissions", json_string(text));
    }
    if (uid >= 0)
        json_object_set_new(file, "uid", json_integer(uid));
    if (gid >= 0)
        json_object_set_new(file, "gid", json_integer(gid));
}

json_t *
session_entry_describe(const struct session_entry *entry, const char *path)
{
    char mtime[CLOCK_RFC3339_LEN];
    const char *slash = strrchr(path, '/');
    bool is_file = strcmp(entry->type, "file") == 0;
    clock_format_rfc3339(entry->mtime_ms, mtime);
    json_t *ret =
        json_pack("{s:s, s:s, s:s, s:I, s:s, s:s*, s:s*}", "name", slash ? slash + 1 : path, "path",
                  path, "type", entry->type, "size", (json_int_t)entry->size, "mtime", mtime,
                  "mime", is_file ? mime_of_path(path) : NULL, "target", entry->target);
    file_add_details(ret, entry->mode, entry->uid, entry->gid);
    return ret;
}

static void
on_entry(const json_t *result, const struct kg_error *call_err, void *arg)
{
    struct session_file_op *op = arg;
    struct agent_entry parsed;
    struct kg_error err = {0};
    bool sound = result && agent_entry_parse(result, &parsed, &err) == 0;
    KG_AUTO_FREE char *path = KG_STEAL(op->path); // the callback's
    session_entry_fn fn = op->entry_fn;
    void *fn_arg = op->arg;
    file_op_free(op);
    if (!sound) {
        fn(NULL, result ? &err : call_err, fn_arg);
        return;
    }
    const struct session_entry entry = {
        .path = path ? path : "",
        .type = parsed.type,
        .size = parsed.size,
        .mtime_ms = file_clip_mtime(parsed.mtime_ms),
        .mode = parsed.mode,
        .uid = parsed.uid,
        .gid = parsed.gid,
        .target = parsed.target,
        .target_type = parsed.target_type,
    };
    fn(&entry, NULL, fn_arg);
}

struct session_file_op *
session_entry_stat(struct session *session, const char *path, session_entry_fn fn, void *arg,
                   struct kg_error *err)
{
    bool whole = !path || !*path;
    struct session_file_op *op = file_op_new(session, whole ? NULL : path, false, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params = json_pack("{s:s}", "path", whole ? "" : path);
    op->entry_fn = fn;
    return file_op_start(op, "files.stat", params, FILE_CALL_MS, on_entry, err);
}

struct session_file_op *
session_folder_make(struct session *session, const char *path, unsigned flags, session_entry_fn fn,
                    void *arg, struct kg_error *err)
{
    struct session_file_op *op = file_op_new(session, path, true, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params = json_pack("{s:s, s:b, s:b}", "path", path, "keep", flags & SESSION_KEEP,
                                    "parents", flags & SESSION_PARENTS);
    op->entry_fn = fn;
    return file_op_start(op, "files.mkdir", params, FILE_CALL_MS, on_entry, err);
}

// An operation on two paths, whose own is the second one.
static struct session_file_op *
two_paths_new(struct session *session, const char *from, const char *to, session_entry_fn fn,
              void *arg, struct kg_error *err)
{
    if (file_any_path_check(from, false, err) < 0)
        return NULL;
    struct session_file_op *op = file_op_new(session, to, true, arg, err);
    if (op)
        op->entry_fn = fn;
    return op;
}

struct session_file_op *
session_entry_move(struct session *session, const char *from, const char *to, unsigned flags,
                   session_entry_fn fn, void *arg, struct kg_error *err)
{
    struct session_file_op *op = two_paths_new(session, from, to, fn, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params = json_pack("{s:s, s:s, s:b, s:b}", "from", from, "to", to, "keep",
                                    flags & SESSION_KEEP, "parents", flags & SESSION_PARENTS);
    return file_op_start(op, "files.move", params, COPY_CALL_MS, on_entry, err);
}

struct session_file_op *
session_entry_chmod(struct session *session, const char *path, int mode, session_entry_fn fn,
                    void *arg, struct kg_error *err)
{
    struct session_file_op *op = file_op_new(session, path, false, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params = json_pack("{s:s, s:i}", "path", path, "mode", mode);
    op->entry_fn = fn;
    return file_op_start(op, "files.chmod", params, FILE_CALL_MS, on_entry, err);
}

struct session_file_op *
session_entry_copy(struct session *session, const struct session_copy *copy, session_entry_fn fn,
                   void *arg, struct kg_error *err)
{
    struct session_file_op *op = two_paths_new(session, copy->from, copy->to, fn, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params = json_pack("{s:s, s:s, s:b, s:b}", "from", copy->from, "to", copy->to,
                                    "keep", copy->keep_existing, "parents", copy->make_folders);
    return file_op_start(op, "files.copy", params, COPY_CALL_MS, on_entry, err);
}

// ---- Names ----------------------------------------------------------------------------------

static void
on_number(const json_t *result, const struct kg_error *call_err, void *arg)
{
    struct session_file_op *op = arg;
    struct kg_error err = {0};
    int number = result ? agent_number_parse(result, &err) : -1;
    session_number_fn fn = op->number_fn;
    void *fn_arg = op->arg;
    file_op_free(op);
    fn(number, number >= 0 ? NULL : result ? &err : call_err, fn_arg);
}

struct session_file_op *
session_find_unused(struct session *session, const struct session_names *names,
                    session_number_fn fn, void *arg, struct kg_error *err)
{
    bool whole = !names->folder || !*names->folder;
    struct session_file_op *op =
        file_op_new(session, whole ? NULL : names->folder, false, arg, err);
    if (!op)
        return NULL;
    json_auto_t *params =
        json_pack("{s:s, s:s, s:s, s:s}", "folder", whole ? "" : names->folder, "start",
                  names->start, "insert", names->insert, "end", names->end);
    op->number_fn = fn;
    return file_op_start(op, "files.unused", params, FILE_CALL_MS, on_number, err);
}
