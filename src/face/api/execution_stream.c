// SPDX-License-Identifier: Apache-2.0
// An execution's lines as an NDJSON answer: a subscriber of its log. If the client is slow, unread
// lines stay in the log, which is bounded; the execution never waits for the client.

#include "api_priv.h"
#include "pace.h"

// Shorter lines are sent together, up to this size; a longer line is sent from the log without a
// copy.
enum { BATCH_BYTES = 32 << 10 };

struct execution_stream {
    struct http_request *request;
    struct execution *execution; // the subscription's
    struct subscription *subscription;
    struct stream_watch *watch;
    struct http_pace *crowded; // looks while a long line is being sent
};

// If there is still a subscription, the client has left.
static void
stream_free(void *arg)
{
    struct execution_stream *stream = arg;
    if (stream->subscription)
        subscription_abandon(stream->subscription);
    stream_watch_free(stream->watch);
    http_pace_free(stream->crowded);
    free(stream);
}

static void
stream_end(struct execution_stream *stream)
{
    subscription_free(KG_STEAL(stream->subscription));
    http_stream_end(stream->request);
}

// Writes the lines of a batch, then a long line (or NULL).
static void
stream_write(struct execution_stream *stream, const struct buf *batch, const char *line, size_t len)
{
    if (batch->len > 0)
        http_stream_write(stream->request, batch->data, batch->len);
    if (!line)
        return;
    void *held = subscription_hold(stream->subscription);
    if (!held) {
        http_stream_write(stream->request, line, len + 1);
        return;
    }
    http_stream_write_shared(stream->request, line, len + 1, subscription_release, held);
    http_pace_start(stream->crowded);
}

// Adds the lines of calls of tools that wait still, those from and to these seq: their client may
// not have got them.
static void
append_waiting_calls(const struct execution_stream *stream, struct buf *batch, int64_t first_seq,
                     int64_t last_seq)
{
    json_auto_t *calls = execution_waiting_calls(stream->execution);
    size_t i;
    json_t *call;
    json_array_foreach(calls, i, call) {
        int64_t seq = json_integer_value(json_object_get(call, "seq"));
        if (seq < first_seq || seq > last_seq)
            continue;
        json_object_set_new(call, "type", json_string("tool_call"));
        KG_AUTO_FREE char *line = json_line(call, 0);
        buf_append_str(batch, line);
        buf_append_str(batch, "\n");
    }
}

// Gathers short lines up to the first long one, which it returns; NULL: there is none.
static const char *
gather(struct execution_stream *stream, struct buf *batch, size_t *ret_len)
{
    const char *line;
    int64_t first_seq, last_seq;
    batch->len = 0;
    while (batch->len < BATCH_BYTES && (line = subscription_next(stream->subscription, ret_len))) {
        if (*ret_len >= BATCH_BYTES)
            return line;
        buf_append(batch, line, *ret_len + 1); // with its newline
        if (subscription_has_lost(stream->subscription, &first_seq, &last_seq))
            append_waiting_calls(stream, batch, first_seq, last_seq);
    }
    return NULL;
}

static void
stream_pump(void *arg)
{
    struct execution_stream *stream = arg;
    KG_AUTO_BUF batch = {0};
    while (http_stream_backlog(stream->request) < STREAM_HIGH_WATERMARK) {
        size_t len;
        const char *line = gather(stream, &batch, &len);
        if (batch.len == 0 && !line)
            return;
        stream_write(stream, &batch, line, len);
        if (subscription_finished(stream->subscription)) {
            stream_end(stream);
            return;
        }
        stream_watch_start(stream->watch);
    }
}

// The lines of a finished execution are not kept for a client that does not read.
static bool
stream_waits_for_client(const void *arg)
{
    const struct execution_stream *stream = arg;
    return execution_state(stream->execution) == EXECUTION_DONE;
}

static void
stream_on_stalled(void *arg)
{
    struct execution_stream *stream = arg;
    subscription_free(KG_STEAL(stream->subscription));
    http_stream_abort(stream->request);
}

static bool
stream_is_crowded(const void *arg)
{
    const struct execution_stream *stream = arg;
    return subscription_is_crowded(stream->subscription);
}

// When memory is short, disconnects a client that is slow to read a long line; it can join again
// after the last line that it has. Long lines are only written after a short backlog.
static const struct http_pace_rule crowded_rule = {
    .tick_ms = HTTP_CROWDED_TICK_MS,
    .max_ticks = HTTP_CROWDED_TICKS,
    .min_bytes = HTTP_CROWDED_TICK_BYTES,
    .rests = true,
    .counts = stream_is_crowded,
    .on_slow = stream_on_stalled,
};

void
execution_stream_start(struct http_request *request, struct api_context *context,
                       struct execution *execution, int64_t after_seq)
{
    struct execution_stream *stream = KG_NEW(struct execution_stream);
    KG_AUTO_BUF again = {0};
    stream->request = request;
    stream->execution = execution;
    stream->watch = stream_watch_new(&(const struct stream_watch_settings){
        .loop = context->loop,
        .request = request,
        .tick_ms = STREAM_TICK_MS,
        .of_lines = true,
        .on_stalled = stream_on_stalled,
        .waits_for_client = stream_waits_for_client,
        .arg = stream,
    });
    stream->crowded = http_pace_new(context->loop, request, &crowded_rule, stream);
    stream->subscription = execution_subscribe(execution, after_seq, stream_pump, stream);
    http_request_own(request, stream, stream_free);
    http_stream_start(request, 200, "application/x-ndjson; charset=utf-8");
    http_stream_on_drain(request, STREAM_LOW_WATERMARK, stream_pump, stream);
    stream_watch_start(stream->watch);
    append_waiting_calls(stream, &again, 1, after_seq);
    http_stream_write(request, again.data, again.len);
    if (subscription_finished(stream->subscription))
        stream_end(stream); // there are no lines after `after_seq`
    else
        stream_pump(stream);
}
