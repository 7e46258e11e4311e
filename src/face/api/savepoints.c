// SPDX-License-Identifier: Apache-2.0
// The resources /api/v1/sessions/{id}/savepoints and …/branches.

#include <string.h>

#include "api_priv.h"
#include "session_kernels.h"
#include "session_savepoints.h"

// A request that waits for a call of the session.
struct savepoint_request {
    struct http_request *request;
    void (*reply)(struct savepoint_request *self, const json_t *savepoint);
    char *name; // of a savepoint or a branch, for the answer
    struct savepoint_call *call;
    struct session_kernel_call *kernel_call;
};

static void
savepoint_request_free(void *arg)
{
    struct savepoint_request *self = arg;
    savepoint_call_cancel(self->call);
    session_kernel_call_cancel(self->kernel_call);
    free(self->name);
    free(self);
}

static struct savepoint_request *
savepoint_request_new(struct http_request *request, const char *name,
                      void (*reply)(struct savepoint_request *self, const json_t *savepoint))
{
    struct savepoint_request *self = KG_NEW(struct savepoint_request);
    self->request = request;
    self->name = name ? kg_strdup(name) : NULL;
    self->reply = reply;
    http_request_own(request, self, savepoint_request_free);
    return self;
}

static void
savepoint_request_on_done(const json_t *savepoint, const struct kg_error *err, void *arg)
{
    struct savepoint_request *self = arg;
    self->call = NULL;
    if (err)
        http_reply_error(self->request, err);
    else
        self->reply(self, savepoint);
}

static void
fail_unless_begun(struct savepoint_request *self, const struct kg_error *err)
{
    if (!self->call && !self->kernel_call)
        http_reply_error(self->request, err);
}

static void
reply_savepoint(struct savepoint_request *self, const json_t *savepoint)
{
    http_reply_json(self->request, 200, json_incref((json_t *)(uintptr_t)savepoint));
}

// ---- Savepoints -----------------------------------------------------------------------------

static void
reply_made(struct savepoint_request *self, const json_t *savepoint)
{
    http_reply_json(self->request, 201, json_incref((json_t *)(uintptr_t)savepoint));
}

void
handle_savepoint_make(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    struct kg_error err = {0};
    struct savepoint_body body;
    struct session *session = api_find_session(request, context);
    if (!session)
        return;
    json_auto_t *root = http_request_json(request, &err);
    struct kernel *kernel = NULL;
    if (root && savepoint_body_parse(context, root, &body, &err) == 0)
        kernel = api_kernel_of(session, body.spec, body.branch, &err);
    if (!kernel) {
        http_reply_error(request, &err);
        return;
    }
    struct savepoint_request *self = savepoint_request_new(request, NULL, reply_made);
    self->call = session_savepoint_make(session, kernel, body.name, body.files,
                                        savepoint_request_on_done, self, &err);
    fail_unless_begun(self, &err);
}

void
handle_savepoint_list(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    if (session_taken_up_check(session, &err) == 0)
        http_reply_json(request, 200, session_savepoints_describe(session));
    else
        http_reply_error(request, &err);
}

void
handle_savepoint_restore(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    json_auto_t *root = http_request_json(request, &err);
    if (!root || empty_body_parse(root, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    struct savepoint_request *self = savepoint_request_new(request, NULL, reply_savepoint);
    self->call = session_savepoint_restore(session, http_request_param(request, "savepoint"),
                                           savepoint_request_on_done, self, &err);
    fail_unless_begun(self, &err);
}

static void
reply_dropped(struct savepoint_request *self, const json_t *savepoint)
{
    (void)savepoint;
    reply_message(self->request, NULL, "Savepoint %s deleted", self->name);
}

void
handle_savepoint_drop(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const char *id = http_request_param(request, "savepoint");
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    struct savepoint_request *self = savepoint_request_new(request, id, reply_dropped);
    self->call = session_savepoint_drop(session, id, savepoint_request_on_done, self, &err);
    fail_unless_begun(self, &err);
}

// ---- Branches -------------------------------------------------------------------------------

static void
reply_branch(struct savepoint_request *self, const json_t *savepoint)
{
    http_reply_json(
        self->request, 201,
        json_pack("{s:s, s:o}", "branch", self->name, "from",
                  savepoint ? json_incref(json_object_get(savepoint, "savepoint")) : json_null()));
}

void
handle_branch_open(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    struct kg_error err = {0};
    struct savepoint_body body;
    struct session *session = api_find_session(request, context);
    if (!session)
        return;
    json_auto_t *root = http_request_json(request, &err);
    struct kernel *kernel = NULL;
    if (root && branch_body_parse(context, root, &body, &err) == 0)
        kernel = api_kernel_of(session, body.spec, body.branch, &err);
    if (!kernel) {
        http_reply_error(request, &err);
        return;
    }
    struct savepoint_request *self = savepoint_request_new(request, body.name, reply_branch);
    self->call = session_branch_open(session, body.name, body.from, kernel,
                                     savepoint_request_on_done, self, &err);
    fail_unless_begun(self, &err);
}

static json_t *
memory_or_null(const struct session *session, const struct kernel *kernel)
{
    int64_t bytes = session_kernel_memory(session, kernel);
    return bytes >= 0 ? json_integer(bytes) : json_null();
}

void
handle_branch_list(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    if (session_taken_up_check(session, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    json_t *list = json_array();
    const struct kernel *kernel;
    for (size_t i = 0; (kernel = session_kernel_at(session, i)); i++) {
        if (session_kernel_is_default(kernel))
            continue;
        json_t *branch = kernel_describe(kernel);
        json_object_set_new(branch, "branch", json_string(kernel_name(kernel)));
        json_object_set_new(branch, "kernel", json_string(kernel_spec(kernel)->name));
        json_object_set_new(branch, "memory_bytes", memory_or_null(session, kernel));
        json_array_append_new(list, branch);
    }
    http_reply_json(request, 200, json_pack("{s:o}", "branches", list));
}

static void
reply_promoted(struct savepoint_request *self, const json_t *savepoint)
{
    (void)savepoint;
    reply_message(self->request, NULL, "Branch %s is the session's main kernel", self->name);
}

void
handle_branch_promote(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const char *name = http_request_param(request, "branch");
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    json_auto_t *root = http_request_json(request, &err);
    if (!root || empty_body_parse(root, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    struct savepoint_request *self = savepoint_request_new(request, name, reply_promoted);
    self->call = session_branch_promote(session, name, savepoint_request_on_done, self, &err);
    fail_unless_begun(self, &err);
}

static void
branch_on_removed(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct savepoint_request *self = arg;
    (void)kernel;
    self->kernel_call = NULL;
    if (err)
        http_reply_error(self->request, err);
    else
        reply_message(self->request, NULL, "Branch %s ended", self->name);
}

void
handle_branch_end(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const char *name = http_request_param(request, "branch");
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    const struct kernel *kernel = session_kernel_find(session, name, &err);
    if (kernel && session_kernel_is_default(kernel))
        kg_error_set(&err, KG_INVALID, 0, "%.40s is the session's main kernel, not a branch", name);
    if (err.code != KG_OK) {
        http_reply_error(request, &err);
        return;
    }
    struct savepoint_request *self = savepoint_request_new(request, name, NULL);
    self->kernel_call = session_kernel_remove(session, name, branch_on_removed, self, &err);
    fail_unless_begun(self, &err);
}
