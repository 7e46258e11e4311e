// SPDX-License-Identifier: Apache-2.0
// The resource /api/sessions: a notebook's path, name and type beside the kernel that it uses.

#include <stdio.h>
#include <string.h>

#include "notebook_priv.h"

// Texts are short, because the list of an owner's sessions is made in one turn of the loop.
enum { PATH_BYTES_MAX = 1024, NAME_BYTES_MAX = 255, TYPE_BYTES_MAX = 64 };

// A client that waits for the kernel of its session, or for the end of the earlier kernel.
struct session_call {
    struct notebook *notebook;
    struct http_request *request;
    struct kernel_start *start; // in progress
    bool is_started;            // the kernel, for this call
    json_t *body;
    struct session_fields fields;      // borrowed from `body`; NULL if absent
    const char *kernel_name;           // the same
    const char *kernel_id;             // the same
    char record_id[KERNEL_ID_LEN + 1]; // of the session that PATCH changes
};

static void
call_free(void *arg)
{
    struct session_call *call = arg;
    if (call->start)
        kernel_start_cancel(call->start);
    json_decref(call->body);
    free(call);
}

static void
call_fail_as(struct session_call *call, int status, const struct kg_error *err)
{
    reply_failure_as(call->request, status, err);
    call_free(call);
}

static void
call_fail(struct session_call *call, const struct kg_error *err)
{
    call_fail_as(call, kg_code_info(err->code)->http_status, err);
}

// ---- The body -------------------------------------------------------------------------------

// The deprecated form has `notebook` with a path; POST prefers its `name` to its `path`.
static int
read_notebook(struct session_call *call, const json_t *notebook, bool name_first,
              struct kg_error *err)
{
    const char *path, *name;
    if (!json_is_object(notebook))
        return kg_error_set(err, KG_INVALID, 0, "notebook must be an object");
    if (body_string(notebook, "path", PATH_BYTES_MAX, &path, err) < 0 ||
        body_string(notebook, "name", PATH_BYTES_MAX, &name, err) < 0)
        return -1;
    if (name_first && name)
        path = name;
    if (path || name_first)
        call->fields.type = "notebook";
    if (path)
        call->fields.path = path;
    return 0;
}

// Refuses control characters: each would take six bytes in every answer.
static int
check_text(const char *what, const char *text, struct kg_error *err)
{
    for (const char *at = text; at && *at; at++) {
        if ((unsigned char)*at < ' ')
            return kg_error_set(err, KG_INVALID, 0, "%s has a control character", what);
    }
    return 0;
}

static int
check_fields(const struct session_fields *fields, struct kg_error *err)
{
    return check_text("path", fields->path, err) == 0 &&
                   check_text("name", fields->name, err) == 0 &&
                   check_text("type", fields->type, err) == 0
               ? 0
               : -1;
}

static int
read_body(struct session_call *call, bool is_new, struct kg_error *err)
{
    call->body = body_object(call->request, err);
    if (!call->body ||
        body_string(call->body, "path", PATH_BYTES_MAX, &call->fields.path, err) < 0 ||
        body_string(call->body, "name", NAME_BYTES_MAX, &call->fields.name, err) < 0 ||
        body_string(call->body, "type", TYPE_BYTES_MAX, &call->fields.type, err) < 0)
        return -1;
    const json_t *notebook = json_object_get(call->body, "notebook");
    if ((notebook && read_notebook(call, notebook, is_new, err) < 0) ||
        check_fields(&call->fields, err) < 0)
        return -1;
    const json_t *kernel = json_object_get(call->body, "kernel");
    if (kernel && !json_is_null(kernel) && !json_is_object(kernel))
        return kg_error_set(err, KG_INVALID, 0, "kernel must be an object");
    if (body_string(kernel, "name", KERNEL_NAME_MAX, &call->kernel_name, err) < 0 ||
        body_string(kernel, "id", KERNEL_ID_MAX, &call->kernel_id, err) < 0)
        return -1;
    if (is_new && (!call->fields.path || !call->fields.type))
        return kg_error_set(err, KG_INVALID, 0, "Missing field in JSON data: %s",
                            call->fields.path ? "type" : "path");
    return 0;
}

static struct session_call *
call_new(struct notebook *notebook, struct http_request *request, bool is_new)
{
    struct kg_error err = {0};
    struct session_call *call = KG_NEW(struct session_call);
    call->notebook = notebook;
    call->request = request;
    if (read_body(call, is_new, &err) == 0)
        return call;
    call_fail(call, &err);
    return NULL;
}

// ---- Starting a kernel ----------------------------------------------------------------------

