// SPDX-License-Identifier: Apache-2.0
// Kernelspecs, kernels (one interpreter process in a sandbox), executions and their output logs.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

struct forks;
struct sandbox;
struct tool_list;

// ---- Kernelspecs ----------------------------------------------------------------------------

// How a kernel for a language is started: `<name>/kernel.json` (jupyter_client, "Kernel specs"),
// with kernelgate's additions below `metadata.kernelgate`.
struct kernelspec {
    char *name; // the folder's: 1 to 32 of a-z0-9_-
    char *display_name;
    char *language;
    json_t *argv;              // of strings; "{connection_file}" is replaced by the agent
    json_t *env;               // of strings
    json_t *aliases;           // further names, of strings
    json_t *metadata;          // for clients: without kernelgate's additions
    char *transport;           // "ipc" or "tcp": what the kernel speaks inside its sandbox
    bool interrupt_by_message; // interrupt_mode "message": on the control channel, not by SIGINT
    // Code of silent requests, with "{json}" in place of a string literal that holds a JSON object;
    // NULL where the kernel has no such code.
    char *variables_code; // sets variables
    char *env_code;       // sets the environment of one execution
    char *env_restore_code;
    char *savepoint_code; // makes a savepoint when it has been answered: {"connection_file"}
    char *startup_code;   // the first code that each new process runs; NULL: none
    // Sets the working folder and HOME of a process, once: {"folder", "home"?}.
    char *folder_code;
    json_t *zygote_argv;  // of strings: starts a process that forks such kernels; NULL: none
    json_t *zygote_late;  // of strings: modules that it leaves to the kernels; or NULL
    char *zygote_prepare; // MODULE.FUNCTION that it calls before it forks; NULL: none
    char *warmup_code;    // imports the modules that first executions wait for; NULL: none
};

struct kernelspecs;
// Loads every kernelspec of a folder. Fails if there is none, or if one is malformed.
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

// One execute_request and the log of its outputs. The kernel that runs it, the registry that keeps
// it for replay, and each subscription hold a reference.
struct execution;

struct execution_request {
    const char *owner;
    const char *session_id;
    const char *code;
    const char *variables; // an object as JSON text in ASCII, or NULL
    const char *env;       // the same, of strings
    int64_t timeout_ms;    // counts from when it starts to run
    int max_image_side;    // pixels: the kernel makes larger images smaller, if it can; 0: no limit
    bool keep_running;     // does not end when its last reader leaves
    bool allow_stdin;      // the code may ask for input: see execution_give_input()
    json_t *more_done;     // members for its `done` line, an object; or NULL
    bool session_ends;     // the session ends with it, so its files have no links
    struct tool_list *tools; // that the code may call, which its client answers; or NULL
};

struct execution *execution_ref(struct execution *execution);
void execution_unref(struct execution *execution);
KG_DEFINE_AUTO(execution, execution_unref)
const char *execution_id(const struct execution *execution);
// When it was asked for, on clock_mono_us().
int64_t execution_opened_us(const struct execution *execution);
const char *execution_session_id(const struct execution *execution);
enum execution_state execution_state(const struct execution *execution);
// Interrupts a running execution, and kills its kernel if it does not stop within 3 s; removes a
// queued one from the queue. It ends as `interrupted`. Returns false where there is nothing to
// stop: it is done, or runs in a subshell, which no interrupt reaches.
bool execution_interrupt(struct execution *execution);
// Answers the input that the code of an execution with `allow_stdin` has asked for, which an
// `input_request` line says ("Messages on the stdin channel" in the protocol); an `input_reply`
// line follows. KG_NO_INPUT_REQUEST where it asks for none.
KG_MUST_CHECK int execution_give_input(struct execution *execution, const char *value,
                                       struct kg_error *err);

// ---- Tool calls (tool_calls.c) --------------------------------------------------------------

