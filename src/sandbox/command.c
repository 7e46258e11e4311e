// SPDX-License-Identifier: Apache-2.0
// Commands: one streamed call of the agent each, whose lines are its output and its end.
#include <assert.h>
#include <string.h>

#include "agent_reply.h"
#include "sandbox_priv.h"

enum {
    START_TIMEOUT_MS = 10 * 1000,
    END_GRACE_MS = 10 * 1000, // beyond the timeout, for the agent to kill what does not end
    TEXT_FACTOR = 3,          // each byte may have become a U+FFFD
};

struct sandbox_command {
    struct sandbox_call *call;
    struct sandbox_command_events events;
    void *arg;
    struct agent_lines lines;
    struct loop_timer *overdue;
    int64_t timeout_ms;
    bool paused;
    size_t max_text; // what a truthful agent can send; 0: any amount
    size_t n_text;
    bool ended; // the last line has come
    struct sandbox_command_result result;
    struct kg_error err; // why it was cut
    int depth;           // of callbacks under way, during which it is not freed
    bool cancelled;
};

static void
command_free(struct sandbox_command *command)
{
    if (command->call)
        sandbox_call_cancel(command->call);
    loop_timer_free(command->overdue);
    agent_lines_fini(&command->lines);
    free(command);
}

// Returns whether the command is still there.
static bool
leave(struct sandbox_command *command)
{
    command->depth--;
    if (!command->cancelled)
        return true;
    if (command->depth == 0)
        command_free(command);
    return false;
}

void
sandbox_command_cancel(struct sandbox_command *command)
{
    command->cancelled = true;
    if (command->depth == 0)
        command_free(command);
    else if (command->call)
        sandbox_call_cancel(KG_STEAL(command->call));
}

void
sandbox_command_pause(struct sandbox_command *command, bool paused)
{
    command->paused = paused;
    if (command->call)
        sandbox_stream_pause(command->call, paused);
}

// ---- What the agent says --------------------------------------------------------------------

static void
take_text(struct sandbox_command *command, enum sandbox_stream stream, const json_t *text)
{
    size_t len = json_string_length(text);

    if (command->max_text && len > command->max_text - command->n_text) {
        (void)kg_error_set(&command->err, KG_INTERNAL, 0, "the agent sends more than it was asked");
        return;
    }
    command->n_text += len;
    command->events.on_output(stream, json_string_value(text), len, command->arg);
}

static void
on_line(const char *text, size_t len, void *arg)
{
    struct sandbox_command *command = arg;
    struct agent_command_line line;

    if (command->cancelled || command->ended || command->err.code != KG_OK)
        return;
    if (!text) {
        (void)kg_error_set(&command->err, KG_INTERNAL, 0, "a line of the agent's is too long");
        return;
    }
    if (agent_command_parse(text, len, &line, &command->err) != 0)
        return;
    if (line.is_end) {
        command->ended = true;
        command->result = line.result;
        return;
    }
    take_text(command, line.stream, line.text);
    json_decref(line.text);
}

static void
on_head(int status, void *arg)
{
    struct sandbox_command *command = arg;
    (void)status;

    loop_timer_start(command->overdue, command->timeout_ms + END_GRACE_MS);
    command->depth++;
    if (command->events.on_started)
        command->events.on_started(command->arg);
    (void)leave(command);
}

// Tells the end; the call is gone by now, or is cancelled here.
static void
finish(struct sandbox_command *command, const struct kg_error *err)
{
    const struct sandbox_command_events events = command->events;
    const struct sandbox_command_result result = command->result;
    void *arg = command->arg;

    command_free(command);
    events.on_end(err ? NULL : &result, err, arg);
}

static void
on_data(const void *data, size_t len, void *arg)
{
    struct sandbox_command *command = arg;

    command->depth++;
    agent_lines_feed(&command->lines, data, len, on_line, command);
    if (!leave(command))
        return;
    if (command->err.code != KG_OK) {
        const struct kg_error err = command->err;
        finish(command, &err);
    }
}

static void
on_end(const struct kg_error *call_err, void *arg)
{
    struct sandbox_command *command = arg;
    struct kg_error err = {0};

    command->call = NULL;
    if (!command->ended && !call_err) {
        (void)kg_error_set(&err, KG_INTERNAL, 0, "the agent ended a command's answer too early");
        call_err = &err;
    }
    finish(command, command->ended ? NULL : call_err);
}

// What the reader has not taken may stand before the end.
static void
on_overdue(void *arg)
{
    struct sandbox_command *command = arg;
    struct kg_error err = {0};

    if (command->paused) {
        loop_timer_start(command->overdue, END_GRACE_MS);
        return;
    }
    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "the agent does not end a command");
    finish(command, &err);
}

// ---- Starting -------------------------------------------------------------------------------

static json_t *
make_argv(const struct sandbox_command_spec *spec)
{
    assert(!spec->command != !spec->argv);
    if (spec->command)
        return json_pack("[s, s, s]", "/bin/sh", "-c", spec->command);
    json_t *argv = json_array();
    for (const char *const *arg = spec->argv; *arg; arg++)
        json_array_append_new(argv, json_string(*arg));
    return argv;
}

// NULL where a string is not UTF-8.
static char *
make_body(const struct sandbox_command_spec *spec)
{
    json_auto_t *body = json_pack("{s:o, s:I, s:I}", "argv", make_argv(spec), "timeout_ms",
                                  (json_int_t)spec->timeout_ms, "max_output_bytes",
                                  (json_int_t)spec->max_output_bytes);
    if (spec->cwd)
        json_object_set_new(body, "cwd", json_string(spec->cwd));
    if (spec->env)
        json_object_set(body, "env", (json_t *)(uintptr_t)spec->env);
    return body ? json_dumps(body, JSON_COMPACT) : NULL;
}

struct sandbox_command *
sandbox_command_start(struct sandbox *sandbox, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err)
{
    static const struct sandbox_stream_events stream_events = {on_head, on_data, on_end};
    KG_AUTO_FREE char *body = make_body(spec);
    const struct sandbox_stream_spec stream = {
        .method = "POST",
        .path = "/exec",
        .content_type = "application/json",
        .body = body,
        .body_len = body ? strlen(body) : 0,
        .head_timeout_ms = START_TIMEOUT_MS,
    };

    if (!body) {
        (void)kg_error_set(err, KG_INVALID, 0, "a command must be UTF-8");
        return NULL;
    }
    struct sandbox_command *command = KG_NEW(struct sandbox_command);
    command->events = *events;
    command->arg = arg;
    command->lines.max = AGENT_COMMAND_LINE_MAX;
    command->max_text = spec->max_output_bytes * TEXT_FACTOR;
    command->timeout_ms = spec->timeout_ms;
    command->overdue = loop_timer_new(sandbox->context.loop, on_overdue, command);
    command->call = sandbox_agent_stream(sandbox, &stream, &stream_events, command, err);
    if (command->call)
        return command;
    command_free(command);
    return NULL;
}
