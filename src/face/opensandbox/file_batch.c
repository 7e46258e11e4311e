// SPDX-License-Identifier: Apache-2.0
// Operations on files, one after the other.

#include <string.h>

#include "opensandbox_priv.h"
#include "session_files.h"

static void
batch_free(void *arg)
{
    struct file_batch *batch = arg;
    if (batch->op)
        session_file_op_cancel(batch->op);
    for (size_t i = 0; i < batch->n; i++) {
        struct batch_item *item = &batch->items[i];
        free(item->name);
        free(item->path);
        free(item->to);
        free(item->old_text);
        free(item->new_text);
    }
    if (batch->free_more)
        batch->free_more(batch->more);
    json_decref(batch->answer);
    json_decref(batch->stat);
    buf_fini(&batch->text);
    free(batch);
}

struct file_batch *
file_batch_new(struct http_request *request, struct opensandbox *self, batch_start_fn start)
{
    struct file_batch *batch = KG_NEW(struct file_batch);
    batch->request = request;
    batch->self = self;
    batch->start = start;
    http_request_own(request, batch, batch_free);
    return batch;
}

struct batch_item *
file_batch_add(struct file_batch *batch, const char *path, bool is_new, struct kg_error *err)
{
    if (batch->n == BATCH_MAX) {
        kg_error_set(err, KG_INVALID, 0, "more than %d files in one request", BATCH_MAX);
        return NULL;
    }
    char *own = sandbox_path(path, is_new, err);
    if (!own)
        return NULL;
    struct batch_item *item = &batch->items[batch->n++];
    *item = (struct batch_item){.name = kg_strdup(path), .path = own, .mode = -1};
    return item;
}

void
file_batch_run(struct file_batch *batch)
{
    struct kg_error err = {0};
    if (batch->next == batch->n) {
        if (batch->answer)
            http_reply_json(batch->request, 200, KG_STEAL(batch->answer));
        else
            os_reply_empty(batch->request);
        return;
    }
    struct session *session = find_sandbox(batch->request, batch->self);
    if (!session)
        return;
    batch->op = batch->start(batch, session, &batch->items[batch->next], &err);
    if (!batch->op)
        file_batch_step_failed(batch, &err);
}

void
file_batch_step_done(struct file_batch *batch)
{
    batch->next++;
    file_batch_run(batch);
}

void
file_batch_step_failed(struct file_batch *batch, const struct kg_error *err)
{
    struct kg_error own = {0};
    const struct batch_item *item = &batch->items[batch->next];
    if (batch->n > 1)
        (void)kg_error_set(&own, err->code, 0, "%.200s: %s", item->name, err->message);
    else
        own = *err;
    http_reply_error(batch->request, &own);
}

void
file_batch_on_done(const struct kg_error *err, void *arg)
{
    struct file_batch *batch = arg;
    batch->op = NULL;
    if (err)
        file_batch_step_failed(batch, err);
    else
        file_batch_step_done(batch);
}

void
file_batch_on_entry(const struct session_entry *entry, const struct kg_error *err, void *arg)
{
    (void)entry;
    file_batch_on_done(err, arg);
}
