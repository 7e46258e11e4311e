// SPDX-License-Identifier: Apache-2.0
// An execution's lines as an NDJSON answer: a subscriber of its log that never waits for a slow
// client, but leaves what that has not read yet to the log and its bound.

#include "api_priv.h"

enum { BATCH_BYTES = 64 << 10 }; // lines of one write

struct execution_stream {
    struct http_request *request;
    struct execution *execution; // the subscription's
    struct subscription *subscription;
    struct loop_timer *keepalive;
    size_t last_backlog;
    int n_stalled; // ticks of the timer at which nothing had been read
};

static void
stream_free(struct execution_stream *stream)
{
    subscription_free(stream->subscription);
    loop_timer_free(stream->keepalive);
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
        loop_timer_start(stream->keepalive, STREAM_KEEPALIVE_MS);
    }
}

// An execution that has ended is not kept for a client that does not read.
static bool
has_stalled(struct execution_stream *stream)
{
    size_t backlog = http_stream_backlog(stream->request);
    bool stalled = backlog > 0 && backlog == stream->last_backlog &&
                   execution_state(stream->execution) == EXECUTION_DONE;
    stream->last_backlog = backlog;
    stream->n_stalled = stalled ? stream->n_stalled + 1 : 0;
    return stream->n_stalled >= STREAM_MAX_STALLED;
}

static void
on_keepalive(void *arg)
{
    struct execution_stream *stream = arg;
    static const char line[] = "{\"type\":\"keepalive\"}\n";
    if (has_stalled(stream)) {
        http_stream_abort(stream->request);
        stream_free(stream);
        return;
    }
    if (http_stream_backlog(stream->request) == 0)
        http_stream_write(stream->request, line, sizeof line - 1);
    loop_timer_start(stream->keepalive, STREAM_KEEPALIVE_MS);
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
    stream->keepalive = loop_timer_new(context->loop, on_keepalive, stream);
    stream->subscription = execution_subscribe(execution, after_seq, pump, stream);
    http_request_on_gone(request, on_client_gone, stream);
    http_stream_start(request, 200, "application/x-ndjson; charset=utf-8");
    http_stream_on_drain(request, STREAM_LOW_WATERMARK, pump, stream);
    loop_timer_start(stream->keepalive, STREAM_KEEPALIVE_MS);
    if (subscription_finished(stream->subscription))
        stream_end(stream); // all was read before
    else
        pump(stream);
}
