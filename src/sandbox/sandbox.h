// SPDX-License-Identifier: Apache-2.0
// One sandbox: the life of its container, links to its agent, calls of the agent, commands. All
// calls and callbacks are on the loop's thread.
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "base.h"

struct egress;
struct link_key;
struct loop;
struct provisioner;
struct provisioner_op;

// Shared by all sandboxes of a gateway; all borrowed.
struct sandbox_context {
    struct loop *loop;
    struct provisioner *provisioner;
    const struct link_key *link_key; // of this installation; NULL: agents dial the gateway
    struct egress *egress;           // of sandboxes with `network`; NULL: they have no way out
    bool shares_folders;             // see provisioner_shares_folders()
    // Those of this gateway, so that one that comes back from another gateway is known; NULL: none
    // does.
    struct living_sandboxes *living;
};
LIST_HEAD(living_sandboxes, sandbox);

enum sandbox_state {
    SANDBOX_CREATING, // the container is being created, or its agent has not answered yet
    SANDBOX_READY,    // the agent answers
    SANDBOX_CLAIMING, // the provisioner records the owner
    SANDBOX_CLAIMED,  // a session owns it
    SANDBOX_DESTROYING,
    SANDBOX_GONE,
};

struct sandbox;

// What a process in the sandbox asks the gateway for (src/agent/tenant.h), through the agent. All
// of it is untrusted.
struct sandbox_request {
    int64_t id;           // for sandbox_answer()
    const char *method;   // of a-z, _ and .; NULL: the process has left, and an answer ends it
    const json_t *params; // an object, less than 20 KiB as text
};

struct sandbox_events {
    // The agent answers: kernels can be started. Fires once.
    void (*on_ready)(struct sandbox *sandbox, void *arg);
    // The container could not be created, has ended, or belongs to another gateway now. Fires once;
    // the owner then calls sandbox_free().
    void (*on_gone)(struct sandbox *sandbox, const struct kg_error *reason, void *arg);
    // A kernel that the agent started has ended. `signal` is 0 if it exited; `oom`: Linux's
    // out-of-memory killer ended it. NULL: no kernel is started in this sandbox.
    void (*on_kernel_exit)(struct sandbox *sandbox, const char *kernel, int pid, int exit_code,
                           int signal, bool oom, void *arg);
    // A kernel or savepoint shares so many bytes with no other process. NULL: nobody wants to know.
    void (*on_kernel_memory)(struct sandbox *sandbox, const char *kernel, int64_t bytes, void *arg);
    // Borrowed; it must not end the sandbox. False: these are more than a truthful agent passes on
    // at a time. NULL: all requests are refused.
    bool (*on_request)(struct sandbox *sandbox, const struct sandbox_request *request, void *arg);
    // A process calls tools: the callback owns `fd`, for a struct tool_link. NULL: none may.
    void (*on_tools)(struct sandbox *sandbox, int fd, void *arg);
};

struct sandbox_spec {
    int agent_idle_timeout_s;
    bool network;             // with a way out: egress.h
    int64_t ready_timeout_ms; // from the start to on_ready; on_gone after that
};

// Creates a sandbox with a random id. Its events fire until sandbox_free().
KG_MUST_CHECK struct sandbox *sandbox_create(const struct sandbox_context *context,
                                             const struct sandbox_spec *spec,
                                             const struct sandbox_events *events, void *arg,
                                             struct kg_error *err);
// Adopts a sandbox that provisioner_recover() has found. The caller reports its container's end by
// sandbox_on_exit().
KG_MUST_CHECK struct sandbox *sandbox_adopt(const struct sandbox_context *context, const char *id,
                                            bool claimed, const struct sandbox_spec *spec,
                                            const struct sandbox_events *events, void *arg,
                                            struct kg_error *err);
