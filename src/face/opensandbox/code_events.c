// SPDX-License-Identifier: Apache-2.0
// The lines of an execution as events. A subscriber of its log: if the client is slow, unread lines
// stay in the log, which is bounded; the execution never waits for the client.

#include <string.h>

#include "opensandbox_priv.h"

// ---- One line -------------------------------------------------------------------------------

// A member of the line as JSON text; NULL: there is none.
struct member {
    const char *text;
    size_t len;
};

static struct member
member_of(const char *line, size_t len, const char *name)
{
    struct member ret = {0};
    ret.text = json_member(line, len, name, &ret.len);
    return ret;
}

static bool
is_string(struct member value, const char *text)
{
    size_t len = strlen(text);
    return value.text && value.len == len + 2 && memcmp(value.text + 1, text, len) == 0;
}

static void
append_member(struct buf *event, const char *name, struct member value)
{
    buf_printf(event, ",\"%s\":", name);
    buf_append(event, value.text, value.len);
}

// Appends an event with that one member of the line.
static void
append_with(struct buf *events, const char *type, const char *name, struct member value)
{
    if (!value.text)
        return;
    event_begin(events, type);
    append_member(events, name, value);
    event_end(events);
}

static const char *
mime_of_format(struct member format)
{
    return is_string(format, "png")    ? "image/png"
           : is_string(format, "jpeg") ? "image/jpeg"
           : is_string(format, "gif")  ? "image/gif"
                                       : "image/svg+xml";
}

// OpenSandbox calls what is text/plain "text"; all else has its MIME type.
static void
append_result(struct buf *events, const char *line, size_t len)
{
    struct member text = member_of(line, len, "text");
    struct member image = member_of(line, len, "image");
    struct member data = member_of(line, len, "data");
    const char *comma = "";
    event_begin(events, "result");
    buf_append_str(events, ",\"results\":{");
    if (text.text) {
        buf_append_str(events, "\"text\":");
        buf_append(events, text.text, text.len);
        comma = ",";
    }
    if (image.text) {
        buf_printf(events, "%s\"%s\":", comma, mime_of_format(member_of(line, len, "format")));
        buf_append(events, image.text, image.len);
        comma = ",";
    }
    if (data.text && data.len > strlen("{}")) {
        buf_append_str(events, comma);
        buf_append(events, data.text + 1, data.len - 2); // without its braces
    }
    buf_append_str(events, "}");
    event_end(events);
}

static void
append_error(struct buf *events, const char *line, size_t len)
{
    static const char *const names[] = {"ename", "evalue", "traceback"};
    event_begin(events, "error");
    buf_append_str(events, ",\"error\":{");
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        struct member value = member_of(line, len, names[i]);
        buf_printf(events, "%s\"%s\":", i ? "," : "", names[i]);
        if (value.text)
            buf_append(events, value.text, value.len);
        else
            buf_append_str(events, "null");
    }
    buf_append_str(events, "}");
    event_end(events);
}

static void
append_dropped(struct buf *events, const char *line, size_t len)
{
    struct member bytes = member_of(line, len, "bytes");
    KG_AUTO_FREE char *text =
        kg_asprintf("kernelgate: %.*s bytes of output were dropped: the reader was too slow, or "
                    "one message was too large\n",
                    (int)bytes.len, bytes.text ? bytes.text : "");
    event_add_string(events, "stderr", "text", text, strlen(text));
}

// As OpenSandbox has it, a failure ends with its `error`, and only success is complete.
static void
append_done(struct buf *events, const char *line, size_t len)
{
    struct member status = member_of(line, len, "status");
    struct member count = member_of(line, len, "execution_count");
    struct member duration = member_of(line, len, "duration_ms");
    append_with(events, "status", "text", status);
    if (count.text && *count.text != 'n') // null
        append_with(events, "execution_count", "execution_count", count);
    if (!is_string(status, "ok"))
        return;
    event_begin(events, "execution_complete");
    buf_printf(events, ",\"execution_time\":%lld",
               duration.text ? (long long)strtod(duration.text, NULL) : 0LL);
    event_end(events);
}

void
code_events_append(struct buf *events, const char *line, size_t len)
{
    struct member type = member_of(line, len, "type");
    if (is_string(type, "stdout"))
        append_with(events, "stdout", "text", member_of(line, len, "text"));
    else if (is_string(type, "stderr"))
        append_with(events, "stderr", "text", member_of(line, len, "text"));
    else if (is_string(type, "result") || is_string(type, "display"))
        append_result(events, line, len);
    else if (is_string(type, "error"))
        append_error(events, line, len);
    else if (is_string(type, "dropped"))
        append_dropped(events, line, len);
    else if (is_string(type, "done"))
        append_done(events, line, len);
    // `file` and `clear` have no event.
}

// ---- The answer -----------------------------------------------------------------------------

struct code_stream {
    struct http_request *request;
    struct execution *execution; // the subscription's
    struct subscription *subscription;
    struct answer_stream *events;
};

// If there is still a subscription, the client has left.
static void
stream_free(void *arg)
{
    struct code_stream *stream = arg;
    if (stream->subscription)
        subscription_abandon(stream->subscription);
    answer_stream_free(stream->events);
    free(stream);
}

static void
stream_pump(void *arg)
{
    struct code_stream *stream = arg;
    KG_AUTO_BUF events = {0};
    const char *line;
    size_t len;
    while (!answer_stream_is_full(stream->events) &&
           (line = subscription_next(stream->subscription, &len))) {
        events.len = 0;
        code_events_append(&events, line, len);
        answer_stream_write(stream->events, &events);
        if (subscription_finished(stream->subscription)) {
            subscription_free(KG_STEAL(stream->subscription));
            http_stream_end(stream->request);
            return;
        }
    }
}

// The lines of a finished execution are not kept for a client that does not read.
static bool
stream_waits_for_client(const void *arg)
{
    const struct code_stream *stream = arg;
    return execution_state(stream->execution) == EXECUTION_DONE;
}

static void
stream_on_stalled(void *arg)
{
    struct code_stream *stream = arg;
    subscription_free(KG_STEAL(stream->subscription));
    http_stream_abort(stream->request);
}

void
code_events_start(struct http_request *request, struct loop *loop, struct execution *execution)
{
    struct code_stream *stream = KG_NEW(struct code_stream);
    stream->request = request;
    stream->execution = execution;
    stream->events = answer_stream_new(&(const struct answer_stream_settings){
        .loop = loop,
        .request = request,
        .on_drain = stream_pump,
        .on_stalled = stream_on_stalled,
        .waits_for_client = stream_waits_for_client,
        .arg = stream,
    });
    stream->subscription = execution_subscribe(execution, 0, stream_pump, stream);
    http_request_own(request, stream, stream_free);
    answer_stream_start(stream->events, execution_id(execution));
    stream_pump(stream);
}
