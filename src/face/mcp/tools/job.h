// SPDX-License-Identifier: Apache-2.0
// A job is a running tool call: its session, its execution or command, its progress, its answer.
// All of it runs on the loop.
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "face.h"
#include "kernel.h"
#include "loop.h"
#include "mcp_tools.h"
#include "outcome.h"
#include "sandbox.h"
#include "session.h"
#include "session_commands.h"
#include "session_files.h"
#include "sessions.h"

#define JOB_LOGGER "kernelgate" // for mcp_call_log()

struct charset;
struct file_kind;
struct job;
struct tool_list;
typedef void (*job_fn)(struct job *job);
// The session of the job is ready; `kernel` may be NULL if none was asked for.
typedef void (*job_ready_fn)(struct job *job, struct session *session, struct kernel *kernel);
typedef void (*job_file_fn)(struct job *job, struct session *session,
                            const struct session_file *file);
// Makes the result of a failed call, as the clients of the profile know it. A new reference.
typedef json_t *(*job_error_fn)(struct job *job, const struct kg_error *err);

// What the result says about the session.
enum job_note {
    JOB_NOTE_NONE,
    JOB_NOTE_NEW,   // created for this call, so the client does not know its id
    JOB_NOTE_AGAIN, // created again, since the old one had ended
};

// A job uses only the members that its tool needs; the others are zero.
struct job {
    TAILQ_ENTRY(job) link;
    struct mcp_tools *tools;
    struct mcp_call *call;
    job_error_fn error_result;
    const json_t *args; // checked, borrowed from the call
    int64_t started_ms;
    struct loop_timer *deadline; // for some tools of profiles

    struct {
        char id[SESSION_MAX_ID_LEN + 1];
        enum job_note note;
        bool is_made;         // by this call
        bool is_asked_for;    // the tool makes sessions
        bool has_own_timeout; // the client has said how long it is kept
        struct session_open *open;
        const struct kernelspec *spec;
        job_ready_fn on_ready;
        void (*on_closed)(struct job *job, const char *session_id);
    } session;

    // Code that waits for the session (script.c).
    struct {
        int64_t timeout_ms;
        job_fn on_ran;
    } script;

    // The execution and the reader of its lines.
    struct {
        struct execution *execution;
        struct subscription *subscription;
        struct loop_timer *more_lines;         // reads on in the next iteration of the loop
        STAILQ_HEAD(, large_line) large_lines; // waiting for a worker
        size_t large_bytes;                    // of large_lines
        struct tool_list *tools;               // that the code may call; or NULL
        bool with_tools;                       // it was asked for with a list of them
        struct loop_timer *quiet;              // since the last line; then calls may wait
        struct loop_timer *late;               // the same, since a line that came before
        json_t *calls;                         // that wait: the execution has not ended
        job_fn on_done;                        // also for a command
    } run;
    struct outcome outcome; // of the execution or the command; empty while a worker uses it

    struct {
        struct session_command *running;
        struct sandbox_command_result result;
    } command;

    // Another running operation. job_free() calls `cancel_work` for it.
    void *work;
    void (*cancel_work)(void *work);

    struct {
        job_file_fn on_found;
        struct buf data;
        char *mime; // or NULL
        int64_t size;
        int64_t offset;
        const struct charset *charset; // of its text, or NULL
        size_t mark_len;               // of the byte order mark that shows it
        const struct file_kind *kind;  // or NULL
        bool is_head;                  // data has the first bytes, which show these
    } file;

    // A list that is being gathered, and the ids that are not done yet.
    struct {
        json_t *gathered;
        json_t *waiting;
    } list;

    struct buf advice; // what the model can do about the error that ends the job

    struct {
        struct loop_timer *timer;
        int64_t reported_ms;
        bool has_news;
    } progress;
};

// ---- Its life (job.c) ------------------------------------------------------------------------

struct job *job_new(struct mcp_tools *tools, struct mcp_call *call, job_error_fn error_result);
void job_free(struct job *job);
KG_DEFINE_AUTO(job, job_free)
// These answer the call and free the job. job_finish() takes `result`.
void job_finish(struct job *job, json_t *result);
// For callbacks of job->work, which has ended. Returns the job, or NULL without an `answer`: then
// the job has failed with `err`.
struct job *job_after_work(struct job *job, const void *answer, const struct kg_error *err);
// With job->error_result.
void job_fail(struct job *job, const struct kg_error *err);

// ---- Arguments ------------------------------------------------------------------------------

