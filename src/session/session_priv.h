// SPDX-License-Identifier: Apache-2.0
// A session and the registry, as the files of this module see them.
#pragma once

#include <sys/queue.h>

#include "pool.h"
#include "session.h"

enum session_state {
    SESSION_CREATING, // it waits for a sandbox
    SESSION_READY,    // its sandbox is claimed
    SESSION_ENDING,   // out of the registry; its sandbox is being destroyed
};

struct session_open {
    TAILQ_ENTRY(session_open) link;
    struct session *session;
    const struct kernelspec *spec;
    int64_t asked_us; // clock_mono_us(), where the session is new; else 0
    session_open_fn fn;
    void *arg;
};

// A restart of all kernels that is under way.
struct session_restart {
    int n_pending;
    struct kg_error err; // the first one
    kernel_restart_fn fn;
    void *arg;
};

struct session {
    struct sessions *sessions;
    TAILQ_ENTRY(session) link;
    enum session_state state;
    char *owner;
    char id[SESSION_MAX_ID_LEN + 1];
    json_t *env;
    bool one_shot;
    bool broken; // its sandbox is of no use any more
    int64_t idle_timeout_ms;
    int64_t created_wall_ms;
    int64_t active_wall_ms;
    int64_t active_ms; // on the clock that never jumps
    int64_t execution_count;
    struct pool_request *asking; // while it has no sandbox
    struct sandbox *sandbox;
    struct kernel *kernels[SESSION_MAX_KERNELS];
    size_t n_kernels;
    int n_file_ops; // under way
    TAILQ_HEAD(, session_open) opens;
    TAILQ_HEAD(, session_command) commands;
    TAILQ_HEAD(, session_downloads) downloads;
    TAILQ_HEAD(, session_install) installs; // the first one is under way
    struct loop_timer *install_step;
    json_t *packages; // {name: description} of what was asked for
    struct session_restart restart;
    struct loop_timer *expiry;
    struct loop_timer *wake; // looks at opens and at whether a one-shot session is over
    loop_fn on_ended;
    void *on_ended_arg;
};

struct sessions {
    struct loop *loop;
    struct sessions_settings settings;
    struct pool *pool;
    TAILQ_HEAD(session_list, session) live;
    TAILQ_HEAD(, session) ending;
    size_t n_live;
    size_t n_downloading; // files that are fetched for them
    struct loop_timer *downloads_step;
    bool pool_ended;
    loop_fn on_all_ended;
    void *on_all_ended_arg;
};

extern const struct sandbox_events session_sandbox_events;
extern const struct kernel_events session_kernel_events;

// Makes one without a sandbox, and puts it into the registry.
struct session *session_make(struct sessions *sessions, const char *owner, const char *id,
                             const json_t *env, int64_t idle_timeout_ms);
void session_set_state(struct session *session, enum session_state state);
// Makes a session, which waits for its sandbox; it is in the registry.
struct session *session_new(struct sessions *sessions, const struct session_request *request);
// Makes one of a sandbox that lives already (session_adopt.c).
KG_MUST_CHECK int session_adopt(struct sessions *sessions, const char *sandbox_id,
                                const json_t *meta, struct kg_error *err);
// The agent of an adopted sandbox answers.
void session_on_adopted(struct sandbox *sandbox, void *arg);
// The kernel of that kernelspec, which is started where there is none; NULL where there are too
// many.
struct kernel *session_kernel(struct session *session, const struct kernelspec *spec,
                              struct kg_error *err);
// NULL where there is none yet.
struct kernel *session_find_kernel(const struct session *session, const struct kernelspec *spec);
// Answers those who wait for that kernelspec's kernel; NULL: for any.
void session_fail_opens(struct session *session, const struct kernelspec *spec,
                        const struct kg_error *err);
// Starts the kernels that those who wait want.
void session_start_kernels(struct session *session);
void session_free(struct session *session);
// Whether something runs or waits to: executions, commands, downloads, packages. Reported to
// clients as is_busy; use session_is_idle() to decide whether to end a session.
bool session_is_busy(const struct session *session);
// Runs the commands that have waited for the sandbox; ends all of them (commands.c).
void session_commands_run(struct session *session);
void session_commands_end(struct session *session, const struct kg_error *err);
// Starts what downloads may begin now, of all sessions; ends those of one (downloads.c).
void sessions_downloads_step(void *arg);
void session_downloads_end(struct session *session, const struct kg_error *err);
// Starts the next install; ends all (packages.c).
void session_installs_step(void *arg);
void session_installs_end(struct session *session, const struct kg_error *err);
// Tells those who wait for the end of all sessions, if this is it.
void sessions_look_whether_ended(struct sessions *sessions);