// Starts the kernel that the body names, or answers with an error. An unknown kernel is answered
// with 501, so that clients ask the user for another one.
static void
start_kernel(struct session_call *call, const char *id, kernel_started_fn fn)
{
    const struct face_context *face = call->notebook->face;
    const char *name = call->kernel_name;
    struct kg_error err = {0};
    struct kernel_wish wish = {.id = id, .spec = face->default_spec};
    if (name && *name)
        wish.spec = kernelspecs_find(face->specs, name, &err);
    if (!wish.spec) {
        call_fail_as(call, 501, &err);
        return;
    }
    call->start =
        kernel_start_new(call->notebook, http_request_owner(call->request), &wish, fn, call, &err);
    if (call->start)
        http_request_own(call->request, call, call_free);
    else
        call_fail(call, &err);
}

// What follows cannot be cancelled.
static void
take_started(struct session_call *call)
{
    http_request_disown(call->request);
    call->start = NULL;
    call->is_started = true;
}

// ---- List, create ---------------------------------------------------------------------------

void
handle_notebook_session_list(struct http_request *request, void *arg)
{
    struct notebook *notebook = arg;
    json_t *models = json_array();
    const struct session_record *record;
    session_records_prune(notebook);
    TAILQ_FOREACH(record, &notebook->records, link) {
        if (strcmp(record->owner, http_request_owner(request)) == 0)
            json_array_append_new(models, session_record_model(notebook, record));
    }
    reply_list(request, models);
}

static void
reply_created(struct session_call *call, const struct session_record *record)
{
    KG_AUTO_FREE char *location = kg_asprintf("/api/sessions/%s", record->id);
    http_reply_header(call->request, "Location", location);
    http_reply_json(call->request, 201, session_record_model(call->notebook, record));
    call_free(call);
}

// With the kernel of that id, which may be a further one of `kernel`.
static void
create(struct session_call *call, struct session *kernel, const char *id)
{
    struct kg_error err = {0};
    const char *owner = http_request_owner(call->request);
    if (session_records_check_room(call->notebook, owner, &err) < 0) {
        if (call->is_started && !call->kernel_id) // no other client knows the kernel
            session_end(kernel, "there is no room for its notebook's session", NULL, NULL);
        call_fail(call, &err);
        return;
    }
    reply_created(call, session_record_add(call->notebook, owner, id, &call->fields));
}

static void
create_on_started(struct session *kernel, const struct kg_error *err, void *arg)
{
    struct session_call *call = arg;
    const char *owner = http_request_owner(call->request);
    take_started(call);
    if (!kernel) {
        call_fail(call, err);
        return;
    }
    // Another request for the same path came first, perhaps with the same kernel.
    const struct session_record *record =
        session_record_of_path(call->notebook, owner, call->fields.path);
    const struct session *earlier = record ? session_record_kernel(call->notebook, record) : NULL;
    if (earlier) {
        if (earlier != kernel && !call->kernel_id) // the new one is a main kernel
            session_end(kernel, "its notebook has another kernel", NULL, NULL);
        reply_created(call, record);
        return;
    }
    create(call, kernel, session_id(kernel));
}

void
notebook_session_ask(struct http_request *request, struct http_concern *ret, char **ret_name,
                     void *arg)
{
    struct kg_error err = {0};
    json_auto_t *body = http_request_json(request, &err);
    const char *id = json_string_value(json_object_get(json_object_get(body, "kernel"), "id"));
    (void)arg;
    ret->kind = HTTP_CONCERNS_SESSION;
    *ret_name = id ? kg_strndup(id, KERNEL_ID_LEN) : NULL; // which begins with the session's
}

void
handle_notebook_session_create(struct http_request *request, void *arg)
{
    struct notebook *notebook = arg;
    struct kg_error err = {0};
    struct session_call *call = call_new(notebook, request, true);
    if (!call)
        return;
    const char *owner = http_request_owner(request);
    session_records_prune(notebook);
    const struct session_record *record =
        session_record_of_path(notebook, owner, call->fields.path);
    struct session *kernel =
        call->kernel_id ? kernel_find(notebook, owner, call->kernel_id, NULL) : NULL;
    if (record)
        reply_created(call, record);
    else if (kernel && kernel_named(kernel, call->kernel_id))
        create(call, kernel, call->kernel_id);
    else if (session_records_check_room(notebook, owner, &err) < 0)
        call_fail(call, &err);
    else
        start_kernel(
            call, call->kernel_id && kernel_id_is_valid(call->kernel_id) ? call->kernel_id : NULL,
            create_on_started);
}

// ---- One ------------------------------------------------------------------------------------

