// SPDX-License-Identifier: Apache-2.0
// Running pip inside a sandbox: the command line of packages.py, and its output, which is
// untrusted.
#pragma once

#include <jansson.h>

#include "base.h"
#include "sandbox.h"

struct packages;

enum { PIP_OUTPUT_MAX = 2 << 20 }; // bytes of all output of one run

// The command line, NULL-terminated: `action` (check, download, install or list) and the strings of
// `args`. To be freed with pip_argv_free().
char **pip_argv(const struct packages *packages, const char *action, const json_t *args);
void pip_argv_free(char **argv);
// The command line that unpacks a part of a delivered wheel; see unpack.py. To be freed likewise.
char **unpack_argv(const struct packages *packages, const json_t *wheel, int64_t first);

// The output of one run: the result (stdout, JSON) and the last error on stderr. Zeroed at first.
struct pip_output {
    struct buf result; // bounded
    struct buf line;   // the last line of stderr, as far as it has come
    char failure[200]; // the last error
    bool disk_full;    // the system said so
};
void pip_output_take(struct pip_output *output, enum sandbox_stream stream, const char *text,
                     size_t len);
void pip_output_clear(struct pip_output *output);
// 0 if the run succeeded, else sets `err` to the reason. `result` and `end_err` are those of the
// command's on_end.
KG_MUST_CHECK int pip_output_check(const struct pip_output *output,
                                   const struct sandbox_command_result *result,
                                   const struct kg_error *end_err, struct kg_error *err);
// Parses the result; NULL with `err` if it is not a JSON object, or has far more values than
// truthful ones, so that parsing it would hold the loop.
KG_MUST_CHECK json_t *pip_result_parse(const char *text, size_t len, struct kg_error *err);
