// SPDX-License-Identifier: Apache-2.0
// POST …/files/replace: replaces text in files, which keep their permissions.

#include <string.h>

#include "opensandbox_priv.h"
#include "session_files.h"

enum { FILE_BYTES_MAX = 4 << 20 }; // before and after: it takes a few milliseconds

// Appends `from` with all of the item's old text replaced; returns how many there were. Ends early
// once there are more than FILE_BYTES_MAX.
static json_int_t
replace(struct buf *to, const char *from, size_t len, const struct batch_item *item)
{
    json_int_t n = 0;
    const char *end = from + len, *found;
    buf_append_str(to, "");
    while (to->len <= FILE_BYTES_MAX &&
           (found = memmem(from, (size_t)(end - from), item->old_text, item->old_len))) {
        buf_append(to, from, (size_t)(found - from));
        buf_append(to, item->new_text, item->new_len);
        from = found + item->old_len;
        n++;
    }
    buf_append(to, from, (size_t)(end - from));
    return n;
}

static void
fail(struct file_batch *batch, const struct kg_error *err)
{
    batch->op = NULL;
    file_batch_step_failed(batch, err);
}

static void
on_written(const struct session_file *file, bool created, const struct kg_error *err, void *arg)
{
    (void)created;
    struct file_batch *batch = arg;
    struct kg_error own = {0};
    batch->op = NULL;
    struct session *session = file ? sandbox_of(batch->request, batch->self, &own) : NULL;
    const struct batch_item *item = &batch->items[batch->next];
    if (session)
        batch->op =
            session_entry_chmod(session, item->path, item->mode, file_batch_on_entry, batch, &own);
    if (!batch->op)
        fail(batch, file ? &own : err);
}

static void
on_read(const struct session_file *file, const void *data, size_t len, const struct kg_error *err,
        void *arg)
{
    struct file_batch *batch = arg;
    struct kg_error own = {0};
    const struct batch_item *item = &batch->items[batch->next];
    batch->op = NULL;
    if (!file) {
        fail(batch, err);
        return;
    }
    batch->text.len = 0;
    json_int_t n = replace(&batch->text, data, len, item);
    if (batch->answer)
        json_object_set_new(batch->answer, item->name, json_pack("{s:I}", "replacedCount", n));
    if (n == 0) {
        file_batch_step_done(batch);
        return;
    }
    const struct session_file_source source = {.data = batch->text.data, .len = batch->text.len};
    struct session *session = sandbox_of(batch->request, batch->self, &own);
    if (session && batch->text.len > FILE_BYTES_MAX)
        kg_error_set(&own, KG_UPLOAD_TOO_LARGE, 0, "the file would have more than %d bytes",
                     FILE_BYTES_MAX);
    else if (session)
        batch->op = session_file_put(session, item->path, &source, false, on_written, batch, &own);
    if (!batch->op)
        fail(batch, &own);
}

static void
on_looked(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    struct file_batch *batch = arg;
    struct kg_error own = {0};
    struct batch_item *item = &batch->items[batch->next];
    batch->op = NULL;
    struct session *session = entry ? sandbox_of(batch->request, batch->self, &own) : NULL;
    if (session) {
        item->mode = entry->mode >= 0 ? entry->mode & SESSION_MODE_MAX : 0644;
        batch->op = session_file_read(session, item->path, FILE_BYTES_MAX, on_read, batch, &own);
    }
    if (!batch->op)
        fail(batch, entry ? &own : err);
}

static struct session_file_op *
start(struct file_batch *batch, struct session *session, struct batch_item *item,
      struct kg_error *err)
{
    return session_entry_stat(session, item->path, on_looked, batch, err);
}

static int
add_items(struct file_batch *batch, const json_t *root, struct kg_error *err)
{
    const char *path;
    json_t *texts;
    json_object_foreach((json_t *)(uintptr_t)root, path, texts) {
        const json_t *old_text = json_object_get(texts, "old");
        const json_t *new_text = json_object_get(texts, "new");
        if (!json_is_string(old_text) || !json_is_string(new_text) ||
            json_string_length(old_text) == 0)
            return kg_error_set(err, KG_INVALID, 0,
                                "the body must map paths to {\"old\", \"new\"}, where old is not "
                                "empty; \"%.60s\" does not",
                                path);
        struct batch_item *item = file_batch_add(batch, path, false, err);
        if (!item)
            return -1;
        item->old_len = json_string_length(old_text);
        item->new_len = json_string_length(new_text);
        item->old_text = kg_memdup0(json_string_value(old_text), item->old_len);
        item->new_text = kg_memdup0(json_string_value(new_text), item->new_len);
    }
    return 0;
}

void
handle_os_file_replace(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct file_batch *batch = file_batch_new(request, arg, start);
    const char *verbose = http_request_query(request, "verbose");
    json_auto_t *root = os_body_object(request, &err);
    if (!root || add_items(batch, root, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    if (verbose && strcmp(verbose, "true") == 0)
        batch->answer = json_object();
    file_batch_run(batch);
}
