// SPDX-License-Identifier: Apache-2.0
// The resource …/command: runs a command in the foreground, whose output is the answer, or in the
// background, and tells later how it is.

#include <string.h>

#include "opensandbox_priv.h"
#include "sandbox.h"
#include "session_commands.h"

enum {
    ARGV_MAX = 256,
    ARGV_BYTES_MAX = 64 << 10,
    CWD_BYTES_MAX = 4000,
    KEPT_TIMEOUT_MAX_MS = 24 * 3600 * 1000,
};

// ---- The body -------------------------------------------------------------------------------

// Borrowed from the JSON, but for `argv`.
struct command_body {
    const char *command;
    const char *argv[ARGV_MAX + 1];
    bool has_argv;
    const char *cwd;
    const json_t *env;
    int64_t timeout_ms; // 0: none is given
    bool background;
};

static int
take_argv(const json_t *root, struct command_body *ret, struct kg_error *err)
{
    const json_t *argv = json_object_get(root, "argv");
    size_t i, bytes = 0;
    json_t *word;
    if (!argv || json_is_null(argv))
        return 0;
    ret->has_argv = true;
    bool is_good = json_array_size(argv) > 0 && json_array_size(argv) <= ARGV_MAX;
    json_array_foreach(argv, i, word) {
        is_good = is_good && json_is_string(word) &&
                  strlen(json_string_value(word)) == json_string_length(word);
        if (!is_good)
            break;
        bytes += json_string_length(word);
        ret->argv[i] = json_string_value(word);
    }
    if (!is_good || bytes > ARGV_BYTES_MAX || !*ret->argv[0])
        return kg_error_set(err, KG_INVALID, 0,
                            "argv must be a program and its arguments: 1 to %d strings without "
                            "NUL, %d bytes",
                            ARGV_MAX, ARGV_BYTES_MAX);
    return 0;
}

static int
take_command(const json_t *root, struct command_body *ret, struct kg_error *err)
{
    if (os_take_string(root, "command", &ret->command, err) < 0 || take_argv(root, ret, err) < 0)
        return -1;
    if ((ret->command != NULL) == ret->has_argv)
        return kg_error_set(err, KG_INVALID, 0,
                            "command is missing: a text for the shell, or argv in its place");
    if (ret->command && strlen(ret->command) > SANDBOX_COMMAND_MAX)
        return kg_error_set(err, KG_CODE_TOO_LARGE, 0,
                            "command is %zu bytes; the limit is %d (write it to a file)",
                            strlen(ret->command), SANDBOX_COMMAND_MAX);
    return 0;
}

// Commands run as the sandbox's only user.
static int
refuse_user(const json_t *root, struct kg_error *err)
{
    static const char *const names[] = {"uid", "gid"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        const json_t *value = json_object_get(root, names[i]);
        if (value && !json_is_null(value))
            return kg_error_set(err, KG_INVALID, 0,
                                "%s: a sandbox has one user, as whom all commands run; leave it "
                                "out",
                                names[i]);
    }
    return 0;
}

static int
take_timeout(const struct opensandbox *self, const json_t *root, struct command_body *ret,
             struct kg_error *err)
{
    const json_t *value = json_object_get(root, "timeout");
    int64_t max = ret->background ? KEPT_TIMEOUT_MAX_MS : self->settings.face->max_timeout_ms;
    ret->timeout_ms = json_integer_value(value);
    if (value && !json_is_null(value) &&
        (!json_is_integer(value) || ret->timeout_ms < 0 || ret->timeout_ms > max))
        return kg_error_set(err, KG_INVALID, 0, "timeout must be 0 to %lld milliseconds",
                            (long long)max);
    if (ret->timeout_ms == 0 && !ret->background)
        ret->timeout_ms = max;
    return 0;
}

static int
body_parse(const struct opensandbox *self, const json_t *root, struct command_body *ret,
           struct kg_error *err)
{
    const json_t *background = json_object_get(root, "background");
    *ret = (struct command_body){.background = json_is_true(background)};
    if (background && !json_is_null(background) && !json_is_boolean(background))
        return kg_error_set(err, KG_INVALID, 0, "background must be true or false");
    if (take_command(root, ret, err) < 0 || refuse_user(root, err) < 0 ||
        os_take_string(root, "cwd", &ret->cwd, err) < 0 ||
        os_take_env(root, "envs", &ret->env, err) < 0 || take_timeout(self, root, ret, err) < 0)
        return -1;
    if (ret->cwd && strlen(ret->cwd) > CWD_BYTES_MAX)
        return kg_error_set(err, KG_INVALID_PATH, 0, "cwd is longer than %d bytes", CWD_BYTES_MAX);
    if (ret->cwd && !*ret->cwd)
        ret->cwd = NULL;
    return 0;
}

