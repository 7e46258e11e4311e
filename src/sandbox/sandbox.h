// SPDX-License-Identifier: Apache-2.0
// One container: its life at the provisioner, the links to its agent, the agent's client.
#pragma once

#include <jansson.h>

#include "base.h"

struct egress;
struct link_key;
struct loop;
struct provisioner;

// What every sandbox of a gateway shares; all borrowed.
struct sandbox_context {
    struct loop *loop;
    struct provisioner *provisioner;
    const struct link_key *link_key; // of this installation; NULL: agents dial the gateway
    struct egress *egress;           // for the sandboxes with `network`; NULL: they have no way out
};

enum sandbox_state {
    SANDBOX_CREATING, // the container is being made, or its agent has not dialled in yet
    SANDBOX_READY,    // links are there
    SANDBOX_CLAIMING, // the provisioner records whose it is going to be
    SANDBOX_CLAIMED,  // a session's
    SANDBOX_DESTROYING,
    SANDBOX_GONE,
};

struct sandbox;

struct sandbox_events {
    // The agent answers: kernels can be started. Once.
    void (*on_ready)(struct sandbox *sandbox, void *arg);
    // The container could not be made, has ended, or is another gateway's now. Once; what remains
    // is to call sandbox_free().
    void (*on_gone)(struct sandbox *sandbox, const struct kg_error *reason, void *arg);
    // A kernel that the agent started has ended. `signal` is 0 where it exited; `oom` where the
    // kernel's end was the kernel's out-of-memory killer.
    void (*on_kernel_exit)(struct sandbox *sandbox, const char *kernel, int pid, int exit_code,
                           int signal, bool oom, void *arg);
};

struct sandbox_spec {
    int agent_idle_timeout_s;
    bool network;             // a way out: see egress.h
    int64_t ready_timeout_ms; // from the start to on_ready; then on_gone
};

// Makes a sandbox with a random id. The events fire until sandbox_free().
KG_MUST_CHECK struct sandbox *sandbox_create(const struct sandbox_context *context,
                                             const struct sandbox_spec *spec,
                                             const struct sandbox_events *events, void *arg,
                                             struct kg_error *err);
// Takes up one that provisioner_recover() found; its exit is told by sandbox_on_exit().
KG_MUST_CHECK struct sandbox *sandbox_adopt(const struct sandbox_context *context, const char *id,
                                            bool claimed, const struct sandbox_spec *spec,
                                            const struct sandbox_events *events, void *arg,
                                            struct kg_error *err);
void sandbox_on_exit(struct sandbox *sandbox);

// Whose events these are: for a sandbox that passes from the pool to a session.
void sandbox_set_events(struct sandbox *sandbox, const struct sandbox_events *events, void *arg);
const char *sandbox_id(const struct sandbox *sandbox);
enum sandbox_state sandbox_state(const struct sandbox *sandbox);
// A folder for the gateway's own endpoints of this sandbox, private to it. Borrowed.
const char *sandbox_dir(const struct sandbox *sandbox);

// Records whose it is (see provisioner_claim): ready -> claiming -> claimed. `fn` fires once, in a
// later turn of the loop, unless the sandbox is gone, destroyed or freed before. With `err` the
// claim has failed. KG_NOT_FOUND: another gateway has the sandbox, which is of no more use here; as
// always it is to be destroyed or freed, which leaves the container alone.
typedef void (*sandbox_claim_fn)(struct sandbox *sandbox, const struct kg_error *err, void *arg);
KG_MUST_CHECK int sandbox_claim(struct sandbox *sandbox, const json_t *meta, sandbox_claim_fn fn,
                                void *arg, struct kg_error *err);

// Destroys the container, unless another gateway has it now. `on_done` (may be NULL) fires once,
// when nothing is left of it; the sandbox is freed then. No other event fires after this call;
// calls under way fail during it.
typedef void (*sandbox_done_fn)(const struct kg_error *err, void *arg);
void sandbox_destroy(struct sandbox *sandbox, sandbox_done_fn on_done, void *arg);
// Frees the gateway's side only: the container lives on, for the next gateway (--keep-sandboxes).
// The provisioner forgets the sandbox, so an exit of that container is reported to nobody.
void sandbox_free(struct sandbox *sandbox);
KG_DEFINE_AUTO(sandbox, sandbox_free)

// ---- Links ----------------------------------------------------------------------------------

// A call under way to the agent; its callback fires exactly once, then the handle is gone.
struct sandbox_call;
void sandbox_call_cancel(struct sandbox_call *call);

