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

// `spec` borrows from `params`, and from `ret_cwd`, which is to be freed.
static int
parse(struct agent *agent, json_t *params, const char *argv[ARGV_MAX + 1],
      struct command_spec *spec, char **ret_cwd, struct kg_error *err)
{
    json_error_t why;
    json_t *args;
    const char *cwd = "";
    json_int_t timeout_ms, max_output = 0;

    if (json_unpack_ex(params, &why, 0, "{s:o, s?o, s?s, s:I, s?I !}", "argv", &args, "env",
                       &spec->env, "cwd", &cwd, "timeout_ms", &timeout_ms, "max_output_bytes",
                       &max_output) != 0)
        return kg_error_set(err, KG_INVALID, 0, "%.150s", why.text);
    if (timeout_ms < 1 || timeout_ms > TIMEOUT_MAX_MS || max_output < 0 || strlen(cwd) > CWD_MAX)
        return kg_error_set(err, KG_INVALID, 0, "timeout_ms, max_output_bytes or cwd is too large");
    *ret_cwd = *cwd == '/' ? kg_strdup(cwd) : kg_asprintf("%s/%s", agent->settings.data_dir, cwd);
    spec->argv = argv;
    spec->cwd = *ret_cwd;
    spec->timeout_ms = timeout_ms;
    spec->max_output_bytes = (size_t)max_output;
    if (check_env(spec->env, err) != 0 || check_folder(spec->cwd, err) != 0)
        return -1;
    return check_argv(args, ARGV_MAX, ARGUMENT_MAX, argv, err);
}

void
commands_run(struct request *request, void *arg)
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
