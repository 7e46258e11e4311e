// SPDX-License-Identifier: Apache-2.0
// Calls of the agent's methods, over links that speak the protocol of rpc.h. Every callback is the
// last thing that its function does: it may free the call, and its sandbox.
#include <assert.h>
#include <string.h>

#include "agent_reply.h"
#include "call.h"
#include "sandbox_priv.h"

// Has either `fn` or `events`, whose on_end is then set.
struct agent_call {
    struct wire *wire; // NULL: there is no link yet
    char *request;
    struct sandbox_body body;
    size_t body_sent;
    int64_t head_ms;
    int64_t silence_ms;
    bool begun; // the head has come
    bool paused;
    sandbox_agent_fn fn;
    struct sandbox_stream_events events;
};

void
agent_call_free(struct agent_call *agent)
{
    if (!agent)
        return;
    wire_free(agent->wire);
    free(agent->request);
    free(agent);
}

// ---- Links that are used again --------------------------------------------------------------

static void
drop_idle(struct sandbox *sandbox)
{
    wire_free(KG_STEAL(sandbox->idle_wire));
}

static void
on_idle_frame(const struct frame *frame, void *arg)
{
    (void)frame; // which nobody has asked for
    drop_idle(arg);
}

static void
on_idle_end(const struct kg_error *err, void *arg)
{
    (void)err;
    drop_idle(arg);
}

// The call on it is complete: the next one saves the agent a link.
static void
keep_wire(struct sandbox *sandbox, struct wire *wire)
{
    static const struct wire_events events = {.on_frame = on_idle_frame, .on_end = on_idle_end};

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
end(struct sandbox_call *call, const json_t *result, const struct kg_error *err)
{
    const struct agent_call *agent = call->agent;
    sandbox_agent_fn fn = agent->fn ? agent->fn : agent->events.on_end;
    void *arg = call->arg;

    sandbox_call_cancel(call);
    fn(result, err, arg);
}

void
agent_call_fail(struct sandbox_call *call, const struct kg_error *err)
{
    end(call, NULL, err);
}

// The agent has ended the call: its link can be used again, if it has taken the whole body.
static void
complete(struct sandbox_call *call, const json_t *result, const struct kg_error *err)
{
    struct agent_call *agent = call->agent;

    if (agent->body_sent == agent->body.len)
        keep_wire(call->sandbox, KG_STEAL(agent->wire));
    end(call, result, err);
}

// ---- What the agent says --------------------------------------------------------------------

static void
watch_for_silence(struct sandbox_call *call)
{
    const struct agent_call *agent = call->agent;

    if (agent->silence_ms > 0 && !agent->paused)
        loop_timer_start(call->timer, agent->silence_ms);
    else
        loop_timer_stop(call->timer);
}

static void
take_head(struct sandbox_call *call, const struct frame *frame)
{
    struct kg_error err = {0};
    json_auto_t *head = agent_object_parse(frame->data, frame->len, &err);

    if (!head) {
        end(call, NULL, &err);
        return;
    }
    call->agent->begun = true;
    watch_for_silence(call);
    if (call->agent->events.on_head)
        call->agent->events.on_head(head, call->arg);
}

static void
take_data(struct sandbox_call *call, const struct frame *frame)
{
    watch_for_silence(call);
    call->agent->events.on_data(frame->data, frame->len, call->arg);
}

static void
take_end(struct sandbox_call *call, const struct frame *frame)
{
    struct kg_error err = {0};
    json_auto_t *result = NULL;

    if (frame->kind == FRAME_RESULT)
        result = agent_object_parse(frame->data, frame->len, &err);
    else
        agent_error_parse(frame->data, frame->len, &err);
    complete(call, result, result ? NULL : &err);
}

static void
on_frame(const struct frame *frame, void *arg)
{
    struct sandbox_call *call = arg;
    const struct agent_call *agent = call->agent;
    bool needs_head = agent->events.on_head && !agent->begun;
    struct kg_error err;

    if (frame->kind == FRAME_ERROR || (frame->kind == FRAME_RESULT && !needs_head)) {
        take_end(call, frame);
    } else if (frame->kind == FRAME_HEAD && !agent->fn && !agent->begun) {
        take_head(call, frame);
    } else if (frame->kind == FRAME_DATA && agent->begun && agent->events.on_data) {
        take_data(call, frame);
    } else {
        (void)kg_error_set(&err, KG_INTERNAL, 0, "the agent answers out of turn");
        end(call, NULL, &err);
    }
}

static void
on_end(const struct kg_error *wire_err, void *arg)
{
    struct kg_error err;

    (void)kg_error_set(&err, wire_err ? KG_INTERNAL : KG_PROVISIONER_UNAVAILABLE, 0,
                       "the agent's connection failed: %s",
                       wire_err ? wire_err->message : "it has ended");
    end(arg, NULL, &err);
}

// ---- The request ----------------------------------------------------------------------------

// Sends the next part of the body, in a turn of the loop of its own.
static void
on_room(void *arg)
{
    static char scratch[FRAME_DATA_MAX];
    struct sandbox_call *call = arg;
    struct agent_call *agent = call->agent;
    const struct sandbox_body *body = &agent->body;
    size_t left = body->len - agent->body_sent;
    size_t len = left < sizeof scratch ? left : sizeof scratch;
    const char *part = scratch;

    if (body->data)
        part = (const char *)body->data + agent->body_sent;
    else
        body->read(scratch, len, body->arg);
    agent->body_sent += len;
    loop_timer_start(call->timer, agent->head_ms);
    wire_send(agent->wire, FRAME_DATA, part, len);
    if (agent->body_sent < body->len)
        wire_want(agent->wire);
}

static const struct wire_events wire_events = {on_frame, on_end, on_room};

static void
send_request(struct sandbox_call *call)
{
    struct agent_call *agent = call->agent;

    wire_send(agent->wire, FRAME_REQUEST, agent->request, strlen(agent->request));
    if (agent->body.len > 0)
        wire_want(agent->wire);
    if (agent->paused)
        wire_pause(agent->wire, true);
}

void
agent_call_on_link(struct sandbox_call *call, int fd)
{
    call->agent->wire = wire_new(call->sandbox->context.loop, fd, RPC_GATEWAY, &wire_events, call);
    loop_timer_start(call->timer, call->agent->head_ms);
    send_request(call);
}

// ---- Starting -------------------------------------------------------------------------------

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
    (void)kg_error_set(err, KG_INVALID, 0, "this is more than a sandbox's agent takes");
    return NULL;
}

