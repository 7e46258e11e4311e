// SPDX-License-Identifier: Apache-2.0
// The agent's end of the calls: conversations are the links, requests the calls on them.
#include "request.h"

#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

enum { CONVERSATIONS_MAX = 192 };

struct conversation {
    LIST_ENTRY(conversation) link;
    struct server *server;
    struct wire *wire;
    loop_fn on_end;
    void *arg;
    struct request *request; // NULL: between two calls
    json_int_t body_left;    // of the last request, whether it is still wanted or not
};

struct request {
    struct conversation *conversation; // NULL: the caller has left
    json_t *message;
    json_t *params;
    json_int_t body_len;
    request_body_fn on_body;
    void *on_body_arg;
    loop_fn on_gone;
    void *on_gone_arg;
    loop_fn on_room;
    void *on_room_arg;
};

struct server {
    struct loop *loop;
    const struct method *methods;
    void *arg;
    LIST_HEAD(, conversation) conversations;
    int n;
};

// ---- Answers --------------------------------------------------------------------------------

static void
request_free(struct request *request)
{
    if (request->conversation)
        request->conversation->request = NULL;
    json_decref(request->message);
    free(request);
}

static void
send_json(struct wire *wire, enum frame_kind kind, const json_t *value)
{
    KG_AUTO_FREE char *text = json_dumps(value, JSON_COMPACT);
    wire_send(wire, kind, text, strlen(text));
}

static void
send_error(struct wire *wire, const struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    (void)utf8_append(&text, err->message, strlen(err->message), true);
    json_auto_t *error = json_pack("{s:s, s:s}", "code", kg_code_info(err->code)->name, "error",
                                   text.data ? text.data : "");
    send_json(wire, FRAME_ERROR, error);
}

void
request_reply(struct request *request, json_t *result)
{
    KG_AUTO_FREE char *text = result ? json_dumps(result, JSON_COMPACT) : NULL;
    struct kg_error err;

    json_decref(result);
    if (!text || strlen(text) > FRAME_RESULT_MAX) {
        (void)kg_error_set(&err, KG_INTERNAL, 0, "the result cannot be sent");
        request_fail(request, &err);
        return;
    }
    if (request->conversation)
        wire_send(request->conversation->wire, FRAME_RESULT, text, strlen(text));
    request_free(request);
}

void
request_fail(struct request *request, const struct kg_error *err)
{
    if (request->conversation)
        send_error(request->conversation->wire, err);
    request_free(request);
}

void
request_end(struct request *request, json_t *result, const struct kg_error *err)
{
    if (result)
        request_reply(request, result);
    else
        request_fail(request, err);
}

void
request_begin(struct request *request, json_t *head)
{
    if (request->conversation)
        send_json(request->conversation->wire, FRAME_HEAD, head);
    json_decref(head);
}

void
request_send2(struct request *request, const void *data, size_t len, const void *more,
              size_t more_len)
{
    if (request->conversation)
        wire_send2(request->conversation->wire, FRAME_DATA, data, len, more, more_len);
}

void
request_send(struct request *request, const void *data, size_t len)
{
    request_send2(request, data, len, NULL, 0);
}

size_t
request_backlog(const struct request *request)
{
    return request->conversation ? wire_backlog(request->conversation->wire) : 0;
}

void
request_on_room(struct request *request, loop_fn fn, void *arg)
{
    request->on_room = fn;
    request->on_room_arg = arg;
}

void
request_want_room(struct request *request)
{
    if (request->conversation)
        wire_want(request->conversation->wire);
}

// ---- What was asked -------------------------------------------------------------------------

json_t *
request_params(const struct request *request)
{
    return request->params;
}

int64_t
request_body_len(const struct request *request)
{
    return request->body_len;
}

void
request_on_body(struct request *request, request_body_fn fn, void *arg)
{
    request->on_body = fn;
    request->on_body_arg = arg;
}

void
request_on_gone(struct request *request, loop_fn fn, void *arg)
{
    request->on_gone = fn;
    request->on_gone_arg = arg;
}

// ---- Conversations --------------------------------------------------------------------------

void
server_drop(struct conversation *conversation)
{
    if (!conversation)
        return;

    struct request *request = conversation->request;
    LIST_REMOVE(conversation, link);
    conversation->server->n--;
    if (request)
        request->conversation = NULL;
    if (request && request->on_gone)
        request->on_gone(request->on_gone_arg);
    wire_free(conversation->wire);
    free(conversation);
}

