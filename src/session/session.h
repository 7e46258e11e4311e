// SPDX-License-Identifier: Apache-2.0
// Sessions: what a client names by session_id. Each is one sandbox with its kernels, its files, its
// expiry and its owner.
#pragma once

#include <jansson.h>

#include "base.h"
#include "kernel.h"
#include "loop.h"
#include "sandbox.h"

enum {
    SESSION_MAX_ID_LEN = 64,
    SESSION_MAX_KERNELS = 8, // one a kernelspec
};

struct address_policy;
struct packages;
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
    bool several_owners;            // one takes half of what is shared at most, and waits its turn
    bool evict_idle;                // where there are too many, the longest idle session ends
    int64_t idle_timeout_s;
    bool network;                              // the sandboxes have a way out
    const struct address_policy *fetch_policy; // where files are fetched from
    int64_t max_download_bytes;                // of one file
    const char *scratch_dir;                   // for what is on its way
    struct packages *packages;                 // NULL: none can be installed
    int64_t sandbox_start_timeout_ms;
    int64_t adopt_timeout_ms; // for what the kernels of an earlier gateway's sessions still do
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
// The one definition of idle, for expiry and for whatever ends sessions to make room: the session
// has its sandbox, nothing runs or waits to (executions, commands, downloads, packages), nobody
// waits for it or for one of its kernels, no file is on its way in or out, no restart is under way.
bool session_is_idle(const struct session *session);
// Runs code in `kernel`, one of the session's kernels, as the session's owner: the way for every
// face. Counts as activity until it has ended; a one-shot session ends with it. The caller owns a
// reference to the execution and subscribes to its lines. Errors: see kernel_execute().
struct session_code {
    const char *code;
    const char *variables; // an object as JSON text in ASCII, or NULL
    const char *env;       // the same, of strings
    int64_t timeout_ms;    // from the moment it runs
    bool keep_running;     // also when its last reader has gone
};
KG_MUST_CHECK struct execution *session_execute(struct session *session, struct kernel *kernel,
                                                const struct session_code *code,
                                                struct kg_error *err);
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

// ---- Files ----------------------------------------------------------------------------------

// Files below the working folder, whatever the session's kernels are doing. Paths are relative to
// it, in UTF-8, with / between names: no empty one, no "." or "..", no control character in what is
// created (KG_INVALID_PATH). Each call counts as activity as long as it is under way; its last
// callback fires exactly once, and then the handle is gone. A session that is still being made is
// KG_SESSION_BUSY, one that ends meanwhile KG_SESSION_NOT_FOUND.
struct session_file_op;
void session_file_op_cancel(struct session_file_op *op);

enum {
    SESSION_ETAG_LEN = 64,         // at most, quotes included
    SESSION_FILES_PAGE_MAX = 1000, // entries of one page
};

// What is known of one file; strings are borrowed for the time of the callback.
struct session_file {
    const char *path;
    const char *mime; // by its name
    int64_t size;
    int64_t mtime_ms;
    char etag[SESSION_ETAG_LEN + 1]; // with its quotes; changes with the content
};

