// SPDX-License-Identifier: Apache-2.0
// Kernelspecs, kernels (one interpreter process in a sandbox), executions and their output logs.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

struct sandbox;

// ---- Kernelspecs ----------------------------------------------------------------------------

// How a kernel for a language is started: `<name>/kernel.json` (jupyter_client, "Kernel specs"),
// with what kernelgate adds below `metadata.kernelgate`.
struct kernelspec {
    char *name; // the folder's: 1 to 32 of a-z0-9_-
    char *display_name;
    char *language;
    json_t *argv;              // of strings; "{connection_file}" is replaced by the agent
    json_t *env;               // of strings
    json_t *aliases;           // further names, of strings
    char *transport;           // "ipc" or "tcp": what the kernel speaks inside its sandbox
    bool interrupt_by_message; // interrupt_mode "message": on the control channel, not by SIGINT
    // Code for a silent request of its own, with "{json}" standing for a string literal that holds
    // a JSON object; NULL where the kernel cannot.
    char *variables_code; // sets variables
    char *env_code;       // sets the environment of one execution
    char *env_restore_code;
    char *startup_code; // runs before anything else in each new process; NULL: nothing
    char *warmup_code;  // imports what first executions wait for; NULL: nothing
};

struct kernelspecs;
// Loads every kernelspec of a folder; fails where there is none, or where one is malformed.
KG_MUST_CHECK struct kernelspecs *kernelspecs_load(const char *dir, struct kg_error *err);
void kernelspecs_free(struct kernelspecs *specs);
KG_DEFINE_AUTO(kernelspecs, kernelspecs_free)
size_t kernelspecs_count(const struct kernelspecs *specs);
const struct kernelspec *kernelspecs_at(const struct kernelspecs *specs, size_t index);
// By name or alias; NULL with KG_UNKNOWN_KERNEL, and a message that lists the names.
const struct kernelspec *kernelspecs_find(const struct kernelspecs *specs, const char *name,
                                          struct kg_error *err);

// ---- Executions -----------------------------------------------------------------------------

enum execution_state {
    EXECUTION_QUEUED,
    EXECUTION_RUNNING,
    EXECUTION_INTERRUPTING, // asked to stop; killed when its grace is over
    EXECUTION_KILLING,      // its kernel is being killed
    EXECUTION_DONE,
};

enum execution_status {
    EXECUTION_OK,
    EXECUTION_ERROR,
    EXECUTION_TIMEOUT,
    EXECUTION_INTERRUPTED,
    EXECUTION_DIED,
};

// One execute_request and the log of its outputs. Shared: the kernel that runs it, the registry
// that keeps it for replay and each subscription hold a reference.
struct execution;

struct execution_request {
    const char *owner;
    const char *session_id;
    const char *code;
    const char *variables; // an object as JSON text in ASCII, or NULL
    const char *env;       // the same, of strings
    int64_t timeout_ms;    // from the moment it runs
    bool keep_running;     // also when its last reader has gone
    bool session_ends;     // with it: its files can be had by nobody, and have no links
};

struct execution *execution_ref(struct execution *execution);
void execution_unref(struct execution *execution);
KG_DEFINE_AUTO(execution, execution_unref)
const char *execution_id(const struct execution *execution);
const char *execution_session_id(const struct execution *execution);
enum execution_state execution_state(const struct execution *execution);
// Asks a running execution to stop, and kills it when it does not within its grace; takes a queued
// one out of the queue. Ends as `interrupted`. One that is done stays as it is.
void execution_interrupt(struct execution *execution);

// A reader of an execution's lines, from the one after `after_seq` on. `on_ready` fires whenever
// there may be something to take after subscription_next() returned NULL; never from inside
// execution_subscribe().
struct subscription;
struct subscription *execution_subscribe(struct execution *execution, int64_t after_seq,
                                         loop_fn on_ready, void *arg);
void subscription_free(struct subscription *subscription);
KG_DEFINE_AUTO(subscription, subscription_free)
// Frees the subscription of a reader that has gone. Where it was the last one, the execution is
// interrupted, unless it is to keep running.
void subscription_abandon(struct subscription *subscription);
// The next line, JSON text, borrowed until the loop runs again or the next call; NULL: none for
// now. After its `ret_len` bytes there are a newline and a NUL. A reader that fell behind the log's
// bound gets a `dropped` line first.
const char *subscription_next(struct subscription *subscription, size_t *ret_len);
// The length of the line that subscription_next() would return, which stays where it is; 0: there is
// none now, or it is a `dropped` line, which is short.
size_t subscription_next_len(const struct subscription *subscription);
// Keeps the line that was taken last until subscription_release(), so that it can be sent without a
// copy; it counts as kept until then. NULL where it cannot be held: copy it.
void *subscription_hold(struct subscription *subscription);
void subscription_release(void *line);
// Whether the lines that readers hold are more than may be kept altogether: then those who do not
// send theirs are to let go of them.
bool subscription_is_crowded(const struct subscription *subscription);
// True once the `done` line was taken.
bool subscription_finished(const struct subscription *subscription);

