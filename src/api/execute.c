// SPDX-License-Identifier: Apache-2.0
// POST execute: from the body to a running execution, whose lines are the answer.

#include <string.h>

#include "api_priv.h"

// A request whose session is being opened.
struct pending {
    struct http_request *request;
    struct api_context *context;
    json_t *root; // what `body` borrows from
    struct execute_body body;
    char *variables; // JSON text: as values they take many times as much while they wait
    char *env;
    struct session_open *open;
    execute_started_fn on_started;
};

static void
pending_free(struct pending *pending)
{
    if (!pending)
        return;
    json_decref(pending->root);
    free(pending->variables);
    free(pending->env);
    free(pending);
}
KG_DEFINE_AUTO(pending, pending_free)

static void
on_client_gone(void *arg)
{
    KG_AUTO(pending) pending = arg;
    session_open_cancel(pending->open);
    http_request_abandon(pending->request);
}

static void
on_session(struct session *session, struct kernel *kernel, const struct kg_error *open_err,
           void *arg)
{
    KG_AUTO(pending) pending = arg;
    struct http_request *request = pending->request;
    http_request_on_gone(request, NULL, NULL);
    if (open_err) {
        http_reply_error(request, open_err);
        return;
    }
    const struct execute_body *body = &pending->body;
    const struct execution_request execution_request = {
        .owner = http_request_owner(request),
        .session_id = session_id(session),
        .code = body->code,
        .variables = pending->variables,
        .env = pending->env,
        .timeout_ms = body->timeout_ms,
        .keep_running = body->keep_running,
        .session_ends = !body->session_id,
    };
    struct kg_error err = {0};
    KG_AUTO(execution) execution = kernel_execute(kernel, &execution_request, &err);
    if (!execution) {
        http_reply_error(request, &err);
        return;
    }
    session_touch(session);
    http_reply_header(request, "X-Session-Id", session_id(session));
    http_reply_header(request, "X-Execution-Id", execution_id(execution));
    pending->on_started(request, pending->context, execution);
}

// Moves an object out of the body, as its client wrote it; NULL where there is nothing in it.
static char *
take_as_text(struct pending *pending, const char *name)
{
    size_t body_len, len;
    const char *body = http_request_body(pending->request, &body_len);
    const char *text = json_member(body, body_len, name, &len);
    const json_t *value = json_object_get(pending->root, name);
    char *taken = NULL;
    if (json_object_size(value) > 0) // a name may be written with escapes
        taken = text ? json_ascii(text, len) : json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_object_del(pending->root, name);
    return taken;
}

void
execute_start(struct http_request *request, struct api_context *context,
              execute_started_fn on_started)
{
    struct kg_error err = {0};
    KG_AUTO(pending) pending = KG_NEW(struct pending);
    pending->request = request;
    pending->context = context;
    pending->on_started = on_started;
    pending->root = http_request_json(request, &err);
    if (!pending->root || execute_body_parse(context, pending->root, &pending->body, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    pending->variables = take_as_text(pending, "variables");
    pending->env = take_as_text(pending, "env");
    pending->body.variables = pending->body.env = NULL;
    const struct session_request session_request = {
        .owner = http_request_owner(request),
        .session_id = pending->body.session_id,
        .kernelspec = pending->body.spec,
        .one_shot = !pending->body.session_id,
    };
    pending->open =
        session_open_start(context->sessions, &session_request, on_session, pending, &err);
    if (!pending->open) {
        http_reply_error(request, &err);
        return;
    }
    http_request_on_gone(request, on_client_gone, pending);
    KG_STEAL(pending);
}

static void
start_stream(struct http_request *request, struct api_context *context, struct execution *execution)
{
    execution_stream_start(request, context, execution, 0);
}

void
handle_execute(struct http_request *request, void *arg)
{
    execute_start(request, arg, start_stream);
}
