// SPDX-License-Identifier: Apache-2.0
// Calls about commands, by their ids. Answers are untrusted.
#include <limits.h>
#include <string.h>

#include "agent_reply.h"
#include "command_params.h"
#include "sandbox_priv.h"

enum { CALL_MS = 10 * 1000 };

// ---- What the agent says --------------------------------------------------------------------

static bool
is_strings(const json_t *array)
{
    const json_t *item;
    size_t i;

    json_array_foreach(array, i, item) {
        if (!json_is_string(item))
            return false;
    }
    return json_is_array(array);
}

// NULL if it is malformed.
static json_t *
convert_info(json_t *info)
{
    const char *id, *cwd, *note = NULL;
    bool is_argv;
    json_t *argv;
    json_int_t pid, age_ms, readers, exit_code = 0, signum = 0;
    int terminal, running, keep;

    if (json_unpack(info, "{s:s, s:o, s:s, s:I, s:b, s:b, s:b, s:I, s:I, s?I, s?I, s?s}", "id", &id,
                    "argv", &argv, "cwd", &cwd, "pid", &pid, "terminal", &terminal, "running",
                    &running, "keep", &keep, "readers", &readers, "started_ms_ago", &age_ms,
                    "exit_code", &exit_code, "signal", &signum, "note", &note) != 0)
        return NULL;
    if (!sandbox_command_id_valid(id) || !is_strings(argv) || pid < 0 || pid > INT_MAX ||
        readers < 0 || readers > INT_MAX || age_ms < 0 || exit_code < 0 || exit_code > 255 ||
        signum < 0 || signum > 64 || (note && strlen(note) > SANDBOX_COMMAND_NOTE_MAX))
        return NULL;
    KG_AUTO_FREE char *command = command_of_argv(argv, &is_argv);
    json_t *ret = json_pack("{s:s, s:s, s:s, s:I, s:b, s:b, s:b, s:I, s:I}", "id", id, "command",
                            command, "cwd", cwd, "pid", pid, "terminal", terminal, "running",
                            running, "keep", keep, "readers", readers, "age_ms", age_ms);
    if (ret && is_argv)
        json_object_set(ret, "argv", argv);
    if (ret && note)
        json_object_set_new(ret, "note", json_string(note));
    if (ret && !running) {
        json_object_set_new(ret, "exit_code", json_integer(exit_code));
        json_object_set_new(ret, "signal", json_integer(signum));
    }
    return ret;
}

json_t *
sandbox_command_list_parse(const json_t *result, struct kg_error *err)
{
    const json_t *list = json_object_get(result, "commands");
    json_auto_t *ret = json_array();
    json_t *info;
    size_t i;
    bool sound = json_is_array(list) && json_array_size(list) <= SANDBOX_COMMANDS_MAX;

    json_array_foreach(list, i, info) {
        json_t *converted = sound ? convert_info(info) : NULL;
        if (!converted || json_array_append_new(ret, converted) != 0)
            sound = false;
    }
    if (sound)
        return KG_STEAL(ret);
    (void)kg_error_set(err, KG_INTERNAL, 0, "the agent's list of commands is malformed");
    return NULL;
}

int
sandbox_command_detach_parse(const json_t *result, struct sandbox_command_start *ret,
                             struct kg_error *err)
{
    if (agent_command_start_parse(result, ret, err) != 0)
        return -1;
    if (!*ret->id)
        return kg_error_set(err, KG_INTERNAL, 0, "the start of a command is malformed");
    return 0;
}

// ---- Calls ----------------------------------------------------------------------------------

struct sandbox_call *
sandbox_command_list(struct sandbox *sandbox, sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    return sandbox_agent_call(sandbox, "commands.list", NULL, CALL_MS, fn, arg, err);
}

struct sandbox_call *
sandbox_command_detach(struct sandbox *sandbox, const struct sandbox_command_spec *spec,
                       sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    json_auto_t *params = command_params(spec);

    if (!params) {
        (void)kg_error_set(err, KG_INVALID, 0, "a command must be UTF-8");
        return NULL;
    }
    json_object_set_new(params, "detach", json_true());
    return sandbox_agent_call(sandbox, "commands.run", params, CALL_MS, fn, arg, err);
}

struct sandbox_call *
sandbox_command_input(struct sandbox *sandbox, const char *id, const void *data, size_t len,
                      sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:s}", "id", id);
    const struct sandbox_stream_spec spec = {.method = "commands.input",
                                             .params = params,
                                             .body = {.data = data, .len = len},
                                             .head_timeout_ms = CALL_MS};
    const struct sandbox_stream_events events = {.on_end = fn};

    return sandbox_agent_stream(sandbox, &spec, &events, arg, err);
}

struct sandbox_call *
sandbox_command_close_input(struct sandbox *sandbox, const char *id, sandbox_agent_fn fn, void *arg,
                            struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:s}", "id", id);
    return sandbox_agent_call(sandbox, "commands.close_input", params, CALL_MS, fn, arg, err);
}

struct sandbox_call *
sandbox_command_resize(struct sandbox *sandbox, const char *id, int cols, int rows,
                       sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:s, s:i, s:i}", "id", id, "cols", cols, "rows", rows);
    return sandbox_agent_call(sandbox, "commands.resize", params, CALL_MS, fn, arg, err);
}

struct sandbox_call *
sandbox_command_signal(struct sandbox *sandbox, const char *id, const char *name,
                       sandbox_agent_fn fn, void *arg, struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:s, s:s}", "id", id, "signal", name);
    return sandbox_agent_call(sandbox, "commands.signal", params, CALL_MS, fn, arg, err);
}
