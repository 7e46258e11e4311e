// SPDX-License-Identifier: Apache-2.0
// The endless GET /events of a sandbox's agent: kernel exits, told one at a time from the loop.
#include <string.h>

#include "agent_reply.h"
#include "sandbox_priv.h"

enum {
    OPEN_TIMEOUT_MS = 10 * 1000,
    RETRY_MIN_MS = 50,
    RETRY_MAX_MS = 1000,
    QUEUE_MAX = 64,
    NONSENSE_MAX = 16, // lines of one connection; then it is cut
};

struct queued {
    TAILQ_ENTRY(queued) entry;
    struct agent_event event;
};

// One of: waiting to try again (`retry`), opening (`link_call`), reading (`http_call`).
struct event_stream {
    struct sandbox *sandbox;
    struct sandbox_call *link_call;
    struct http_call *http_call;
    struct loop_timer *retry;
    int64_t retry_ms;
    struct agent_lines lines;
    struct loop_timer *deliver;
    TAILQ_HEAD(, queued) queue;
    int n_queued;
    int n_nonsense;
};

static void
retry_later(struct event_stream *stream)
{
    loop_timer_start(stream->retry, stream->retry_ms);
    stream->retry_ms = stream->retry_ms * 2 < RETRY_MAX_MS ? stream->retry_ms * 2 : RETRY_MAX_MS;
}

static void
on_line(const char *line, size_t len, void *arg)
{
    struct event_stream *stream = arg;
    struct kg_error err = {0};
    struct queued *queued;
    struct agent_event event;

    if (stream->n_nonsense > NONSENSE_MAX)
        return;
    if (!line)
        (void)kg_error_set(&err, KG_INTERNAL, 0, "an agent's event is too long");
    else if (stream->n_queued >= QUEUE_MAX)
        (void)kg_error_set(&err, KG_INTERNAL, 0, "an agent tells too many events");
    else
        (void)!agent_event_parse(line, len, &event, &err);
    if (err.code != KG_OK) {
        stream->n_nonsense++;
        log_warning("event dropped", LOG_STR("sandbox", stream->sandbox->id), LOG_ERR(&err));
        return;
    }
    stream->retry_ms = RETRY_MIN_MS;
    queued = KG_NEW(struct queued);
    queued->event = event;
    TAILQ_INSERT_TAIL(&stream->queue, queued, entry);
    stream->n_queued++;
    loop_timer_start(stream->deliver, 0);
}

static bool
on_data(int status, const void *data, size_t len, void *arg)
{
    struct event_stream *stream = arg;

    if (status != 200)
        return false;
    agent_lines_feed(&stream->lines, data, len, on_line, stream);
    return stream->n_nonsense <= NONSENSE_MAX;
}

// One event a turn of the loop: its callback may free the stream.
static void
on_deliver(void *arg)
{
    struct event_stream *stream = arg;
    struct sandbox *sandbox = stream->sandbox;
    struct queued *first = TAILQ_FIRST(&stream->queue);
    const struct agent_event event = first->event;

    TAILQ_REMOVE(&stream->queue, first, entry);
    stream->n_queued--;
    free(first);
    if (stream->n_queued > 0)
        loop_timer_start(stream->deliver, 0);
    sandbox->events.on_kernel_exit(sandbox, event.kernel, event.pid, event.exit_code, event.signal,
                                   event.oom, sandbox->arg);
}

static void
on_http_done(const struct http_call_result *result, void *arg)
{
    struct event_stream *stream = arg;
    (void)result;

    stream->http_call = NULL;
    agent_lines_fini(&stream->lines);
    stream->lines = (struct agent_lines){0};
    stream->n_nonsense = 0;
    retry_later(stream);
}

static void
on_link(int fd, const struct kg_error *link_err, void *arg)
{
    struct event_stream *stream = arg;
    struct kg_error err = {0};
    (void)link_err;

    stream->link_call = NULL;
    if (fd < 0) {
        retry_later(stream);
        return;
    }
    KG_AUTO_FREE char *url = kg_asprintf("http://%s/events", stream->sandbox->id);
    const struct http_call_spec spec = {.method = "GET", .url = url, .fd = fd};
    stream->http_call =
        http_call_start(stream->sandbox->context.http, &spec, on_data, on_http_done, stream, &err);
    if (!stream->http_call)
        retry_later(stream);
}

static void
open_stream(void *arg)
{
    struct event_stream *stream = arg;
    struct kg_error err = {0};

    stream->link_call =
        sandbox_open_link(stream->sandbox, "agent", OPEN_TIMEOUT_MS, on_link, stream, &err);
    if (!stream->link_call)
        retry_later(stream);
}

struct event_stream *
event_stream_new(struct sandbox *sandbox)
{
    struct event_stream *stream = KG_NEW(struct event_stream);

    stream->sandbox = sandbox;
    stream->retry_ms = RETRY_MIN_MS;
    stream->retry = loop_timer_new(sandbox->context.loop, open_stream, stream);
    stream->deliver = loop_timer_new(sandbox->context.loop, on_deliver, stream);
    TAILQ_INIT(&stream->queue);
    open_stream(stream);
    return stream;
}

void
event_stream_free(struct event_stream *stream)
{
    struct queued *queued;

    if (!stream)
        return;
    sandbox_call_cancel(stream->link_call);
    if (stream->http_call)
        http_call_cancel(stream->http_call);
    while ((queued = TAILQ_FIRST(&stream->queue))) {
        TAILQ_REMOVE(&stream->queue, queued, entry);
        free(queued);
    }
    agent_lines_fini(&stream->lines);
    loop_timer_free(stream->retry);
    loop_timer_free(stream->deliver);
    free(stream);
}
