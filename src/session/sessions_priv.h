// SPDX-License-Identifier: Apache-2.0
// A session and the registry, for the files of this module. Each file uses those below it only:
//
//     sessions.c            the registry, limits, opening; file_links.c and session_tokens.c use it
//     session_start.c       new and adopted sessions, the sandbox's events, expiry
//     session_step.c        what kernels' events lead to
//     session_branches.c    further kernels that are forked from savepoints
//     session_savepoints.c  savepoints of kernels: how they are made, restored and dropped
//     session_kernel_open.c    further kernels
//     session_kernel_calls.c    calls about one kernel: restarts, removals
//     session_record.c      what another gateway knows of a session, and changes of that
//     session_token_list.c  the tokens that a session has
//     session_savepoint_list.c    the savepoints that it has
//     session_kernels.c     kernels: their events, starting and finding them
//     session_end.c         the end of one session and of all
//     session_opens.c, session_commands.c, session_files.c, session_downloads.c,
//     session_installs.c, session_watch.c    what clients wait for in a session
//     session_requests.c    what code in the sandbox asks for; it stands on session_installs.c
//     session_clients.c     clients that are connected
//     session_ports.c       connections to ports of the sandbox; it stands on session_commands.c
//     session_control.c     describe, change, execute, interrupt, restart
//     session_state.c       state and activity
#pragma once

#include <sys/queue.h>

#include "budget.h"
#include "kernel.h"
#include "sandbox.h"
#include "session.h"
#include "session_kernels.h"
#include "session_savepoints.h"
#include "sessions.h"

struct session_token;

enum { SESSION_PUBLIC_PORTS_MAX = 64 };

enum session_state {
    SESSION_CREATING, // waits for a sandbox, then for its claim
    SESSION_READY,    // its sandbox is claimed
    SESSION_ENDING,   // no longer in the registry; its sandbox is being destroyed
};

struct session_open {
    TAILQ_ENTRY(session_open) link;
    struct session *session;
    const struct kernelspec *spec;
    int64_t asked_us; // clock_mono_us() if the session is new; else 0
    bool due;         // see session_opens.c
    session_open_fn fn;
    void *arg;
};

struct session_kernel {
    struct kernel *kernel;
    struct kg_error err;                 // why it could not be started
    struct session_kernel_call *remover; // it is being removed, and not shown any more; or NULL
    struct budget_hold place;            // of a further one
    int64_t memory_bytes;                // its own, as last reported; -1: not yet
};

enum session_kernel_call_kind { KERNEL_CALL_OPEN, KERNEL_CALL_RESTART, KERNEL_CALL_REMOVE };

struct session_kernel_call {
    TAILQ_ENTRY(session_kernel_call) link;
    struct session *session;
    enum session_kernel_call_kind kind;
    char name[KERNEL_MAX_NAME_LEN + 1];
    // Of an open and a restart: until the kernel is ready, or has failed. Of a removal: until the
    // kernel is not being started any more.
    bool waits;
    bool restarted; // the kernel has said so
    int n_pending;  // what it waits for
    struct kg_error err;
    struct session_recording *recording;
    struct session_file_op *look; // at the folder
    struct sandbox_call *stop;
    bool alone;   // kernels.end
    bool by_stop; // the agent knows no kernels.remove
    session_kernel_fn fn;
    void *arg;
};

#define SAVEPOINT_PREFIX "sp_" // of ids; no kernel has such a name

struct session_savepoint {
    TAILQ_ENTRY(session_savepoint) link;
    char id[KERNEL_MAX_NAME_LEN + 1]; // also its name for the agent
    char *name;                       // a client's; NULL: none
    const struct kernelspec *spec;
    char *kernel; // the name of the one that it was made of
    int64_t created_wall_ms;
    int64_t execution_count, memory_bytes; // struct kernel_savepoint
    json_t *lost;                          // the same
    bool has_files;                        // of /mnt/data, which the agent keeps
    int64_t files_bytes;
    int files_entries;
    bool is_ready;
    bool has_ended; // before it was ready
    bool is_hidden; // made for a call, and dropped with it
};