// Opens a link to a target inside: "<kernel>/shell", "<kernel>/iopub", "<kernel>/control".
// The callback owns `fd`; -1 with `err` where the agent refused or did not answer.
typedef void (*sandbox_link_fn)(int fd, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct sandbox_call *sandbox_open_link(struct sandbox *sandbox, const char *target,
                                                     int64_t timeout_ms, sandbox_link_fn fn,
                                                     void *arg, struct kg_error *err);

// ---- Calls of the agent ---------------------------------------------------------------------

// `result` is the agent's, an object, borrowed and untrusted; NULL with `err` on failure.
typedef void (*sandbox_agent_fn)(const json_t *result, const struct kg_error *err, void *arg);

// Calls a method of the agent (src/agent/methods.c) whose answer is one object. `params` is an
// object, or NULL for an empty one (borrowed).
KG_MUST_CHECK struct sandbox_call *sandbox_agent_call(struct sandbox *sandbox, const char *method,
                                                      const json_t *params, int64_t timeout_ms,
                                                      sandbox_agent_fn fn, void *arg,
                                                      struct kg_error *err);

// The bytes that follow a call's parameters: `data`, or what `read` fills `to` with, always exactly
// the next `len` bytes. Both must stay until the call has ended.
struct sandbox_body {
    const void *data;
    void (*read)(void *to, size_t len, void *arg);
    void *arg;
    size_t len;
};

// A call that sends or receives more than one object.
struct sandbox_stream_spec {
    const char *method;
    const json_t *params;       // or NULL
    struct sandbox_body body;   // empty: none
    int64_t head_timeout_ms;    // until the answer begins, or the next part of the body is taken
    int64_t silence_timeout_ms; // from then on, until more comes, while not paused; 0: none
};

// Each callback may cancel the call.
struct sandbox_stream_events {
    // The answer begins: at most once, before any data and any result; may be NULL. `head` is
    // borrowed.
    void (*on_head)(const json_t *head, void *arg);
    // One part of the answer as the agent sent it, at most 128 KiB; NULL: an answer with data
    // fails.
    void (*on_data)(const void *data, size_t len, void *arg);
    // Exactly once, the last; then the handle is gone. One of both is NULL.
    sandbox_agent_fn on_end;
};

// Cancelled by sandbox_call_cancel().
KG_MUST_CHECK struct sandbox_call *sandbox_agent_stream(struct sandbox *sandbox,
                                                        const struct sandbox_stream_spec *spec,
                                                        const struct sandbox_stream_events *events,
                                                        void *arg, struct kg_error *err);
// Stops on_data from firing, and the agent from sending once what is in between is full (some 768
// KiB); or goes on, not before the call returns.
void sandbox_stream_pause(struct sandbox_call *call, bool paused);

// ---- Commands -------------------------------------------------------------------------------

// A process inside the sandbox, beside its kernels. All borrowed for the time of the start.
struct sandbox_command_spec {
    const char *command;     // for `sh -c`; or NULL, and then
    const char *const *argv; // NULL-terminated; argv[0] is looked up in the PATH of `env`
    const char *cwd;         // absolute, or relative to /mnt/data; NULL: that
    const json_t *env;       // an object of strings beside the agent's own environment; or NULL
    int64_t timeout_ms;      // from its start; then it and all that it started is killed
    size_t max_output_bytes; // of text, both streams together; what is beyond is counted and
                             // dropped (the command goes on); 0: any amount, held back by the pause
};

enum { SANDBOX_COMMAND_MAX = 128 * 1024 - 1 }; // bytes of `command` and of each argument

// How a command ended: exited, or by a signal (`exit_code` is then 128 and the signal, as `$?` in
// the shell). `timed_out` goes with either.
struct sandbox_command_result {
    int exit_code;
    int signal; // 0 where it exited
    bool timed_out;
    bool oom; // a process in the sandbox was ended for want of memory
    int64_t duration_ms;
    int64_t dropped_bytes; // beyond max_output_bytes
};

enum sandbox_stream { SANDBOX_STDOUT, SANDBOX_STDERR };

// Each callback may cancel the command.
struct sandbox_command_events {
    // It runs. At most once, before any output.
    void (*on_started)(void *arg);
    // Valid UTF-8 of whole characters (what is none came as U+FFFD), at most 128 KiB; may hold
    // NULs.
    void (*on_output)(enum sandbox_stream stream, const char *text, size_t len, void *arg);
    // Exactly once, the last; then the handle is gone. `result` is NULL where `err` is set: it
    // could not be started (KG_INVALID: no such folder or program; KG_SESSION_BUSY: too many run;
    // each without on_started), or the sandbox has ended.
    void (*on_end)(const struct sandbox_command_result *result, const struct kg_error *err,
                   void *arg);
};

// What a command left running in the background when its shell ended lives on, unless it timed out.
struct sandbox_command;
KG_MUST_CHECK struct sandbox_command *
sandbox_command_start(struct sandbox *sandbox, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err);
// Kills it and all that it started (SIGTERM, and SIGKILL after a grace); no callback fires any
// more.
void sandbox_command_cancel(struct sandbox_command *command);
// Holds the command back, for a reader that cannot take more: on_output may still fire for what is
// under way, up to 256 KiB.
void sandbox_command_pause(struct sandbox_command *command, bool paused);
