// SPDX-License-Identifier: Apache-2.0
// Commands of a session: queued until it has a sandbox, run with its environment, ended with it.

#include <stdio.h>
#include <string.h>

#include "metrics.h"
#include "session_commands.h"
#include "sessions_priv.h"

// While `running` is NULL it waits for the session's sandbox.
struct session_command {
    TAILQ_ENTRY(session_command) link;
    struct session *session;
    struct sandbox_command_events events;
    void *arg;
    int64_t asked_us; // clock_mono_us()
    struct sandbox_command *running;
    bool paused;
    bool attended;                       // by a client
    bool follows;                        // one that runs without it
    json_t *request;                     // while it waits: {command or argv, cwd, env, id, note}
    struct sandbox_command_spec waiting; // the rest
};

static void
command_free(struct session_command *command)
{
    TAILQ_REMOVE(&command->session->commands, command, link);
    json_decref(command->request);
    free(command);
}

// ---- Environment ----------------------------------------------------------------------------

static bool
has_folder(const struct buf *path, const char *folder, size_t len)
{
    for (const char *at = path->data; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        if (strncmp(at, folder, len) == 0 && (at[len] == ':' || at[len] == '\0'))
            return true;
    }
    return false;
}

static void
add_folders(struct buf *path, const struct kernelspec *spec)
{
    const char *folder = json_string_value(json_object_get(spec->env, "PATH"));
    while (folder && *folder) {
        size_t len = strcspn(folder, ":");
        if (len > 0 && !has_folder(path, folder, len)) {
            buf_append(path, ":", path->len > 0);
            buf_append(path, folder, len);
        }
        folder += len + (folder[len] == ':');
    }
}

// The environment of the kernels, so that `python` is the kernel's. The default kernel's PATH is
// first. Python programs show what they print before they are stopped.
static json_t *
make_env(const struct session *session, const json_t *own)
{
    const struct sessions_settings *settings = &session->sessions->settings;
    json_t *env = json_pack("{s:s}", "PYTHONUNBUFFERED", "1");
    KG_AUTO_BUF path = {0};
    json_object_update(env, (json_t *)(uintptr_t)settings->kernels->env);
    add_folders(&path, settings->pooled_spec);
    for (size_t i = 0; i < kernelspecs_count(settings->specs); i++)
        add_folders(&path, kernelspecs_at(settings->specs, i));
    if (path.len > 0)
        json_object_set_new(env, "PATH", json_string(path.data));
    json_object_update(env, session->env);
    if (own)
        json_object_update(env, (json_t *)(uintptr_t)own);
    return env;
}

// ---- Running --------------------------------------------------------------------------------

static void
on_started(const struct sandbox_command_start *start, void *arg)
{
    struct session_command *command = arg;
    if (command->events.on_started)
        command->events.on_started(start, command->arg);
}

static void
commands_on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct session_command *command = arg;
    command->events.on_output(stream, text, len, command->arg);
}

static void
commands_on_missed(int64_t bytes, void *arg)
{
    struct session_command *command = arg;
    command->events.on_missed(bytes, command->arg);
}

static void
count(const struct session_command *command, const struct sandbox_command_result *result)
{
    if (command->follows)
        return;
    const char *status = !result             ? "failed"
                         : result->timed_out ? "timeout"
                         : result->exit_code ? "error"
                                             : "ok";
    metric_add(METRIC_COMMANDS, 1, status);
    if (result)
        metric_observe_since(METRIC_COMMAND_SECONDS, command->asked_us);
}

static void
on_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    struct session_command *command = arg;
    struct session *session = command->session;
    const struct sandbox_command_events events = command->events;
    void *events_arg = command->arg;
    count(command, result);
    session_touch(session);
    loop_timer_start(session->step, 0);
    command_free(command);
    events.on_end(result, err, events_arg);
}

static int
commands_run(struct session_command *command, const struct sandbox_command_spec *spec,
             struct kg_error *err)
{
    static const struct sandbox_command_events events = {
        .on_started = on_started, .on_output = commands_on_output, .on_end = on_end};
    struct session *session = command->session;
    json_auto_t *env = make_env(session, spec->env);
    struct sandbox_command_spec own = *spec;
    own.env = env;
    command->running = sandbox_command_start(session->sandbox, &own, &events, command, err);
    if (!command->running)
        return -1;
    if (command->paused)
        sandbox_command_pause(command->running, true);
    return 0;
}

// ---- Waiting --------------------------------------------------------------------------------

static void
keep(struct session_command *command, const struct sandbox_command_spec *spec)
{
    command->request = json_object();
    command->waiting = *spec;
    if (spec->id)
        json_object_set_new(command->request, "id", json_string(spec->id));
    if (spec->note)
        json_object_set_new(command->request, "note", json_string(spec->note));
    if (spec->command)
        json_object_set_new(command->request, "command", json_string(spec->command));
    if (spec->cwd)
        json_object_set_new(command->request, "cwd", json_string(spec->cwd));
    if (spec->env)
        json_object_set_new(command->request, "env", json_deep_copy(spec->env));
    if (!spec->argv)
        return;
    json_t *argv = json_array();
    for (const char *const *arg = spec->argv; *arg; arg++)
        json_array_append_new(argv, json_string(*arg));
    json_object_set_new(command->request, "argv", argv);
}