struct savepoint_call {
    TAILQ_ENTRY(savepoint_call) link;
    struct session *session;
    char id[KERNEL_MAX_NAME_LEN + 1];     // of its savepoint; empty: none
    char branch[KERNEL_MAX_NAME_LEN + 1]; // a kernel's name
    struct savepoint_making *making;
    struct sandbox_call *check;                   // of the room for its files
    void (*on_made)(struct savepoint_call *call); // of a hidden one
    struct session_kernel_call *kernel_call;
    struct session_recording *recording;
    json_t *description; // of the savepoint, for `fn`; NULL: none
    savepoint_call_fn fn;
    void *arg;
};

// A restart of all kernels under way.
struct session_restart {
    int n_pending;
    struct kg_error err; // the first one
    session_restart_fn fn;
    void *arg;
};

struct session {
    struct sessions *sessions;
    TAILQ_ENTRY(session) link;
    LIST_ENTRY(session) in_bucket; // while it is live
    enum session_state state;
    char *owner;
    char id[SESSION_MAX_ID_LEN + 1];
    json_t *env;
    char *home;       // session_home()
    json_t *metadata; // an object of strings
    json_t *face;     // session_face(); or NULL
    bool one_shot;
    bool named_by_sandbox; // and not named yet, until it has one
    bool ports_are_public;
    bool broken; // its sandbox can run no kernel any more
    int64_t idle_timeout_ms;
    int64_t created_wall_ms;
    int64_t created_us;   // here: clock_mono_us()
    int64_t ends_wall_ms; // whatever happens; 0: at no time
    int64_t active_wall_ms;
    int64_t active_ms; // the same on the monotonic clock
    int64_t used_ms;   // when somebody last used it; what it does alone is activity, but not use
    int64_t execution_count;
    struct pool_request *pool_request; // while it has no sandbox
    bool with_kernel;                  // it asks the pool for one that has a kernel
    int n_claims_lost;                 // to other gateways
    struct sandbox *sandbox;
    struct session_kernel *kernels[SESSION_MAX_KERNELS];
    size_t n_kernels;
    TAILQ_HEAD(, session_kernel_call) kernel_calls;
    json_t
        *recorded_kernels; // further ones in the record of an adopted session, until they are made
    TAILQ_HEAD(, session_savepoint) savepoints; // the oldest first
    TAILQ_HEAD(, savepoint_call) savepoint_calls;
    json_t *recorded_savepoints;     // as recorded_kernels
    json_t *dropped_savepoints;      // the latest that the session has dropped itself
    json_t *untold_savepoints;       // ids that no `done` line has reported yet
    struct sandbox_call *files_drop; // of savepoints that are gone; or NULL
    bool drops_files_again;
    bool outlives_kernels; // one was removed: it does not end with the last one
    int n_file_ops;        // under way
    TAILQ_HEAD(, session_open) opens;
    TAILQ_HEAD(, session_command) commands;
    TAILQ_HEAD(, session_downloads) downloads;
    TAILQ_HEAD(, session_install) installs; // the first one is under way
    TAILQ_HEAD(, session_client) clients;
    TAILQ_HEAD(, session_port) ports; // connections
    int n_port_links;                 // of these, those that do not wait
    int public_ports[SESSION_PUBLIC_PORTS_MAX];
    size_t n_public_ports;
    TAILQ_HEAD(, session_watch) watches;
    LIST_HEAD(, code_request) requests;
    LIST_HEAD(, tool_caller) tool_callers; // connections of code that calls tools
    int n_tool_callers;
    int n_server_calls;            // of tools of MCP servers, under way
    TAILQ_HEAD(, tool_request) tools_queued; // calls that wait until fewer others do
    int n_tools_queued;
    double tool_calls_left;        // at this time; more with every millisecond
    int64_t tool_calls_ms;         // of that
    struct loop_timer *tools_pace; // while a caller is paused, or a call is queued
    struct loop_timer *install_step;
    json_t *packages; // {name: description} of requested packages
    struct session_restart restart;
    LIST_HEAD(, session_recording) recordings;
    struct session_token *tokens; // those that are not revoked
    size_t n_tokens;
    struct loop_timer *expiry; // looks whether it is idle for too long, or at its end
    struct loop_timer *step;   // session_step()
    loop_fn on_ended;
    void *on_ended_arg;
};

enum { SESSION_BUCKETS = 256 };