static struct session_record *
notebook_sessions_find(const struct notebook *notebook, struct http_request *request,
                       const char *id, struct kg_error *err)
{
    struct session_record *record = session_record_find(notebook, http_request_owner(request), id);
    if (!record)
        kg_error_set(err, KG_NOT_FOUND, 0, "Session not found: session_id=%s", id);
    return record;
}

// The session in the request's path, and its kernel. Returns NULL if the request was answered.
static struct session_record *
record_of_request(struct notebook *notebook, struct http_request *request)
{
    struct kg_error err = {0};
    session_records_prune(notebook);
    struct session_record *record =
        notebook_sessions_find(notebook, request, http_request_param(request, "id"), &err);
    if (!record)
        reply_failure(request, &err);
    return record;
}

void
handle_notebook_session_show(struct http_request *request, void *arg)
{
    const struct session_record *record = record_of_request(arg, request);
    if (record)
        http_reply_json(request, 200, session_record_model(arg, record));
}

void
handle_notebook_session_delete(struct http_request *request, void *arg)
{
    struct notebook *notebook = arg;
    struct kg_error err = {0};
    struct session_record *record =
        notebook_sessions_find(notebook, request, http_request_param(request, "id"), &err);
    if (!record) {
        reply_failure(request, &err);
        return;
    }
    struct session *kernel = session_record_kernel(notebook, record);
    bool is_shared = session_record_shares_kernel(notebook, record);
    KG_AUTO_FREE char *id = kg_strdup(record->kernel_id);
    session_record_remove(notebook, record);
    if (kernel && is_shared) {
        reply_no_content(request);
    } else if (kernel) {
        kernel_shut_down(kernel, id, "its notebook's session was deleted", reply_no_content,
                         request);
    } else {
        kg_error_set(&err, KG_NOT_FOUND, 0, "Kernel deleted before session");
        reply_failure_as(request, 410, &err);
    }
}

// ---- Change ---------------------------------------------------------------------------------

static void
reply_changed(void *arg)
{
    struct session_call *call = arg;
    struct kg_error err = {0};
    const struct session_record *record =
        notebook_sessions_find(call->notebook, call->request, call->record_id, &err);
    if (!record) {
        call_fail(call, &err);
        return;
    }
    http_reply_json(call->request, 200, session_record_model(call->notebook, record));
    call_free(call);
}

// Ends the earlier kernel if the session gets another one, unless another session uses it, too.
// `id` is that of the new one, or NULL.
static void
change(struct session_call *call, struct session *kernel, const char *id)
{
    struct notebook *notebook = call->notebook;
    struct kg_error err = {0};
    struct session_record *record =
        notebook_sessions_find(notebook, call->request, call->record_id, &err);
    if (!record) {
        if (call->is_started) // the kernel was started only for this session
            session_end(kernel, "its notebook's session was deleted", NULL, NULL);
        call_fail(call, &err);
        return;
    }
    struct session *earlier = session_record_kernel(notebook, record);
    bool is_another = id && strcmp(record->kernel_id, id) != 0;
    bool is_shared = session_record_shares_kernel(notebook, record);
    // The session of a further kernel does not end because a notebook changes to that.
    bool stays = is_another && strncmp(record->kernel_id, id, KERNEL_ID_LEN) == 0 &&
                 strlen(record->kernel_id) == KERNEL_ID_LEN;
    KG_AUTO_FREE char *earlier_id = kg_strdup(record->kernel_id);
    session_record_change(notebook, record, id, &call->fields);
    if (is_another && earlier && !is_shared && !stays)
        kernel_shut_down(earlier, earlier_id, "its notebook has another kernel", reply_changed,
                         call);
    else
        reply_changed(call);
}

static void
change_on_started(struct session *kernel, const struct kg_error *err, void *arg)
{
    struct session_call *call = arg;
    take_started(call);
    if (kernel)
        change(call, kernel, session_id(kernel));
    else
        call_fail_as(call, 501, err);
}

void
handle_notebook_session_change(struct http_request *request, void *arg)
{
    struct notebook *notebook = arg;
    struct kg_error err = {0};
    const struct session_record *record = record_of_request(notebook, request);
    struct session_call *call = record ? call_new(notebook, request, false) : NULL;
    if (!call)
        return;
    snprintf(call->record_id, sizeof call->record_id, "%s", record->id);
    if (call->kernel_id) {
        struct session *kernel =
            kernel_find(notebook, http_request_owner(request), call->kernel_id, NULL);
        if (kernel) {
            change(call, kernel, call->kernel_id);
            return;
        }
        kg_error_set(&err, KG_INVALID, 0, "No such kernel: %s", call->kernel_id);
        call_fail(call, &err);
    } else if (call->kernel_name) {
        start_kernel(call, NULL, change_on_started);
    } else {
        change(call, NULL, NULL);
    }
}