// ---- In the foreground ----------------------------------------------------------------------

struct command_stream {
    struct http_request *request;
    struct answer_stream *events;
    struct session_command *command;
    struct command_lines lines[2]; // by enum sandbox_stream
    bool paused;
    int64_t deadline_ms; // until then a client may read as slowly as it likes
};

static void
stream_free(void *arg)
{
    struct command_stream *stream = arg;
    if (stream->command)
        session_command_cancel(stream->command);
    answer_stream_free(stream->events);
    buf_fini(&stream->lines[SANDBOX_STDOUT].partial);
    buf_fini(&stream->lines[SANDBOX_STDERR].partial);
    free(stream);
}

static void
stream_pause(struct command_stream *stream, bool paused)
{
    if (stream->command && paused != stream->paused)
        session_command_pause(stream->command, paused);
    stream->paused = paused;
}

static void
stream_on_drain(void *arg)
{
    stream_pause(arg, false);
}

static bool
stream_waits_for_client(const void *arg)
{
    const struct command_stream *stream = arg;
    return clock_mono_ms() > stream->deadline_ms;
}

static void
stream_on_stalled(void *arg)
{
    const struct command_stream *stream = arg;
    http_stream_abort(stream->request);
}

static const char *
name_of(enum sandbox_stream kind)
{
    return kind == SANDBOX_STDERR ? "stderr" : "stdout";
}

static void
stream_on_started(const struct sandbox_command_start *start, void *arg)
{
    const struct command_stream *stream = arg;
    answer_stream_start(stream->events, start->id);
}

static void
stream_on_output(enum sandbox_stream kind, const char *text, size_t len, void *arg)
{
    struct command_stream *stream = arg;
    KG_AUTO_BUF events = {0};
    struct command_lines *lines =
        &stream->lines[kind == SANDBOX_STDERR ? SANDBOX_STDERR : SANDBOX_STDOUT];
    command_lines_append(lines, &events, name_of(kind), text, len);
    answer_stream_write(stream->events, &events);
    if (answer_stream_is_full(stream->events))
        stream_pause(stream, true);
}

// The client reads the exit code as a number in `evalue`.
static void
append_end(struct buf *events, const struct sandbox_command_result *result,
           const struct kg_error *err)
{
    char code[16];
    if (err) {
        event_add_error(events, "CommandLost", err->message);
        return;
    }
    if (result->timed_out)
        event_add_string(events, "status", "text", "timeout", strlen("timeout"));
    if (result->exit_code != 0) {
        snprintf(code, sizeof code, "%d", result->exit_code);
        event_add_error(events, "CommandExecError", code);
        return;
    }
    event_begin(events, "execution_complete");
    buf_printf(events, ",\"execution_time\":%lld", (long long)result->duration_ms);
    event_end(events);
}

static void
stream_on_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    struct command_stream *stream = arg;
    KG_AUTO_BUF events = {0};
    stream->command = NULL;
    if (!answer_stream_has_started(stream->events)) {
        http_reply_error(stream->request, err);
        return;
    }
    command_lines_end(&stream->lines[SANDBOX_STDOUT], &events, "stdout");
    command_lines_end(&stream->lines[SANDBOX_STDERR], &events, "stderr");
    append_end(&events, result, err);
    answer_stream_write(stream->events, &events);
    http_stream_end(stream->request);
}

static int
run(struct http_request *request, const struct opensandbox *self, struct session *session,
    const struct sandbox_command_spec *spec, struct kg_error *err)
{
    static const struct sandbox_command_events events = {
        .on_started = stream_on_started, .on_output = stream_on_output, .on_end = stream_on_end};
    struct command_stream *stream = KG_NEW(struct command_stream);
    stream->request = request;
    stream->deadline_ms = clock_mono_ms() + spec->timeout_ms;
    stream->events = answer_stream_new(&(const struct answer_stream_settings){
        .loop = self->settings.loop,
        .request = request,
        .on_drain = stream_on_drain,
        .on_stalled = stream_on_stalled,
        .waits_for_client = stream_waits_for_client,
        .arg = stream,
    });
    http_request_own(request, stream, stream_free);
    stream->command = session_command_start(session, spec, &events, stream, err);
    if (!stream->command)
        return -1;
    session_command_attend(stream->command);
    return 0;
}

// ---- Calls of the agent ---------------------------------------------------------------------

struct command_call {
    struct http_request *request;
    struct sandbox_call *call;
    char id[SANDBOX_COMMAND_ID_MAX + 1];
};

