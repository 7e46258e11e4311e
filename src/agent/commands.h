// SPDX-License-Identifier: Apache-2.0
// Commands: processes beside the kernels, whose output is streamed to whoever asked for them. Each
// stands below a keeper (see children.h), so all that it starts can be told from the rest of the
// sandbox, whatever it does to get away. Each has an id, by which others join it, give it input and
// signal it; its end stays known for a while if its caller has given it one.
#pragma once

#include "children.h"
#include "request.h"
#include "terminal.h"

struct commands;

struct commands_settings {
    struct loop *loop;
    struct children *children;
    const char *cgroup_root;
    loop_fn on_change; // commands have started or ended; may be NULL
    void *arg;
};

enum {
    COMMANDS_MAX = 64, // whose keeper lives: those that run, and those that left something running
    COMMANDS_MAX_RUNNING = 16,       // without terminals
    COMMANDS_MAX_ENDED = 32,         // that are known
    COMMANDS_MAX_READERS = 128,      // of all, with the callers of those that run
    COMMANDS_ENDED_MS = 3600 * 1000, // how long they are known
    COMMAND_ID_MAX = 32,
    COMMAND_NOTE_MAX = 128,
};

struct commands *commands_new(const struct commands_settings *settings);
// Ends their answers; the processes are the caller's to end (see processes_kill).
void commands_free(struct commands *commands);

// All borrowed.
struct command_spec {
    const char *id;          // see command_id_valid(); NULL: one is made, and its end is not kept
    const char *note;        // for the list: at most COMMAND_NOTE_MAX bytes; or NULL
    const char *const *argv; // NULL-terminated
    json_t *env;             // an object of strings, added to the agent's own; or NULL
    const char *cwd;         // absolute
    int64_t timeout_ms;      // then it is killed, with all that it started; 0: none
    size_t max_output_bytes; // 0: no bound
    bool keep;               // it outlives its caller
    bool detach;             // its caller does not wait for it
    bool with_stdin;         // a pipe; else /dev/null
    bool terminal;           // in place of all pipes
    bool shell;              // it is an interactive shell, which does not work while it waits
    struct terminal_size terminal_size;
};

// Of 1 to COMMAND_ID_MAX characters: a-z, 0-9 and _.
bool command_id_valid(const char *id);

// Answers `request` with a stream: a head {"id", "pid", "terminal", "running", "dropped_bytes"},
// the data of command_output.h, and the result
// {"exit_code", "signal", "timed_out", "oom", "duration_ms", "dropped_bytes"}.
// What is still running when the command itself has ended lives on, unless it was timed out. A
// caller that goes away ends it all, if it is not kept, and holds it back by not reading. With
// `detach` the answer is {"id", "pid"} at once. KG_SESSION_BUSY: there are too many.
// KG_COMMAND_EXISTS: the id is that of a command that is known.
KG_MUST_CHECK int commands_start(struct commands *commands, const struct command_spec *spec,
                                 struct request *request, struct kg_error *err);
// The same answer, with what is kept of the output first. It `holds` the command back by not
// reading, or misses output. KG_NOT_FOUND, here and below: no command of that id is known.
KG_MUST_CHECK int commands_join(struct commands *commands, const char *id, bool holds,
                                struct request *request, struct kg_error *err);
// {"commands": [{"id", "argv", "cwd", "pid", "terminal", "running", "exit_code"?, "signal"?,
// "started_ms_ago", "keep", "readers", "note"?}]}; argv and cwd are shortened.
json_t *commands_list(const struct commands *commands);
// Answers the request as command_input_take() does.
KG_MUST_CHECK int commands_input(struct commands *commands, const char *id, struct request *request,
                                 struct kg_error *err);
// See command_input_end().
KG_MUST_CHECK int commands_close_input(struct commands *commands, const char *id,
                                       struct kg_error *err);
KG_MUST_CHECK int commands_resize(struct commands *commands, const char *id,
                                  const struct terminal_size *size, struct kg_error *err);
// See command_signal().
KG_MUST_CHECK int commands_signal(struct commands *commands, const char *id, int signum,
                                  struct kg_error *err);
// What runs now. `working`: something that is not a shell at its prompt.
struct commands_activity {
    int n_running; // without terminals
    int n_terminals;
    bool working;
};
struct commands_activity commands_activity(const struct commands *commands);
// The keepers, for processes_kill().
size_t commands_keepers(const struct commands *commands, pid_t ret[COMMANDS_MAX]);
