// SPDX-License-Identifier: Apache-2.0
// One session: what a client names by session_id. It has one sandbox, kernels, an owner and an
// expiry. sessions.h finds and opens sessions; session_kernels.h, session_commands.h,
// session_files.h, session_downloads.h and session_packages.h are the other operations on one.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

struct execution;
struct kernel;
struct sandbox;
struct session;
struct tool_list;

enum {
    SESSION_MAX_ID_LEN = 64,
    SESSION_MAX_KERNELS = 32, // its agent keeps more, with savepoints
};

const char *session_id(const struct session *session);
const char *session_owner(const struct session *session);
// Borrowed; NULL while the session is still waiting for its sandbox.
struct sandbox *session_sandbox(const struct session *session);
// What the face that has made the session wants to know of it later, also after a restart: an
// object, borrowed. NULL: nothing.
const json_t *session_face(const struct session *session);
// The folder in which its kernels start, and their HOME; NULL: they have none of their own.
const char *session_home(const struct session *session);
// {session_id, created_at, last_activity, expires_at, ends_at, is_busy, execution_count, kernels,
// memory_bytes, commands, terminals, metadata}; times are RFC 3339, ends_at is null without an end;
// memory_bytes is sandbox_memory(), or null; commands and terminals are those that run, as
// sandbox_activity() says. `kernels` has kernel_describe() of each, by name; of a further one
// (session_kernels.h) with `kernel`, the kernelspec's name, and `cwd`. A new reference.
json_t *session_describe(const struct session *session);
// The kernel that the session was opened with, borrowed; NULL while it has none. If that one was
// removed, the next default kernel of the session takes its place.
struct kernel *session_first_kernel(const struct session *session);
// Milliseconds since it was created, and until its end, whatever happens (INT64_MAX: it has none).
int64_t session_age_ms(const struct session *session);
int64_t session_left_ms(const struct session *session);
// Milliseconds since its last activity.
int64_t session_idle_ms(const struct session *session);
// Counts as activity: the session expires idle_timeout from now.
void session_touch(struct session *session);
// The one definition of idle, for expiry and for everything that ends sessions to make room: the
// session has its sandbox; no execution, command, download or installation runs or is queued; no
// open is pending; no file operation and no restart is under way; no client is connected.
bool session_is_idle(const struct session *session);

// A client that is connected to the session for a while, by a WebSocket say. Its end counts as
// activity.
struct session_client;
struct session_client *session_client_new(struct session *session);
// Borrowed; NULL once the session has ended.
struct session *session_client_session(const struct session_client *client);
void session_client_free(struct session_client *client);
KG_DEFINE_AUTO(session_client, session_client_free)

// Runs code in `kernel`, one of the session's kernels, as the session's owner: the one way for all
// faces. Counts as activity until the execution has ended; a one-shot session ends with it. The
// caller owns a reference to the execution and subscribes to its lines. Errors: as
// kernel_execute().
struct session_code {
    const char *code;
    const char *variables; // an object as JSON text in ASCII, or NULL
    const char *env;       // the same, of strings
    int64_t timeout_ms;    // from the moment the code runs
    int max_image_side;    // pixels: the kernel makes larger images smaller, if it can; 0: no limit
    bool keep_running;     // after the last reader has left, too
    // A savepoint that was made just before, which `done` names; or NULL.
    const char *savepoint;
    bool allow_stdin;        // the code may ask for input: execution_give_input()
    struct tool_list *tools; // that the code may call; or NULL
};
KG_MUST_CHECK struct execution *session_execute(struct session *session, struct kernel *kernel,
                                                const struct session_code *code,
                                                struct kg_error *err);
// Interrupts all kernels. Returns whether one of them was busy.
bool session_interrupt(struct session *session);
// Restarts all kernels of the session. `fn` fires once, with the first error if there was one.
// Fails with KG_SESSION_BUSY during a restart, and while the session is still being created;
// KG_NOT_FOUND: all its kernels were removed.
typedef void (*session_restart_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK int session_restart(struct session *session, session_restart_fn fn, void *arg,
                                  struct kg_error *err);

// Fails unless `metadata` is an object of at most 32 strings: names of 1 to 64 bytes, values of at
// most 512, 4096 bytes together.
KG_MUST_CHECK int session_metadata_check(const json_t *metadata, struct kg_error *err);
// Fails unless `env` is an object of at most SESSION_ENV_ENTRIES_MAX strings with names of
// environment variables. These are below the agent's limits, which also cover the variables of the
// gateway and the kernelspec.
enum { SESSION_ENV_ENTRIES_MAX = 64, SESSION_ENV_BYTES_MAX = 16 << 10 };
KG_MUST_CHECK int session_env_check(const json_t *env, struct kg_error *err);
// What a client changes of a session that exists. Counts as activity. `fn` fires once, later: with
// `err` if the change is in effect, but could not be recorded for the next gateway, or if the
// session has ended meanwhile. Returns NULL with `err` if nothing has changed: the record could not
// be begun, or KG_SESSION_BUSY: the session is still being created.
struct session_change {
    const json_t *metadata; // replaces all; NULL: as it is
    int64_t idle_timeout_s; // 0: as it is
    int64_t max_lifetime_s; // since its creation; 0: as it is
    int64_t lifetime_s;     // the same from now
};
struct session_recording;
typedef void (*session_recorded_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_recording *session_change(struct session *session,
                                                       const struct session_change *change,
                                                       session_recorded_fn fn, void *arg,
                                                       struct kg_error *err);
// `fn` is not called any more; what is under way goes on. NULL is fine.
void session_recording_cancel(struct session_recording *recording);

// Ends the session: running executions end as `died`, and the sandbox is destroyed. sessions_find()
// no longer finds it. `on_done` (may be NULL) fires once, after the sandbox is gone.
void session_end(struct session *session, const char *reason, loop_fn on_done, void *arg);
