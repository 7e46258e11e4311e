// SPDX-License-Identifier: Apache-2.0
// Commands that run as the test says.

#include "fake_command.h"

#include <string.h>
#include <sys/queue.h>

struct sandbox_command {
    TAILQ_ENTRY(sandbox_command) link;
    struct sandbox_command_events events;
    void *arg;
    json_t *request;
    bool paused;
};

static struct {
    TAILQ_HEAD(command_list, sandbox_command) list;
    bool refuses;
} fakes = {.list = TAILQ_HEAD_INITIALIZER(fakes.list)};

struct sandbox_command *
fake_command_last(void)
{
    return TAILQ_LAST(&fakes.list, command_list);
}

size_t
fake_commands_count(void)
{
    size_t n = 0;
    struct sandbox_command *command;
    TAILQ_FOREACH(command, &fakes.list, link)
        n++;
    return n;
}

const json_t *
fake_command_request(const struct sandbox_command *command)
{
    return command->request;
}

bool
fake_command_paused(const struct sandbox_command *command)
{
    return command->paused;
}

void
fake_command_refuse(void)
{
    fakes.refuses = true;
}

void
fake_command_start_and_print(struct sandbox_command *command, const char *text)
{
    const struct sandbox_command_start start = {.id = "_1", .pid = 1, .running = true};

    command->events.on_started(&start, command->arg);
    command->events.on_output(SANDBOX_STDERR, text, strlen(text), command->arg);
}

void
fake_command_print(struct sandbox_command *command, const char *text)
{
    command->events.on_output(SANDBOX_STDOUT, text, strlen(text), command->arg);
}

void
fake_command_end(struct sandbox_command *command, const struct sandbox_command_result *result,
                 const struct kg_error *err)
{
    const struct sandbox_command_events events = command->events;
    void *arg = command->arg;
    sandbox_command_cancel(command);
    events.on_end(result, err, arg);
}

// ---- As sandbox.h has them ------------------------------------------------------------------

struct sandbox_command *
sandbox_command_start(struct sandbox *sandbox, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err)
{
    (void)sandbox;
    if (fakes.refuses) {
        fakes.refuses = false;
        kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the agent cannot be asked");
        return NULL;
    }
    struct sandbox_command *command = KG_NEW(struct sandbox_command);
    command->events = *events;
    command->arg = arg;
    command->request =
        json_pack("{s:s, s:s*, s:I, s:O}", "command", spec->command ? spec->command : spec->argv[0],
                  "cwd", spec->cwd, "timeout_ms", (json_int_t)spec->timeout_ms, "env", spec->env);
    TAILQ_INSERT_TAIL(&fakes.list, command, link);
    return command;
}

struct sandbox_command *
sandbox_command_join(struct sandbox *sandbox, const char *id, bool holds,
                     const struct sandbox_command_events *events, void *arg, struct kg_error *err)
{
    const struct sandbox_command_spec spec = {.command = id, .keep = true};
    (void)holds;
    return sandbox_command_start(sandbox, &spec, events, arg, err);
}

void
sandbox_command_cancel(struct sandbox_command *command)
{
    TAILQ_REMOVE(&fakes.list, command, link);
    json_decref(command->request);
    free(command);
}

void
sandbox_command_pause(struct sandbox_command *command, bool paused)
{
    command->paused = paused;
}
