// SPDX-License-Identifier: Apache-2.0
// Commands. Each is one streamed call of the agent, whose data is the output, and whose result says
// how the command ended.
#include "agent_reply.h"
#include "command_params.h"
#include "sandbox_priv.h"

enum {
    HEAD_TIMEOUT_MS = 10 * 1000,
    END_GRACE_MS = 10 * 1000, // after the timeout, for the agent to kill the command
    TEXT_FACTOR = 3,          // each byte may have become a U+FFFD
};

struct sandbox_command {
    struct sandbox_call *call;
    struct sandbox_command_events events;
    void *arg;
    struct loop_timer *overdue;
    int64_t timeout_ms; // 0: none
    bool paused;
    bool terminal;
    bool joins;      // one whose kind only the agent knows; else it is as it was asked for
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
    struct sandbox_command_start start;
    struct kg_error err = {0};

    int result = agent_command_start_parse(head, &start, &err);
    if (result == 0 && !command->joins && start.terminal != command->terminal)
        result = kg_error_set(&err, KG_INTERNAL, 0, "the agent starts another kind of command");
    if (result != 0) {
        command_finish(command, NULL, &err);
        return;
    }
    command->terminal = start.terminal;
    if (command->timeout_ms > 0)
        loop_timer_start(command->overdue, command->timeout_ms + END_GRACE_MS);
    if (command->events.on_started)
        command->events.on_started(&start, command->arg);
}

// What the command may say: neither more than was asked for, nor in another way.
static int
check_output(const struct sandbox_command *command, const struct agent_output *output,
             struct kg_error *err)
{
    bool missed = output->kind == AGENT_OUTPUT_MISSED;

    if (missed ? !command->events.on_missed
               : (output->kind == AGENT_OUTPUT_TERMINAL) != command->terminal)
        return kg_error_set(err, KG_INTERNAL, 0, "the agent sends output of another kind");
    if (!missed && command->max_text && output->len > command->max_text - command->n_text)
        return kg_error_set(err, KG_INTERNAL, 0, "the agent sends more output than requested");
    return 0;
}

static void
command_on_data(const void *data, size_t len, void *arg)
{
    static const enum sandbox_stream streams[] = {[AGENT_OUTPUT_STDOUT] = SANDBOX_STDOUT,
                                                  [AGENT_OUTPUT_STDERR] = SANDBOX_STDERR,
                                                  [AGENT_OUTPUT_TERMINAL] = SANDBOX_TERMINAL};
    struct sandbox_command *command = arg;
    struct agent_output output;
    struct kg_error err = {0};

    if (agent_output_parse(data, len, &output, &err) != 0 ||
        check_output(command, &output, &err) != 0) {
        command_finish(command, NULL, &err);
        return;
    }
    if (output.kind == AGENT_OUTPUT_MISSED) {
        command->events.on_missed(output.missed_bytes, command->arg);
        return;
    }
    command->n_text += output.len;
    command->events.on_output(streams[output.kind], output.text, output.len, command->arg);
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

static struct sandbox_command *
command_new(struct sandbox *sandbox, const char *method, const json_t *params,
            const struct sandbox_command_events *events, void *arg, struct kg_error *err)
{
    static const struct sandbox_stream_events stream_events = {command_on_head, command_on_data,
                                                               command_on_end};
    const struct sandbox_stream_spec stream = {
        .method = method, .params = params, .head_timeout_ms = HEAD_TIMEOUT_MS};
    struct sandbox_command *command = KG_NEW(struct sandbox_command);

    command->events = *events;
    command->arg = arg;
    command->overdue = loop_timer_new(sandbox->context.loop, command_on_overdue, command);
    command->call = sandbox_agent_stream(sandbox, &stream, &stream_events, command, err);
    if (command->call)
        return command;
    command_free(command);
    return NULL;
}

struct sandbox_command *
sandbox_command_start(struct sandbox *sandbox, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err)
{
    json_auto_t *params = command_params(spec);

    if (!params) {
        (void)kg_error_set(err, KG_INVALID, 0, "a command must be UTF-8");
        return NULL;
    }
    struct sandbox_command *command =
        command_new(sandbox, "commands.run", params, events, arg, err);
    if (!command)
        return NULL;
    command->terminal = spec->cols > 0;
    command->max_text = spec->max_output_bytes * TEXT_FACTOR;
    command->timeout_ms = spec->timeout_ms;
    return command;
}

struct sandbox_command *
sandbox_command_join(struct sandbox *sandbox, const char *id, bool holds,
                     const struct sandbox_command_events *events, void *arg, struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:s, s:b}", "id", id, "hold", (int)holds);

    struct sandbox_command *command =
        command_new(sandbox, "commands.join", params, events, arg, err);
    if (command)
        command->joins = true;
    return command;
}
