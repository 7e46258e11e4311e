// SPDX-License-Identifier: Apache-2.0
// An answer of Server-Sent Events (WHATWG HTML, section 9.2), as OpenSandbox's daemon streams what
// code and commands say.

#include <inttypes.h>
#include <string.h>

#include "opensandbox_priv.h"
#include "pace.h"

enum {
    TICK_MS = 15 * 1000,
    MAX_STALLED = 4, // ticks in a row without a byte read
};
static const char content_type[] = "text/event-stream; charset=utf-8";

struct answer_stream {
    struct answer_stream_settings settings;
    struct http_pace *pace;
    bool started;
};

// ---- Events ---------------------------------------------------------------------------------

void
event_begin(struct buf *event, const char *type)
{
    buf_printf(event, "data: {\"type\":\"%s\",\"timestamp\":%" PRId64, type, clock_wall_ms());
}

void
event_end(struct buf *event)
{
    buf_append_str(event, "}\n\n");
}

void
event_add_string(struct buf *event, const char *type, const char *name, const char *text,
                 size_t len)
{
    event_begin(event, type);
    buf_printf(event, ",\"%s\":", name);
    json_append_string(event, text, len);
    event_end(event);
}

void
event_add_error(struct buf *event, const char *name, const char *value)
{
    event_begin(event, "error");
    buf_append_str(event, ",\"error\":{\"ename\":");
    json_append_string(event, name, strlen(name));
    buf_append_str(event, ",\"evalue\":");
    json_append_string(event, value, strlen(value));
    buf_append_str(event, ",\"traceback\":[");
    json_append_string(event, value, strlen(value));
    buf_append_str(event, "]}");
    event_end(event);
}

// ---- The stream -----------------------------------------------------------------------------

static bool
stream_waits_for_client(const void *arg)
{
    const struct answer_stream_settings *settings = &((const struct answer_stream *)arg)->settings;
    return settings->waits_for_client(settings->arg);
}

static void
stream_on_slow(void *arg)
{
    const struct answer_stream_settings *settings = &((const struct answer_stream *)arg)->settings;
    settings->on_stalled(settings->arg);
}

static void
stream_on_tick(size_t backlog, void *arg)
{
    const struct answer_stream *stream = arg;
    KG_AUTO_BUF event = {0};
    if (backlog > 0)
        return;
    event_add_string(&event, "ping", "text", "pong", strlen("pong"));
    http_stream_write(stream->settings.request, event.data, event.len);
}

struct answer_stream *
answer_stream_new(const struct answer_stream_settings *settings)
{
    static const struct http_pace_rule rule = {
        .tick_ms = TICK_MS,
        .max_ticks = MAX_STALLED,
        .min_bytes = 1,
        .counts = stream_waits_for_client,
        .on_tick = stream_on_tick,
        .on_slow = stream_on_slow,
    };
    struct answer_stream *stream = KG_NEW(struct answer_stream);
    stream->settings = *settings;
    stream->pace = http_pace_new(settings->loop, settings->request, &rule, stream);
    return stream;
}

void
answer_stream_free(struct answer_stream *stream)
{
    if (!stream)
        return;
    http_pace_free(stream->pace);
    free(stream);
}

static void
add_headers(struct http_request *request)
{
    http_reply_header(request, "Cache-Control", "no-cache");
    http_reply_header(request, "X-Accel-Buffering", "no");
}

void
answer_stream_start(struct answer_stream *stream, const char *id)
{
    struct http_request *request = stream->settings.request;
    KG_AUTO_BUF event = {0};
    stream->started = true;
    http_stream_start(request, 200, content_type);
    http_stream_on_drain(request, EVENTS_LOW_WATERMARK, stream->settings.on_drain,
                         stream->settings.arg);
    event_add_string(&event, "init", "text", id, strlen(id));
    answer_stream_write(stream, &event);
}

bool
answer_stream_has_started(const struct answer_stream *stream)
{
    return stream->started;
}

bool
answer_stream_is_full(const struct answer_stream *stream)
{
    return http_stream_backlog(stream->settings.request) >= EVENTS_HIGH_WATERMARK;
}

void
answer_stream_write(struct answer_stream *stream, const struct buf *events)
{
    if (events->len == 0)
        return;
    http_stream_write(stream->settings.request, events->data, events->len);
    http_pace_put_off(stream->pace);
}

void
answer_stream_reply(struct http_request *request, const struct buf *events)
{
    add_headers(request);
    http_reply(request, 200, content_type, events->data, events->len);
}
