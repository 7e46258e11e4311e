// SPDX-License-Identifier: Apache-2.0
// Stands in for the sandbox module: the functions of sandbox.h, without containers. Agents answer
// in the test's loop, and behind every link is a fake kernel.
#pragma once

#include "base.h"
#include "fake_kernel.h"
#include "loop.h"
#include "sandbox.h"

enum { FAKE_SANDBOX_MEMORY = 5 << 20 }; // what sandbox_memory() says once the agent has answered

// What goes wrong; a test sets it, fake_sandboxes_init() clears it.
struct fake_script {
    bool refuse_create; // sandbox_create() fails
    bool hold_ready;    // sandboxes get ready by fake_sandbox_ready() only
    bool refuse_claim;
    bool refuse_name;  // claims find that another gateway has the session's name
    int n_free;        // so many calls of sandbox_take() find a sandbox
    int n_offered;     // calls of sandbox_offer()
    bool is_open;      // sandbox_check() fails
    bool lost;         // what sandbox_is_lost() says
    int lose_claims;   // so many claims find that another gateway was quicker
    bool hold_claims;  // claims are answered by fake_sandboxes_release() only
    bool refuse_calls; // no call to an agent can be started
    bool refuse_start; // agents refuse to start a process
    bool hold_signal;  // the agent answers a signal by fake_sandboxes_release() only
    bool hold_stop;    // the same for a stop and a removal
    bool is_old;       // agents know no kernels.remove
    bool refuse_links;
    bool refuse_record;
    bool mute;         // kernels do not answer kernel_info_request
    bool hold_changes; // what has changed is answered by fake_sandboxes_release() only
    bool refuse_changes;
    bool flood;          // the answer of a streamed call has no end
    size_t disk_bytes;   // files of at most so many bytes can be written; 0: none
    bool hold_writes;    // files are written by fake_sandboxes_release() only
    bool hold_answers;   // answers to requests of code arrive by fake_sandboxes_release() only
    bool code_gone;      // nobody waits for them
    const char *changes; // what agents say has changed, as JSON; NULL: nothing
    struct sandbox_activity activity; // what sandbox_activity() says
    const char *log_tail;             // what agents say that a process wrote
};
extern struct fake_script fake_script;

void fake_sandboxes_init(struct loop *loop);
// Nothing may be left.
void fake_sandboxes_fini(void);
size_t fake_sandboxes_count(void);
struct sandbox *fake_sandboxes_last(void);
struct sandbox *fake_sandboxes_unready(void); // the first that is held
// Answers what was held.
void fake_sandboxes_release(void);

// What sandboxes, agents and kernels were asked, a line each: "claim", "destroy", "start NAME",
// "signal NAME", "stop NAME", "remove NAME", "write PATH CONTENT", "delete PATH", "answer JSON" (to
// a request of code), and what fake_kernel.h says.
const char *fake_journal(void);
void fake_journal_clear(void);
size_t fake_journal_count(const char *line);

void fake_sandbox_ready(struct sandbox *sandbox);
void fake_sandbox_gone(struct sandbox *sandbox);
// What the start of a kernel's process said: the "env" it was given. Borrowed.
const json_t *fake_sandbox_env(const struct sandbox *sandbox, const char *name);
// The working folder in which it was started. Borrowed.
const char *fake_sandbox_cwd(const struct sandbox *sandbox, const char *name);
// Starts a process as an earlier gateway has done, for one that adopts the sandbox.
void fake_sandbox_run(struct sandbox *sandbox, const char *name);
// NULL where no process runs.
struct fake_kernel *fake_sandbox_kernel(const struct sandbox *sandbox, const char *name);
int fake_sandbox_pid(const struct sandbox *sandbox, const char *name); // of the newest process
// Ends a process without a word.
void fake_sandbox_kill(struct sandbox *sandbox, const char *name);
// From here on the kernel does not answer kernel_info_request.
void fake_sandbox_mute(const struct sandbox *sandbox, const char *name);
// Code asks for something, with `params` as JSON; a NULL method: it has left. Returns what
// on_request returns.
bool fake_sandbox_ask(struct sandbox *sandbox, int64_t id, const char *method, const char *params);
// Tells that a process has ended.
void fake_sandbox_tell_exit(struct sandbox *sandbox, const char *name, int pid, int exit_code,
                            int signal, bool oom);