// An argument that is null counts as absent. The types have been checked.
const char *job_string(const struct job *job, const char *name); // or NULL
double job_number(const struct job *job, const char *name, double fallback);
bool job_bool(const struct job *job, const char *name, bool fallback);
const json_t *job_value(const struct job *job, const char *name); // or NULL
// The argument `timeout`, or the default, in milliseconds. Fails if it is out of bounds.
KG_MUST_CHECK int job_timeout(const struct job *job, int64_t *ret_ms, struct kg_error *err);

// ---- Its session (job_session.c) -------------------------------------------------------------

enum job_session_kind {
    JOB_SESSION_OWN,      // without an id: the MCP session's own, else a new one
    JOB_SESSION_NEW,      // without an id: a new one
    JOB_SESSION_ONE_SHOT, // a new one that ends with the execution
};

struct job_session {
    enum job_session_kind kind;
    const char *id;                // or NULL
    bool must_exist;               // an unknown id is an error; else the session is created
    const struct kernelspec *spec; // of the kernel that must be ready; NULL: none
    const json_t *env;             // of a new session
    int64_t idle_timeout_s;        // of a new session; 0: the default
    bool creates;                  // the client asked for a new one: the result need not say so
};
// Finds or creates the session, and calls `fn`, maybe before it returns. An error ends the job.
void job_open_session(struct job *job, const struct job_session *want, job_ready_fn fn);
// The id of the session that a call without an id uses. NULL: it would create one.
const char *job_own_session_id(const struct job *job);
// Ends a session. `fn` is called when all of it is gone.
void job_close_session(struct job *job, struct session *session,
                       void (*fn)(struct job *job, const char *session_id));
// All sessions of the owner, those at other replicas included: {id: what GET sessions says of it}.
// A new reference, to values that nothing else has.
json_t *job_describe_sessions(const struct job *job);
// An array of the ids of all sessions of the owner. A new reference.
json_t *job_session_ids(const struct job *job);
// The session `id`; NULL: the MCP session's own.
struct session *job_find_session(struct job *job, const char *id, struct kg_error *err);

// ---- Executions and commands (job_run.c, job_lines.c) ----------------------------------------

// Runs code, and calls `fn` after job->outcome has its result, or when its calls of job->run.tools
// wait (job->run.calls). An error ends the job.
void job_run(struct job *job, struct session *session, struct kernel *kernel, const char *text,
             int64_t timeout_ms, job_fn fn);
// Runs a command, and calls `fn` after job->outcome has its output and job->command.result its end.
void job_run_command(struct job *job, struct session *session,
                     const struct sandbox_command_spec *spec, job_fn fn);
// Reads the lines of job->run.execution into the outcome, and calls job->run.on_done after the
// last.
void job_read_lines(struct job *job);
// Releases the lines that wait for a worker.
void job_drop_lines(struct job *job);
// Starts progress notifications if the client asked for them.
void job_start_progress(struct job *job);

// ---- Files (job_files.c) ---------------------------------------------------------------------

extern const char working_directory[];
// The path relative to /mnt/data, borrowed from `path`, which may be below /mnt/data or relative to
// it, as in a model's code. NULL: the folder itself.
KG_MUST_CHECK int path_in_session(const char *path, const char **ret, struct kg_error *err);
// Checks the argument `path`, and opens the session of the argument `session_id`.
void job_with_files(struct job *job, bool must_exist, job_ready_fn fn);
// The argument `path`, checked by job_with_files().
const char *job_file_path(const struct job *job);
// Sets the file operation that the job waits for. NULL: it failed with `err`, which ends the job.
void job_set_file_work(struct job *job, struct session_file_op *work, const struct kg_error *err);
// Looks up the file of the argument `path`, and calls `fn`. An error ends the job.
void job_find_file(struct job *job, struct session *session, job_file_fn fn);
void cancel_file_work(void *work);
// The MIME type without its parameters, by default application/octet-stream; to be freed.
char *mime_essence(const char *mime);

// ---- Bytes (bytes.c) -------------------------------------------------------------------------

// Makes a JSON string of bytes, on a worker if they are many: the text itself if that is wanted and
// the bytes are UTF-8 without NULs, else base64. Copies `data`. `fn` takes the string, and may be
// called before this returns.
void job_bytes_as_string(struct job *job, const void *data, size_t len, bool wants_text,
                         void (*fn)(struct job *job, json_t *string, bool is_text));
// Decodes into job->file.data in the same way, and calls `fn`. KG_INVALID_CONTENT ends the job.
void job_decode_base64(struct job *job, const char *text, job_fn fn);
