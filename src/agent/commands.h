// SPDX-License-Identifier: Apache-2.0
// Commands: processes beside the kernels, whose output is streamed to whoever asked for them. Each
// stands below a keeper (see children.h), so all that it starts can be told from the rest of the
// sandbox, whatever it does to get away.
#pragma once

#include "children.h"
#include "request.h"

struct commands;

struct commands_settings {
    struct loop *loop;
    struct children *children;
    const char *cgroup_root;
};

// Commands whose keeper lives: those that run, and those that left something running.
enum { COMMANDS_MAX = 64 };

struct commands *commands_new(const struct commands_settings *settings);
// Ends their answers; the processes are the caller's to end (see processes_kill).
void commands_free(struct commands *commands);

// All borrowed.
struct command_spec {
    const char *const *argv; // NULL-terminated
    json_t *env;             // an object of strings, added to the agent's own; or NULL
    const char *cwd;         // absolute
    int64_t timeout_ms;      // then it is killed, with all that it started
    size_t max_output_bytes; // 0: no bound
};

// Answers `request` with a stream, whose data is that of command_output.h, and the result
// {"exit_code", "signal", "timed_out", "oom", "duration_ms", "dropped_bytes"}.
// What is still running when the command itself has ended lives on, unless it was timed out. A
// caller that goes away ends it all. KG_SESSION_BUSY: there are too many.
KG_MUST_CHECK int commands_start(struct commands *commands, const struct command_spec *spec,
                                 struct request *request, struct kg_error *err);
// The keepers, for processes_kill().
size_t commands_keepers(const struct commands *commands, pid_t ret[COMMANDS_MAX]);
