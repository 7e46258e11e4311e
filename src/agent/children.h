// SPDX-License-Identifier: Apache-2.0
// The agent's child processes: starts them, and reaps them and every orphan of the sandbox.
#pragma once

#include <sys/types.h>

#include "base.h"
#include "loop.h"

struct children;

struct child_spec {
    char *const *argv; // argv[0] is looked up in the PATH of `envp`
    char *const *envp;
    const char *cwd;
    int stdin_fd;             // -1: /dev/null
    int stdout_fd, stderr_fd; // all stay the caller's
    bool terminal;            // stdin is one, and becomes its controlling terminal
};

// What is known of a child below a keeper.
struct kept_child {
    pid_t pid;     // its own; 0 where its keeper was killed before it could tell
    int status_fd; // non-blocking, the caller's: gets an int, the child's status as waitpid() gives
                   // it, when the child itself has ended
};

// `status` as waitpid() gives it.
typedef void (*child_exit_fn)(pid_t pid, int status, void *arg);

// One a process: it reaps whatever child there is.
struct children *children_new(struct loop *loop);
void children_free(struct children *children);

// Starts a process as the leader of a session of its own, with no other descriptor. `fn` fires when
// it was reaped. Returns its pid, -1 with `err` also where exec failed.
KG_MUST_CHECK pid_t children_start(struct children *children, const struct child_spec *spec,
                                   child_exit_fn fn, void *arg, struct kg_error *err);
// The same below a keeper, whose pid is returned and whose end is told: a process of the agent's
// own that whatever descends from the child stays below, however it detaches itself. The keeper
// ends when nothing is left below it.
KG_MUST_CHECK pid_t children_start_kept(struct children *children, const struct child_spec *spec,
                                        child_exit_fn fn, void *arg, struct kept_child *ret,
                                        struct kg_error *err);
// Adopts a child that was not started here: it was forked outside of the sandbox, and this process
// inherited it. `fn` is called when it has been reaped. KG_NOT_FOUND if it has ended already, or is
// not a child of this process.
KG_MUST_CHECK int children_adopt(struct children *children, pid_t pid, child_exit_fn fn, void *arg,
                                 struct kg_error *err);
// The callback of `pid` will not fire.
void children_forget(struct children *children, pid_t pid);
