// SPDX-License-Identifier: Apache-2.0
// POST execute: from the body to a running execution, whose lines are the answer.

#include <string.h>

#include "api_priv.h"
#include "session.h"
#include "sessions.h"

// What becomes of a body. A worker owns it while it runs, and reads only immutable fields of
// `context`.
struct execute_input {
    const struct api_context *context;
    struct http_body *text;
    json_t *root; // what `body` borrows from
    struct execute_body body;
    char *variables; // JSON text: as values they take many times as much while they wait
    char *env;
    struct kg_error err; // where there is no root
    struct pending *pending;
};

// A request whose body is read, and then its session opened.
struct pending {
    struct http_request *request;
    struct api_context *context;
    struct execute_input *input;
    struct loop_work *reading;
    struct session_open *open;
    execute_started_fn on_started;
};

static void
input_free(void *arg)
{
    struct execute_input *input = arg;
    if (!input)
        return;
    http_body_free(input->text);
    json_decref(input->root);
    free(input->variables);
    free(input->env);
    free(input);
}

static void
pending_free(struct pending *pending)
{
    if (!pending)
        return;
    input_free(pending->input);
    free(pending);
}
KG_DEFINE_AUTO(pending, pending_free)

static void
on_client_gone(void *arg)
{
    KG_AUTO(pending) pending = arg;
    struct http_request *request = pending->request;
    if (pending->reading) {
        pending->input = NULL; // the worker's, and freed when it is done
        loop_work_cancel(pending->reading, input_free);
    } else {
        session_open_cancel(pending->open);
    }
    http_request_abandon(request);
}

// ---- The body -------------------------------------------------------------------------------

// Moves an object out of the body, as its client wrote it; NULL where there is nothing in it.
static char *
take_as_text(struct execute_input *input, const char *body, size_t body_len, const char *name)
{
    size_t len;
    const char *text = json_member(body, body_len, name, &len);
    const json_t *value = json_object_get(input->root, name);
    char *taken = NULL;
    if (json_object_size(value) > 0) // a name may be written with escapes
        taken = text ? json_ascii(text, len) : json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_object_del(input->root, name);
    return taken;
}

// On a worker where the body is large. What is left of the values is small.
static void
input_read(void *arg)
{
    struct execute_input *input = arg;
    size_t len;
    KG_AUTO_FREE char *text = http_body_text(KG_STEAL(input->text), &len);
    input->root = http_json_parse(text, len, &input->err);
    if (!input->root)
        return;
    if (execute_body_parse(input->context, input->root, &input->body, &input->err) < 0) {
        json_decref(KG_STEAL(input->root));
        return;
    }
    input->variables = take_as_text(input, text, len, "variables");
    input->env = take_as_text(input, text, len, "env");
    input->body.variables = input->body.env = NULL;
}

// ---- The session ----------------------------------------------------------------------------

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
    const struct execute_input *input = pending->input;
    const struct execute_body *body = &input->body;
    const struct session_code code = {
        .code = body->code,
        .variables = input->variables,
        .env = input->env,
        .timeout_ms = body->timeout_ms,
        .keep_running = body->keep_running,
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
open_session(struct pending *taken)
{
    KG_AUTO(pending) pending = taken;
    const struct execute_input *input = pending->input;
    struct http_request *request = pending->request;
    struct kg_error err = input->err;
    http_request_body_done(request);
    const struct session_request session_request = {
        .owner = http_request_owner(request),
        .session_id = input->body.session_id,
        .kernelspec = input->body.spec,
        .one_shot = !input->body.session_id,
    };
    if (input->root)
        pending->open = session_open_start(pending->context->sessions, &session_request, on_session,
                                           pending, &err);
    if (!pending->open) {
        http_reply_error(request, &err);
        return;
    }
    http_request_on_gone(request, on_client_gone, pending);
    KG_STEAL(pending);
}

static void
on_input_read(void *arg)
{
    struct execute_input *input = arg;
    struct pending *pending = input->pending;
    pending->reading = NULL;
    http_request_on_gone(pending->request, NULL, NULL);
    open_session(pending);
}

void
execute_start(struct http_request *request, struct api_context *context,
              execute_started_fn on_started)
{
    struct pending *pending = KG_NEW(struct pending);
    pending->request = request;
    pending->context = context;
    pending->on_started = on_started;
    pending->input = KG_NEW(struct execute_input);
    pending->input->context = context;
    pending->input->pending = pending;
    pending->input->text = http_request_take_body(request);
    if (http_body_len(pending->input->text) <= HTTP_JSON_INLINE_MAX) {
        input_read(pending->input);
        open_session(pending);
        return;
    }
    pending->reading = loop_work_start(context->loop, loop_lane_of(http_request_owner(request)),
                                       input_read, on_input_read, pending->input);
    http_request_on_gone(request, on_client_gone, pending);
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
