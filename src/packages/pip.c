// SPDX-License-Identifier: Apache-2.0
// Running packages.py inside sandboxes: its command line, its result, its last error.

#include <stdio.h>
#include <string.h>

#include "packages_priv.h"
#include "packages_script.h"
#include "pip.h"

enum { RESULT_MAX = 512 << 10, LINE_MAX_LEN = 1024 };

// ---- Output ---------------------------------------------------------------------------------

static void
take_line(struct pip_output *output)
{
    static const char mark[] = "ERROR: ";
    const char *text = output->line.data ? output->line.data : "";
    output->disk_full |= output->line.len > 0 && strstr(text, "No space left on device");
    if (output->line.len > 0 && strncmp(text, mark, sizeof mark - 1) == 0)
        snprintf(output->failure, sizeof output->failure, "%s", text + sizeof mark - 1);
    output->line.len = 0;
}

void
pip_output_take(struct pip_output *output, enum sandbox_stream stream, const char *text, size_t len)
{
    if (stream == SANDBOX_STDOUT) {
        if (len <= RESULT_MAX - output->result.len)
            buf_append(&output->result, text, len);
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\n')
            take_line(output);
        else if (output->line.len < LINE_MAX_LEN)
            buf_append(&output->line, &text[i], 1);
    }
}

void
pip_output_clear(struct pip_output *output)
{
    buf_fini(&output->result);
    buf_fini(&output->line);
    *output = (struct pip_output){0};
}

int
pip_output_check(const struct pip_output *output, const struct sandbox_command_result *result,
                 const struct kg_error *end_err, struct kg_error *err)
{
    static const char nothing[] = "No matching distribution found for ";
    if (end_err) {
        *err = *end_err;
        return -1;
    }
    if (result->timed_out)
        return kg_error_set(err, KG_INTERNAL, 0, "pip timed out");
    if (result->oom)
        return kg_error_set(err, KG_INTERNAL, 0, "pip ran out of memory: see memory-mb, disk-mb");
    if (result->exit_code == 0)
        return 0;
    if (output->disk_full)
        return kg_error_set(err, KG_DISK_FULL, 0,
                            "a sandbox's disk has no room for these packages at once: install "
                            "fewer at a time, or see disk-mb");
    if (strncmp(output->failure, nothing, sizeof nothing - 1) == 0)
        return kg_error_set(err, KG_NOT_FOUND, 0,
                            "no wheel fits %.80s: there is no such package or version, the index "
                            "does not answer, or it comes as source only, which is not built here",
                            output->failure + sizeof nothing - 1);
    return kg_error_set(err, KG_INTERNAL, 0, "pip failed: %s",
                        output->failure[0] ? output->failure : "it gives no reason");
}

// ---- Command line ---------------------------------------------------------------------------

char **
pip_argv(const struct packages *packages, const char *action, const json_t *args)
{
    char **argv = kg_calloc(json_array_size(args) + 5, sizeof *argv);
    size_t n = 0;
    argv[n++] = kg_strdup(packages->python);
    if (packages_need_delivery(packages)) {
        argv[n++] = kg_strdup("-c");
        argv[n++] = kg_strndup((const char *)packages_script, packages_script_len);
    } else {
        argv[n++] = packages_path_inside(packages, "packages.py");
    }
    argv[n++] = kg_strdup(action);
    size_t i;
    json_t *item;
    json_array_foreach(args, i, item)
        argv[n++] = kg_strdup(json_string_value(item));
    return argv;
}

char **
unpack_argv(const struct packages *packages, const json_t *wheel, int64_t first)
{
    char **argv = kg_calloc(5, sizeof *argv);
    KG_AUTO_FREE char *path = wheel_path_of(wheel);
    argv[0] = kg_strdup(packages->python);
    argv[1] = packages_path_inside(packages, "unpack.py");
    argv[2] = kg_asprintf("/mnt/data/" PACKAGES_DELIVERED "/%s", path);
    argv[3] = kg_asprintf("%lld", (long long)first);
    return argv;
}

void
pip_argv_free(char **argv)
{
    for (char **arg = argv; arg && *arg; arg++)
        free(*arg);
    free(argv);
}
