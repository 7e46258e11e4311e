// SPDX-License-Identifier: Apache-2.0
// POST /api/v1/sessions/{id}/commands, and GET …/commands/{command}/output: starting a command, and
// following one that was started.

#include <string.h>

#include "api_priv.h"
#include "command_calls_priv.h"
#include "session.h"
#include "session_commands.h"

enum { MAX_WAIT_OUTPUT = 1 << 20 }; // bytes of both streams together in one answer

static int
take_wait(struct http_request *request, const struct command_body *body, bool *ret,
          struct kg_error *err)
{
    const char *text = http_request_query(request, "wait");
    *ret = text && strcmp(text, "1") == 0;
    if (text && !*ret && strcmp(text, "0") != 0)
        return kg_error_set(err, KG_INVALID, 0, "wait must be 0 or 1");
    if (*ret && (body->cols || body->background))
        return kg_error_set(err, KG_INVALID, 0,
                            "wait=1 is for commands that run in the foreground, without a "
                            "terminal");
    return 0;
}

static size_t
max_wait_output(const struct api_context *context)
{
    size_t max = context->face->max_output_bytes;
    return max < MAX_WAIT_OUTPUT ? max : MAX_WAIT_OUTPUT;
}

// Starts it, and streams what it writes.
static int
stream_command(struct http_request *request, struct api_context *context, struct session *session,
               const struct command_body *body, const struct sandbox_command_spec *spec, bool waits,
               struct kg_error *err)
{
    struct command_stream *stream = command_stream_new(
        request, &(const struct command_stream_settings){
                     .context = context,
                     .session = session,
                     .waits = waits,
                     .starts_with_line = body->has_id,
                     .follows = body->keep,
                     .deadline_ms = body->keep ? 0 : clock_mono_ms() + body->timeout_ms,
                 });
    struct session_command *command =
        session_command_start(session, spec, &command_stream_events, stream, err);
    if (!command)
        return -1;
    command_stream_take(stream, command);
    session_command_attend(command);
    return 0;
}

static int
commands_start(struct http_request *request, struct api_context *context, const json_t *root,
               struct kg_error *err)
{
    struct command_body body;
    bool waits;
    struct session *session = api_session(request, context, err);
    if (!session || command_body_parse(context, root, &body, err) < 0 ||
        take_wait(request, &body, &waits, err) < 0)
        return -1;
    const struct sandbox_command_spec spec = {
        .command = body.command,
        .cwd = body.cwd,
        .env = body.env,
        .timeout_ms = body.timeout_ms,
        .max_output_bytes = waits ? max_wait_output(context) : 0,
        .id = body.id,
        .keep = body.keep,
        .with_stdin = body.with_stdin,
        .cols = body.cols,
        .rows = body.rows,
    };
    if (body.background)
        return command_call_detach(request, session, &spec, err);
    return stream_command(request, context, session, &body, &spec, waits, err);
}

void
handle_session_command(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    json_auto_t *root = http_request_json(request, &err);
    if (!root || commands_start(request, arg, root, &err) < 0)
        http_reply_error(request, &err);
}

static int
join(struct http_request *request, struct api_context *context, struct kg_error *err)
{
    struct session *session = api_session(request, context, err);
    const char *id = http_request_param(request, "command");
    if (!session || command_id_check(id, err) < 0)
        return -1;
    struct command_stream *stream =
        command_stream_new(request, &(const struct command_stream_settings){
                                        .context = context,
                                        .session = session,
                                        .starts_with_line = true,
                                        .follows = true,
                                    });
    struct session_command *command =
        session_command_join(session, id, false, &command_stream_events, stream, err);
    if (!command)
        return -1;
    command_stream_take(stream, command);
    session_command_attend(command);
    return 0;
}

void
handle_command_output(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    if (join(request, arg, &err) < 0)
        http_reply_error(request, &err);
}
