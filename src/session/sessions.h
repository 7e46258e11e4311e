// SPDX-License-Identifier: Apache-2.0
// All sessions of the gateway: opening and finding them, limits, recovery, shutdown.
#pragma once

#include <jansson.h>

#include "base.h"
#include "loop.h"

struct address_policy;
struct http_client;
struct kernel;
struct kernel_context;
struct kernelspec;
struct kernelspecs;
struct packages;
struct sandbox_context;
struct session;
struct sessions;
struct upstreams;

// All borrowed.
struct sessions_settings {
    const struct sandbox_context *sandboxes;
    const struct kernel_context *kernels;
    const struct kernelspecs *specs;
    const struct kernelspec *pooled_spec; // the pool starts kernels of this kernelspec
    int64_t pool_size;
    int64_t pool_bare;      // struct pool_settings
    int64_t pool_max_forks; // the same
    int64_t max_sessions;
    int64_t max_sessions_per_owner; // 0: no limit of its own
    // The same for one owner at the moment; NULL: the number above applies to each.
    int64_t (*max_sessions_of)(const char *owner, const void *arg);
    // The memory, in MiB, of the processes in each of an owner's sandboxes; 0: the engine's limit.
    // NULL: that of all.
    int64_t (*max_memory_of)(const char *owner, const void *arg);
    const void *quota_arg;
    // Sessions of other gateways that count too, of one owner, of all whose budget_name() it is, or
    // (NULL) of all; NULL: there are none.
    size_t (*count_elsewhere)(const char *owner, const void *arg);
    const void *count_elsewhere_arg;
    bool several_owners; // shared resources: each owner gets at most half, in turn
    bool evict_idle;     // at the limit, end the session that has been idle longest
    int64_t idle_timeout_s;
    int64_t max_lifetime_s;                    // of sessions that name none; 0: no end
    bool network;                              // sandboxes have a way out
    struct http_client *http;                  // for downloads
    const struct address_policy *fetch_policy; // the same
    int64_t max_download_bytes;                // of one file
    const char *scratch_dir;                   // for downloads under way
    struct packages *packages;                 // NULL: no packages can be installed
    bool install_from_code;                    // code in the sandboxes may install them, too
    int64_t sandbox_start_timeout_ms;
    int64_t adopt_timeout_ms;     // for code that adopted kernels are still running
    int64_t max_savepoints;       // of a session
    size_t max_tool_result_bytes; // as JSON; a larger one becomes a file
    struct upstreams *upstreams;  // MCP servers whose tools code may call; NULL: there are none
    size_t max_further_kernels;   // of all sessions (session_kernels.h), at most
};

struct sessions *sessions_new(struct loop *loop, const struct sessions_settings *settings);
// The keys now have several owners, or only one. Also informs the packages.
void sessions_set_several_owners(struct sessions *sessions, bool several_owners);
// Starts to fill the pool. Call it after recovery.
void sessions_start(struct sessions *sessions);
// Whether this gateway fills its pool: pool_set_filling().
void sessions_set_pool_filling(struct sessions *sessions, bool filling);
// Every session must have ended or been released: see sessions_end_all(), sessions_release().
void sessions_free(struct sessions *sessions);
KG_DEFINE_AUTO(sessions, sessions_free)

// ---- Recovery -------------------------------------------------------------------------------

// Adopts a sandbox of an earlier gateway (see provisioner_recover()) with its kernels: as a session
// if it was claimed (`meta` is set), else into the pool. On failure the caller should destroy it.
KG_MUST_CHECK int sessions_adopt(struct sessions *sessions, const char *sandbox_id,
                                 const json_t *meta, struct kg_error *err);
// Reports that the container of an adopted sandbox has ended.
void sessions_on_sandbox_exit(struct sessions *sessions, const char *sandbox_id);

// ---- Opening --------------------------------------------------------------------------------

struct session_request {
    const char *owner;
    const char *session_id; // NULL: a new session with a random id
    const struct kernelspec *kernelspec;
    const json_t *env;      // for kernels of a new session: an object of strings, or NULL
    const char *home;       // of a new session: session_home(), an absolute path; or NULL
    int64_t idle_timeout_s; // of a new session; 0: the default
    int64_t max_lifetime_s; // the same: it ends then, whatever happens
    const json_t *metadata; // of a new session: session_metadata_check(); or NULL
    bool one_shot;          // a new session ends with its first execution
    // Of a new session, without session_id: its id is that of its sandbox, which can be a part of a
    // host's name.
    bool named_by_sandbox;
    bool ports_are_public; // of a new session: its ports need no cookie
    const json_t *face;    // of a new session: session_face(); or NULL
};