// What the code of an execution asks the execution's client to do. A `tool_call` line says so, and
// a `tool_result` line how it has ended. While one waits, the execution's time limit does not run.
struct tool_call;
struct tool_result; // tool_results.h
struct tool_results;
// `result` is borrowed.
typedef void (*tool_result_fn)(const struct tool_result *result, void *arg);
// The tools that it may call, borrowed; NULL: none.
struct tool_list *execution_tools(const struct execution *execution);
// Of an execution that has tools. `fn` fires once, later. KG_NOT_FOUND, KG_INVALID: as
// tool_list_check(); KG_RATE_LIMITED: it has made too many; KG_SESSION_BUSY: too much waits, or
// execution_is_full_of_calls(); KG_KERNEL_BUSY: it does not run (any more).
KG_MUST_CHECK struct tool_call *execution_call_tool(struct execution *execution, const char *name,
                                                    const json_t *arguments, tool_result_fn fn,
                                                    void *arg, struct kg_error *err);
// The same of a tool that `server`, which stands beside the gateway, answers: the caller has
// checked the name and the arguments, sends the call, and ends it by tool_call_end(). It counts
// among the execution's calls and stops its clock, and its end has a line, but clients do not see
// it waiting. `fn` fires if the execution ends before.
KG_MUST_CHECK struct tool_call *execution_begin_call(struct execution *execution,
                                                     const char *server, const char *name,
                                                     tool_result_fn fn, void *arg,
                                                     struct kg_error *err);
// `status` is that of the line: `ok`, `error`, `timeout` or `cancelled`. `fn` is not called.
void tool_call_end(struct tool_call *call, const char *status, size_t bytes);
// The code does not want it any more. `fn` is not called. NULL is fine.
void tool_call_cancel(struct tool_call *call);
// Whether as many calls wait as an execution may have waiting: a further one is refused.
bool execution_is_full_of_calls(const struct execution *execution);
// Those that wait: [{"seq" (of the line), "call_id", "name", "arguments"}], a new reference.
json_t *execution_waiting_calls(const struct execution *execution);
// For answers that gather lines: the last line that one has had; 0 at the start.
int64_t execution_gathered_seq(const struct execution *execution);
void execution_set_gathered_seq(struct execution *execution, int64_t seq);
// Answers calls that wait, all or none. KG_NOT_FOUND: there is no such call; KG_TOOL_CALL_ENDED: it
// does not wait any more.
KG_MUST_CHECK int execution_give_results(struct execution *execution,
                                         const struct tool_results *results, struct kg_error *err);

// ---- Readers --------------------------------------------------------------------------------

// A reader of an execution's lines, from the line after `after_seq` on. `on_ready` fires when there
// may be a line again after subscription_next() returned NULL, and never from inside
// execution_subscribe().
struct subscription;
struct subscription *execution_subscribe(struct execution *execution, int64_t after_seq,
                                         loop_fn on_ready, void *arg);
void subscription_free(struct subscription *subscription);
KG_DEFINE_AUTO(subscription, subscription_free)
// Frees the subscription of a reader that has left. If it was the last one, the execution is
// interrupted, unless `keep_running` was requested.
void subscription_abandon(struct subscription *subscription);
// The next line, JSON text, borrowed until the next call or until the loop runs again; NULL: none
// yet. A newline and a NUL follow its `ret_len` bytes. A reader that fell behind the log's bound
// gets a `dropped` line first.
const char *subscription_next(struct subscription *subscription, size_t *ret_len);
// The seq of the line that was taken last, or after which it began.
int64_t subscription_seq(const struct subscription *subscription);
// Whether that was a `dropped` line, and which lines it stands for: from and to these seq.
bool subscription_has_lost(const struct subscription *subscription, int64_t *ret_first,
                           int64_t *ret_last);
// The length of the line that subscription_next() would return, which stays where it is; 0: there
// is none now, or it is a `dropped` line, which is short.
size_t subscription_next_len(const struct subscription *subscription);
// Keeps the line that was taken last until subscription_release(), so that it can be sent without a
// copy; it counts as held until then. NULL if it cannot be held: then copy it.
void *subscription_hold(struct subscription *subscription);
void subscription_release(void *line);
// Whether more is held than max_live_bytes: then a reader that is slow to send the lines it holds
// should release them.
bool subscription_is_crowded(const struct subscription *subscription);
// True once the `done` line was taken.
bool subscription_finished(const struct subscription *subscription);

