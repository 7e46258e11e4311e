// SPDX-License-Identifier: Apache-2.0
// An execution's lines as an NDJSON answer: a subscriber of its log that never waits for a slow
// client, but leaves what that has not read yet to the log and its bound.

#include "api_priv.h"

enum { BATCH_BYTES = 32 << 10 }; // lines of one write

struct execution_stream {
    struct http_request *request;
    struct execution *execution; // the subscription's
    struct subscription *subscription;
    struct stream_watch *watch;
};

static void
stream_free(struct execution_stream *stream)
{
    subscription_free(stream->subscription);
    stream_watch_free(stream->watch);
    free(stream);
}

static void
stream_end(struct execution_stream *stream)
{
    http_stream_end(stream->request);
    stream_free(stream);
}

static void
pump(void *arg)
{
    struct execution_stream *stream = arg;
    KG_AUTO_BUF batch = {0};
    while (http_stream_backlog(stream->request) < STREAM_HIGH_WATERMARK) {
        size_t len;
        const char *line = NULL;
        while (batch.len < BATCH_BYTES && (line = subscription_next(stream->subscription, &len))) {
            buf_append(&batch, line, len);
            buf_append(&batch, "\n", 1);
        }
        if (batch.len == 0)
            return;
        http_stream_write(stream->request, batch.data, batch.len);
        batch.len = 0;
        if (subscription_finished(stream->subscription)) {
            stream_end(stream);
            return;
        }
        stream_watch_start(stream->watch);
    }
}

// An execution that has ended is not kept for a client that does not read.
static bool
waits_for_client(const void *arg)
{
    const struct execution_stream *stream = arg;
    return execution_state(stream->execution) == EXECUTION_DONE;
}

static void
on_stalled(void *arg)
{
    struct execution_stream *stream = arg;
    http_stream_abort(stream->request);
    stream_free(stream);
}

static void
on_client_gone(void *arg)
{
    struct execution_stream *stream = arg;
    subscription_abandon(KG_STEAL(stream->subscription));
    stream_end(stream);
}

void
execution_stream_start(struct http_request *request, struct api_context *context,
                       struct execution *execution, int64_t after_seq)
{
    struct execution_stream *stream = KG_NEW(struct execution_stream);
    stream->request = request;
    stream->execution = execution;
    stream->watch = stream_watch_new(&(const struct stream_watch_settings){
        .loop = context->loop,
        .request = request,
        .tick_ms = STREAM_TICK_MS,
        .of_lines = true,
        .on_stalled = on_stalled,
        .waits_for_client = waits_for_client,
        .arg = stream,
    });
    stream->subscription = execution_subscribe(execution, after_seq, pump, stream);
    http_request_on_gone(request, on_client_gone, stream);
    http_stream_start(request, 200, "application/x-ndjson; charset=utf-8");
    http_stream_on_drain(request, STREAM_LOW_WATERMARK, pump, stream);
    stream_watch_start(stream->watch);
    if (subscription_finished(stream->subscription))
        stream_end(stream); // all was read before
    else
        pump(stream);
}
