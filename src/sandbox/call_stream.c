// SPDX-License-Identifier: Apache-2.0
// Calls of the agent whose answer is streamed. Every callback is the last thing that its function
// does: it may free the call, and its sandbox.
#include <string.h>

#include "agent_reply.h"
#include "call.h"
#include "sandbox_priv.h"

enum { ERROR_BODY_MAX = 64 << 10, BUFFER_BYTES = 128 << 10 };

struct call_stream {
    struct sandbox_stream_events events;
    int64_t silence_ms;
    char *content_type;
    bool begun; // a head with 2xx has come
    bool paused;
    struct buf error_body;
};

struct call_stream *
call_stream_new(const struct sandbox_stream_spec *spec, const struct sandbox_stream_events *events)
{
    struct call_stream *stream = KG_NEW(struct call_stream);

    stream->events = *events;
    stream->silence_ms = spec->silence_timeout_ms;
    if (spec->content_type)
        stream->content_type = kg_asprintf("Content-Type: %s", spec->content_type);
    return stream;
}

void
call_stream_free(struct call_stream *stream)
{
    if (!stream)
        return;
    free(stream->content_type);
    buf_fini(&stream->error_body);
    free(stream);
}

void
call_stream_end(struct sandbox_call *call, const struct kg_error *err)
{
    const struct sandbox_stream_events events = call->stream->events;
    void *arg = call->arg;

    sandbox_call_cancel(call);
    events.on_end(err, arg);
}

static void
watch_for_silence(struct sandbox_call *call)
{
    if (call->stream->silence_ms > 0 && !call->stream->paused)
        loop_timer_start(call->timer, call->stream->silence_ms);
    else
        loop_timer_stop(call->timer);
}

static bool
on_head(struct http_call *http_call, int status, void *arg)
{
    struct sandbox_call *call = arg;
    struct call_stream *stream = call->stream;
    (void)http_call;

    stream->begun = status >= 200 && status < 300;
    if (!stream->begun)
        return true;
    watch_for_silence(call);
    if (stream->events.on_head)
        stream->events.on_head(status, call->arg);
    return true;
}

static bool
on_data(int status, const void *data, size_t len, void *arg)
{
    struct sandbox_call *call = arg;
    struct call_stream *stream = call->stream;
    (void)status;

    if (!stream->begun) {
        if (len > ERROR_BODY_MAX - stream->error_body.len)
            return false;
        buf_append(&stream->error_body, data, len);
        return true;
    }
    watch_for_silence(call);
    stream->events.on_data(data, len, call->arg);
    return true;
}

static void
on_done(const struct http_call_result *result, void *arg)
{
    struct sandbox_call *call = arg;
    struct call_stream *stream = call->stream;
    struct kg_error err = {0};

    call->http_call = NULL;
    if (result->status == 0) {
        (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the agent's connection failed: %s",
                           result->err->message);
        call_stream_end(call, &err);
    } else if (!stream->begun) {
        json_auto_t *body = agent_reply_parse(
            result->status, stream->error_body.data ? stream->error_body.data : "",
            stream->error_body.len, &err);
        (void)body;
        call_stream_end(call, &err);
    } else {
        call_stream_end(call, NULL);
    }
}

void
call_stream_start(struct sandbox_call *call)
{
    const char *const headers[] = {call->stream->content_type, NULL};
    struct kg_error err = {0};
    const struct http_call_spec spec = {
        .method = call->method,
        .url = call->url,
        .fd = KG_STEAL_FD(call->fd),
        .headers = headers,
        .body = call->body,
        .body_len = call->body_len,
        .buffer_bytes = BUFFER_BYTES,
        .on_head = on_head,
    };

    call->http_call =
        http_call_start(call->sandbox->context.http, &spec, on_data, on_done, call, &err);
    if (!call->http_call)
        call_fail(call, &err);
    else if (call->stream->paused)
        http_call_pause(call->http_call, true);
}

const char *
sandbox_stream_header(struct sandbox_call *call, const char *name)
{
    return http_call_header(call->http_call, name);
}

void
sandbox_stream_pause(struct sandbox_call *call, bool paused)
{
    call->stream->paused = paused;
    if (call->http_call)
        http_call_pause(call->http_call, paused);
    if (call->stream->begun)
        watch_for_silence(call);
}
