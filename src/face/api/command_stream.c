// SPDX-License-Identifier: Apache-2.0
// The output of a command: as a stream of lines, or one answer at the end.

#include <sodium.h>
#include <string.h>

#include "api_priv.h"
#include "sandbox.h"
#include "session.h"
#include "session_commands.h"

// With `waits` the output is collected in `outputs` and sent when the command has ended; otherwise
// each output is a line of a stream.
struct command_stream {
    struct http_request *request;
    LIST_ENTRY(command_stream) link; // of those that follow
    bool follows;
    struct session_command *command;
    bool waits;
    bool started;
    bool starts_with_line;
    struct buf outputs[2]; // by enum sandbox_stream; with `waits` there is no terminal
    struct stream_watch *watch;
    int64_t deadline_ms; // see struct command_stream_settings
    char session_id[SESSION_MAX_ID_LEN + 1];
    char id[SANDBOX_COMMAND_ID_MAX + 1]; // of the command, once it is known; "": it has none
};

static void
stream_free(void *arg)
{
    struct command_stream *stream = arg;
    if (stream->command)
        session_command_cancel(stream->command);
    if (stream->follows)
        LIST_REMOVE(stream, link);
    stream_watch_free(stream->watch);
    buf_fini(&stream->outputs[SANDBOX_STDOUT]);
    buf_fini(&stream->outputs[SANDBOX_STDERR]);
    free(stream);
}

// ---- Lines ----------------------------------------------------------------------------------

// Takes the line.
static void
write_line(struct command_stream *stream, json_t *line)
{
    stream_watch_line(stream->watch, line);
    json_decref(line);
}

static void
pause_command(bool paused, void *arg)
{
    const struct command_stream *stream = arg;
    if (stream->command)
        session_command_pause(stream->command, paused);
}

// A client that does not read may delay the command, but not beyond its timeout.
static bool
waits_for_client(const void *arg)
{
    const struct command_stream *stream = arg;
    return clock_mono_ms() > stream->deadline_ms;
}

// The headers of any answer that is not an error.
static void
add_headers(const struct command_stream *stream)
{
    http_reply_header(stream->request, "X-Session-Id", stream->session_id);
    if (stream->starts_with_line)
        http_reply_header(stream->request, "X-Command-Id", stream->id);
}

static void
start_stream(struct command_stream *stream)
{
    stream->started = true;
    add_headers(stream);
    http_stream_start(stream->request, 200, "application/x-ndjson; charset=utf-8");
    stream_watch_start(stream->watch);
}

// ---- The command's events -------------------------------------------------------------------

static void
command_on_started(const struct sandbox_command_start *start, void *arg)
{
    struct command_stream *stream = arg;
    memcpy(stream->id, start->id, strlen(start->id) + 1);
    if (stream->waits)
        return;
    start_stream(stream);
    if (!stream->starts_with_line)
        return;
    json_t *line =
        json_pack("{s:s, s:s, s:i, s:b, s:b}", "type", "started", "command_id", stream->id, "pid",
                  start->pid, "terminal", (int)start->terminal, "running", (int)start->running);
    if (start->dropped_bytes)
        json_object_set_new(line, "dropped_bytes", json_integer(start->dropped_bytes));
    write_line(stream, line);
}

static json_t *
output_line(enum sandbox_stream kind, const char *text, size_t len)
{
    if (kind != SANDBOX_TERMINAL)
        return json_pack("{s:s, s:o}", "type", kind == SANDBOX_STDOUT ? "stdout" : "stderr", "text",
                         json_stringn_nocheck(text, len));
    size_t size = sodium_base64_ENCODED_LEN(len, sodium_base64_VARIANT_ORIGINAL);
    KG_AUTO_FREE char *base64 = kg_calloc(size, 1);
    sodium_bin2base64(base64, size, (const unsigned char *)text, len,
                      sodium_base64_VARIANT_ORIGINAL);
    return json_pack("{s:s, s:s}", "type", "terminal", "data", base64);
}

static void
command_on_output(enum sandbox_stream kind, const char *text, size_t len, void *arg)
{
    struct command_stream *stream = arg;
    if (stream->waits) {
        buf_append(&stream->outputs[kind == SANDBOX_STDERR ? SANDBOX_STDERR : SANDBOX_STDOUT], text,
                   len);
        return;
    }
    write_line(stream, output_line(kind, text, len));
}

static void
command_on_missed(int64_t bytes, void *arg)
{
    struct command_stream *stream = arg;
    write_line(stream, json_pack("{s:s, s:I}", "type", "dropped", "bytes", (json_int_t)bytes));
}