static void
call_free(void *arg)
{
    struct command_call *call = arg;
    sandbox_call_cancel(call->call);
    free(call);
}

static struct command_call *
call_new(struct http_request *request)
{
    struct command_call *call = KG_NEW(struct command_call);
    call->request = request;
    http_request_own(request, call, call_free);
    return call;
}

// The sandbox, and a call about the command `id`; NULL: the error is to be answered.
static struct command_call *
call_about(struct http_request *request, struct session *session, const char *id,
           struct sandbox **ret, struct kg_error *err)
{
    *ret = session_commands_sandbox(session, err);
    if (!*ret)
        return NULL;
    if (!sandbox_command_id_valid(id)) {
        kg_error_set(err, KG_NOT_FOUND, 0, "no command %.40s", id);
        return NULL;
    }
    struct command_call *call = call_new(request);
    memcpy(call->id, id, strlen(id)); // it fits
    return call;
}

static void
wait_for(struct http_request *request, const struct command_call *call, const struct kg_error *err)
{
    if (!call || !call->call)
        http_reply_error(request, err);
}

// ---- In the background ----------------------------------------------------------------------

// `init` with the id, and the end at once.
static void
reply_complete(struct http_request *request, const char *id)
{
    KG_AUTO_BUF events = {0};
    event_add_string(&events, "init", "text", id, strlen(id));
    event_begin(&events, "execution_complete");
    buf_append_str(&events, ",\"execution_time\":0");
    event_end(&events);
    answer_stream_reply(request, &events);
}

static void
on_detached(const json_t *result, const struct kg_error *err, void *arg)
{
    struct command_call *call = arg;
    struct sandbox_command_start start;
    struct kg_error why = {0};
    call->call = NULL;
    if (!result || sandbox_command_detach_parse(result, &start, &why) < 0) {
        http_reply_error(call->request, result ? &why : err);
        return;
    }
    reply_complete(call->request, start.id);
}

// With this command OpenSandbox's SDKs ask again and again whether their code interpreter is ready:
// whether a Jupyter server listens in the sandbox. Here the gateway is that server, and knows: a
// sandbox is made with its kernel.
static const char readiness_probe[] =
    "bash -c 'exec 3<>/dev/tcp/127.0.0.1/${JUPYTER_PORT:-44771}' && exit 0 || exit 1";

static bool
is_readiness_probe(const struct session *session, const struct command_body *body)
{
    return session_sandbox(session) && body->command && !body->background &&
           strcmp(body->command, readiness_probe) == 0;
}

