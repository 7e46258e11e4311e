// SPDX-License-Identifier: Apache-2.0
// Commands in the words of the agent, there and back.
#include "command_params.h"

#include <assert.h>
#include <string.h>

#include "sandbox.h"

// Runs $0 by bash, as people write commands, or by sh where the image has no bash.
static const char shell_script[] =
    "[ ! -x /bin/bash ] || exec /bin/bash -c \"$0\"; exec /bin/sh -c \"$0\"";
// The same after the files of login shells, which replace PATH.
static const char login_script[] =
    "[ ! -x /bin/bash ] || { KG_PATH=$PATH; export KG_PATH; exec /bin/bash -l -c '"
    "PATH=$KG_PATH:$PATH; unset KG_PATH; exec /bin/bash -c \"$0\"' \"$0\"; }; "
    "exec /bin/sh -l -c \"$0\"";
static const char interactive_script[] = "[ ! -x /bin/bash ] || exec /bin/bash -i; exec /bin/sh -i";

static json_t *
make_argv(const struct sandbox_command_spec *spec)
{
    assert(!spec->command || !spec->argv);
    if (spec->command)
        return json_pack("[s, s, s, s]", "/bin/sh", "-c", spec->login ? login_script : shell_script,
                         spec->command);
    if (!spec->argv)
        return json_pack("[s, s, s]", "/bin/sh", "-c", interactive_script);
    json_t *argv = json_array();
    for (const char *const *arg = spec->argv; *arg; arg++)
        json_array_append_new(argv, json_string(*arg));
    return argv;
}

json_t *
command_params(const struct sandbox_command_spec *spec)
{
    json_t *params = json_pack("{s:o, s:I, s:I, s:s*, s:s*, s:s*}", "argv", make_argv(spec),
                               "timeout_ms", (json_int_t)spec->timeout_ms, "max_output_bytes",
                               (json_int_t)spec->max_output_bytes, "cwd", spec->cwd, "id", spec->id,
                               "note", spec->note);
    if (!params)
        return NULL;
    if (spec->env)
        json_object_set(params, "env", (json_t *)(uintptr_t)spec->env);
    if (spec->keep)
        json_object_set_new(params, "keep", json_true());
    if (spec->with_stdin)
        json_object_set_new(params, "stdin", json_true());
    if (spec->cols > 0)
        json_object_set_new(params, "terminal",
                            json_pack("{s:i, s:i}", "cols", spec->cols, "rows", spec->rows));
    if (!spec->command && !spec->argv)
        json_object_set_new(params, "shell", json_true());
    return params;
}

bool
sandbox_command_id_valid(const char *id)
{
    size_t len = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return len >= 1 && len <= SANDBOX_COMMAND_ID_MAX && id[len] == '\0';
}

char *
command_of_argv(const json_t *argv, bool *ret_is_argv)
{
    const char *script = json_string_value(json_array_get(argv, 2));
    KG_AUTO_BUF line = {0};
    const json_t *word;
    size_t i;

    *ret_is_argv = false;
    if (script && (strcmp(script, shell_script) == 0 || strcmp(script, login_script) == 0) &&
        json_array_size(argv) > 3)
        return kg_strdup(json_string_value(json_array_get(argv, 3)));
    if (script && strcmp(script, interactive_script) == 0)
        return kg_strdup("");
    *ret_is_argv = true;
    json_array_foreach(argv, i, word) {
        buf_append(&line, " ", i > 0);
        buf_append_str(&line, json_string_value(word));
    }
    return kg_strdup(line.data ? line.data : "");
}
