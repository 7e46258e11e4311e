// SPDX-License-Identifier: Apache-2.0
// Calls of a sandbox's agent: opening a link, and calling a method over a link that speaks the
// protocol of rpc.h. Every callback is the last thing that its function does, since it may free the
// call and its sandbox.
#include <assert.h>
#include <string.h>

#include "agent_reply.h"
#include "link_line.h"
#include "rpc.h"
#include "sandbox_priv.h"

struct sandbox_call {
    TAILQ_ENTRY(sandbox_call) entry;
    struct sandbox *sandbox;
    struct door_call *opening; // the link that it waits for, or NULL
    struct loop_timer *timer;  // of the agent's answer
    void *arg;
    sandbox_link_fn link_fn; // sandbox_open_link(); NULL: it calls a method, as follows

    struct wire *wire; // NULL: there is no link yet
    char *request;
    struct sandbox_body body;
    size_t body_sent;
    int64_t head_ms;
    int64_t silence_ms;
    bool streamed; // the answer may have a head and data
    bool begun;    // the head has arrived
    bool paused;
    struct sandbox_stream_events events;
};

void
sandbox_call_cancel(struct sandbox_call *call)
{
    if (!call)
        return;
    TAILQ_REMOVE(&call->sandbox->calls, call, entry);
    door_call_cancel(call->opening);
    loop_timer_free(call->timer);
    wire_free(call->wire);
    free(call->request);
    free(call);
}

// ---- Links that are used again --------------------------------------------------------------

static void
drop_idle(struct sandbox *sandbox)
{
    wire_free(KG_STEAL(sandbox->idle_wire));
}

static void
idle_on_frame(const struct frame *frame, void *arg)
{
    (void)frame; // nobody has asked for it
    drop_idle(arg);
}

static void
idle_on_end(const struct kg_error *err, void *arg)
{
    (void)err;
    drop_idle(arg);
}

// The call on it is complete. Another call on the same link saves the agent a new one.
static void
keep_wire(struct sandbox *sandbox, struct wire *wire)
{
    static const struct wire_events events = {.on_frame = idle_on_frame, .on_end = idle_on_end};

    if (sandbox->idle_wire || !sandbox->door || !wire_is_quiet(wire)) {
        wire_free(wire);
        return;
    }
    wire_set_events(wire, &events, sandbox);
    wire_pause(wire, false);
    sandbox->idle_wire = wire;
}

// ---- The end --------------------------------------------------------------------------------

static void
call_end(struct sandbox_call *call, const json_t *result, const struct kg_error *err)
{
    sandbox_link_fn link_fn = call->link_fn;
    sandbox_agent_fn fn = call->events.on_end;
    void *arg = call->arg;

    sandbox_call_cancel(call);
    if (link_fn)
        link_fn(-1, err, arg);
    else
        fn(result, err, arg);
}

bool
sandbox_fail_call(struct sandbox *sandbox, const struct kg_error *reason)
{
    struct sandbox_call *call = TAILQ_FIRST(&sandbox->calls);

    if (!call)
        return false;
    call_end(call, NULL, reason);
    return true;
}

static void
call_on_timeout(void *arg)
{
    struct kg_error err;

    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                       "the sandbox's agent did not answer in time");
    call_end(arg, NULL, &err);
}

// ---- The answer -----------------------------------------------------------------------------

static void
watch_for_silence(struct sandbox_call *call)
{
    if (call->silence_ms > 0 && !call->paused)
        loop_timer_start(call->timer, call->silence_ms);
    else
        loop_timer_stop(call->timer);
}

static void
take_head(struct sandbox_call *call, const struct frame *frame)
{
    struct kg_error err = {0};
    json_auto_t *head = agent_object_parse(frame->data, frame->len, &err);

    if (!head) {
        call_end(call, NULL, &err);
        return;
    }
    call->begun = true;
    watch_for_silence(call);
    if (call->events.on_head)
        call->events.on_head(head, call->arg);
}

// The agent has ended the call: its link can be used again if it has taken the whole body.
static void
take_end(struct sandbox_call *call, const struct frame *frame)
{
    struct kg_error err = {0};
    json_auto_t *result = NULL;

    if (frame->kind == FRAME_RESULT)
        result = agent_object_parse(frame->data, frame->len, &err);
    else
        agent_error_parse(frame->data, frame->len, &err);
    if (call->body_sent == call->body.len)
        keep_wire(call->sandbox, KG_STEAL(call->wire));
    call_end(call, result, result ? NULL : &err);
}

