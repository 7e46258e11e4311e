// SPDX-License-Identifier: Apache-2.0
// The runner of a kernel: its queue of executions, the one that runs, and how that is stopped.
#pragma once

#include <sys/queue.h>

#include "cell_priv.h"
#include "execution_priv.h"
#include "hub_priv.h"
#include "process_priv.h"
#include "request_priv.h"

struct kernel_runner;

// ---- run_files.c: the files that an execution has changed -----------------------------------

// The question to the agent, and the execution that has ended and waits for the answer.
struct run_files {
    const struct kernel_context *context;
    struct sandbox *sandbox;
    const char *cursor; // the agent's, one a kernel
    void (*on_done)(struct execution *execution, void *arg);
    void *arg;
    bool asked; // since the last execution ended
    struct sandbox_call *question;
    json_t *changes;          // the answer
    struct execution *ending; // owned; NULL: none waits
    enum execution_status status;
    bool replaced; // the execution ended with its process
};

// The code of an execution has ended: asks which files it has changed, once.
void run_files_ask(struct run_files *files, const struct execution *execution);
// Takes an execution that has ended, and finishes it (on_done) when the answer is there; without
// waiting for it where `at_once`.
void run_files_finish(struct run_files *files, struct execution *execution,
                      enum execution_status status, bool replaced, bool at_once);
// Finishes without the answer.
void run_files_end(struct run_files *files);

// ---- runner.c -------------------------------------------------------------------------------

// The answer that a running execution waits for.
enum run_step {
    RUN_STARTUP,   // to the silent request that is a new process's first
    RUN_VARIABLES, // to the silent request that sets the variables
    RUN_ENV,       // to the silent request that sets the environment
    RUN_STDIN,     // of the sandbox, which makes the link for input: code may ask for it
    RUN_CODE,
};

struct run {
    struct execution *execution; // NULL: none runs
    enum run_step step;
    char msg_id[JUPYTER_MSG_ID_SIZE]; // of the request that is awaited
    bool begun;                       // the kernel handles the request, since:
    int64_t begun_ms;
    bool heard; // a message of the code has come: it runs
    struct cell cell;
    enum cell_end end; // of an execution that is being killed, for when its process is gone
    char *ename;       // why its process cannot be used; NULL: it can
    char *evalue;
    // A copy of the request that is awaited, to be sent again if the kernel aborts it; NULL: no tap
    // has sent anything that could make it do so.
    struct request_code *copy;
    int n_aborted;
    struct loop_timer *timeout;
    int64_t ends_ms;           // when it fires; while the code waits for tools, it would have
    int64_t rests_since_ms;    // of that
    int64_t rest_left_ms;      // for which the code may still wait without using up its time
    struct loop_timer *settle; // from idle without a reply, or from a reply that says exit
    char probe_id[JUPYTER_MSG_ID_SIZE]; // process_probe(); empty: not asked yet
    struct loop_timer *again;           // until the interrupt is repeated
    struct loop_timer *grace;           // from the interrupt to the kill
};

struct runner_events {
    // An execution has ended; its `done` line is in its log.
    void (*on_execution_done)(struct execution *execution, void *arg);
    // The warm-up has ended; not called where the process is replaced before.
    void (*on_warm)(void *arg);
    // The reply to runner_ask(); NULL with the reason: there will be none.
    void (*on_asked)(const json_t *content, const char *failure, void *arg);
};

// Invariants: an execution runs only while the process is UP, and while it is REPLACING because of
// that execution; `queue` holds queued executions only.
struct kernel_runner {
    const struct kernel_context *context;
    const struct kernelspec *spec;
    struct kernel_process *process;
    struct kernel_hub *hub; // of the taps
    const struct runner_events *events;
    void *arg;
    struct run run;
    struct run_files files;
    TAILQ_HEAD(, execution) queue;
    int n_queued;
    struct loop_timer *next; // looks into the queue
    char *startup;           // the first code that each process runs; NULL: none
    bool started_up;         // it has run in this process
    // Of silent requests that are under way beside executions; empty: none.
    char startup_id[JUPYTER_MSG_ID_SIZE]; // for a tap that comes before the first execution
    char warmup_id[JUPYTER_MSG_ID_SIZE];
    char ask_id[JUPYTER_MSG_ID_SIZE]; // runner_ask()
    struct loop_timer *asking;
    struct loop_timer *warming;
    int64_t execution_count;
};

void runner_init(struct kernel_runner *runner, const struct kernel_context *context,
                 struct kernel_process *process, struct kernel_hub *hub,
                 const struct runner_events *events, void *arg);
// To be called once, and again if it changes: each process begins in that folder, with that HOME
// (struct kernel_settings).
void runner_set_folder(struct kernel_runner *runner, const char *folder, const char *home);
// After runner_end().
void runner_fini(struct kernel_runner *runner);
// Ends every execution, running or waiting, as `died`.
void runner_end(struct kernel_runner *runner, const char *evalue);
struct execution *runner_execute(struct kernel_runner *runner,
                                 const struct execution_request *request, struct kg_error *err);
bool runner_warm_up(struct kernel_runner *runner);
// Sends a request (`content` is taken) on shell to a kernel that is ready and runs nothing, one at
// a time; on_asked follows, within `timeout_ms`. Executions wait meanwhile.
KG_MUST_CHECK int runner_ask(struct kernel_runner *runner, const char *msg_type, json_t *content,
                             int64_t timeout_ms, struct kg_error *err);
bool runner_is_busy(const struct kernel_runner *runner);
// Interrupts the running execution, if there is one, and empties the queue.
void runner_interrupt(struct kernel_runner *runner);
// Why the runner has its process replaced.
const struct process_end *runner_end_of(const struct kernel_runner *runner);
// The process is about to be replaced on request: the running execution ends as `interrupted` when
// it is gone.
void runner_kill(struct kernel_runner *runner);
// Lines for an answer of the kernel: a pure function, see struct jupyter_channels_events.
void *runner_shape(enum jupyter_channel channel, struct jupyter_message *message);
void runner_shaped_free(void *shaped);

// What process and hub report (struct process_events, struct hub_events).
void runner_on_message(struct kernel_runner *runner, enum jupyter_channel channel,
                       struct jupyter_message *message);
void runner_on_taps_idle(struct kernel_runner *runner);
// A tap waits for the startup code, or for the requests of an execution.
void runner_on_tap_held(struct kernel_runner *runner);
void runner_on_ready(struct kernel_runner *runner);
void runner_on_failed(struct kernel_runner *runner, const struct kg_error *err);
void runner_on_end(struct kernel_runner *runner, const struct process_end *end);
void runner_on_replacing(struct kernel_runner *runner);
void runner_on_replaced(struct kernel_runner *runner);
void runner_on_stuck(struct kernel_runner *runner, const struct kg_error *err);
void runner_on_interrupted(struct kernel_runner *runner);
void runner_on_begun(struct kernel_runner *runner);
void runner_on_stdin_settled(struct kernel_runner *runner);
