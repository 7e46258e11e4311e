// SPDX-License-Identifier: Apache-2.0
// POST execute: reads the body, opens the session and starts the execution, whose lines are the
// answer.

#include <stdio.h>
#include <string.h>

#include "api_priv.h"
#include "session.h"
#include "session_kernels.h"
#include "session_savepoints.h"
#include "sessions.h"
#include "tool_list.h"

// A request whose body is being read, and whose session is opened then. While a worker reads the
// body, only the worker touches this; of `context` it uses immutable fields only.
struct pending {
    struct http_request *request;
    struct api_context *context;
    execute_started_fn on_started;
    json_t *root; // NULL: the body was refused with `err`
    struct kg_error err;
    struct execute_body body; // borrowed from `root`
    char *variables;          // JSON text, since values take many times as much memory
    char *env;                // the same
    struct tool_list *tools;  // or NULL
    struct session_open *open;
    struct session *session; // while its savepoint is made
    char kernel[KERNEL_MAX_NAME_LEN + 1];
    struct savepoint_call *making;
};

static void
pending_free(void *arg)
{
    struct pending *pending = arg;
    if (!pending)
        return;
    if (pending->open)
        session_open_cancel(pending->open);
    savepoint_call_cancel(pending->making);
    json_decref(pending->root);
    free(pending->variables);
    free(pending->env);
    tool_list_unref(pending->tools);
    free(pending);
}
KG_DEFINE_AUTO(pending, pending_free)

// ---- The body -------------------------------------------------------------------------------

// Removes an object from the body, and returns its text unchanged; NULL: it is missing or empty.
static char *
take_as_text(const json_t *root, const char *body, size_t body_len, const char *name)
{
    size_t len;
    const char *text = json_member(body, body_len, name, &len);
    const json_t *value = json_object_get(root, name);
    char *taken = NULL;
    if (json_object_size(value) > 0) // `text` is NULL if the member's name has escapes
        taken = text ? json_ascii(text, len) : json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_object_del((json_t *)(uintptr_t)root, name);
    return taken;
}

// On a worker if the body is large. The values that remain are small.
static void
execute_read_body(const char *text, size_t len, void *arg)
{
    struct pending *pending = arg;
    pending->root = http_json_parse(text, len, &pending->err);
    if (!pending->root)
        return;
    if (execute_body_parse(pending->context, pending->root, &pending->body, &pending->err) < 0) {
        json_decref(KG_STEAL(pending->root));
        return;
    }
    if (pending->body.tools) {
        pending->tools = tool_list_new(pending->body.tools, &pending->err);
        if (!pending->tools) {
            json_decref(KG_STEAL(pending->root));
            return;
        }
        json_object_del(pending->root, "tools");
        pending->body.tools = NULL;
    }
    pending->variables = take_as_text(pending->root, text, len, "variables");
    pending->env = take_as_text(pending->root, text, len, "env");
    pending->body.variables = pending->body.env = NULL;
}

// ---- The session ----------------------------------------------------------------------------

// Takes `waiting`. `savepoint` is the id of one that was made for this; or NULL.
static void
execute_run(struct pending *waiting, struct session *session, struct kernel *kernel,
            const char *savepoint)
{
    KG_AUTO(pending) pending = waiting;
    struct http_request *request = pending->request;
    http_request_disown(request); // its answer has a state of its own
    const struct session_code code = {
        .code = pending->body.code,
        .variables = pending->variables,
        .env = pending->env,
        .timeout_ms = pending->body.timeout_ms,
        .keep_running = pending->body.keep_running,
        .allow_stdin = pending->body.allow_stdin,
        .savepoint = savepoint,
        .tools = pending->tools,
    };
    struct kg_error err = {0};
    KG_AUTO(execution) execution = session_execute(session, kernel, &code, &err);
    if (!execution) {
        http_reply_error(request, &err);
        return;
    }
    http_reply_header(request, "X-Session-Id", session_id(session));
    http_reply_header(request, "X-Execution-Id", execution_id(execution));
    pending->on_started(request, pending->context, execution);
}

static void
execute_on_savepoint(const json_t *savepoint, const struct kg_error *make_err, void *arg)
{
    struct pending *pending = arg;
    struct kg_error err = make_err ? *make_err : (struct kg_error){0};
    struct kernel *kernel = NULL;
    pending->making = NULL;
    if (!make_err)
        kernel = session_kernel_find(pending->session, pending->kernel, &err);
    if (kernel)
        execute_run(pending, pending->session, kernel,
                    json_string_value(json_object_get(savepoint, "savepoint")));
    else
        http_reply_error(pending->request, &err);
}

static void
execute_on_session(struct session *session, struct kernel *kernel, const struct kg_error *open_err,
                   void *arg)
{
    struct pending *pending = arg;
    struct kg_error err = open_err ? *open_err : (struct kg_error){0};
    pending->open = NULL;
    if (!open_err && pending->body.branch)
        kernel = session_kernel_find(session, pending->body.branch, &err);
    if (err.code != KG_OK) {
        http_reply_error(pending->request, &err);
        return;
    }
    if (!pending->body.savepoint) {
        execute_run(pending, session, kernel, NULL);
        return;
    }
    pending->session = session;
    snprintf(pending->kernel, sizeof pending->kernel, "%s", kernel_name(kernel));
    pending->making =
        session_savepoint_make(session, kernel, NULL, false, execute_on_savepoint, pending, &err);
    if (!pending->making)
        http_reply_error(pending->request, &err);
}

static void
start_stream(struct http_request *request, struct api_context *context, struct execution *execution)
{
    execution_stream_start(request, context, execution, 0);
}

static void
execute_on_body(struct http_request *request, void *arg)
{
    struct pending *pending = arg;
    struct kg_error err = pending->err;
    const struct session_request session_request = {
        .owner = http_request_owner(request),
        .session_id = pending->body.session_id,
        .kernelspec = pending->body.spec,
        .one_shot = !pending->body.session_id,
    };
    http_request_own(request, pending, pending_free);
    if (pending->body.allow_stdin && pending->on_started != start_stream) {
        kg_error_set(&err, KG_INVALID, 0,
                     "allow_stdin: only /api/v1/execute can ask for input; this answer comes when "
                     "the code has ended");
        http_reply_error(request, &err);
        return;
    }
    if (!pending->body.session_id && (pending->body.savepoint || pending->body.branch)) {
        kg_error_set(&err, KG_INVALID, 0,
                     "%s needs a session_id: a session of its own ends with the request",
                     pending->body.savepoint ? "savepoint" : "branch");
        http_reply_error(request, &err);
        return;
    }
    if (pending->root && http_request_check_token(request, &err) == 0)
        pending->open = session_open_start(pending->context->face->sessions, &session_request,
                                           execute_on_session, pending, &err);
    if (!pending->open)
        http_reply_error(request, &err);
}

void
execute_start(struct http_request *request, struct api_context *context,
              execute_started_fn on_started)
{
    static const struct http_body_reader reader = {execute_read_body, execute_on_body,
                                                   pending_free};
    struct pending *pending = KG_NEW(struct pending);
    pending->request = request;
    pending->context = context;
    pending->on_started = on_started;
    http_request_read_body(request, &reader, pending);
}

void
handle_execute(struct http_request *request, void *arg)
{
    execute_start(request, arg, start_stream);
}