static void
wire_on_frame(const struct frame *frame, void *arg)
{
    struct sandbox_call *call = arg;
    bool needs_head = call->events.on_head && !call->begun;
    struct kg_error err;

    if (frame->kind == FRAME_ERROR || (frame->kind == FRAME_RESULT && !needs_head)) {
        take_end(call, frame);
    } else if (frame->kind == FRAME_HEAD && call->streamed && !call->begun) {
        take_head(call, frame);
    } else if (frame->kind == FRAME_DATA && call->begun && call->events.on_data) {
        watch_for_silence(call);
        call->events.on_data(frame->data, frame->len, call->arg);
    } else {
        (void)kg_error_set(&err, KG_INTERNAL, 0, "the agent answers out of turn");
        call_end(call, NULL, &err);
    }
}

static void
wire_on_end(const struct kg_error *wire_err, void *arg)
{
    struct kg_error err;

    (void)kg_error_set(&err, wire_err ? KG_INTERNAL : KG_PROVISIONER_UNAVAILABLE, 0,
                       "the agent's connection failed: %s",
                       wire_err ? wire_err->message : "it has ended");
    call_end(arg, NULL, &err);
}

// ---- The request ----------------------------------------------------------------------------

// Sends the next part of the body, in a turn of the loop of its own.
static void
wire_on_room(void *arg)
{
    static char scratch[FRAME_DATA_MAX];
    struct sandbox_call *call = arg;
    const struct sandbox_body *body = &call->body;
    size_t left = body->len - call->body_sent;
    size_t len = left < sizeof scratch ? left : sizeof scratch;
    const char *part = scratch;

    if (body->data)
        part = (const char *)body->data + call->body_sent;
    else
        len = body->read(scratch, len, body->arg);
    if (len == 0) {
        loop_timer_stop(call->timer); // it is not the agent that is waited for
        return;
    }
    call->body_sent += len;
    loop_timer_start(call->timer, call->head_ms);
    wire_send(call->wire, FRAME_DATA, part, len);
    if (call->body_sent < body->len)
        wire_want(call->wire);
}

void
sandbox_body_is_ready(struct sandbox_call *call)
{
    if (!call->wire || call->body_sent == call->body.len)
        return;
    loop_timer_start(call->timer, call->head_ms);
    wire_want(call->wire);
}

static const struct wire_events wire_events = {wire_on_frame, wire_on_end, wire_on_room};

static void
send_request(struct sandbox_call *call, struct wire *wire)
{
    call->wire = wire;
    loop_timer_start(call->timer, call->head_ms);
    wire_send(wire, FRAME_REQUEST, call->request, strlen(call->request));
    if (call->body.len > 0)
        wire_want(wire);
    if (call->paused)
        wire_pause(wire, true);
}

// ---- The link -------------------------------------------------------------------------------

static void
on_refused(struct sandbox_call *call, const struct kg_error *err)
{
    struct kg_error why = *err;

    // An agent answers this to a target that it does not know.
    if (!call->link_fn && strcmp(err->message, "bad target") == 0)
        (void)kg_error_set(&why, KG_PROVISIONER_UNAVAILABLE, 0,
                           "the sandbox's agent is from another version of kernelgate, which "
                           "this one cannot call");
    call_end(call, NULL, &why);
}

static void
call_on_opened(int fd, const struct kg_error *err, void *arg)
{
    struct sandbox_call *call = arg;

    call->opening = NULL;
    if (fd < 0) {
        on_refused(call, err);
        return;
    }
    if (!call->link_fn) {
        send_request(call,
                     wire_new(call->sandbox->context.loop, fd, RPC_GATEWAY, &wire_events, call));
        return;
    }
    sandbox_link_fn fn = call->link_fn;
    void *fn_arg = call->arg;
    sandbox_call_cancel(call);
    fn(fd, NULL, fn_arg);
}

static void
open_link(struct sandbox_call *call, const char *target, int64_t timeout_ms)
{
    assert(timeout_ms > 0);
    call->opening = door_open(call->sandbox->door, target, timeout_ms, call_on_opened, call);
}