struct sessions {
    struct loop *loop;
    struct sessions_settings settings;
    struct pool *pool;
    TAILQ_HEAD(session_list, session) live;
    LIST_HEAD(session_bucket, session) buckets[SESSION_BUCKETS]; // the live ones, by id
    TAILQ_HEAD(, session) ending;
    size_t n_live;
    struct budget downloads; // places: downloads under way
    struct loop_timer *downloads_step;
    struct budget ports; // places: connections to ports
    TAILQ_HEAD(, session_port) ports_waiting;
    struct loop_timer *ports_step;
    struct budget tool_bytes;      // lines of calls, and answers that code has not read
    struct budget watches;         // places: watches of folders
    struct budget further_kernels; // places
    bool pool_ended;
    loop_fn on_all_ended;
    void *on_all_ended_arg;
};

// ---- session_state.c ------------------------------------------------------------------------

// Where the live sessions of this id are, of all owners.
struct session_bucket *session_bucket_of(struct sessions *sessions, const char *id);
void session_rename(struct session *session, const char *id);
void session_set_state(struct session *session, enum session_state state);
// The default kernel of a kernelspec. NULL: there is none yet.
struct kernel *session_find_kernel(const struct session *session, const struct kernelspec *spec);
// The kernel of that name, also one that is being removed; NULL: there is none.
struct session_kernel *session_kernel_named(const struct session *session, const char *name);
// Whether anything runs or is queued that a shutdown should wait for: executions, commands,
// downloads, installations.
bool session_is_awaited(const struct session *session);
// The same, and what runs alone. Reported to clients as is_busy; use session_is_idle() to decide
// whether to end a session.
bool session_is_busy(const struct session *session);
// Whether somebody has used it within the last day. After that, activity that is not use no longer
// keeps it from expiring.
bool session_is_used(const struct session *session);
// Counts as activity, but not as use.
void session_keep(struct session *session);
// Whether this is a one-shot session with nothing left to do.
bool session_is_over(const struct session *session);

// ---- session_opens.c ------------------------------------------------------------------------

// Fails the pending opens that want that kernelspec; NULL: all.
void session_opens_fail(struct session *session, const struct kernelspec *spec,
                        const struct kg_error *err);
// Answers the pending opens whose kernel is ready.
void session_opens_answer(struct session *session);

// ---- Commands, downloads, installations -----------------------------------------------------

// sandbox_activity(); without a sandbox nothing.
struct sandbox_activity session_activity(const struct session *session);
// Whether something runs for which no client waits: a command that is kept, a program in a
// terminal.
bool session_works_alone(const struct session *session);
// Whether one runs or waits that its client has not left.
bool session_commands_run_now(const struct session *session);
// Whether a client waits for one of the commands: session_command_attend().
bool session_commands_attended(const struct session *session);
// Runs the commands that have waited for the sandbox.
void session_commands_run(struct session *session);
// The places for downloads, of all sessions, and what starts those that wait for one.
void sessions_downloads_init(struct sessions *sessions);
void sessions_downloads_fini(struct sessions *sessions);
// The same for connections to ports.
void sessions_ports_init(struct sessions *sessions);
void sessions_ports_fini(struct sessions *sessions);
// The memory for calls of tools.
void sessions_tools_init(struct sessions *sessions);
void sessions_tools_fini(struct sessions *sessions);
// The places for watches of folders.
void sessions_watches_init(struct sessions *sessions);
void sessions_watches_fini(struct sessions *sessions);
// A loop_fn of a struct session: starts its next installation.
void session_installs_step(void *arg);
// End all of one session.
void session_commands_end(struct session *session, const struct kg_error *err);
void session_downloads_end(struct session *session, const struct kg_error *err);
void session_installs_end(struct session *session, const struct kg_error *err);
void session_ports_end(struct session *session, const struct kg_error *err);
void session_watches_end(struct session *session, const struct kg_error *err);
// The clients that are connected have no session any more.
void session_clients_end(struct session *session);

// ---- session_end.c --------------------------------------------------------------------------

// Ends the session because of `err`, which all pending opens get.
void session_fail(struct session *session, const struct kg_error *err);

// ---- session_kernels.c ----------------------------------------------------------------------

// Of what the agent's kernels.list has answered, borrowed; NULL: none.
json_t *session_process_named(const json_t *processes, const char *name);
extern const struct kernel_events session_kernel_events;
// There must be room; its events must be session_kernel_events.
struct session_kernel *session_add_kernel(struct session *session, struct kernel *kernel);
// Of this session: what a kernel of that kernelspec is started with. `name` NULL: the default one;
// `cwd` NULL: the session's home.
struct kernel_settings session_kernel_settings(const struct session *session,
                                               const struct kernelspec *spec, const char *name,
                                               const char *cwd);
