// SPDX-License-Identifier: Apache-2.0
// Runs code in a session's kernel. For the profiles, its outcome looks like that of a script: two
// streams and an exit code.
#pragma once

#include "tools_priv.h"

// 0; after an exception 1; 124: timed out, 130: interrupted, 137: died.
int script_exit_code(const struct job *job);
// The printed text; if there is none, the value of the last expression. A new reference.
json_t *script_stdout(const struct job *job, bool *ret_cut);
// Standard error and the traceback. A new reference.
json_t *script_stderr(const struct job *job, bool *ret_cut);
// Opens a session with a kernel for `language` (NULL: the default one), and calls `fn`.
void script_open(struct job *job, const char *language, enum job_session_kind kind, const char *id,
                 bool must_exist, job_ready_fn fn);
// The same, then runs the argument `code` with the argument `timeout`, which is checked before a
// session is created. `fn` is called after job->outcome has the result.
void script_run(struct job *job, const char *language, enum job_session_kind kind, const char *id,
                bool must_exist, job_fn fn);
// The same in the branch that the argument `branch` names, which is made of `kernel` if it is not
// there (tools_savepoints.c).
void script_run_in_branch(struct job *job, struct session *session, struct kernel *kernel);
// The absolute URL of a file, for people; to be freed. NULL: there is none (stdio).
char *script_file_url(const struct job *job, const char *path);
