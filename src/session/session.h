// SPDX-License-Identifier: Apache-2.0
// Sessions: what a client names by session_id. Each is one sandbox with its kernels, its files, its
// expiry and its owner.
#pragma once

#include <jansson.h>

#include "base.h"
#include "kernel.h"
#include "loop.h"
#include "sandbox.h"

enum { SESSION_MAX_ID_LEN = 64 };

struct session;
struct sessions;

// All borrowed.
struct sessions_settings {
    const struct sandbox_context *sandboxes;
    const struct kernel_context *kernels;
    const struct kernelspecs *specs;
    const struct kernelspec *pooled_spec; // whose kernels wait in the pool
    int64_t pool_size;
    int64_t max_sessions;
    int64_t max_sessions_per_owner; // 0: no bound of its own
    bool evict_idle;                // where there are too many, the longest idle session ends
    int64_t idle_timeout_s;
    int64_t sandbox_start_timeout_ms;
};

struct sessions *sessions_new(struct loop *loop, const struct sessions_settings *settings);
// Starts to fill the pool: after the recovery.
void sessions_start(struct sessions *sessions);
// Every session must have ended, or is left to the next gateway: see sessions_release().
void sessions_free(struct sessions *sessions);
KG_DEFINE_AUTO(sessions, sessions_free)

// ---- Recovery -------------------------------------------------------------------------------

// Takes up a sandbox that an earlier gateway has left (see provisioner_recover), with its kernels:
// as a session where it was claimed, else into the pool. Fails where it is of no use to anybody, so
// that it is best destroyed.
KG_MUST_CHECK int sessions_adopt(struct sessions *sessions, const char *sandbox_id,
                                 const json_t *meta, struct kg_error *err);
// The container of an adopted sandbox has ended.
void sessions_on_sandbox_exit(struct sessions *sessions, const char *sandbox_id);

// ---- Opening --------------------------------------------------------------------------------

struct session_request {
    const char *owner;
    const char *session_id; // NULL: a new one with a random id
    const struct kernelspec *kernelspec;
    const json_t *env;      // for a new session's kernels: an object of strings, or NULL
    int64_t idle_timeout_s; // 0: the default; for a new session only
    bool one_shot;          // a new session ends with its first execution
};

// Waits for the session (found, or made) and for its kernel of that kernelspec (found, or started)
// to be ready. Fires once; then the handle is gone. Errors: KG_INVALID_SESSION_ID,
// KG_MAX_SESSIONS, KG_KERNEL_START_TIMEOUT, KG_PROVISIONER_UNAVAILABLE.
struct session_open;
typedef void (*session_open_fn)(struct session *session, struct kernel *kernel,
                                const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_open *session_open_start(struct sessions *sessions,
                                                      const struct session_request *request,
                                                      session_open_fn fn, void *arg,
                                                      struct kg_error *err);
// The session stays, unless it is one-shot.
void session_open_cancel(struct session_open *open);

// Borrowed; NULL with KG_SESSION_NOT_FOUND, also where the session is another owner's.
struct session *sessions_find(struct sessions *sessions, const char *owner, const char *id,
                              struct kg_error *err);

// ---- One session ----------------------------------------------------------------------------

const char *session_id(const struct session *session);
// NULL as long as the session waits for it.
struct sandbox *session_sandbox(const struct session *session);
// {session_id, created_at, last_activity, expires_at, is_busy, execution_count, kernels}; times
// are RFC 3339.
json_t *session_describe(const struct session *session);
// Renews the expiry.
void session_touch(struct session *session);
// Interrupts every kernel; returns whether one was busy.
bool session_interrupt(struct session *session);
// Restarts every kernel that was started. `fn` fires once, with the first error, if any.
KG_MUST_CHECK int session_restart(struct session *session, kernel_restart_fn fn, void *arg,
                                  struct kg_error *err);
// Ends the session: what runs ends as `died`, and its sandbox is destroyed. It cannot be found any
// more. `on_done` (may be NULL) fires once, when nothing of it is left.
void session_end(struct session *session, const char *reason, loop_fn on_done, void *arg);

// ---- Commands -------------------------------------------------------------------------------

// Runs a command in the session's sandbox, whatever its kernels are doing; waits for a sandbox that
// is still being made. Its environment is that of the session's kernels' (what every kernel has,
// the session's own, the PATH of the kernelspecs), then the spec's. Counts as activity as long as
// it runs. See sandbox_command_start() for spec and events; a session's end is told as on_end with
// KG_SESSION_NOT_FOUND.
struct session_command;
KG_MUST_CHECK struct session_command *
session_command_start(struct session *session, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err);
// Kills the command; no callback fires any more.
void session_command_cancel(struct session_command *command);
void session_command_pause(struct session_command *command, bool paused);

// ---- All of them ----------------------------------------------------------------------------

size_t sessions_count(const struct sessions *sessions);
// Sandboxes that wait ready for a session; and whether a new session would probably get one.
size_t sessions_n_pooled(const struct sessions *sessions);
size_t sessions_n_starting(const struct sessions *sessions);
bool sessions_can_open(const struct sessions *sessions);
// {id: description} of one owner's sessions.
json_t *sessions_describe(const struct sessions *sessions, const char *owner);
// Executions that run or wait.
bool sessions_are_busy(const struct sessions *sessions);
// Ends all, the pool too; `on_done` fires once, when no sandbox is left.
void sessions_end_all(struct sessions *sessions, const char *reason, loop_fn on_done, void *arg);
// Lets go of all; their sandboxes live on.
void sessions_release(struct sessions *sessions);
