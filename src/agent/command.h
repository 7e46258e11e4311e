// SPDX-License-Identifier: Apache-2.0
// One command: its start, its end, what it leaves behind. commands.h has those of the sandbox.
#pragma once

#include <sys/queue.h>
#include <sys/types.h>

#include "command_input.h"
#include "command_log.h"
#include "commands.h"

struct command_output;

struct command {
    TAILQ_ENTRY(command) entry; // the owner's
    char *id;
    char *note; // or NULL
    bool has_given_id; // by the caller
    bool keep;
    bool terminal;
    bool shell;         // an interactive one
    json_t *argv, *cwd; // for the list, shortened
    int64_t started_ms;
    pid_t pid;    // 0: unknown
    pid_t keeper; // 0 once it has ended
    bool exited;  // the command itself
    int exit_code, signal;
    bool over;               // nothing more of its output comes
    int64_t over_ms;         // when
    struct command_log *log; // NULL: forgotten
    json_t *end;             // the result, once it is over

    // Those of command.c.
    struct command_settings {
        struct loop *loop;
        struct children *children;
        const char *cgroup_root;
        // Its `over` or `keeper` has changed. It may be freed; this is the last that is done with
        // it.
        void (*on_change)(struct command *command, void *arg);
        void *arg;
    } settings;
    struct command_output *output;
    struct command_input *input; // NULL: there is none
    int status_fd;
    struct loop_fd *status_watch;
    bool timed_out;
    int64_t duration_ms;
    int64_t oom_kills_before;
    struct loop_timer *timeout;
    struct loop_timer *pipes_wait;
    struct loop_timer *kill_step;
    int64_t kill_started_ms; // 0: it is not being killed
    int n_kill_steps;
};

// Takes `id`.
KG_MUST_CHECK struct command *command_start(const struct command_settings *settings,
                                            const struct command_spec *spec, char *id,
                                            struct kg_error *err);
// Answers its caller as commands_start() says; with `detach`, the request and what it holds are
// gone then.
void command_answer_start(struct command *command, struct request *request, bool detach);
// The processes are not touched.
void command_free(struct command *command);
// One more reader; the caller who has started it is one, too, who holds it back and ends it.
void command_join(struct command *command, struct request *request, bool holds);
// Its log, after which nobody can join.
void command_forget(struct command *command);
// TERM and KILL end all that it has started; others go to its group, or that in its terminal's
// foreground.
KG_MUST_CHECK int command_signal(struct command *command, int signum, struct kg_error *err);
// Whether it runs, and is not a shell at its prompt.
bool command_is_working(const struct command *command);