static int
run_kept(struct session_command *command, struct kg_error *err)
{
    json_auto_t *request = KG_STEAL(command->request);
    const json_t *args = json_object_get(request, "argv");
    KG_AUTO_FREE const char **argv = kg_calloc(json_array_size(args) + 1, sizeof *argv);
    for (size_t i = 0; i < json_array_size(args); i++)
        argv[i] = json_string_value(json_array_get(args, i));
    struct sandbox_command_spec spec = command->waiting;
    spec.command = json_string_value(json_object_get(request, "command"));
    spec.argv = args ? argv : NULL;
    spec.cwd = json_string_value(json_object_get(request, "cwd"));
    spec.env = json_object_get(request, "env");
    spec.id = json_string_value(json_object_get(request, "id"));
    spec.note = json_string_value(json_object_get(request, "note"));
    return commands_run(command, &spec, err);
}

void
session_commands_run(struct session *session)
{
    struct session_command *command = TAILQ_FIRST(&session->commands);
    while (command) {
        struct kg_error err = {0};
        if (command->running || run_kept(command, &err) == 0) {
            command = TAILQ_NEXT(command, link);
            continue;
        }
        on_end(NULL, &err, command);
        command = TAILQ_FIRST(&session->commands); // the callback may have cancelled others
    }
}

void
session_commands_end(struct session *session, const struct kg_error *err)
{
    for (struct session_command *command; (command = TAILQ_FIRST(&session->commands));) {
        const struct sandbox_command_events events = command->events;
        void *arg = command->arg;
        if (command->running)
            sandbox_command_cancel(command->running);
        count(command, NULL);
        command_free(command);
        events.on_end(NULL, err, arg);
    }
}

// ---- One of them ----------------------------------------------------------------------------

static struct session_command *
command_new(struct session *session, const struct sandbox_command_events *events, void *arg)
{
    struct session_command *command = KG_NEW(struct session_command);
    command->session = session;
    command->events = *events;
    command->arg = arg;
    command->asked_us = clock_mono_us();
    TAILQ_INSERT_TAIL(&session->commands, command, link);
    session_touch(session);
    return command;
}

struct session_command *
session_command_start(struct session *session, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err)
{
    struct session_command *command = command_new(session, events, arg);
    command->follows = spec->keep;
    if (spec->keep)
        metric_add(METRIC_COMMANDS, 1, "kept");
    if (session->state != SESSION_READY) {
        keep(command, spec);
    } else if (commands_run(command, spec, err) < 0) {
        command_free(command);
        return NULL;
    }
    return command;
}

struct session_command *
session_command_join(struct session *session, const char *id, bool holds,
                     const struct sandbox_command_events *events, void *arg, struct kg_error *err)
{
    static const struct sandbox_command_events own_events = {.on_started = on_started,
                                                             .on_output = commands_on_output,
                                                             .on_end = on_end,
                                                             .on_missed = commands_on_missed};
    struct sandbox *sandbox = session_commands_sandbox(session, err);
    if (!sandbox)
        return NULL;
    struct session_command *command = command_new(session, events, arg);
    command->follows = true;
    command->running = sandbox_command_join(sandbox, id, holds, &own_events, command, err);
    if (command->running)
        return command;
    command_free(command);
    return NULL;
}

struct sandbox *
session_commands_sandbox(struct session *session, struct kg_error *err)
{
    // That of an earlier gateway can be used before its kernels are known.
    bool can_be_used = session->sandbox && sandbox_state(session->sandbox) == SANDBOX_CLAIMED;
    if (session->state == SESSION_ENDING || !can_be_used) {
        (void)kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
        return NULL;
    }
    session_touch(session);
    return session->sandbox;
}

struct sandbox_call *
session_command_detach(struct session *session, const struct sandbox_command_spec *spec,
                       sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    struct sandbox *sandbox = session_commands_sandbox(session, err);
    if (!sandbox)
        return NULL;
    json_auto_t *env = make_env(session, spec->env);
    struct sandbox_command_spec own = *spec;
    own.keep = true;
    own.env = env;
    metric_add(METRIC_COMMANDS, 1, "kept");
    return sandbox_command_detach(sandbox, &own, fn, arg, err);
}

void
session_command_cancel(struct session_command *command)
{
    struct session *session = command->session;
    if (command->running)
        sandbox_command_cancel(command->running);
    if (!command->follows)
        metric_add(METRIC_COMMANDS, 1, "cancelled");
    command_free(command);
    session_touch(session);
    loop_timer_start(session->step, 0);
}

void
session_command_attend(struct session_command *command)
{
    command->attended = true;
}

struct sandbox_activity
session_activity(const struct session *session)
{
    return session->sandbox ? *sandbox_activity(session->sandbox) : (struct sandbox_activity){0};
}

// What runs without a client, as the sandbox's agent says, keeps its session, but not forever.
bool
session_works_alone(const struct session *session)
{
    return session_activity(session).working && session_is_used(session);
}

bool
session_commands_run_now(const struct session *session)
{
    const struct session_command *command;
    TAILQ_FOREACH(command, &session->commands, link) {
        if (!command->follows)
            return true;
    }
    return false;
}

bool
session_commands_attended(const struct session *session)
{
    const struct session_command *command;
    TAILQ_FOREACH(command, &session->commands, link) {
        if (command->attended)
            return true;
    }
    return false;
}

void
session_command_pause(struct session_command *command, bool paused)
{
    command->paused = paused;
    if (command->running)
        sandbox_command_pause(command->running, paused);
}
