// SPDX-License-Identifier: Apache-2.0
// What OpenSandbox's clients do with files and folders: look, move, delete, change permissions, and
// make folders.

#include <string.h>

#include "opensandbox_priv.h"
#include "session_files.h"

enum { FOLDER_MODE = 0755 };

// Adds an item for each `path` of the query.
static int
add_from_query(struct file_batch *batch, struct kg_error *err)
{
    const char *path = http_request_query(batch->request, "path");
    if (!path)
        return kg_error_set(err, KG_INVALID, 0, "path is missing: that of a file");
    for (; path; path = http_request_query_next(batch->request, "path", path))
        if (!file_batch_add(batch, path, false, err))
            return -1;
    return 0;
}

static void
run_from_query(struct file_batch *batch)
{
    struct kg_error err = {0};
    if (add_from_query(batch, &err) < 0)
        http_reply_error(batch->request, &err);
    else
        file_batch_run(batch);
}

// Adds an item for each member of the body, whose value is a permission.
static int
add_from_body(struct file_batch *batch, bool is_new, int fallback, struct kg_error *err)
{
    json_auto_t *root = os_body_object(batch->request, err);
    const char *path;
    json_t *permission;
    if (!root)
        return -1;
    json_object_foreach(root, path, permission) {
        struct batch_item *item = file_batch_add(batch, path, is_new, err);
        if (!item || parse_mode(permission, fallback, &item->mode, err) < 0)
            return -1;
    }
    return 0;
}

static void
run_from_body(struct file_batch *batch, bool is_new, int fallback)
{
    struct kg_error err = {0};
    if (add_from_body(batch, is_new, fallback, &err) < 0)
        http_reply_error(batch->request, &err);
    else
        file_batch_run(batch);
}

// ---- Looking --------------------------------------------------------------------------------

static void
on_info(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct file_batch *batch = arg;
    const struct batch_item *item = &batch->items[batch->next];
    if (entry) {
        json_auto_t *described = session_entry_describe(entry, item->path);
        json_object_set_new(batch->answer, item->name, file_info(described, item->path));
    }
    file_batch_on_done(err, batch);
}

static struct session_file_op *
start_info(struct file_batch *batch, struct session *session, struct batch_item *item,
           struct kg_error *err)
{
    return session_entry_stat(session, item->path, on_info, batch, err);
}

void
handle_os_file_info(struct http_request *request, void *arg)
{
    struct file_batch *batch = file_batch_new(request, arg, start_info);
    batch->answer = json_object();
    run_from_query(batch);
}

// ---- Deleting -------------------------------------------------------------------------------

// What is not there is deleted already.
static void
on_deleted(const struct kg_error *err, void *arg)
{
    file_batch_on_done(err && err->code == KG_NOT_FOUND ? NULL : err, arg);
}

static struct session_file_op *
start_delete_folder(struct file_batch *batch, struct session *session, struct batch_item *item,
                    struct kg_error *err)
{
    return session_file_delete(session, item->path, on_deleted, batch, err);
}

void
handle_os_folder_delete(struct http_request *request, void *arg)
{
    run_from_query(file_batch_new(request, arg, start_delete_folder));
}

// The file exists, and is not a folder.
static void
on_looked(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct file_batch *batch = arg;
    const struct batch_item *item = &batch->items[batch->next];
    struct kg_error own = {0};
    batch->op = NULL;
    if (!entry) {
        on_deleted(err, batch);
        return;
    }
    struct session *session = find_sandbox(batch->request, batch->self);
    if (!session)
        return;
    if (strcmp(entry->type, "dir") == 0)
        kg_error_set(&own, KG_INVALID_PATH, 0, "%.200s is a folder: DELETE /directories ends it",
                     item->name);
    else
        batch->op = session_file_delete(session, item->path, on_deleted, batch, &own);
    if (!batch->op)
        file_batch_step_failed(batch, &own);
}

static struct session_file_op *
start_delete(struct file_batch *batch, struct session *session, struct batch_item *item,
             struct kg_error *err)
{
    return session_entry_stat(session, item->path, on_looked, batch, err);
}

void
handle_os_file_delete(struct http_request *request, void *arg)
{
    run_from_query(file_batch_new(request, arg, start_delete));
}

// ---- Changing -------------------------------------------------------------------------------

static struct session_file_op *
start_chmod(struct file_batch *batch, struct session *session, struct batch_item *item,
            struct kg_error *err)
{
    return session_entry_chmod(session, item->path, item->mode, file_batch_on_entry, batch, err);
}

void
handle_os_file_chmod(struct http_request *request, void *arg)
{
    run_from_body(file_batch_new(request, arg, start_chmod), false, FOLDER_MODE);
}

static void
on_made(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct file_batch *batch = arg;
    const struct batch_item *item = &batch->items[batch->next];
    struct kg_error own = {0};
    batch->op = NULL;
    if (!entry) {
        file_batch_step_failed(batch, err);
        return;
    }
    struct session *session = find_sandbox(batch->request, batch->self);
    if (!session)
        return;
    batch->op =
        session_entry_chmod(session, item->path, item->mode, file_batch_on_entry, batch, &own);
    if (!batch->op)
        file_batch_step_failed(batch, &own);
}

static struct session_file_op *
start_make(struct file_batch *batch, struct session *session, struct batch_item *item,
           struct kg_error *err)
{
    return session_folder_make(session, item->path, SESSION_PARENTS, on_made, batch, err);
}

void
handle_os_folder_make(struct http_request *request, void *arg)
{
    run_from_body(file_batch_new(request, arg, start_make), true, FOLDER_MODE);
}

// ---- Moving ---------------------------------------------------------------------------------

static struct session_file_op *
start_move(struct file_batch *batch, struct session *session, struct batch_item *item,
           struct kg_error *err)
{
    return session_entry_move(session, item->path, item->to, 0, file_batch_on_entry, batch, err);
}

static int
add_moves(struct file_batch *batch, const json_t *root, struct kg_error *err)
{
    size_t i;
    json_t *move;
    if (!json_is_array(root))
        return kg_error_set(err, KG_INVALID, 0, "the body must be a list of {\"src\", \"dest\"}");
    json_array_foreach(root, i, move) {
        const char *from = json_string_value(json_object_get(move, "src"));
        const char *to = json_string_value(json_object_get(move, "dest"));
        if (!from || !to)
            return kg_error_set(err, KG_INVALID, 0,
                                "the body must be a list of {\"src\", \"dest\"}");
        struct batch_item *item = file_batch_add(batch, from, false, err);
        if (!item || !(item->to = sandbox_path(to, true, err)))
            return -1;
    }
    return 0;
}

void
handle_os_file_move(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct file_batch *batch = file_batch_new(request, arg, start_move);
    json_auto_t *root = http_request_json(request, &err);
    if (!root || add_moves(batch, root, &err) < 0)
        http_reply_error(request, &err);
    else
        file_batch_run(batch);
}