// The registry of executions: the live ones, and for 10 minutes those that have ended. The logs of
// live executions are bounded, each and all together; beyond the common bound the log that holds
// most loses its oldest message. The logs of ended executions are bounded together; beyond that
// the owner whose ended executions hold most loses the oldest of them.
struct executions;
struct executions_settings {
    size_t max_log_bytes;     // of one execution
    size_t max_live_bytes;    // of all live executions, and of the queues of taps
    size_t max_replay_bytes;  // of all that have ended
    size_t max_message_bytes; // of one message of a kernel, and of its lines; 0: no bound
    // Of the code and variables that wait, and of messages of taps; small ones do not count. One
    // owner may use half of it. 0: no bound.
    size_t max_waiting_bytes;
    // The settings, for messages: of executions that name none, and the most that may be named.
    int64_t default_timeout_ms, max_timeout_ms;
    int64_t tool_call_timeout_ms; // of one call
    int64_t max_tool_calls;       // of one execution
    const char *id_suffix; // of the executions' ids, up to EXECUTION_SUFFIX_MAX characters; or NULL
};
enum { EXECUTION_SUFFIX_MAX = 10 };
struct executions *executions_new(struct loop *loop, const struct executions_settings *settings);
void executions_free(struct executions *executions);
KG_DEFINE_AUTO(executions, executions_free)
// Borrowed; NULL with KG_NOT_FOUND for an unknown id or another owner's.
struct execution *executions_find(struct executions *executions, const char *id, const char *owner,
                                  struct kg_error *err);
// Those of an owner's session that the registry has, those of taps included: the newest
// EXECUTIONS_DESCRIBED_MAX of them, the newest first, and how many there are.
enum { EXECUTIONS_DESCRIBED_MAX = 100 };
json_t *executions_describe(const struct executions *executions, const char *owner,
                            const char *session_id);

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

enum { KERNEL_MAX_QUEUE = 16 }; // executions that wait for one kernel

struct kernel;

// Whether a kernel may have that name: 1 to 32 of A-Za-z0-9_-.
enum { KERNEL_MAX_NAME_LEN = 32 };
bool kernel_name_valid(const char *name);

// A kernel, and what each of its processes starts with. All but `spec` is copied.
struct kernel_settings {
    const struct kernelspec *spec; // borrowed
    const char *name;              // in its sandbox, kernel_name_valid(); NULL: the kernelspec's
    const json_t *env;             // the session's own, an object of strings; or NULL
    // The working folder, an absolute path, and HOME. NULL: /mnt/data, and what the sandbox has.
    // Where the kernelspec has folder_code, a folder that is missing is made.
    const char *folder;
    const char *home;
    // The savepoint that the first process is forked from; NULL: a new process.
    const char *savepoint;
};

// Shared by all kernels of a gateway; everything is borrowed.
struct kernel_context {
    struct loop *loop;
    struct executions *executions;
    int64_t start_timeout_ms;
    int64_t memory_mb;   // the setting, for messages
    const json_t *env;   // of every kernel, beside its kernelspec's
    struct forks *forks; // fork kernels; NULL: all are started by exec
    // Makes a link for people to a file of a session, to be freed; may be NULL.
    char *(*file_url)(const void *arg, const char *owner, const char *session_id, const char *path);
    const void *file_url_arg;
};

