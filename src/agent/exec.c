// SPDX-License-Identifier: Apache-2.0
// commands.run: runs a command and streams what it writes.
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent_priv.h"

enum {
    ARGV_MAX = 256,
    ARGUMENT_MAX = 128 * 1024 - 1, // what Linux takes
    CWD_MAX = 4000,
    TIMEOUT_MAX_MS = 24 * 3600 * 1000,
};

static int
check_folder(const char *path, struct kg_error *err)
{
    struct stat info;

    if (stat(path, &info) != 0)
        return kg_error_set(err, KG_INVALID_PATH, errno, "cwd %.120s", path);
    if (!S_ISDIR(info.st_mode))
        return kg_error_set(err, KG_INVALID_PATH, 0, "cwd %.120s is not a folder", path);
    return 0;
}

// What concerns its life and its input.
static int
check_kind(json_t *terminal, struct command_spec *spec, struct kg_error *err)
{
    json_error_t why;
    json_int_t cols, rows;

    if (spec->note && strlen(spec->note) > COMMAND_NOTE_MAX)
        return kg_error_set(err, KG_INVALID, 0, "note must have at most %d bytes",
                            COMMAND_NOTE_MAX);
    if (spec->id && !command_id_valid(spec->id))
        return kg_error_set(err, KG_INVALID, 0, "id must be 1 to %d characters: a-z, 0-9 or _",
                            COMMAND_ID_MAX);
    spec->keep = spec->keep || spec->detach;
    if (spec->timeout_ms == 0 && !spec->keep)
        return kg_error_set(err, KG_INVALID, 0, "timeout_ms must be at least 1 without keep");
    spec->terminal = terminal != NULL;
    if (!terminal)
        return 0;
    if (spec->with_stdin)
        return kg_error_set(err, KG_INVALID, 0, "stdin and terminal exclude each other");
    if (json_unpack_ex(terminal, &why, 0, "{s:I, s:I !}", "cols", &cols, "rows", &rows) != 0)
        return kg_error_set(err, KG_INVALID, 0, "terminal: %.150s", why.text);
    return terminal_size_check(cols, rows, &spec->terminal_size, err);
}

static int
unpack(json_t *params, struct command_spec *spec, json_t **ret_args, const char **ret_cwd,
       struct kg_error *err)
{
    json_error_t why;
    json_t *terminal = NULL;
    json_int_t timeout_ms, max_output = 0;
    int keep = 0, detach = 0, with_stdin = 0, shell = 0;

    *ret_cwd = "";
    if (json_unpack_ex(
            params, &why, 0, "{s:o, s?o, s?s, s:I, s?I, s?s, s?b, s?b, s?b, s?o, s?b, s?s !}",
            "argv", ret_args, "env", &spec->env, "cwd", ret_cwd, "timeout_ms", &timeout_ms,
            "max_output_bytes", &max_output, "id", &spec->id, "keep", &keep, "detach", &detach,
            "stdin", &with_stdin, "terminal", &terminal, "shell", &shell, "note", &spec->note) != 0)
        return kg_error_set(err, KG_INVALID, 0, "%.150s", why.text);
    if (timeout_ms < 0 || timeout_ms > TIMEOUT_MAX_MS || max_output < 0 ||
        strlen(*ret_cwd) > CWD_MAX)
        return kg_error_set(err, KG_INVALID, 0, "timeout_ms, max_output_bytes or cwd is too large");
    spec->timeout_ms = timeout_ms;
    spec->max_output_bytes = (size_t)max_output;
    spec->keep = keep != 0;
    spec->detach = detach != 0;
    spec->with_stdin = with_stdin != 0;
    spec->shell = shell != 0;
    return check_kind(terminal, spec, err);
}

// `spec` borrows from `params`, and from `ret_cwd`, which is to be freed.
static int
parse(struct agent *agent, json_t *params, const char *argv[ARGV_MAX + 1],
      struct command_spec *spec, char **ret_cwd, struct kg_error *err)
{
    json_t *args;
    const char *cwd;

    if (unpack(params, spec, &args, &cwd, err) != 0)
        return -1;
    if (*cwd == '\0')
        *ret_cwd = kg_strdup(agent->settings.data_dir);
    else
        *ret_cwd =
            *cwd == '/' ? kg_strdup(cwd) : kg_asprintf("%s/%s", agent->settings.data_dir, cwd);
    spec->argv = argv;
    spec->cwd = *ret_cwd;
    if (check_env(spec->env, err) != 0 || check_folder(spec->cwd, err) != 0)
        return -1;
    return check_argv(args, ARGV_MAX, ARGUMENT_MAX, argv, err);
}

void
commands_run_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    const char *argv[ARGV_MAX + 1];
    struct command_spec spec = {0};
    struct kg_error err = {0};
    KG_AUTO_FREE char *cwd = NULL;

    if (parse(agent, request_params(request), argv, &spec, &cwd, &err) != 0 ||
        commands_start(agent->commands, &spec, request, &err) != 0)
        request_fail(request, &err);
}