// Starts the default kernel of that kernelspec, if there is none yet and none is still being
// removed. Fails where there are too many kernels.
KG_MUST_CHECK int session_want_kernel(struct session *session, const struct kernelspec *spec,
                                      struct kg_error *err);
// Starts the kernels that pending opens want.
void session_start_kernels(struct session *session);
// Takes a kernel out of the session and frees it. Its process is left alone.
void session_drop_kernel(struct session *session, struct session_kernel *kernel,
                         const char *reason);
// The places for further kernels, of all sessions.
void sessions_kernels_init(struct sessions *sessions);
void sessions_kernels_fini(struct sessions *sessions);

// ---- session_savepoint_list.c ---------------------------------------------------------------

// `recorded` is borrowed, or NULL.
void session_savepoints_init(struct session *session, json_t *recorded);
void session_savepoints_fini(struct session *session);
// For the record, a new reference; NULL: there are none.
json_t *session_savepoints_record(const struct session *session);
// Takes up those of the record that still run.
void session_savepoints_adopt(struct session *session, const json_t *processes);
// Also one that is being made, or is hidden; NULL: there is none.
struct session_savepoint *session_savepoint_named(const struct session *session, const char *id);
struct session_savepoint *session_savepoint_add(struct session *session, const char *id,
                                                const struct kernelspec *spec, const char *kernel,
                                                const char *name);
void session_savepoint_remove(struct session *session, struct session_savepoint *savepoint);
// KG_INVALID unless a client's name has 1 to SAVEPOINT_NAME_MAX bytes, without control characters;
// KG_NAME_EXISTS if a savepoint has it, or is being made with it.
KG_MUST_CHECK int session_savepoint_name_check(const struct session *session, const char *name,
                                               struct kg_error *err);
// Whether clients know it.
bool session_savepoint_is_listed(const struct session_savepoint *savepoint);
json_t *session_savepoint_describe(const struct session_savepoint *savepoint);
// That the session has dropped it itself. `name` may be NULL.
void session_savepoint_note_dropped(struct session *session, const char *id, const char *name,
                                    const char *reason);

// ---- session_savepoint_files.c --------------------------------------------------------------

// Lets the agent drop what it keeps of /mnt/data for savepoints that the session has not.
void session_savepoint_files_drop(struct session *session);
void session_savepoint_files_end(struct session *session);

// ---- session_savepoints.c -------------------------------------------------------------------

// Ends the calls. The processes end with the sandbox.
void session_savepoints_end(struct session *session, const struct kg_error *err);
// The agent says that its process has ended.
void session_savepoint_on_exit(struct session *session, const char *id, bool oom);
struct savepoint_call *savepoint_call_new(struct session *session, savepoint_call_fn fn, void *arg);
// Without `fn`.
void savepoint_call_free(struct savepoint_call *call);
void savepoint_call_end(struct savepoint_call *call, const struct kg_error *err);
// Fails while the session has none: KG_SESSION_BUSY, KG_UNSUPPORTED.
KG_MUST_CHECK int session_savepoints_check(const struct session *session, struct kg_error *err);
// Makes the savepoint of a call. If on_made is set, that follows, and the savepoint is hidden; else
// the call ends.
KG_MUST_CHECK int savepoint_call_make(struct savepoint_call *call, struct kernel *kernel,
                                      const char *name, bool files, struct kg_error *err);

// ---- session_kernel_open.c ------------------------------------------------------------------

// Whether a further kernel of that name may be opened: the errors of session_kernel_open().
KG_MUST_CHECK int session_kernel_open_check(const struct session *session, const char *name,
                                            struct kg_error *err);

// Fails unless `path` is an absolute path of a folder that a kernel may have; `field` names it.
KG_MUST_CHECK int session_folder_check(const char *field, const char *path, struct kg_error *err);
// A further kernel could not be started: removes it, and answers who waits for it.
void session_kernel_opens_fail(struct session *session, struct session_kernel *kernel);

// ---- session_kernel_calls.c -----------------------------------------------------------------

