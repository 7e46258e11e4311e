// SPDX-License-Identifier: Apache-2.0
// A kernel, as its parts see it: kernel.c is its states and its life, kernel_start.c brings a
// process up, kernel_queue.c says what runs next and stops it, kernel_run.c runs one execution on a
// ready kernel, kernel_restart.c puts a new process in the place of one that ended or is to end.
#pragma once

#include <sys/queue.h>

#include "execution_priv.h"
#include "jupyter.h"
#include "kernel.h"
#include "sandbox.h"

// What a running execution waits for.
enum run_step {
    RUN_STARTUP,   // the silent request that is a new process's first
    RUN_VARIABLES, // the silent request that sets the variables
    RUN_ENV,       // the silent request that sets the environment
    RUN_CODE,
};

struct kernel_run {
    struct execution *execution; // NULL: none runs
    enum run_step step;
    char msg_id[40]; // of the request that is awaited
    bool replied;
    bool idle;
    bool exiting; // the code called exit(): the process will end
    enum execution_status status;
    struct loop_timer *timeout;
    struct loop_timer *settle; // from idle without a reply, or from a reply that says exit
};

// The question about what an execution has changed, and the execution that waits for its answer.
struct kernel_artifacts {
    bool asked; // since the last execution ended
    struct sandbox_question *question;
    json_t *changes;          // the answer
    struct execution *ending; // owned; NULL: none waits
    enum execution_status status;
    bool restarted;
};

struct kernel_start {
    struct sandbox_call *call;    // to the agent, or for a link
    enum jupyter_channel channel; // the next one to connect
    struct loop_timer *deadline;
    struct loop_timer *retry;
    struct loop_timer *give_up; // the start has failed and the agent cannot be asked why
    char *failure;
    int n_asked;
    bool info_replied;
    bool iopub_heard;
};

// Invariants: `run.execution` is set in BUSY and INTERRUPTING, and in RESTARTING only while it is
// being killed; `channels` is NULL in RESTARTING and DEAD; `queue` holds queued executions only.
struct kernel {
    const struct kernel_context *context;
    struct sandbox *sandbox;
    const struct kernelspec *spec;
    json_t *env;
    const struct kernel_events *events;
    void *arg;
    enum kernel_state state;
    char key[JUPYTER_KEY_LEN + 1];
    bool started_up; // its kernelspec's startup code has run in this process
    int pid;         // in the sandbox
    char *dir;
    struct jupyter_channels *channels;
    struct kernel_start start;
    struct kernel_run run;
    struct kernel_artifacts artifacts;
    char warmup_id[40]; // of the warm-up's request; empty: none is under way
    struct loop_timer *warming;
    TAILQ_HEAD(, execution) queue;
    int n_queued;
    struct loop_timer *next;           // looks into the queue
    struct loop_timer *grace;          // from the interrupt to the kill
    struct loop_timer *unasked;        // the agent cannot be asked to stop the process
    struct loop_timer *lost;           // a channel was lost: waits for the news of the exit
    struct sandbox_call *interrupting; // no execution may start while it is under way
    struct sandbox_call *stopping;
    int64_t execution_count;
    int64_t n_bad_messages;
    bool adopting; // starting, with a process that an earlier gateway has started
    int64_t adopt_timeout_ms;
    bool has_started; // was ready once
    bool told_started;
    kernel_restart_fn on_restarted;
    void *on_restarted_arg;
};

void kernel_set_state(struct kernel *kernel, enum kernel_state state);

// ---- kernel_start.c -------------------------------------------------------------------------

void kernel_start_init(struct kernel *kernel);
void kernel_start_fini(struct kernel *kernel);
// Starts a process and its channels; ends in kernel_on_ready() or kernel_on_start_failed().
void kernel_start_begin(struct kernel *kernel);
// The same with a process that is there, whose pid and key are known.
void kernel_start_adopt(struct kernel *kernel);
void kernel_start_cancel(struct kernel *kernel);
void kernel_start_on_message(struct kernel *kernel, enum jupyter_channel channel,
                             const struct jupyter_message *message);
// Fails the start, after the agent was asked for what the process said. An adopted process is
// replaced: what waits runs in the new one.
void kernel_start_fail(struct kernel *kernel, const char *reason);

// ---- kernel_run.c ---------------------------------------------------------------------------

void kernel_run_init(struct kernel *kernel);
void kernel_run_fini(struct kernel *kernel);
// Takes an execution (its reference) and runs it.
void kernel_run_begin(struct kernel *kernel, struct execution *execution);
void kernel_run_on_message(struct kernel *kernel, enum jupyter_channel channel,
                           struct jupyter_message *message);
// What becomes of the kernel whose execution ends: it is READY, a new process takes its place, or
// it goes with its session.
enum kernel_fate { KERNEL_STAYS, KERNEL_REPLACED, KERNEL_GOES };
void kernel_run_finish(struct kernel *kernel, enum execution_status status, enum kernel_fate fate);

// ---- artifacts.c ----------------------------------------------------------------------------

// The code of an execution has ended: asks which files it has left, once.
void kernel_artifacts_ask(struct kernel *kernel, const struct execution *execution);
// Takes an execution that has ended, and finishes it when its files are known; at once, where the
// kernel goes.
void kernel_artifacts_finish(struct kernel *kernel, struct execution *execution,
                             enum execution_status status, enum kernel_fate fate);
// Waits no longer.
void kernel_artifacts_end(struct kernel *kernel);

// ---- kernel_queue.c -------------------------------------------------------------------------

void kernel_queue_init(struct kernel *kernel);
void kernel_queue_fini(struct kernel *kernel);
// Ends all that wait as `died`.
void kernel_queue_end(struct kernel *kernel, const char *evalue);
// Stops an execution that runs (interrupt, grace, kill) or waits.
void kernel_stop_execution(struct kernel *kernel, struct execution *execution,
                           enum execution_status status);

// ---- kernel_restart.c -----------------------------------------------------------------------

void kernel_restart_init(struct kernel *kernel);
void kernel_restart_fini(struct kernel *kernel);
void kernel_on_ready(struct kernel *kernel);
void kernel_on_start_failed(struct kernel *kernel, const struct kg_error *err);
// The process cannot be used any more: what runs ends as `died`, and a new process is started.
void kernel_fail(struct kernel *kernel, const char *ename, const char *evalue);
// Kills the process with all that it left behind, then starts a new one.
void kernel_replace(struct kernel *kernel);