// Lists all that is below `folder` (NULL or "": the working folder), in the order of the paths,
// from the one after `after` (NULL: the first) on, at most `limit` (0: SESSION_FILES_PAGE_MAX)
// entries. `page` is borrowed: {"files": [{"path", "type", "size", "mtime", "mime"}], "next"}; type
// is file, dir, symlink or other; mime is a file's; mtime is RFC 3339; `next`, where there is more,
// is what to give as `after`.
struct session_files_query {
    const char *folder;
    const char *after;
    int limit;
};
typedef void (*session_files_fn)(const json_t *page, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_file_op *session_files_list(struct session *session,
                                                         const struct session_files_query *query,
                                                         session_files_fn fn, void *arg,
                                                         struct kg_error *err);

// `file` is NULL where `err` is set: KG_NOT_FOUND, KG_INVALID_PATH (no regular file: a folder, a
// FIFO, a symlink, also on the way), KG_FILE_EXISTS, KG_DISK_FULL, KG_UPLOAD_TOO_LARGE, …
typedef void (*session_file_fn)(const struct session_file *file, const struct kg_error *err,
                                void *arg);
KG_MUST_CHECK struct session_file_op *session_file_stat(struct session *session, const char *path,
                                                        session_file_fn fn, void *arg,
                                                        struct kg_error *err);

// Bytes `first` to `last` (-1: the end), or with `first` -1 the last `last` ones. Where `if_etag`
// is set and is not the file's, the whole file.
struct session_file_range {
    int64_t first;
    int64_t last;
    const char *if_etag;
};
#define SESSION_FILE_WHOLE ((struct session_file_range){.last = -1})

// Each callback may cancel the call.
struct session_file_events {
    // The file, and which of its bytes follow: `length` of them from `offset`. length is 0 where
    // the range lies beyond the file, `is_part` says whether the range was heeded. Once.
    void (*on_head)(const struct session_file *file, bool is_part, int64_t offset, int64_t length,
                    void *arg);
    void (*on_data)(const void *data, size_t len, void *arg);
    // NULL: exactly what was announced has come. A file that shrinks meanwhile is an error.
    void (*on_end)(const struct kg_error *err, void *arg);
};
KG_MUST_CHECK struct session_file_op *session_file_get(struct session *session, const char *path,
                                                       const struct session_file_range *range,
                                                       const struct session_file_events *events,
                                                       void *arg, struct kg_error *err);
// For a reader that cannot take more; see sandbox_stream_pause().
void session_file_pause(struct session_file_op *op, bool paused);

// Gets the whole of a small file, at most `max_bytes` (else KG_ARTIFACT_TOO_LARGE); `data` is
// borrowed, NULL where `err` is set.
typedef void (*session_file_data_fn)(const struct session_file *file, const void *data, size_t len,
                                     const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_file_op *session_file_read(struct session *session, const char *path,
                                                        size_t max_bytes, session_file_data_fn fn,
                                                        void *arg, struct kg_error *err);

// Where an upload's bytes come from: `data`, which must stay until the last callback, or `read`,
// which fills `to` with exactly `len` bytes, the next ones.
struct session_file_source {
    const void *data;
    void (*read)(void *to, size_t len, void *arg);
    void *arg;
    size_t len;
};
// Writes a file, folders made on the way. It appears when it is complete, in place of what was
// there, unless `keep_existing` (KG_FILE_EXISTS). `created` false: it took another's place.
typedef void (*session_file_put_fn)(const struct session_file *file, bool created,
                                    const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_file_op *session_file_put(struct session *session, const char *path,
                                                       const struct session_file_source *source,
                                                       bool keep_existing, session_file_put_fn fn,
                                                       void *arg, struct kg_error *err);

// Deletes a file (of any kind; a symlink, not what it names) or a folder with all in it.
typedef void (*session_file_done_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_file_op *session_file_delete(struct session *session, const char *path,
                                                          session_file_done_fn fn, void *arg,
                                                          struct kg_error *err);

// ---- Links ----------------------------------------------------------------------------------

// Links for people to a session's files: they carry the owner, an expiry and a signature, so that a
// browser needs no key. The signing key is a file in a folder of the gateway's.
struct file_links;
KG_MUST_CHECK struct file_links *file_links_new(const char *dir, struct kg_error *err);
void file_links_free(struct file_links *links);
KG_DEFINE_AUTO(file_links, file_links_free)
// From now on a link ends with its session: the id of the session's sandbox is signed, too, so that
// a later session of the same name is another one. Borrowed.
void file_links_set_sessions(struct file_links *links, struct sessions *sessions);
// A path and query of the gateway, to be freed. The link is invalid if the
// session does not exist.
char *file_links_make(const struct file_links *links, const char *owner, const char *session_id,
                      const char *path);
// Whether these values of a link's query are good for that file, now; `owner` is one of them. False
// where the session has ended.
bool file_links_check(const struct file_links *links, const char *owner, const char *session_id,
                      const char *path, const char *expires, const char *signature);

// ---- Files from elsewhere -------------------------------------------------------------------

enum { SESSION_DOWNLOADS_MAX = 20 };

// Fetched by the gateway (http:// and https://, redirects followed) where the address policy allows
// it, and put into the working folder under the name that the server or the URL gives it.
struct session_download {
    const char *url;
    const char *id; // the client's own, told with the result; or NULL
};

// Fires once; both are borrowed. `files`: [{"url", "id"?, "path", "size", "mime"}]; `errors`:
// [{"url", "id"?, "code", "error"}].
struct session_downloads;
typedef void (*session_downloads_fn)(const json_t *files, const json_t *errors, void *arg);
// At most SESSION_DOWNLOADS_MAX. What fails is an entry of `errors`.
struct session_downloads *session_downloads_start(struct session *session,
                                                  const struct session_download *downloads,
                                                  size_t n, session_downloads_fn fn, void *arg);
// What has arrived stays.
void session_downloads_cancel(struct session_downloads *downloads);

// ---- Packages -------------------------------------------------------------------------------

enum { SESSION_PACKAGES_MAX = 32 };

// The cache of wheels and the downloads into it, for all sessions. All borrowed.
struct packages_settings {
    const struct sandbox_context *sandboxes; // need not be filled in yet
    const struct kernelspecs *specs;
    const char *dir;       // for the cache
    const char *index_url; // NULL: what PIP_INDEX_URL says, else pip's own
    bool several_owners;   // as in sessions_settings
};
KG_MUST_CHECK struct packages *
packages_new(struct loop *loop, const struct packages_settings *settings, struct kg_error *err);
// Ends the downloads: what waits for them fails, and their sandboxes are being destroyed.
void packages_stop(struct packages *packages);
void packages_free(struct packages *packages);
// What sandboxes have to see, read-only, at /opt/kernelgate/packages. Borrowed.
const char *packages_shared_dir(const struct packages *packages);

// Whether `requirements` is a list of 1 to SESSION_PACKAGES_MAX strings such as "name[extra]>=1.0":
// no flag, path or URL. KG_INVALID says which one is bad.
KG_MUST_CHECK int session_packages_check(const json_t *requirements, struct kg_error *err);

struct session_install_events {
    // What happens, as lines for a client: {"type": "progress" | "stdout" | "stderr", "text": …}.
    // Borrowed. May be NULL.
    void (*on_line)(const json_t *line, void *arg);
    // Once, the last; then the handle is gone. `result` is {"status": "ok" | "error", "packages":
    // [{"name", "status": "installed" | "failed", "version"?, "message"?}]}, one for each
    // requirement; NULL where `err` is set: the session has ended.
    void (*on_end)(const json_t *result, const struct kg_error *err, void *arg);
};

// Installs packages for the session's kernels and commands, from the cache where they have been
// asked for before, else by a sandbox of its own that downloads them. Installs of one session
// follow one another. Counts as activity.
struct session_install;
KG_MUST_CHECK struct session_install *
session_install_start(struct session *session, const json_t *requirements,
                      const struct session_install_events *events, void *arg, struct kg_error *err);
// No callback fires any more; the installation goes on.
void session_install_leave(struct session_install *install);
// For how long the package of this name, in any spelling, is being installed; -1: it is not.
int64_t session_install_elapsed_ms(const struct session *session, const char *name);

// What is installed, or was asked for: {"packages": [{"name", "status": "installed" | "installing"
// | "failed", "version"?, "message"?}]}, or with `name` that one alone ("not_found" where it is
// none). Borrowed.
struct session_packages;
typedef void (*session_packages_fn)(const json_t *body, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct session_packages *session_packages_list(struct session *session,
                                                             const char *name,
                                                             session_packages_fn fn, void *arg,
                                                             struct kg_error *err);
void session_packages_cancel(struct session_packages *packages);

// ---- All of them ----------------------------------------------------------------------------

size_t sessions_count(const struct sessions *sessions);
// Sandboxes that wait ready for a session; and whether a new session would probably get one.
size_t sessions_n_pooled(const struct sessions *sessions);
size_t sessions_n_starting(const struct sessions *sessions);
bool sessions_can_open(const struct sessions *sessions);
// The ids of one owner's sessions: an array of strings, a new reference.
json_t *sessions_ids(const struct sessions *sessions, const char *owner);
// {id: description} of one owner's sessions.
json_t *sessions_describe(const struct sessions *sessions, const char *owner);
// Executions that run or wait.
bool sessions_are_busy(const struct sessions *sessions);
// Ends all, the pool too; `on_done` fires once, when no sandbox is left.
void sessions_end_all(struct sessions *sessions, const char *reason, loop_fn on_done, void *arg);
// Lets go of all; their sandboxes live on.
void sessions_release(struct sessions *sessions);
