// SPDX-License-Identifier: Apache-2.0
// The Connect protocol: streams, of a client and of the server.
#include "connect.h"

#include <string.h>

#include "pace.h"

// ---- Ends and refusals ------------------------------------------------------------------------

static void
end_with(struct http_request *request, enum connect_code code, const char *message)
{
    KG_AUTO_BUF bytes = {0};
    json_auto_t *end = code == CONNECT_OK
                           ? json_object()
                           : json_pack("{s:o}", "error", connect_error(code, message));
    KG_AUTO_FREE char *text = json_dumps(end, JSON_COMPACT);
    envelope_write(&bytes, ENVELOPE_END, text, strlen(text));
    http_stream_write(request, bytes.data, bytes.len);
    http_stream_end(request);
}

void
connect_refuse_stream(struct http_request *request, enum connect_code code, const char *message)
{
    http_stream_start(request, 200, CONNECT_STREAM_TYPE);
    end_with(request, code, message);
}

void
connect_refuse_stream_error(struct http_request *request, const struct kg_error *err)
{
    if (err->code == KG_SESSION_NOT_FOUND) // as a proxy in front of envd answers
        http_reply_error(request, err);
    else
        connect_refuse_stream(request, connect_code_of(err->code), err->message);
}

enum connect_code
connect_envelope_error(enum envelope_state state, const char **ret_message)
{
    switch (state) {
    case ENVELOPE_WHOLE:
        break;
    case ENVELOPE_CUT:
        *ret_message = "the body ends within a message";
        return CONNECT_INVALID_ARGUMENT;
    case ENVELOPE_TOO_LARGE:
        *ret_message = "a message has more bytes than the limit allows";
        return CONNECT_RESOURCE_EXHAUSTED;
    case ENVELOPE_IS_COMPRESSED:
        *ret_message = "a message is compressed, which is not supported";
        return CONNECT_UNIMPLEMENTED;
    case ENVELOPE_BAD_FLAGS:
        *ret_message = "the flags of a message must be 0";
        return CONNECT_INVALID_ARGUMENT;
    }
    *ret_message = "the body must be one message";
    return CONNECT_INVALID_ARGUMENT;
}

json_t *
connect_message_parse(const struct envelope *envelope, struct kg_error *err)
{
    bool beyond;
    json_t *message =
        http_json_parse_within(envelope->data, envelope->len, CONNECT_VALUES_MAX, &beyond, err);
    if (!message || json_is_object(message))
        return message;
    json_decref(message);
    (void)kg_error_set(err, KG_INVALID, 0, "a message must be a JSON object");
    return NULL;
}

json_t *
connect_stream_message(struct http_request *request)
{
    size_t len;
    struct envelope envelope;
    struct kg_error err = {0};
    if (!connect_check_stream(request))
        return NULL;
    const char *body = http_request_body(request, &len);
    enum envelope_state state =
        envelope_read(body ? body : "", len, CONNECT_MESSAGE_MAX, &envelope);
    if (state != ENVELOPE_WHOLE || envelope.taken != len) {
        const char *why;
        enum connect_code code = connect_envelope_error(state, &why);
        connect_refuse_stream(request, code, why);
        return NULL;
    }
    json_t *message = connect_message_parse(&envelope, &err);
    if (!message)
        connect_refuse_stream_error(request, &err);
    return message;
}

// ---- Server streams -------------------------------------------------------------------------

enum {
    HIGH_WATERMARK = 64 << 10, // bytes queued for the client: above it, no more should be sent
    LOW_WATERMARK = 16 << 10,
    TICK_MS = 15 * 1000,
    MAX_STALLED = 4,         // ticks in a row in which the client reads nothing
    KEEPALIVE_S = 90,        // without the header
    KEEPALIVE_MAX_S = 86400, // what the header may say
};

struct connect_stream {
    struct connect_stream_settings settings;
    struct http_pace *pace;
    struct loop_timer *keepalive;
    struct loop_timer *deadline;
    int64_t keepalive_ms;
    bool started;
};