static void
conversation_close(struct conversation *conversation)
{
    loop_fn on_end = conversation->on_end;
    void *arg = conversation->arg;

    server_drop(conversation);
    on_end(arg);
}

static const struct method *
find_method(const struct server *server, const char *name)
{
    const struct method *method = server->methods;

    while (method->name && strcmp(method->name, name) != 0)
        method++;
    return method->name ? method : NULL;
}

// Fills `request`; `conversation->body_left` is set as far as the message says so.
static const struct method *
parse(struct conversation *conversation, struct request *request, const struct frame *frame,
      struct kg_error *err)
{
    const char *name;

    request->message = json_loadb(frame->data, frame->len, JSON_REJECT_DUPLICATES, NULL);
    if (json_unpack(request->message, "{s:s, s:o, s?I !}", "method", &name, "params",
                    &request->params, "body", &request->body_len) != 0 ||
        !json_is_object(request->params) || request->body_len < 0) {
        (void)kg_error_set(err, KG_INVALID, 0, "malformed request");
        return NULL;
    }
    conversation->body_left = request->body_len;
    const struct method *method = find_method(conversation->server, name);
    if (!method)
        (void)kg_error_set(err, KG_INVALID, 0, "unknown method %.60s", name);
    else if (request->body_len > 0 && !method->takes_body)
        (void)kg_error_set(err, KG_INVALID, 0, "%s takes no body", name);
    else
        return method;
    return NULL;
}

static void
take_request(struct conversation *conversation, const struct frame *frame)
{
    struct request *request = KG_NEW(struct request);
    struct kg_error err = {0};

    request->conversation = conversation;
    conversation->request = request;
    const struct method *method = parse(conversation, request, frame, &err);
    if (method)
        method->fn(request, conversation->server->arg);
    else
        request_fail(request, &err);
}

static void
take_body(struct conversation *conversation, const struct frame *frame)
{
    struct request *request = conversation->request;

    conversation->body_left -= (json_int_t)frame->len;
    if (request && request->on_body)
        request->on_body(request, frame->data, frame->len, request->on_body_arg);
}

static void
on_frame(const struct frame *frame, void *arg)
{
    struct conversation *conversation = arg;
    bool is_request = frame->kind == FRAME_REQUEST;

    if (is_request && !conversation->request && conversation->body_left == 0)
        take_request(conversation, frame);
    else if (!is_request && frame->len > 0 && (json_int_t)frame->len <= conversation->body_left)
        take_body(conversation, frame);
    else
        conversation_close(conversation);
}

static void
on_end(const struct kg_error *err, void *arg)
{
    (void)err;
    conversation_close(arg);
}

static void
on_room(void *arg)
{
    const struct conversation *conversation = arg;
    const struct request *request = conversation->request;

    if (request && request->on_room)
        request->on_room(request->on_room_arg);
}

struct conversation *
server_take(struct server *server, int fd, loop_fn on_end_fn, void *arg)
{
    static const struct wire_events events = {on_frame, on_end, on_room};
    struct kg_error err;

    struct conversation *conversation = KG_NEW(struct conversation);
    conversation->server = server;
    conversation->on_end = on_end_fn;
    conversation->arg = arg;
    conversation->wire = wire_new(server->loop, fd, RPC_AGENT, &events, conversation);
    LIST_INSERT_HEAD(&server->conversations, conversation, link);
    server->n++;
    if (server->n <= CONVERSATIONS_MAX)
        return conversation;
    (void)kg_error_set(&err, KG_SESSION_BUSY, 0, "the sandbox has too many calls under way");
    send_error(conversation->wire, &err);
    server_drop(conversation);
    return NULL;
}

struct server *
server_new(struct loop *loop, const struct method *methods, void *arg)
{
    struct server *server = KG_NEW(struct server);

    server->loop = loop;
    server->methods = methods;
    server->arg = arg;
    LIST_INIT(&server->conversations);
    return server;
}

void
server_free(struct server *server)
{
    struct conversation *conversation;

    if (!server)
        return;
    while ((conversation = LIST_FIRST(&server->conversations)))
        server_drop(conversation);
    free(server);
}
