// SPDX-License-Identifier: Apache-2.0
// The endless call `events` of a sandbox's agent, which reports kernels that have ended, how much
// memory the sandbox uses, and what code in it asks for.
#include "agent_reply.h"
#include "sandbox_priv.h"

enum { OPEN_TIMEOUT_MS = 10 * 1000, RETRY_MIN_MS = 50, RETRY_MAX_MS = 1000 };

struct event_stream {
    struct sandbox *sandbox;
    struct sandbox_call *call; // NULL: waits for `retry`
    struct loop_timer *retry;
    int64_t retry_ms;
    struct sandbox_call *refusal; // of a request, under way; or NULL
};

static void
retry_later(struct event_stream *stream)
{
    loop_timer_start(stream->retry, stream->retry_ms);
    stream->retry_ms = stream->retry_ms * 2 < RETRY_MAX_MS ? stream->retry_ms * 2 : RETRY_MAX_MS;
}

static void
stream_on_malformed(struct event_stream *stream, const struct kg_error *err)
{
    log_warning("an agent sent a malformed event", LOG_STR("sandbox", stream->sandbox->id),
                LOG_ERR(err));
    sandbox_call_cancel(KG_STEAL(stream->call));
    retry_later(stream);
}

// ---- Requests of code -----------------------------------------------------------------------

static void
stream_on_refused(const json_t *result, const struct kg_error *err, void *arg)
{
    struct event_stream *stream = arg;
    (void)result;
    (void)err;
    stream->refusal = NULL;
}

// Nobody answers requests of this sandbox. Where one is being refused already, its successor waits
// for its deadline.
static bool
stream_refuse(struct event_stream *stream, int64_t id)
{
    struct kg_error err;
    json_auto_t *lines =
        json_pack("[{s:s, s:s, s:s}]", "type", "error", "message", "no session has this sandbox",
                  "code", kg_code_info(KG_INVALID)->name);
    if (!stream->refusal)
        stream->refusal =
            sandbox_answer(stream->sandbox, id, lines, true, stream_on_refused, stream, &err);
    return true;
}

static void
stream_take_request(struct event_stream *stream, const struct agent_event *event)
{
    struct sandbox *sandbox = stream->sandbox;
    const struct sandbox_request request = {.id = event->request_id,
                                            .method = event->params ? event->method : NULL,
                                            .params = event->params};
    struct kg_error err;
    bool taken = sandbox->events.on_request
                     ? sandbox->events.on_request(sandbox, &request, sandbox->arg)
                     : stream_refuse(stream, request.id);
    if (taken)
        return;
    (void)kg_error_set(&err, KG_INTERNAL, 0, "an agent passes on too many requests");
    stream_on_malformed(stream, &err);
}

// ---- The stream -----------------------------------------------------------------------------

// After a malformed event the stream is opened again. The callback may free the sandbox.
static void
stream_on_data(const void *data, size_t len, void *arg)
{
    struct event_stream *stream = arg;
    struct sandbox *sandbox = stream->sandbox;
    struct agent_event event;
    struct kg_error err = {0};

    if (agent_event_parse(data, len, &event, &err) != 0) {
        stream_on_malformed(stream, &err);
        return;
    }
    json_auto_t *params = event.params;
    stream->retry_ms = RETRY_MIN_MS;
    if (event.type == AGENT_REQUEST || event.type == AGENT_REQUEST_END) {
        stream_take_request(stream, &event);
        return;
    }
    if (event.type == AGENT_MEMORY) {
        sandbox->memory_bytes = event.memory_bytes;
        return;
    }
    if (event.type == AGENT_KERNEL_MEMORY) {
        if (sandbox->events.on_kernel_memory)
            sandbox->events.on_kernel_memory(sandbox, event.kernel, event.memory_bytes,
                                             sandbox->arg);
        return;
    }
    if (event.type == AGENT_COMMANDS) {
        sandbox->activity = (struct sandbox_activity){.n_running = event.n_commands,
                                                      .n_terminals = event.n_terminals,
                                                      .working = event.working};
        return;
    }
    if (sandbox->events.on_kernel_exit)
        sandbox->events.on_kernel_exit(sandbox, event.kernel, event.pid, event.exit_code,
                                       event.signal, event.oom, sandbox->arg);
}

static void
stream_on_end(const json_t *result, const struct kg_error *err, void *arg)
{
    struct event_stream *stream = arg;
    (void)result;
    (void)err;

    stream->call = NULL;
    stream->sandbox->memory_bytes = -1;
    retry_later(stream);
}

static void
open_stream(void *arg)
{
    static const struct sandbox_stream_events events = {.on_data = stream_on_data,
                                                        .on_end = stream_on_end};
    json_auto_t *params =
        json_pack("{s:b, s:b, s:b, s:b}", "memory", 1, "commands", 1, "kernels", 1, "requests", 1);
    const struct sandbox_stream_spec spec = {
        .method = "events", .params = params, .head_timeout_ms = OPEN_TIMEOUT_MS};
    struct event_stream *stream = arg;
    struct kg_error err;

    stream->call = sandbox_agent_stream(stream->sandbox, &spec, &events, stream, &err);
    if (!stream->call)
        retry_later(stream);
}

struct event_stream *
event_stream_new(struct sandbox *sandbox)
{
    struct event_stream *stream = KG_NEW(struct event_stream);

    stream->sandbox = sandbox;
    stream->retry_ms = RETRY_MIN_MS;
    stream->retry = loop_timer_new(sandbox->context.loop, open_stream, stream);
    open_stream(stream);
    return stream;
}

void
event_stream_free(struct event_stream *stream)
{
    if (!stream)
        return;
    sandbox_call_cancel(stream->call);
    sandbox_call_cancel(stream->refusal);
    loop_timer_free(stream->retry);
    free(stream);
}
