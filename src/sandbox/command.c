// SPDX-License-Identifier: Apache-2.0
// Commands. Each is one streamed call of the agent, whose data is the output, and whose result says
// how the command ended.
#include <assert.h>

#include "agent_reply.h"
#include "sandbox_priv.h"

enum {
    START_TIMEOUT_MS = 10 * 1000,
    END_GRACE_MS = 10 * 1000, // after the timeout, for the agent to kill the command
    TEXT_FACTOR = 3,          // each byte may have become a U+FFFD
};

struct sandbox_command {
    struct sandbox_call *call;
    struct sandbox_command_events events;
    void *arg;
    struct loop_timer *overdue;
    int64_t timeout_ms;
    bool paused;
    size_t max_text; // limit of what an agent may send; 0: none
    size_t n_text;
};

static void
command_free(struct sandbox_command *command)
{
    if (command->call)
        sandbox_call_cancel(command->call);
    loop_timer_free(command->overdue);
    free(command);
}

void
sandbox_command_cancel(struct sandbox_command *command)
{
    command_free(command);
}

void
sandbox_command_pause(struct sandbox_command *command, bool paused)
{
    command->paused = paused;
    if (command->call)
        sandbox_stream_pause(command->call, paused);
}

// ---- The answer -----------------------------------------------------------------------------

// The call has ended, or is cancelled by this.
static void
command_finish(struct sandbox_command *command, const struct sandbox_command_result *result,
               const struct kg_error *err)
{
    const struct sandbox_command_events events = command->events;
    void *arg = command->arg;

    command_free(command);
    events.on_end(result, err, arg);
}

static void
command_on_head(const json_t *head, void *arg)
{
    struct sandbox_command *command = arg;
    (void)head;

    loop_timer_start(command->overdue, command->timeout_ms + END_GRACE_MS);
    if (command->events.on_started)
        command->events.on_started(command->arg);
}

static void
command_on_data(const void *data, size_t len, void *arg)
{
    struct sandbox_command *command = arg;
    bool is_stderr;
    struct kg_error err = {0};

    int text_len = agent_output_parse(data, len, &is_stderr, &err);
    if (text_len >= 0 && command->max_text &&
        (size_t)text_len > command->max_text - command->n_text)
        text_len = kg_error_set(&err, KG_INTERNAL, 0, "the agent sends more output than requested");
    if (text_len < 0) {
        command_finish(command, NULL, &err);
        return;
    }
    command->n_text += (size_t)text_len;
    command->events.on_output(is_stderr ? SANDBOX_STDERR : SANDBOX_STDOUT, (const char *)data + 1,
                              (size_t)text_len, command->arg);
}

static void
command_on_end(const json_t *end, const struct kg_error *call_err, void *arg)
{
    struct sandbox_command *command = arg;
    struct sandbox_command_result result;
    struct kg_error err = {0};

    command->call = NULL;
    if (end && agent_command_end_parse(end, &result, &err) == 0)
        command_finish(command, &result, NULL);
    else
        command_finish(command, NULL, end ? &err : call_err);
}

// While it is paused, output may still wait in front of the end.
static void
command_on_overdue(void *arg)
{
    struct sandbox_command *command = arg;
    struct kg_error err = {0};

    if (command->paused) {
        loop_timer_start(command->overdue, END_GRACE_MS);
        return;
    }
    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                       "the agent did not end a command in time");
    command_finish(command, NULL, &err);
}

// ---- Starting -------------------------------------------------------------------------------

// Runs $0 by bash, as people write commands, or by sh where the image has no bash.
static const char shell_script[] =
    "[ ! -x /bin/bash ] || exec /bin/bash -c \"$0\"; exec /bin/sh -c \"$0\"";

static json_t *
make_argv(const struct sandbox_command_spec *spec)
{
    assert(!spec->command != !spec->argv);
    if (spec->command)
        return json_pack("[s, s, s, s]", "/bin/sh", "-c", shell_script, spec->command);
    json_t *argv = json_array();
    for (const char *const *arg = spec->argv; *arg; arg++)
        json_array_append_new(argv, json_string(*arg));
    return argv;
}

// NULL if a string is not UTF-8.
static json_t *
make_params(const struct sandbox_command_spec *spec)
{
    json_t *params = json_pack("{s:o, s:I, s:I, s:s*}", "argv", make_argv(spec), "timeout_ms",
                               (json_int_t)spec->timeout_ms, "max_output_bytes",
                               (json_int_t)spec->max_output_bytes, "cwd", spec->cwd);
    if (params && spec->env)
        json_object_set(params, "env", (json_t *)(uintptr_t)spec->env);
    return params;
}

struct sandbox_command *
sandbox_command_start(struct sandbox *sandbox, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err)
{
    static const struct sandbox_stream_events stream_events = {command_on_head, command_on_data,
                                                               command_on_end};
    json_auto_t *params = make_params(spec);
    const struct sandbox_stream_spec stream = {
        .method = "commands.run", .params = params, .head_timeout_ms = START_TIMEOUT_MS};

    if (!params) {
        (void)kg_error_set(err, KG_INVALID, 0, "a command must be UTF-8");
        return NULL;
    }
    struct sandbox_command *command = KG_NEW(struct sandbox_command);
    command->events = *events;
    command->arg = arg;
    command->max_text = spec->max_output_bytes * TEXT_FACTOR;
    command->timeout_ms = spec->timeout_ms;
    command->overdue = loop_timer_new(sandbox->context.loop, command_on_overdue, command);
    command->call = sandbox_agent_stream(sandbox, &stream, &stream_events, command, err);
    if (command->call)
        return command;
    command_free(command);
    return NULL;
}
