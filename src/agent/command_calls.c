// SPDX-License-Identifier: Apache-2.0
// commands.*: what concerns a command that was started (exec.c).
#include <signal.h>
#include <string.h>

#include "agent_priv.h"

static void
answer(struct request *request, int result, const struct kg_error *err)
{
    if (result == 0)
        request_reply(request, json_object());
    else
        request_fail(request, err);
}

// The id that the parameters name, and nothing else.
static const char *
command_id(const struct request *request, struct kg_error *err)
{
    json_error_t why;
    const char *id;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s !}", "id", &id) == 0)
        return id;
    (void)params_failed(&why, err);
    return NULL;
}

void
commands_join_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_error_t why;
    const char *id;
    int holds = 0;
    int result;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s?b !}", "id", &id, "hold",
                       &holds) != 0)
        result = params_failed(&why, &err);
    else
        result = commands_join(agent->commands, id, holds != 0, request, &err);
    if (result != 0)
        request_fail(request, &err);
}

void
commands_list_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    request_reply(request, commands_list(agent->commands));
}

void
commands_input_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};

    const char *id = command_id(request, &err);
    if (!id || commands_input(agent->commands, id, request, &err) != 0)
        request_fail(request, &err);
}

void
commands_close_input_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};

    const char *id = command_id(request, &err);
    answer(request, id ? commands_close_input(agent->commands, id, &err) : -1, &err);
}

static int
resize(const struct agent *agent, json_t *params, struct kg_error *err)
{
    json_error_t why;
    const char *id;
    json_int_t cols, rows;
    struct terminal_size size;

    if (json_unpack_ex(params, &why, 0, "{s:s, s:I, s:I !}", "id", &id, "cols", &cols, "rows",
                       &rows) != 0)
        return params_failed(&why, err);
    if (terminal_size_check(cols, rows, &size, err) != 0)
        return -1;
    return commands_resize(agent->commands, id, &size, err);
}

void
commands_resize_call(struct request *request, void *arg)
{
    struct kg_error err = {0};
    answer(request, resize(arg, request_params(request), &err), &err);
}

static int
signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"INT", SIGINT},   {"TERM", SIGTERM}, {"KILL", SIGKILL},  {"HUP", SIGHUP},
                   {"QUIT", SIGQUIT}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2},  {"CONT", SIGCONT},
                   {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"WINCH", SIGWINCH}};

    for (size_t i = 0; i < KG_ARRAY_LEN(signals); i++) {
        if (strcmp(signals[i].name, name) == 0)
            return signals[i].number;
    }
    return 0;
}

static int
signal_command(const struct agent *agent, json_t *params, struct kg_error *err)
{
    json_error_t why;
    const char *id, *name;

    if (json_unpack_ex(params, &why, 0, "{s:s, s:s !}", "id", &id, "signal", &name) != 0)
        return params_failed(&why, err);
    int signum = signal_number(name);
    if (!signum)
        return kg_error_set(err, KG_INVALID, 0,
                            "signal must be INT, TERM, KILL, HUP, QUIT, USR1, USR2, CONT, STOP, "
                            "TSTP or WINCH");
    return commands_signal(agent->commands, id, signum, err);
}

void
commands_signal_call(struct request *request, void *arg)
{
    struct kg_error err = {0};
    answer(request, signal_command(arg, request_params(request), &err), &err);
}