void sandbox_on_exit(struct sandbox *sandbox);
// Takes over an unclaimed sandbox that another replica keeps ready (provisioner_take()). NULL with
// KG_NOT_FOUND: none is known.
KG_MUST_CHECK struct sandbox *sandbox_take(const struct sandbox_context *context,
                                           const struct sandbox_spec *spec,
                                           const struct sandbox_events *events, void *arg,
                                           struct kg_error *err);
// Whether another gateway has it now, as a reason of on_gone.
bool sandbox_is_lost(const struct sandbox *sandbox);

// Replaces the event handlers, as when the pool passes the sandbox to a session.
void sandbox_set_events(struct sandbox *sandbox, const struct sandbox_events *events, void *arg);
const char *sandbox_id(const struct sandbox *sandbox);
enum sandbox_state sandbox_state(const struct sandbox *sandbox);
// Bytes that it uses, as its agent last reported (untrusted; within some seconds, and 1 MiB); -1
// where that is unknown.
int64_t sandbox_memory(const struct sandbox *sandbox);
// The agent has just said what has changed in the working folder since `cursor` asked last.
void sandbox_note_look(struct sandbox *sandbox, const char *cursor);
// When it last said so to another cursor than that (clock_mono_us()); INT64_MAX: that one asked
// last.
int64_t sandbox_looked_us(const struct sandbox *sandbox, const char *cursor);
// A folder for the gateway's own endpoints of this sandbox, private to it. Borrowed.
const char *sandbox_dir(const struct sandbox *sandbox);

// Records the owner (provisioner_claim()): ready -> claiming -> claimed. `fn` fires once, in a
// later turn of the loop, unless the sandbox ends, is destroyed or is freed before. With `err` the
// claim has failed, and the sandbox is ready again. With KG_SESSION_BUSY it can be used for another
// session. With KG_NOT_FOUND another gateway has the
// sandbox: it must be destroyed or freed here, which leaves the container alone.
typedef void (*sandbox_claim_fn)(struct sandbox *sandbox, const struct kg_error *err, void *arg);
KG_MUST_CHECK int sandbox_claim(struct sandbox *sandbox, const json_t *meta, int64_t memory_mb,
                                sandbox_claim_fn fn, void *arg, struct kg_error *err);

// Replaces what the claim has recorded (provisioner_record()). `fn` fires once, later, also if the
// sandbox ends meanwhile; after sandbox_record_cancel() it does not.
KG_MUST_CHECK struct provisioner_op *
sandbox_record(struct sandbox *sandbox, const json_t *meta,
               void (*fn)(const struct kg_error *err, void *arg), void *arg, struct kg_error *err);
// What was begun goes on.
void sandbox_record_cancel(struct provisioner_op *op);

// Fails if new sandboxes cannot be used: provisioner_check().
KG_MUST_CHECK int sandbox_check(const struct sandbox_context *context, struct kg_error *err);

// Destroys the container, unless another gateway has it now, and then frees the sandbox. `on_done`
// (may be NULL) fires once, when nothing is left. Calls under way fail before this returns; after
// it no event fires.
typedef void (*sandbox_done_fn)(const struct kg_error *err, void *arg);
void sandbox_destroy(struct sandbox *sandbox, sandbox_done_fn on_done, void *arg);
// Frees the gateway's side only. The container keeps running, for the next gateway
// (--keep-sandboxes), and its end is not reported any more. Calls under way fail. NULL is fine.
void sandbox_free(struct sandbox *sandbox);
KG_DEFINE_AUTO(sandbox, sandbox_free)
// The same, and another replica gets the container at once (provisioner_hand_over()).
void sandbox_hand_over(struct sandbox *sandbox);
// An unclaimed one, with a kernel that is ready: another replica may take it (sandbox_take()).
void sandbox_offer(struct sandbox *sandbox);

// ---- Links ----------------------------------------------------------------------------------

// A call of the agent under way. Its callback fires exactly once, and the handle is then invalid.
// NULL is fine for sandbox_call_cancel().
struct sandbox_call;
void sandbox_call_cancel(struct sandbox_call *call);