// The members that describe the end; `result` is NULL if the sandbox was lost.
static json_t *
describe_end(const struct command_stream *stream, const struct sandbox_command_result *result)
{
    const char *id = stream->session_id;
    if (!result)
        return json_pack("{s:s, s:n, s:s}", "status", "died", "exit_code", "session_id", id);
    const char *status = result->timed_out ? "timeout" : result->exit_code ? "error" : "ok";
    json_t *end =
        json_pack("{s:s, s:i, s:I, s:s}", "status", status, "exit_code", result->exit_code,
                  "duration_ms", (json_int_t)result->duration_ms, "session_id", id);
    if (result->signal)
        json_object_set_new(end, "signal", api_signal_name(result->signal));
    if (result->oom)
        json_object_set_new(end, "out_of_memory", json_true());
    if (result->dropped_bytes)
        json_object_set_new(end, "dropped_bytes", json_integer(result->dropped_bytes));
    if (stream->starts_with_line)
        json_object_set_new(end, "command_id", json_string(stream->id));
    return end;
}

static json_t *
text_of(const struct buf *buf)
{
    return json_stringn_nocheck(buf->data ? buf->data : "", buf->len);
}

static void
answer_at_once(struct command_stream *stream, const struct sandbox_command_result *result)
{
    json_t *body = json_pack("{s:o, s:o}", "stdout", text_of(&stream->outputs[SANDBOX_STDOUT]),
                             "stderr", text_of(&stream->outputs[SANDBOX_STDERR]));
    json_t *end = describe_end(stream, result);
    json_object_update(body, end);
    json_decref(end);
    add_headers(stream);
    http_reply_json(stream->request, 200, body);
}

static void
end_stream(struct command_stream *stream, const struct sandbox_command_result *result,
           const struct kg_error *err)
{
    if (err) {
        KG_AUTO_FREE char *text = kg_asprintf("CommandLost: %s", err->message);
        write_line(stream, json_pack("{s:s, s:s, s:s, s:s, s:[]}", "type", "error", "error", text,
                                     "ename", "CommandLost", "evalue", err->message, "traceback"));
    }
    json_t *done = json_pack("{s:s}", "type", "done");
    json_t *end = describe_end(stream, result);
    json_object_update(done, end);
    json_decref(end);
    write_line(stream, done);
    http_stream_end(stream->request);
}

static void
command_on_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    struct command_stream *stream = arg;
    stream->command = NULL;
    if (stream->started)
        end_stream(stream, result, err);
    else if (err)
        http_reply_error(stream->request, err);
    else
        answer_at_once(stream, result);
}

const struct sandbox_command_events command_stream_events = {
    .on_started = command_on_started,
    .on_output = command_on_output,
    .on_end = command_on_end,
    .on_missed = command_on_missed,
};

void
api_drain(struct api_context *context)
{
    struct command_stream *stream;
    while ((stream = LIST_FIRST(&context->followers))) {
        if (!stream->started) {
            struct kg_error err;
            kg_error_set(&err, KG_DRAINING, 0, "the gateway is shutting down");
            http_reply_error(stream->request, &err);
            continue;
        }
        write_line(stream, json_pack("{s:s, s:s, s:s}", "type", "draining", "command_id",
                                     stream->id, "session_id", stream->session_id));
        http_stream_end(stream->request);
    }
}

// ---- Its start ------------------------------------------------------------------------------

struct command_stream *
command_stream_new(struct http_request *request, const struct command_stream_settings *settings)
{
    struct command_stream *stream = KG_NEW(struct command_stream);
    stream->request = request;
    stream->waits = settings->waits;
    stream->starts_with_line = settings->starts_with_line;
    stream->deadline_ms = settings->deadline_ms;
    stream->watch = stream_watch_new(&(const struct stream_watch_settings){
        .loop = settings->context->loop,
        .request = request,
        .tick_ms = STREAM_TICK_MS,
        .of_lines = true,
        .waits_for_client = waits_for_client,
        .on_pause = pause_command,
        .arg = stream,
    });
    const char *id = session_id(settings->session);
    memcpy(stream->session_id, id, strlen(id));
    stream->follows = settings->follows;
    if (stream->follows)
        LIST_INSERT_HEAD(&settings->context->followers, stream, link);
    http_request_own(request, stream, stream_free);
    return stream;
}

void
command_stream_take(struct command_stream *stream, struct session_command *command)
{
    stream->command = command;
}