static struct sandbox_call *
start(struct sandbox *sandbox, const struct sandbox_stream_spec *spec, sandbox_agent_fn fn,
      const struct sandbox_stream_events *events, void *arg, struct kg_error *err)
{
    KG_AUTO_FREE char *request = make_request(spec, err);
    if (!request)
        return NULL;
    struct sandbox_call *call = sandbox_call_new(sandbox, arg, err);
    if (!call)
        return NULL;
    struct agent_call *agent = KG_NEW(struct agent_call);
    call->agent = agent;
    agent->request = KG_STEAL(request);
    agent->body = spec->body;
    agent->head_ms = spec->head_timeout_ms;
    agent->silence_ms = spec->silence_timeout_ms;
    agent->fn = fn;
    if (events)
        agent->events = *events;
    struct wire *idle = KG_STEAL(sandbox->idle_wire);
    if (idle && wire_is_quiet(idle)) {
        agent->wire = idle;
        wire_set_events(idle, &wire_events, call);
        loop_timer_start(call->timer, spec->head_timeout_ms);
        send_request(call);
    } else {
        wire_free(idle);
        sandbox_call_open(call, RPC_TARGET, spec->head_timeout_ms);
    }
    return call;
}

struct sandbox_call *
sandbox_agent_call(struct sandbox *sandbox, const char *method, const json_t *params,
                   int64_t timeout_ms, sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    const struct sandbox_stream_spec spec = {
        .method = method, .params = params, .head_timeout_ms = timeout_ms};

    return start(sandbox, &spec, fn, NULL, arg, err);
}

struct sandbox_call *
sandbox_agent_stream(struct sandbox *sandbox, const struct sandbox_stream_spec *spec,
                     const struct sandbox_stream_events *events, void *arg, struct kg_error *err)
{
    assert(events->on_end);
    return start(sandbox, spec, NULL, events, arg, err);
}

void
sandbox_stream_pause(struct sandbox_call *call, bool paused)
{
    struct agent_call *agent = call->agent;

    agent->paused = paused;
    if (agent->wire)
        wire_pause(agent->wire, paused);
    if (agent->begun)
        watch_for_silence(call);
}