// Opens a link to a target in the sandbox: "<kernel>/shell", "<kernel>/iopub", "<kernel>/control".
// The callback owns `fd`, which is -1 with `err` if the agent refused or did not answer.
typedef void (*sandbox_link_fn)(int fd, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct sandbox_call *sandbox_open_link(struct sandbox *sandbox, const char *target,
                                                     int64_t timeout_ms, sandbox_link_fn fn,
                                                     void *arg, struct kg_error *err);

// ---- Calls of the agent ---------------------------------------------------------------------

// `result` is an object from the agent, borrowed and untrusted; NULL with `err` on failure.
typedef void (*sandbox_agent_fn)(const json_t *result, const struct kg_error *err, void *arg);

// Calls a method of the agent (src/agent/methods.c) whose answer is one object. `params` is an
// object, or NULL for an empty one (borrowed).
KG_MUST_CHECK struct sandbox_call *sandbox_agent_call(struct sandbox *sandbox, const char *method,
                                                      const json_t *params, int64_t timeout_ms,
                                                      sandbox_agent_fn fn, void *arg,
                                                      struct kg_error *err);

// The bytes that follow a call's parameters: either `data`, or what `read` writes to `to`: the next
// bytes, at most `len`; it returns how many. 0: none are there yet, and sandbox_body_is_ready() is
// called when there are. Both are borrowed until the call has ended.
struct sandbox_body {
    const void *data;
    size_t (*read)(void *to, size_t len, void *arg);
    void *arg;
    size_t len;
};

// A call that sends or receives more than one object.
struct sandbox_stream_spec {
    const char *method;
    const json_t *params;       // or NULL
    struct sandbox_body body;   // `len` 0: none
    int64_t head_timeout_ms;    // until the answer begins, or the agent takes more of the body
    int64_t silence_timeout_ms; // then between two parts of the answer, unless paused; 0: none
};

// Each callback may cancel the call.
struct sandbox_stream_events {
    // The answer begins: at most once, before any data and any result; may be NULL. `head` is
    // borrowed.
    void (*on_head)(const json_t *head, void *arg);
    // One part of the answer as the agent sent it, at most 128 KiB; NULL: an answer with data
    // fails.
    void (*on_data)(const void *data, size_t len, void *arg);
    // Fires exactly once, last; the handle is then invalid. One argument is NULL.
    sandbox_agent_fn on_end;
};

KG_MUST_CHECK struct sandbox_call *sandbox_agent_stream(struct sandbox *sandbox,
                                                        const struct sandbox_stream_spec *spec,
                                                        const struct sandbox_stream_events *events,
                                                        void *arg, struct kg_error *err);
// There are more bytes for the body that it sends. It is read in a later turn.
void sandbox_body_is_ready(struct sandbox_call *call);
// Pauses or resumes a stream. A paused one does not fire on_data, and the agent stops sending once
// the buffers between are full (some 768 KiB). After resuming, on_data fires in a later turn.
void sandbox_stream_pause(struct sandbox_call *call, bool paused);

// Answers a request with lines (objects; borrowed) for the process that waits for it; `last`: no
// more follow. The result is {"gone": whether nobody waits for more}. Several answers of one
// request must be given one after the other.
KG_MUST_CHECK struct sandbox_call *sandbox_answer(struct sandbox *sandbox, int64_t id,
                                                  const json_t *lines, bool last,
                                                  sandbox_agent_fn fn, void *arg,
                                                  struct kg_error *err);

// ---- Commands -------------------------------------------------------------------------------

// A process in the sandbox, beside its kernels. All borrowed until sandbox_command_start() returns.
struct sandbox_command_spec {
    const char *command;     // for `bash -c`, or `sh -c` without bash; NULL: `argv` is used
    bool login;              // of `command`: what login shells read is read before. The PATH of
                             // `env` stays in front
    const char *const *argv; // NULL-terminated; argv[0] is looked up in the PATH of `env`. NULL, as
                             // `command` is: an interactive shell, whose prompt is not work
    const char *cwd;         // absolute, or relative to /mnt/data; NULL: /mnt/data
    const json_t *env;       // an object of strings, added to the agent's environment; or NULL
    int64_t timeout_ms;      // from its start; then it is killed with everything that it started;
                             // 0, with `keep`: it may run on
    size_t max_output_bytes; // of text, both streams together; more is counted and dropped while
                             // the command runs on; 0: no limit but the pause
    const char *id;          // sandbox_command_id_valid(); NULL: the agent makes one
    const char *note;        // for the list: at most SANDBOX_COMMAND_NOTE_MAX bytes; or NULL
    bool keep;               // it outlives its caller, and its end is known for an hour
    bool with_stdin;         // sandbox_command_input(); else its input is empty
    int cols, rows;          // of its terminal, which replaces both streams and stdin; 0: none
};

enum {
    SANDBOX_COMMAND_MAX = 128 * 1024 - 1, // bytes of `command` and of each argument
    SANDBOX_COMMAND_ID_MAX = 32,
    SANDBOX_COMMAND_NOTE_MAX = 128,
    SANDBOX_COMMAND_INPUT_MAX = 1 << 20, // bytes that wait to be read by a command
    SANDBOX_TERMINAL_SIDE_MAX = 1000,    // columns and rows
};

// Of 1 to SANDBOX_COMMAND_ID_MAX characters: a-z, 0-9 and _.
bool sandbox_command_id_valid(const char *id);

// How a command has started, or is when it is joined.
struct sandbox_command_start {
    const char *id; // borrowed; "" if its agent does not know ids
    int pid;        // in the sandbox
    bool terminal;
    bool running;
    int64_t dropped_bytes; // of its output before what follows
    int64_t kept_bytes;    // of what follows, it had written so many before; -1: not known
};

// How a command ended: it exited, or a signal ended it (`exit_code` is then 128 plus the signal, as
// `$?` in the shell). `timed_out` is possible with both.
struct sandbox_command_result {
    int exit_code;
    int signal; // 0 if it exited
    bool timed_out;
    bool oom; // the out-of-memory killer ended a process in the sandbox
    int64_t duration_ms;
    int64_t dropped_bytes; // beyond max_output_bytes
};

enum sandbox_stream { SANDBOX_STDOUT, SANDBOX_STDERR, SANDBOX_TERMINAL };

// Each callback may cancel the command.
struct sandbox_command_events {
    // The command runs, or was joined. Fires at most once, before any output. May be NULL.
    void (*on_started)(const struct sandbox_command_start *start, void *arg);
    // Valid UTF-8 in whole characters (other bytes have become U+FFFD), at most 128 KiB; may
    // contain NULs. Of a terminal: bytes as they are.
    void (*on_output)(enum sandbox_stream stream, const char *text, size_t len, void *arg);
    // Fires exactly once, last; the handle is then invalid. `result` is NULL if `err` is set: the
    // command could not be started (KG_INVALID: no such folder or program; KG_SESSION_BUSY: too
    // many run; KG_COMMAND_EXISTS: the id is taken; each without on_started), there is none of that
    // id (KG_NOT_FOUND), or the sandbox has ended.
    void (*on_end)(const struct sandbox_command_result *result, const struct kg_error *err,
                   void *arg);
    // A reader that was joined without `holds` has missed so many bytes. NULL: none can be.
    void (*on_missed)(int64_t bytes, void *arg);
};

// Processes that a command leaves in the background keep running, unless the command timed out.
struct sandbox_command;
KG_MUST_CHECK struct sandbox_command *
sandbox_command_start(struct sandbox *sandbox, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err);
// Follows a command that is known: the last 64 KiB of its output, what follows, and its end, also
// when that is past. A reader that `holds` makes it wait while paused; others miss output then.
KG_MUST_CHECK struct sandbox_command *
sandbox_command_join(struct sandbox *sandbox, const char *id, bool holds,
                     const struct sandbox_command_events *events, void *arg, struct kg_error *err);
// Leaves it. One that was started without `keep` is killed with everything that it started
// (SIGTERM, and SIGKILL after a grace period). No callback fires any more.
void sandbox_command_cancel(struct sandbox_command *command);
// Pauses or resumes the output, for a reader that cannot take more. on_output may still fire for
// what is under way, up to 256 KiB.
void sandbox_command_pause(struct sandbox_command *command, bool paused);

// What the sandbox's commands do, as its agent last reported (untrusted; within some seconds).
struct sandbox_activity {
    int n_running; // without terminals
    int n_terminals;
    bool working; // one of them runs, or something in a terminal's foreground does
};
const struct sandbox_activity *sandbox_activity(const struct sandbox *sandbox);

// ---- Calls about commands (command_calls.c) -------------------------------------------------

enum { SANDBOX_COMMANDS_MAX = 128 }; // that a list has

// Lists those that run, and those whose end is known, in the order of their starts.
KG_MUST_CHECK struct sandbox_call *
sandbox_command_list(struct sandbox *sandbox, sandbox_agent_fn fn, void *arg, struct kg_error *err);
// The list in the result, checked: [{"id", "command", "cwd", "pid", "terminal", "running", "keep",
// "readers", "age_ms" (since its start), "exit_code", "signal", "argv", "note"}]: exit_code and
// signal unless it runs, argv (shortened) if it was started by one, note if it has one. `command`
// is as it was given ("": a shell), shortened. NULL: the agent does not tell the truth.
KG_MUST_CHECK json_t *sandbox_command_list_parse(const json_t *result, struct kg_error *err);
// Starts one that `keep`s, without a reader.
KG_MUST_CHECK struct sandbox_call *sandbox_command_detach(struct sandbox *sandbox,
                                                          const struct sandbox_command_spec *spec,
                                                          sandbox_agent_fn fn, void *arg,
                                                          struct kg_error *err);
// What its result says; `id` is borrowed from it.
KG_MUST_CHECK int sandbox_command_detach_parse(const json_t *result,
                                               struct sandbox_command_start *ret,
                                               struct kg_error *err);

// The error of each of these is KG_NOT_FOUND where no command of that id is known, and KG_INVALID
// where it has ended, or has no such thing.
// Gives it bytes to read, all or nothing: at most SANDBOX_COMMAND_INPUT_MAX, which are borrowed
// until the call has ended. KG_SESSION_BUSY: too many wait already.
KG_MUST_CHECK struct sandbox_call *sandbox_command_input(struct sandbox *sandbox, const char *id,
                                                         const void *data, size_t len,
                                                         sandbox_agent_fn fn, void *arg,
                                                         struct kg_error *err);
// Its input ends after what waits; a terminal gets its end-of-file character.
KG_MUST_CHECK struct sandbox_call *sandbox_command_close_input(struct sandbox *sandbox,
                                                               const char *id, sandbox_agent_fn fn,
                                                               void *arg, struct kg_error *err);
KG_MUST_CHECK struct sandbox_call *sandbox_command_resize(struct sandbox *sandbox, const char *id,
                                                          int cols, int rows, sandbox_agent_fn fn,
                                                          void *arg, struct kg_error *err);
// `name`: INT, TERM, KILL, HUP, QUIT, USR1, USR2, CONT, STOP, TSTP or WINCH. TERM (with KILL 1.5 s
// later) and KILL end it with all that it has started; others go to its group, or that in its
// terminal's foreground.
KG_MUST_CHECK struct sandbox_call *sandbox_command_signal(struct sandbox *sandbox, const char *id,
                                                          const char *name, sandbox_agent_fn fn,
                                                          void *arg, struct kg_error *err);