// Handlers must not free the kernel; they run inside it.
struct kernel_events {
    // Ready for the first time, or could not be started (`err`). Once.
    void (*on_started)(struct kernel *kernel, const struct kg_error *err, void *arg);
    // An execution has ended; its `done` line is in its log.
    void (*on_execution_done)(struct kernel *kernel, struct execution *execution, void *arg);
    // The agent could not kill the old process, so no kernel can run in this sandbox. Once.
    void (*on_broken)(struct kernel *kernel, const struct kg_error *err, void *arg);
    // The warm-up has ended; not called if the process was replaced before. May be NULL.
    void (*on_warm)(struct kernel *kernel, void *arg);
    // The process is being replaced by a new one, which is not warm. May be NULL.
    void (*on_replaced)(struct kernel *kernel, void *arg);
    // A process, the first or a later one, is ready or could not be started. May be NULL.
    void (*on_settled)(struct kernel *kernel, void *arg);
};

// Starts a kernel in a sandbox, which is borrowed.
struct kernel *kernel_new(const struct kernel_context *context, struct sandbox *sandbox,
                          const struct kernel_settings *settings,
                          const struct kernel_events *events, void *arg);
// Adopts a kernel that an earlier gateway has started; `process` is the agent's description of it
// (pid and key). It takes executions at once; they wait until the kernel answers. If it ends,
// cannot be reached or does not answer within `timeout_ms`, a new process takes its place. NULL if
// the description is incomplete, or says that the process has ended.
KG_MUST_CHECK struct kernel *kernel_adopt(const struct kernel_context *context,
                                          struct sandbox *sandbox,
                                          const struct kernel_settings *settings,
                                          const json_t *process, int64_t timeout_ms,
                                          const struct kernel_events *events, void *arg);
// Ends all its executions as `died`, because of `reason` (NULL: the session ended), and its taps.
// The process inside ends with the sandbox.
void kernel_free(struct kernel *kernel, const char *reason);
void kernel_set_events(struct kernel *kernel, const struct kernel_events *events, void *arg);
// As in struct kernel_settings, for a kernel that was started before that was known: nothing has
// run in it, and its kernelspec has folder_code.
void kernel_set_folder(struct kernel *kernel, const char *folder, const char *home);
const struct kernelspec *kernel_spec(const struct kernel *kernel);
const char *kernel_name(const struct kernel *kernel);
// NULL: /mnt/data.
const char *kernel_folder(const struct kernel *kernel);
// Whether a process is being started, or is about to be: it may come into the sandbox later. Not so
// of an adopted one.
bool kernel_is_starting(const struct kernel *kernel);
enum kernel_state kernel_state(const struct kernel *kernel);
// True once it has been ready: from then on it takes executions in every state.
bool kernel_has_started(const struct kernel *kernel);
int64_t kernel_execution_count(const struct kernel *kernel);
// {"state", "execution_count", "replaced"?: {"at", "reason"}}: when and why its last process took
// the place of another one. A new reference.
json_t *kernel_describe(const struct kernel *kernel);
// True while an execution runs or waits, an execute_request of a tap (kernel_tap.h) is unanswered,
// or an adopted kernel has not answered yet.
bool kernel_is_busy(const struct kernel *kernel);
// True while code runs of which iopub has not said yet that it is `idle`, or an adopted kernel has
// not answered yet.
bool kernel_is_running(const struct kernel *kernel);
// The execution whose code runs now, borrowed; NULL: none.
struct execution *kernel_execution(const struct kernel *kernel);
// Whether output of its code has arrived, or begun to, that is not in the execution's lines yet.
bool kernel_has_unread_output(const struct kernel *kernel);
// The content of the kernel_info_reply with which the process became ready, JSON text, borrowed.
// NULL: the process is not ready, or the reply was too large to be kept.
const char *kernel_info(const struct kernel *kernel);
// Why the last process was replaced, or none could be started, borrowed; NULL: by request.
const char *kernel_end_reason(const struct kernel *kernel);

// Queues code. The caller gets a reference of its own. Fails with KG_SESSION_BUSY (the queue is
// full, or too much waits in all queues) or KG_INVALID (variables or env that the kernelspec has no
// code for).
KG_MUST_CHECK struct execution *kernel_execute(struct kernel *kernel,
                                               const struct execution_request *request,
                                               struct kg_error *err);