// The caller says what it waits for: `n_pending`.
struct session_kernel_call *session_kernel_call_new(struct session *session,
                                                    enum session_kernel_call_kind kind,
                                                    const char *name, session_kernel_fn fn,
                                                    void *arg);
void session_kernel_call_free(struct session_kernel_call *call);
// One of the things that the call waits for is there, or has failed. With the last one the call is
// answered, and gone; the session may have ended.
void session_kernel_call_settle(struct session_kernel_call *call, const struct kg_error *err);
// Records the session's kernels, for which the call waits.
void session_kernel_call_record(struct session_kernel_call *call);
// The first of that kind that still waits for the kernel of that name.
struct session_kernel_call *session_kernel_call_waiting(const struct session *session,
                                                        enum session_kernel_call_kind kind,
                                                        const char *name);
// The kernel is not shown any more, and ends in the step. `fn` may be NULL.
struct session_kernel_call *session_kernel_begin_to_remove(struct session *session,
                                                           struct session_kernel *kernel,
                                                           session_kernel_fn fn, void *arg);
// session_kernel_restart(), but the process is forked from a savepoint, unless that is NULL:
// kernel_restore().
KG_MUST_CHECK struct session_kernel_call *
session_kernel_restore(struct session *session, const char *name,
                       const struct session_savepoint *savepoint, session_kernel_fn fn, void *arg,
                       struct kg_error *err);
// Answers calls whose kernel has started, and ends kernels that are to be removed.
void session_kernel_calls_step(struct session *session);
// Has a process killed that the session does not know, with what was left behind; if it is `alone`,
// nothing else.
void session_kernel_forget(struct session *session, const char *name, bool alone);
void session_kernel_calls_end(struct session *session, const struct kg_error *err);

// ---- session_step.c -------------------------------------------------------------------------

// A loop_fn of a struct session: as a callback of the loop, since a kernel must not be freed from
// inside its events.
void session_step(void *arg);

// ---- sessions.c -----------------------------------------------------------------------------

// As max_memory_of in struct sessions_settings; 0 without it.
int64_t sessions_memory_of(const struct sessions *sessions, const char *owner);

// ---- session_record.c -----------------------------------------------------------------------

// What a record says; all borrowed from it.
struct session_record {
    const char *id, *owner;
    const char *home; // NULL: none
    json_t *env;
    json_t *metadata; // NULL: none
    json_t *tokens;   // the same: session_tokens_list()
    json_t *face;     // NULL: session_face() has none
    bool ports_are_public;
    json_t *savepoints; // NULL: none: session_savepoints_record()
    json_t *kernels;    // the same: of each further kernel {"name", "kernel", "cwd"?}
    bool outlives_kernels;
    int64_t created_wall_ms, idle_timeout_ms;
    int64_t ends_wall_ms; // 0: at no time
};
// The record of the session as it is now, a new reference.
json_t *session_record_make(const struct session *session);
KG_MUST_CHECK int session_record_read(const json_t *record, struct session_record *ret,
                                      struct kg_error *err);
// Records the session as it is now; as session_change() otherwise. It must have its sandbox.
KG_MUST_CHECK struct session_recording *
session_record(struct session *session, session_recorded_fn fn, void *arg, struct kg_error *err);
// Whether it has all these members.
bool session_has_metadata(const struct session *session, const json_t *wanted);
void session_recordings_end(struct session *session, const struct kg_error *err);

// ---- session_token_list.c (session_tokens.h) ------------------------------------------------

// Copies the token. There must be room: SESSION_TOKENS_MAX.
void session_tokens_add(struct session *session, const struct session_token *token);
// NULL: there is none of that id.
struct session_token *session_tokens_find(const struct session *session, const char *id);
// The token must be one of the session's.
void session_tokens_remove(struct session *session, const struct session_token *token);
void session_tokens_forget_expired(struct session *session);
// Takes up those of a record, as session_tokens_list() made them; leaves out what is malformed.
void session_tokens_restore(struct session *session, const json_t *list);

// ---- session_start.c ------------------------------------------------------------------------

// Creates a session, which waits for a sandbox of the pool, and adds it to the registry.
struct session *session_new(struct sessions *sessions, const struct session_request *request);
// Creates one around a claimed sandbox of an earlier gateway.
KG_MUST_CHECK int session_adopt(struct sessions *sessions, const char *sandbox_id,
                                const json_t *meta, struct kg_error *err);
