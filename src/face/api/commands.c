// SPDX-License-Identifier: Apache-2.0
// POST /api/v1/sessions/{id}/commands: as a stream of lines, or one answer at the end.

#include <signal.h>
#include <string.h>

#include "api_priv.h"
#include "sandbox.h"
#include "session.h"
#include "session_commands.h"

enum { MAX_WAIT_OUTPUT = 1 << 20 }; // bytes of both streams together in one answer

// With `waits` the output is collected in `outputs` and sent when the command has ended; otherwise
// each output is a line of a stream.
struct command_call {
    struct http_request *request;
    struct session_command *command;
    bool waits;
    bool started;
    bool paused;
    struct buf outputs[2]; // by enum sandbox_stream
    struct stream_watch *watch;
    int64_t deadline_ms; // by then the command has been killed
    char session_id[SESSION_MAX_ID_LEN + 1];
};

static void
call_free(void *arg)
{
    struct command_call *call = arg;
    if (call->command)
        session_command_cancel(call->command);
    stream_watch_free(call->watch);
    buf_fini(&call->outputs[SANDBOX_STDOUT]);
    buf_fini(&call->outputs[SANDBOX_STDERR]);
    free(call);
}

// ---- Lines ----------------------------------------------------------------------------------

// Takes the line.
static void
write_line(struct command_call *call, json_t *line)
{
    stream_watch_line(call->watch, line);
    json_decref(line);
}

static void
pause_command(struct command_call *call, bool paused)
{
    if (call->command && paused != call->paused)
        session_command_pause(call->command, paused);
    call->paused = paused;
}

static void
command_on_drain(void *arg)
{
    pause_command(arg, false);
}

// A client that does not read may delay the command, but not beyond its timeout.
static bool
waits_for_client(const void *arg)
{
    const struct command_call *call = arg;
    return clock_mono_ms() > call->deadline_ms;
}

static void
command_on_stalled(void *arg)
{
    const struct command_call *call = arg;
    http_stream_abort(call->request);
}

static void
start_stream(struct command_call *call)
{
    call->started = true;
    http_reply_header(call->request, "X-Session-Id", call->session_id);
    http_stream_start(call->request, 200, "application/x-ndjson; charset=utf-8");
    http_stream_on_drain(call->request, STREAM_LOW_WATERMARK, command_on_drain, call);
    stream_watch_start(call->watch);
}

// ---- The command's events -------------------------------------------------------------------

static void
command_on_started(void *arg)
{
    struct command_call *call = arg;
    if (!call->waits)
        start_stream(call);
}

static void
command_on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    static const char *const types[] = {
        [SANDBOX_STDOUT] = "stdout",
        [SANDBOX_STDERR] = "stderr",
    };
    struct command_call *call = arg;
    if (call->waits) {
        buf_append(&call->outputs[stream], text, len);
        return;
    }
    write_line(call, json_pack("{s:s, s:o}", "type", types[stream], "text",
                               json_stringn_nocheck(text, len)));
    if (http_stream_backlog(call->request) > STREAM_HIGH_WATERMARK)
        pause_command(call, true);
}

// The members that describe the end; `result` is NULL if the sandbox was lost.
static json_t *
describe_end(const struct sandbox_command_result *result, const char *id)
{
    if (!result)
        return json_pack("{s:s, s:n, s:s}", "status", "died", "exit_code", "session_id", id);
    const char *status = result->timed_out ? "timeout" : result->exit_code ? "error" : "ok";
    json_t *end =
        json_pack("{s:s, s:i, s:I, s:s}", "status", status, "exit_code", result->exit_code,
                  "duration_ms", (json_int_t)result->duration_ms, "session_id", id);
    if (result->signal) {
        const char *name = sigabbrev_np(result->signal);
        KG_AUTO_FREE char *text = name ? kg_asprintf("SIG%s", name) : NULL;
        json_object_set_new(end, "signal", text ? json_string(text) : json_integer(result->signal));
    }
    if (result->oom)
        json_object_set_new(end, "out_of_memory", json_true());
    if (result->dropped_bytes)
        json_object_set_new(end, "dropped_bytes", json_integer(result->dropped_bytes));
    return end;
}

