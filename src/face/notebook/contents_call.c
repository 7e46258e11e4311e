// SPDX-License-Identifier: Apache-2.0
// Requests for contents: their paths, what they wait for, how they end, how much memory they use.

#include <string.h>

#include "contents_priv.h"
#include "session_files.h"

// ---- Bounds ---------------------------------------------------------------------------------

struct contents_hold {
    struct budget_hold bytes;
};

struct contents_hold *
contents_hold_new(struct notebook *notebook, const char *owner, size_t bytes, struct kg_error *err)
{
    struct contents_hold *hold = KG_NEW(struct contents_hold);
    budget_hold_start(&hold->bytes, &notebook->contents, owner);
    if (contents_hold_set(hold, bytes, err) == 0)
        return hold;
    contents_hold_free(hold);
    return NULL;
}

int
contents_hold_set(struct contents_hold *hold, size_t bytes, struct kg_error *err)
{
    size_t before = hold->bytes.held;
    if (bytes > before && !budget_hold_has_room(&hold->bytes, bytes - before))
        return kg_error_set(err, KG_RATE_LIMITED, 0,
                            "too many large files and folders are being read and written; try "
                            "again later");
    budget_hold_set(&hold->bytes, bytes);
    return 0;
}

void
contents_hold_free(struct contents_hold *hold)
{
    if (!hold)
        return;
    budget_hold_end(&hold->bytes);
    free(hold);
}

// ---- Life -----------------------------------------------------------------------------------

void
contents_call_set_path(struct contents_call *call, const char *path)
{
    path += strspn(path, "/");
    size_t len = strlen(path);
    while (len > 0 && path[len - 1] == '/')
        len--;
    char *copy = kg_strndup(path, len);
    free(call->path);
    call->path = copy;
    size_t id_len = strcspn(copy, "/");
    call->file = copy + id_len + (copy[id_len] == '/');
}

static void
call_free(void *arg)
{
    struct contents_call *call = arg;
    session_file_op_cancel(call->op);
    loop_work_cancel(call->work, contents_encoding_free);
    contents_hold_free(call->hold);
    buf_fini(&call->data);
    free(call->untitled.start);
    free(call->untitled.insert);
    free(call->untitled.end);
    free(call->untitled.file);
    free(call->checkpoint);
    free(call->from);
    free(call->path);
    free(call);
}

struct contents_call *
contents_call_new(struct notebook *notebook, struct http_request *request, const char *path)
{
    struct contents_call *call = KG_NEW(struct contents_call);
    call->notebook = notebook;
    call->request = request;
    call->status = 200;
    contents_call_set_path(call, path);
    http_request_own(request, call, call_free);
    return call;
}

void
contents_fail_as(struct contents_call *call, int status, const struct kg_error *err)
{
    reply_failure_as(call->request, status, err);
}

void
contents_fail(struct contents_call *call, const struct kg_error *err)
{
    contents_fail_as(call, kg_code_info(err->code)->http_status, err);
}

void
contents_fail_at(struct contents_call *call, const char *path, const struct kg_error *err)
{
    struct kg_error own = *err;
    if (err->code == KG_NOT_FOUND)
        kg_error_set(&own, KG_NOT_FOUND, 0, "file or directory does not exist: %.*s/%s",
                     (int)strcspn(call->path, "/"), call->path, path);
    else if (err->code == KG_FILE_EXISTS)
        kg_error_set(&own, KG_FILE_EXISTS, 0, "File already exists");
    contents_fail(call, &own);
}

struct answer {
    struct buf text;
    struct contents_hold *hold;
};

static void
answer_free(void *arg)
{
    struct answer *answer = arg;
    contents_hold_free(answer->hold);
    buf_fini(&answer->text);
    free(answer);
}

void
contents_finish(struct contents_call *call, struct buf *text)
{
    struct http_request *request = call->request;
    struct kg_error err = {0};
    // The text is not longer than what was counted, except for the ends of models, which may exceed
    // the bound.
    if (call->hold)
        (void)!contents_hold_set(call->hold, text->len, &err);
    if (call->with_location) {
        KG_AUTO_BUF location = {0};
        buf_append_str(&location, "/api/contents/");
        percent_append(&location, call->path, "/");
        buf_append_str(&location, call->location_end ? call->location_end : "");
        http_reply_header(request, "Location", location.data);
    }
    struct answer *answer = KG_NEW(struct answer);
    answer->text = *text;
    *text = (struct buf){0};
    answer->hold = KG_STEAL(call->hold);
    http_reply_shared(request, call->status, "application/json", answer->text.data,
                      answer->text.len, answer_free, answer);
}

// ---- Paths ----------------------------------------------------------------------------------

int
contents_check_file(const char *file, bool is_new, struct kg_error *err)
{
    if (file_path_check(file, is_new, err) < 0)
        return -1;
    if (file[0] == '.' || strstr(file, "/."))
        return kg_error_set(err, is_new ? KG_INVALID_PATH : KG_NOT_FOUND, 0,
                            "file or directory does not exist: names that begin with . are hidden");
    return 0;
}

struct session *
contents_session(const struct contents_call *call, struct kg_error *err)
{
    KG_AUTO_FREE char *id = kg_strndup(call->path, strcspn(call->path, "/"));
    const char *owner = http_request_owner(call->request);
    struct session *session = sessions_find(call->notebook->face->sessions, owner, id, NULL);
    if (!session)
        kg_error_set(err, KG_NOT_FOUND, 0, "file or directory does not exist: %s", call->path);
    return session;
}

struct session *
contents_writable(struct contents_call *call)
{
    struct kg_error err = {0};
    if (!*call->file) {
        kg_error_set(&err, KG_INVALID_PATH, 0,
                     "files are below the folders of kernels only, whose names are the kernels' "
                     "ids; such a folder begins and ends with its kernel");
        contents_fail_as(call, 403, &err);
        return NULL;
    }
    struct session *session = contents_session(call, &err);
    if (session && contents_check_file(call->file, true, &err) == 0)
        return session;
    contents_fail(call, &err);
    return NULL;
}

const char *
contents_same_session(const struct contents_call *call, const char *path, bool is_new,
                      struct kg_error *err)
{
    path += strspn(path, "/");
    size_t len = strcspn(call->path, "/");
    if (strncmp(path, call->path, len) != 0 || path[len] != '/') {
        kg_error_set(err, KG_INVALID_PATH, 0,
                     "files are moved and copied within the folder of one kernel only");
        return NULL;
    }
    const char *file = path + len + 1;
    return contents_check_file(file, is_new, err) == 0 ? file : NULL;
}

void
contents_wait_op(struct contents_call *call, struct session_file_op *op, const struct kg_error *err)
{
    call->op = op;
    if (!op)
        contents_fail(call, err);
}