// Runs the kernelspec's warm-up silently in a kernel that is ready and not in use yet. Executions
// may be queued meanwhile; nothing interrupts the warm-up, since a module whose import was
// interrupted stays half imported. Returns false if there is no such code, or it cannot be sent.
bool kernel_warm_up(struct kernel *kernel);
// Interrupts the running code, of a tap as well, and empties the queue. Returns whether there was
// something that an interrupt can reach: code in a subshell is not.
bool kernel_interrupt(struct kernel *kernel);
// Ends the running execution as `interrupted`, kills the process and everything that it left
// behind, and starts a new one, in which queued executions run. `on_done` (may be NULL) fires once:
// ready, or failed. Fails with KG_SESSION_BUSY if the kernel is being replaced already.
typedef void (*kernel_restart_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK int kernel_restart(struct kernel *kernel, kernel_restart_fn on_done, void *arg,
                                 struct kg_error *err);
// The same, but the new process is forked from a savepoint of a kernel of this kernelspec. If that
// fails, the kernel is dead, and `on_done` gets the reason.
// `files`: what the savepoint has kept of /mnt/data is put back between the two processes.
KG_MUST_CHECK int kernel_restore(struct kernel *kernel, const char *savepoint,
                                 int64_t execution_count, bool files, kernel_restart_fn on_done,
                                 void *arg, struct kg_error *err);

// ---- Savepoints -----------------------------------------------------------------------------

// A savepoint is a fork of a kernel's process, which waits in the sandbox, and of which kernels are
// forked. The agent knows it by a name, as it knows kernels, and reports its end; it ends by
// kernels.remove. It outlives its kernel. What it says about itself is untrusted.
struct kernel_savepoint {
    int pid; // in the sandbox
    int64_t execution_count;
    int64_t memory_bytes; // that it shares with no other process, when it was made; -1: not known
    json_t *lost;         // what kernels from it do not have: an array of texts for people
    int64_t files_bytes;  // that were kept; 0 without
    int files_entries;
};
struct savepoint_making;
// `savepoint` is borrowed; NULL with `err`. Then the agent may still expect one of that name.
typedef void (*kernel_savepoint_fn)(const struct kernel_savepoint *savepoint,
                                    const struct kg_error *err, void *arg);
// `name` is one that the agent does not know. KG_UNSUPPORTED: the kernelspec has no such code.
// KG_KERNEL_BUSY: the kernel runs code, or is not ready. `fn` fires once, later. `files`: the agent
// first keeps /mnt/data by that name (data.keep); KG_DISK_FULL if there is no room. What the agent
// keeps is the caller's to drop, whatever comes after.
KG_MUST_CHECK struct savepoint_making *kernel_make_savepoint(struct kernel *kernel,
                                                             const char *name, bool files,
                                                             kernel_savepoint_fn fn, void *arg,
                                                             struct kg_error *err);
// `fn` is not called any more. NULL is fine.
void savepoint_making_cancel(struct savepoint_making *making);

// ---- Questions ------------------------------------------------------------------------------

// Asks a kernel something between two cells: complete_request, inspect_request and the like
// ("Messages on the shell ROUTER/DEALER channel"). `content` is taken.
struct kernel_question;
// `content` is what the kernel replies, an object, borrowed and untrusted; NULL with `err`.
typedef void (*kernel_answer_fn)(const json_t *content, const struct kg_error *err, void *arg);
// KG_KERNEL_BUSY: the kernel runs code, is not ready, or answers another question. `fn` fires once,
// later, within `timeout_ms`.
KG_MUST_CHECK struct kernel_question *kernel_ask(struct kernel *kernel, const char *msg_type,
                                                 json_t *content, int64_t timeout_ms,
                                                 kernel_answer_fn fn, void *arg,
                                                 struct kg_error *err);
// `fn` is not called any more. NULL is fine.
void kernel_question_cancel(struct kernel_question *question);

// The agent reports that the process `pid` of a kernel has ended (see sandbox_events).
void kernel_on_exit(struct kernel *kernel, int pid, int exit_code, int signal, bool oom);