// ---- Starting -------------------------------------------------------------------------------

static struct sandbox_call *
call_new(struct sandbox *sandbox, void *arg, struct kg_error *err)
{
    if (!sandbox->door) {
        (void)kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox has ended");
        return NULL;
    }
    struct sandbox_call *call = KG_NEW(struct sandbox_call);
    call->sandbox = sandbox;
    call->timer = loop_timer_new(sandbox->context.loop, call_on_timeout, call);
    call->arg = arg;
    TAILQ_INSERT_TAIL(&sandbox->calls, call, entry);
    return call;
}

struct sandbox_call *
sandbox_open_link(struct sandbox *sandbox, const char *target, int64_t timeout_ms,
                  sandbox_link_fn fn, void *arg, struct kg_error *err)
{
    if (!link_target_valid(target)) {
        (void)kg_error_set(err, KG_INVALID, 0, "invalid link target");
        return NULL;
    }
    struct sandbox_call *call = call_new(sandbox, arg, err);
    if (!call)
        return NULL;
    call->link_fn = fn;
    open_link(call, target, timeout_ms);
    return call;
}

static char *
make_request(const struct sandbox_stream_spec *spec, struct kg_error *err)
{
    json_auto_t *params =
        spec->params ? json_incref((json_t *)(uintptr_t)spec->params) : json_object();
    json_auto_t *request = json_pack("{s:s, s:O, s:I}", "method", spec->method, "params", params,
                                     "body", (json_int_t)spec->body.len);
    KG_AUTO_FREE char *text = json_dumps(request, JSON_COMPACT);

    if (text && strlen(text) <= FRAME_REQUEST_MAX)
        return KG_STEAL(text);
    (void)kg_error_set(err, KG_INVALID, 0, "the request is larger than a sandbox's agent accepts");
    return NULL;
}

static struct sandbox_call *
call_method(struct sandbox *sandbox, const struct sandbox_stream_spec *spec,
            const struct sandbox_stream_events *events, bool streamed, void *arg,
            struct kg_error *err)
{
    KG_AUTO_FREE char *request = make_request(spec, err);
    if (!request)
        return NULL;
    struct sandbox_call *call = call_new(sandbox, arg, err);
    if (!call)
        return NULL;
    call->request = KG_STEAL(request);
    call->body = spec->body;
    call->head_ms = spec->head_timeout_ms;
    call->silence_ms = spec->silence_timeout_ms;
    call->streamed = streamed;
    call->events = *events;
    struct wire *idle = KG_STEAL(sandbox->idle_wire);
    if (idle && wire_is_quiet(idle)) {
        wire_set_events(idle, &wire_events, call);
        send_request(call, idle);
    } else {
        wire_free(idle);
        open_link(call, RPC_TARGET, spec->head_timeout_ms);
    }
    return call;
}

struct sandbox_call *
sandbox_agent_call(struct sandbox *sandbox, const char *method, const json_t *params,
                   int64_t timeout_ms, sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    const struct sandbox_stream_spec spec = {
        .method = method, .params = params, .head_timeout_ms = timeout_ms};
    const struct sandbox_stream_events events = {.on_end = fn};

    return call_method(sandbox, &spec, &events, false, arg, err);
}

struct sandbox_call *
sandbox_answer(struct sandbox *sandbox, int64_t id, const json_t *lines, bool last,
               sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    enum { ANSWER_MS = 10 * 1000 };
    json_auto_t *params = json_pack("{s:I, s:O, s:b}", "id", (json_int_t)id, "lines",
                                    (json_t *)(uintptr_t)lines, "last", (int)last);

    return sandbox_agent_call(sandbox, "tenant.answer", params, ANSWER_MS, fn, arg, err);
}

struct sandbox_call *
sandbox_agent_stream(struct sandbox *sandbox, const struct sandbox_stream_spec *spec,
                     const struct sandbox_stream_events *events, void *arg, struct kg_error *err)
{
    assert(events->on_end);
    return call_method(sandbox, spec, events, true, arg, err);
}

void
sandbox_stream_pause(struct sandbox_call *call, bool paused)
{
    call->paused = paused;
    if (call->wire)
        wire_pause(call->wire, paused);
    if (call->begun)
        watch_for_silence(call);
}