static int64_t
keepalive_ms(const struct http_request *request)
{
    const char *text = http_request_header(request, "Keepalive-Ping-Interval");
    long seconds = text ? strtol(text, NULL, 10) : 0;
    return 1000 * (seconds >= 1 && seconds <= KEEPALIVE_MAX_S ? seconds : KEEPALIVE_S);
}

static bool
waits_for_client(const void *arg)
{
    const struct connect_stream *stream = arg;
    return stream->settings.waits_for_client(stream->settings.arg);
}

static void
stream_on_slow(void *arg)
{
    const struct connect_stream *stream = arg;
    http_stream_abort(stream->settings.request);
}

static void
stream_on_drain(void *arg)
{
    const struct connect_stream *stream = arg;
    stream->settings.on_room(stream->settings.arg);
}

static void
stream_start(struct connect_stream *stream)
{
    struct http_request *request = stream->settings.request;
    if (stream->started)
        return;
    stream->started = true;
    http_stream_start(request, 200, CONNECT_STREAM_TYPE);
    http_stream_on_drain(request, LOW_WATERMARK, stream_on_drain, stream);
    http_pace_start(stream->pace);
}

static void
send_text(struct connect_stream *stream, const char *text)
{
    KG_AUTO_BUF bytes = {0};
    envelope_write(&bytes, 0, text, strlen(text));
    stream_start(stream);
    http_stream_write(stream->settings.request, bytes.data, bytes.len);
    if (stream->settings.keepalive)
        loop_timer_start(stream->keepalive, stream->keepalive_ms);
}

static void
stream_on_keepalive(void *arg)
{
    struct connect_stream *stream = arg;
    if (http_stream_backlog(stream->settings.request) == 0)
        send_text(stream, stream->settings.keepalive);
    else
        loop_timer_start(stream->keepalive, stream->keepalive_ms);
}

static void
stream_on_deadline(void *arg)
{
    connect_stream_end(arg, CONNECT_DEADLINE_EXCEEDED,
                       "the time that Connect-Timeout-Ms gives has passed");
}

struct connect_stream *
connect_stream_new(const struct connect_stream_settings *settings)
{
    struct connect_stream *stream = KG_NEW(struct connect_stream);
    stream->settings = *settings;
    stream->keepalive_ms = keepalive_ms(settings->request);
    stream->keepalive = loop_timer_new(settings->loop, stream_on_keepalive, stream);
    stream->deadline = loop_timer_new(settings->loop, stream_on_deadline, stream);
    if (settings->deadline_ms > 0)
        loop_timer_start(stream->deadline, settings->deadline_ms);
    stream->pace = http_pace_new(settings->loop, settings->request,
                                 &(const struct http_pace_rule){
                                     .tick_ms = TICK_MS,
                                     .max_ticks = MAX_STALLED,
                                     .min_bytes = 1,
                                     .counts = waits_for_client,
                                     .on_slow = stream_on_slow,
                                 },
                                 stream);
    return stream;
}

void
connect_stream_free(struct connect_stream *stream)
{
    if (!stream)
        return;
    http_pace_free(stream->pace);
    loop_timer_free(stream->keepalive);
    loop_timer_free(stream->deadline);
    free(stream);
}

void
connect_stream_send(struct connect_stream *stream, json_t *message)
{
    KG_AUTO_FREE char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    send_text(stream, text);
}

bool
connect_stream_is_full(const struct connect_stream *stream)
{
    return http_stream_backlog(stream->settings.request) > HIGH_WATERMARK;
}

bool
connect_stream_has_begun(const struct connect_stream *stream)
{
    return stream->started;
}

void
connect_stream_end(struct connect_stream *stream, enum connect_code code, const char *message)
{
    stream_start(stream);
    end_with(stream->settings.request, code, message);
}

void
connect_stream_fail(struct connect_stream *stream, const struct kg_error *err)
{
    connect_stream_end(stream, connect_code_of(err->code), err->message);
}

void
connect_stream_reply(struct http_request *request, json_t *message)
{
    KG_AUTO_BUF bytes = {0};
    KG_AUTO_FREE char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    envelope_write(&bytes, 0, text, strlen(text));
    http_stream_start(request, 200, CONNECT_STREAM_TYPE);
    http_stream_write(request, bytes.data, bytes.len);
    end_with(request, CONNECT_OK, NULL);
}
