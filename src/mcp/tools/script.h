// SPDX-License-Identifier: Apache-2.0
// Code in a session's kernel; and what came of it as the profiles' systems tell it: as of a script,
// with streams and an exit code.
#pragma once

#include "tools_priv.h"

// 0; 1 where it raised; 124, 130, 137 where it timed out, was interrupted, died.
int script_exit_code(const struct job *job);
// What was printed; the value of the last expression, where nothing was. A new reference.
json_t *script_stdout(const struct job *job, bool *ret_cut);
// Standard error and the traceback.
json_t *script_stderr(const struct job *job, bool *ret_cut);
// Opens the session of a run in `language` (NULL: the default one) and goes on with `fn` when it is
// ready.
void script_open(struct job *job, const char *language, enum job_session_kind kind, const char *id,
                 bool must_exist, job_ready_fn fn);
// The same, and runs the argument `code` there, with the argument `timeout` or the default one,
// which is checked before a session is made; `fn` gets what came of it in job->outcome.
void script_run(struct job *job, const char *language, enum job_session_kind kind, const char *id,
                bool must_exist, job_fn fn);
// An absolute URL of a file, for people; NULL where there is none (stdio). To be freed.
char *script_file_url(const struct job *job, const char *path);