// The executions that can be found by id: those under way, and for 10 minutes those that ended.
// What those under way keep is bounded, each by itself and all together: beyond that the one that
// keeps most loses its oldest message. What the ended ones keep for replay is bounded for all
// together: the owner whose ended executions keep most loses the oldest of them.
struct executions;
struct executions_settings {
    size_t max_log_bytes;     // of one execution
    size_t max_live_bytes;    // of all that are under way
    size_t max_replay_bytes;  // of all that have ended
    size_t max_message_bytes; // of one message of a kernel, and of its lines; 0: any
    // Of the code and variables of all that wait, small ones aside; one owner's may be half of it.
    // 0: any.
    size_t max_waiting_bytes;
};
struct executions *executions_new(struct loop *loop, const struct executions_settings *settings);
void executions_free(struct executions *executions);
KG_DEFINE_AUTO(executions, executions_free)
// Borrowed; NULL with KG_NOT_FOUND for an unknown id or another owner's.
struct execution *executions_find(struct executions *executions, const char *id, const char *owner,
                                  struct kg_error *err);

// ---- Kernels --------------------------------------------------------------------------------

enum kernel_state {
    KERNEL_STARTING,
    KERNEL_READY,
    KERNEL_BUSY,
    KERNEL_INTERRUPTING, // busy, asked to stop
    KERNEL_RESTARTING,   // the old process is being killed
    KERNEL_DEAD,         // could not be started; the next execution tries again
};
const char *kernel_state_name(enum kernel_state state);

enum { KERNEL_MAX_QUEUE = 16 }; // executions that wait

struct kernel;

// What the kernels of a gateway share; all borrowed.
struct kernel_context {
    struct loop *loop;
    struct executions *executions;
    int64_t start_timeout_ms;
    const json_t *env; // of every kernel, beside its kernelspec's
    // Makes a link for people to a file of a session, to be freed; NULL: there are none.
    char *(*file_url)(const void *arg, const char *owner, const char *session_id, const char *path);
    const void *file_url_arg;
};

// None of these may free the kernel: they are called from the middle of its work.
struct kernel_events {
    // Ready for the first time, or could not be started (`err`). Once.
    void (*on_started)(struct kernel *kernel, const struct kg_error *err, void *arg);
    // An execution has ended; its `done` line is in its log.
    void (*on_execution_done)(struct kernel *kernel, struct execution *execution, void *arg);
    // Its sandbox does not do any more what it is told, so that no kernel can run in it. Once.
    void (*on_broken)(struct kernel *kernel, const struct kg_error *err, void *arg);
    // The warm-up has come to an end; not, where the kernel is replaced meanwhile. May be NULL.
    void (*on_warm)(struct kernel *kernel, void *arg);
    // The process is being replaced by a new one, which is not warm. May be NULL.
    void (*on_replaced)(struct kernel *kernel, void *arg);
};

// Starts a kernel in a sandbox (which is borrowed); `env` (may be NULL) is the session's own.
struct kernel *kernel_new(const struct kernel_context *context, struct sandbox *sandbox,
                          const struct kernelspec *spec, const json_t *env,
                          const struct kernel_events *events, void *arg);
// Takes up a kernel that an earlier gateway has started; `process` is the agent's description of it
// (pid and key). It takes executions at once; they wait until what it may still be doing has ended.
// Where it ends, cannot be reached or does not answer within `timeout_ms` a new process takes its
// place. NULL where the description is of no use, or says that the process has ended.
KG_MUST_CHECK struct kernel *kernel_adopt(const struct kernel_context *context,
                                          struct sandbox *sandbox, const struct kernelspec *spec,
                                          const json_t *env, const json_t *process,
                                          int64_t timeout_ms, const struct kernel_events *events,
                                          void *arg);
// Ends what runs and waits as `died`, because of `reason` (NULL: the session ended). The process
// inside is left to the sandbox's end.
void kernel_free(struct kernel *kernel, const char *reason);
void kernel_set_events(struct kernel *kernel, const struct kernel_events *events, void *arg);
const struct kernelspec *kernel_spec(const struct kernel *kernel);
enum kernel_state kernel_state(const struct kernel *kernel);
// True once it was ready for the first time: from then on it takes executions in every state.
bool kernel_has_started(const struct kernel *kernel);
int64_t kernel_execution_count(const struct kernel *kernel);
// True while an execution runs or waits, an execute_request of a tap (kernel_tap.h) is unanswered,
// or an adopted kernel has not answered yet.
bool kernel_is_busy(const struct kernel *kernel);

// Runs code, after what is queued already. The caller gets a reference of its own. Fails with
// KG_SESSION_BUSY (the queue is full, or too much waits in all queues) or KG_INVALID (variables or
// env, and the kernelspec cannot).
KG_MUST_CHECK struct execution *kernel_execute(struct kernel *kernel,
                                               const struct execution_request *request,
                                               struct kg_error *err);
// Runs the kernelspec's warm-up silently in a kernel that is ready and that nobody uses yet.
// Executions may be queued meanwhile; nothing interrupts it, since a module that was imported by
// half stays so. Returns false where there is nothing to run, or it cannot be sent.
bool kernel_warm_up(struct kernel *kernel);
// Interrupts what runs and empties the queue. Returns whether there was anything.
bool kernel_interrupt(struct kernel *kernel);
// Ends what runs as `interrupted`, kills the process and all that it left behind, and starts a new
// one; what is queued runs there. `on_done` (may be NULL) fires once: ready, or failed. Fails with
// KG_SESSION_BUSY where the kernel is being replaced already.
typedef void (*kernel_restart_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK int kernel_restart(struct kernel *kernel, kernel_restart_fn on_done, void *arg,
                                 struct kg_error *err);
// The agent says that the process `pid` of a kernel has ended (see sandbox_events).
void kernel_on_exit(struct kernel *kernel, int pid, int exit_code, int signal, bool oom);