// Finds or creates the session, and waits until its kernel of that kernelspec is ready. The
// callback fires once, never before this returns; then the handle is gone. Errors:
// KG_INVALID_SESSION_ID, KG_MAX_SESSIONS, KG_KERNEL_START_TIMEOUT, KG_PROVISIONER_UNAVAILABLE,
// KG_INVALID (too many kernels, or a bad `home`).
struct session_open;
typedef void (*session_open_fn)(struct session *session, struct kernel *kernel,
                                const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_open *session_open_start(struct sessions *sessions,
                                                      const struct session_request *request,
                                                      session_open_fn fn, void *arg,
                                                      struct kg_error *err);
// Keeps the session, unless it is one-shot and nothing else uses it.
void session_open_cancel(struct session_open *open);

// Borrowed. NULL with KG_SESSION_NOT_FOUND, also for a session of another owner.
struct session *sessions_find(struct sessions *sessions, const char *owner, const char *id,
                              struct kg_error *err);

// The session, of any owner, that has the sandbox of that id, which no client can choose. NULL:
// none.
struct session *sessions_find_by_sandbox(struct sessions *sessions, const char *id);
// The first session, of any owner, that has its sandbox and of which `is_it` is true. NULL: none.
struct session *sessions_find_where(struct sessions *sessions,
                                    bool (*is_it)(const struct session *session, void *arg),
                                    void *arg);

// ---- All of them ----------------------------------------------------------------------------

size_t sessions_count(const struct sessions *sessions);
// With those of the other gateways of the installation.
size_t sessions_count_everywhere(const struct sessions *sessions);
// The commands and terminals that run in them, as their sandboxes last reported.
void sessions_count_commands(const struct sessions *sessions, int64_t *ret_commands,
                             int64_t *ret_terminals);
// Savepoints and further kernels, and the bytes that each of them shares with no other process.
struct sessions_forks {
    int64_t savepoints, savepoint_bytes, branches, branch_bytes;
};
struct sessions_forks sessions_count_forks(const struct sessions *sessions);
// Sandboxes of the pool that are ready for a session, and those that are being started.
size_t sessions_n_pooled(const struct sessions *sessions);
size_t sessions_n_starting(const struct sessions *sessions);
// How many should be ready for a session.
int64_t sessions_pool_target(const struct sessions *sessions);
// Fails unless a new session would probably get a sandbox that can be used.
KG_MUST_CHECK int sessions_check_ready(const struct sessions *sessions, struct kg_error *err);
// What applies to the sessions that one owner makes from now on.
struct sessions_limits {
    int64_t max_sessions;
    const char *max_sessions_from; // what sets it; NULL: the setting max-sessions
    int64_t max_memory_mb;         // of the owner's account; 0: it has none, the engine's applies
    int64_t idle_timeout_s;
    int64_t max_lifetime_s; // 0: no end
    int64_t max_savepoints;
};
struct sessions_limits sessions_limits_of(const struct sessions *sessions, const char *owner);
// The number of one owner's sessions, of all gateways of the installation.
int64_t sessions_count_of(const struct sessions *sessions, const char *owner);
// The ids of one owner's sessions: an array of strings, a new reference.
json_t *sessions_ids(const struct sessions *sessions, const char *owner);
// {id: session_describe()} of one owner's sessions, a new reference.
json_t *sessions_describe(const struct sessions *sessions, const char *owner);
// Calls `fn` for each of one owner's sessions. It must not end any.
void sessions_each(struct sessions *sessions, const char *owner,
                   void (*fn)(struct session *session, void *arg), void *arg);
// sessions_describe() of those to which all of this applies.
struct sessions_filter {
    const json_t *metadata;        // they have these members; or NULL
    const struct kernelspec *spec; // they have a kernel of it; or NULL
    const bool *busy;              // they are, or are not; or NULL
};
json_t *sessions_describe_some(const struct sessions *sessions, const char *owner,
                               const struct sessions_filter *filter);
// Whether anything that a shutdown should wait for runs or is queued in any session.
bool sessions_are_busy(const struct sessions *sessions);
// Ends all sessions and the pool. `on_done` fires once, after the last sandbox is gone.
void sessions_end_all(struct sessions *sessions, const char *reason, loop_fn on_done, void *arg);
// Leaves the sessions that are idle to other replicas, which take them over at once.
void sessions_hand_over(struct sessions *sessions);
// Detaches all sessions; their sandboxes keep running for the next gateway.
void sessions_release(struct sessions *sessions);