void
handle_os_command(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    struct command_body body;
    struct session *session = find_sandbox(request, self);
    if (!session)
        return;
    json_auto_t *root = os_body_object(request, &err);
    if (!root || body_parse(self, root, &body, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    if (is_readiness_probe(session, &body)) {
        reply_complete(request, "_ready");
        return;
    }
    const struct sandbox_command_spec spec = {
        .command = body.command,
        .argv = body.has_argv ? body.argv : NULL,
        .cwd = body.cwd,
        .env = body.env,
        .timeout_ms = body.timeout_ms,
        .keep = body.background,
    };
    if (body.background) {
        struct command_call *call = call_new(request);
        call->call = session_command_detach(session, &spec, on_detached, call, &err);
        wait_for(request, call, &err);
    } else if (run(request, self, session, &spec, &err) < 0) {
        http_reply_error(request, &err);
    }
}

void
handle_os_shell(struct http_request *request, void *arg)
{
    if (find_sandbox(request, arg))
        reply_not_served(request, 400,
                         "shells that keep their state between commands are not served; send the "
                         "commands together, or cwd and envs with each");
}

// ---- Interrupting ---------------------------------------------------------------------------

static void
on_signalled(const json_t *result, const struct kg_error *err, void *arg)
{
    struct command_call *call = arg;
    call->call = NULL;
    if (result)
        os_reply_empty(call->request);
    else
        http_reply_error(call->request, err);
}

void
handle_os_command_interrupt(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct sandbox *sandbox;
    const char *id = http_request_query(request, "id");
    struct session *session = find_sandbox(request, arg);
    if (!session)
        return;
    struct command_call *call = call_about(request, session, id ? id : "", &sandbox, &err);
    if (call)
        call->call = sandbox_command_signal(sandbox, call->id, "TERM", on_signalled, call, &err);
    wait_for(request, call, &err);
}

// ---- Status ---------------------------------------------------------------------------------

static json_t *
describe_status(const json_t *info)
{
    json_int_t age_ms = json_integer_value(json_object_get(info, "age_ms"));
    const json_t *exit_code = json_object_get(info, "exit_code");
    json_t *ret =
        json_pack("{s:O, s:O, s:O, s:o}", "id", json_object_get(info, "id"), "content",
                  json_object_get(info, "command"), "running", json_object_get(info, "running"),
                  "started_at", os_rfc3339(clock_wall_ms() - age_ms));
    if (exit_code)
        json_object_set(ret, "exit_code", (json_t *)(uintptr_t)exit_code);
    return ret;
}

static void
on_listed(const json_t *result, const struct kg_error *err, void *arg)
{
    struct command_call *call = arg;
    struct kg_error why = {0};
    size_t i;
    json_t *info;
    call->call = NULL;
    json_auto_t *list = result ? sandbox_command_list_parse(result, &why) : NULL;
    if (!list) {
        http_reply_error(call->request, result ? &why : err);
        return;
    }
    json_array_foreach(list, i, info) {
        if (strcmp(json_string_value(json_object_get(info, "id")), call->id) == 0) {
            http_reply_json(call->request, 200, describe_status(info));
            return;
        }
    }
    kg_error_set(&why, KG_NOT_FOUND, 0, "no command %s", call->id);
    http_reply_error(call->request, &why);
}

void
handle_os_command_status(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct sandbox *sandbox;
    struct session *session = find_sandbox(request, arg);
    if (!session)
        return;
    struct command_call *call =
        call_about(request, session, http_request_param(request, "command"), &sandbox, &err);
    if (call)
        call->call = sandbox_command_list(sandbox, on_listed, call, &err);
    wait_for(request, call, &err);
}

// ---- Logs -----------------------------------------------------------------------------------

// What a command has written until now, as far as its agent has kept it. Positions are counted in
// bytes of the whole output.
struct command_logs {
    struct http_request *request;
    struct session_command *command;
    int64_t cursor; // where the client goes on
    int64_t at, end;
    struct buf text;
};

static void
logs_free(void *arg)
{
    struct command_logs *logs = arg;
    if (logs->command)
        session_command_cancel(logs->command);
    buf_fini(&logs->text);
    free(logs);
}

static void
logs_reply(struct command_logs *logs)
{
    KG_AUTO_FREE char *tail = kg_asprintf("%lld", (long long)logs->at);
    size_t len = logs->text.len;
    http_reply_header(logs->request, "EXECD-COMMANDS-TAIL-CURSOR", tail);
    http_reply_take(logs->request, 200, "text/plain; charset=utf-8",
                    len > 0 ? buf_take(&logs->text) : kg_strdup(""), len);
}

static void
logs_on_started(const struct sandbox_command_start *start, void *arg)
{
    struct command_logs *logs = arg;
    logs->at = start->dropped_bytes;
    logs->end = start->kept_bytes < 0 ? INT64_MAX : start->dropped_bytes + start->kept_bytes;
    if (logs->at >= logs->end)
        logs_reply(logs);
}

static void
logs_on_output(enum sandbox_stream kind, const char *text, size_t len, void *arg)
{
    (void)kind;
    struct command_logs *logs = arg;
    int64_t skipped = logs->cursor > logs->at ? logs->cursor - logs->at : 0;
    logs->at += (int64_t)len;
    if (skipped < (int64_t)len)
        buf_append(&logs->text, text + skipped, len - (size_t)skipped);
    if (logs->at >= logs->end)
        logs_reply(logs);
}

static void
logs_on_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    (void)result;
    struct command_logs *logs = arg;
    logs->command = NULL;
    if (err)
        http_reply_error(logs->request, err);
    else
        logs_reply(logs);
}

void
handle_os_command_logs(struct http_request *request, void *arg)
{
    static const struct sandbox_command_events events = {
        .on_started = logs_on_started, .on_output = logs_on_output, .on_end = logs_on_end};
    struct kg_error err = {0};
    const char *id = http_request_param(request, "command");
    int64_t cursor;
    struct session *session = find_sandbox(request, arg);
    if (!session)
        return;
    if (parse_number(http_request_query(request, "cursor"), "cursor", 0, INT64_MAX, &cursor, &err) <
        0) {
        http_reply_error(request, &err);
        return;
    }
    if (!sandbox_command_id_valid(id)) {
        kg_error_set(&err, KG_NOT_FOUND, 0, "no command %.40s", id);
        http_reply_error(request, &err);
        return;
    }
    struct command_logs *logs = KG_NEW(struct command_logs);
    *logs = (struct command_logs){.request = request, .cursor = cursor};
    http_request_own(request, logs, logs_free);
    logs->command = session_command_join(session, id, false, &events, logs, &err);
    if (!logs->command)
        http_reply_error(request, &err);
}