static json_t *
text_of(const struct buf *buf)
{
    return json_stringn_nocheck(buf->data ? buf->data : "", buf->len);
}

static void
answer_at_once(struct command_call *call, const struct sandbox_command_result *result)
{
    json_t *body = json_pack("{s:o, s:o}", "stdout", text_of(&call->outputs[SANDBOX_STDOUT]),
                             "stderr", text_of(&call->outputs[SANDBOX_STDERR]));
    json_t *end = describe_end(result, call->session_id);
    json_object_update(body, end);
    json_decref(end);
    http_reply_header(call->request, "X-Session-Id", call->session_id);
    http_reply_json(call->request, 200, body);
}

static void
end_stream(struct command_call *call, const struct sandbox_command_result *result,
           const struct kg_error *err)
{
    if (err) {
        KG_AUTO_FREE char *text = kg_asprintf("CommandLost: %s", err->message);
        write_line(call, json_pack("{s:s, s:s, s:s, s:s, s:[]}", "type", "error", "error", text,
                                   "ename", "CommandLost", "evalue", err->message, "traceback"));
    }
    json_t *done = json_pack("{s:s}", "type", "done");
    json_t *end = describe_end(result, call->session_id);
    json_object_update(done, end);
    json_decref(end);
    write_line(call, done);
    http_stream_end(call->request);
}

static void
command_on_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    struct command_call *call = arg;
    call->command = NULL;
    if (call->started)
        end_stream(call, result, err);
    else if (err)
        http_reply_error(call->request, err);
    else
        answer_at_once(call, result);
}

// ---- The request ----------------------------------------------------------------------------

static int
take_wait(struct http_request *request, bool *ret, struct kg_error *err)
{
    const char *text = http_request_query(request, "wait");
    *ret = text && strcmp(text, "1") == 0;
    if (text && !*ret && strcmp(text, "0") != 0)
        return kg_error_set(err, KG_INVALID, 0, "wait must be 0 or 1");
    return 0;
}

static int
commands_start(struct http_request *request, struct api_context *context, const json_t *root,
               struct kg_error *err)
{
    static const struct sandbox_command_events events = {command_on_started, command_on_output,
                                                         command_on_end};
    struct command_body body;
    bool waits;
    struct session *session = api_session(request, context, err);
    if (!session || take_wait(request, &waits, err) < 0 ||
        command_body_parse(context, root, &body, err) < 0)
        return -1;
    size_t max_output = context->face->max_output_bytes;
    if (max_output > MAX_WAIT_OUTPUT)
        max_output = MAX_WAIT_OUTPUT;
    const struct sandbox_command_spec spec = {
        .command = body.command,
        .cwd = body.cwd,
        .env = body.env,
        .timeout_ms = body.timeout_ms,
        .max_output_bytes = waits ? max_output : 0,
    };
    struct command_call *call = KG_NEW(struct command_call);
    call->request = request;
    call->waits = waits;
    call->deadline_ms = clock_mono_ms() + body.timeout_ms;
    call->watch = stream_watch_new(&(const struct stream_watch_settings){
        .loop = context->loop,
        .request = request,
        .tick_ms = STREAM_TICK_MS,
        .of_lines = true,
        .on_stalled = command_on_stalled,
        .waits_for_client = waits_for_client,
        .arg = call,
    });
    memcpy(call->session_id, session_id(session), strlen(session_id(session)));
    http_request_own(request, call, call_free);
    call->command = session_command_start(session, &spec, &events, call, err);
    if (!call->command)
        return -1;
    session_command_attend(call->command);
    return 0;
}

void
handle_session_command(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    json_auto_t *root = http_request_json(request, &err);
    if (!root || commands_start(request, arg, root, &err) < 0)
        http_reply_error(request, &err);
}
