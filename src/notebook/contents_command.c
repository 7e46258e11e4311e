// SPDX-License-Identifier: Apache-2.0
// Commands in the sandbox, which run as its user and can do no more than the session's own code.

#include <string.h>

#include "contents_priv.h"
#include "sandbox.h"
#include "session_commands.h"

enum { COMMAND_MS = 30 * 1000, OUTPUT_MAX = 4 << 10 };

// The functions that scripts have: `plain PATH…` ends the script if a path or a folder above it is
// a symbolic link, `above PATH` if one above it is.
static const char functions[] =
    "plain() {\n"
    "  for p; do\n"
    "    while [ -n \"$p\" ]; do\n"
    "      if [ -L \"./$p\" ]; then echo 'Symbolic links are not followed.'; exit 1; fi\n"
    "      case $p in */*) p=${p%/*} ;; *) p= ;; esac\n"
    "    done\n"
    "  done\n"
    "}\n"
    "above() { case $1 in */*) plain \"${1%/*}\" ;; esac; }\n";

static void
on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    (void)stream;
    struct contents_call *call = arg;
    buf_append(&call->data, text, len);
}

static void
fail_by_exit(struct contents_call *call, const struct sandbox_command_result *result)
{
    struct kg_error err;
    if (result->timed_out)
        kg_error_set(&err, KG_INTERNAL, 0, "it took longer than %d s", COMMAND_MS / 1000);
    else if (result->exit_code == 3)
        kg_error_set(&err, KG_NOT_FOUND, 0, "file or directory does not exist: %s", call->path);
    else if (result->exit_code == 4)
        kg_error_set(&err, KG_FILE_EXISTS, 0, "File already exists");
    else if (result->exit_code == 5)
        kg_error_set(&err, KG_UPLOAD_TOO_LARGE, 0, "the file would have more than %zu bytes",
                     call->notebook->face->max_upload_bytes);
    else
        kg_error_set(&err, KG_INVALID_PATH, 0, "%s",
                     call->data.len > 0 ? call->data.data : "the command was killed");
    contents_fail(call, &err);
}

static void
on_end(const struct sandbox_command_result *result, const struct kg_error *err, void *arg)
{
    struct contents_call *call = arg;
    call->command = NULL;
    if (err) {
        contents_fail(call, err);
    } else if (result->exit_code != 0) {
        fail_by_exit(call, result);
    } else {
        KG_AUTO_BUF printed = call->data;
        call->data = (struct buf){0};
        call->then(call, printed.data ? printed.data : "");
    }
}

void
contents_run(struct contents_call *call, struct session *session, const char *script,
             const char *const args[CONTENTS_ARGS_MAX], contents_step_fn then)
{
    static const struct sandbox_command_events events = {.on_output = on_output, .on_end = on_end};
    KG_AUTO_FREE char *text = kg_asprintf("%s%s", functions, script);
    const char *argv[CONTENTS_ARGS_MAX + 5] = {"sh", "-c", text, "sh"};
    struct kg_error err = {0};
    for (size_t i = 0; i < CONTENTS_ARGS_MAX && args[i]; i++)
        argv[4 + i] = args[i];
    const struct sandbox_command_spec spec = {
        .argv = argv,
        .timeout_ms = COMMAND_MS,
        .max_output_bytes = OUTPUT_MAX,
    };
    call->then = then;
    call->command = session_command_start(session, &spec, &events, call, &err);
    if (!call->command)
        contents_fail(call, &err);
}
