// SPDX-License-Identifier: Apache-2.0
// One call of a tool under way: its session, what runs in it, its progress, its answer.
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

struct job;
typedef void (*job_fn)(struct job *job);
// The session of the job is ready. `kernel` is NULL if none was asked for.
typedef void (*job_ready_fn)(struct job *job, struct session *session, struct kernel *kernel);
typedef void (*job_file_fn)(struct job *job, struct session *session,
                            const struct session_file *file);
// The result of a call that failed, as the clients of the profile know it. A new reference.
typedef json_t *(*job_error_fn)(struct job *job, const struct kg_error *err);

// What became of the session that a call named, or has by default.
enum job_note {
    JOB_NOTE_NONE,
    JOB_NOTE_NEW,   // made for this call, and the client does not know its id yet
    JOB_NOTE_AGAIN, // made anew, since the one that was meant has ended
};

// What does not belong to what the call does is zero.
struct job {
    TAILQ_ENTRY(job) link;
    struct mcp_tools *tools;
    struct mcp_call *call;
    job_error_fn error_result;
    const json_t *args; // checked; borrowed from the call
    int64_t started_ms;
    struct loop_timer *deadline; // of a profile that has one

    // The session that it works in.
    struct {
        char id[SESSION_MAX_ID_LEN + 1];
        enum job_note note;
        struct session_open *open;
        const struct kernelspec *spec;
        job_ready_fn on_ready;
        void (*on_closed)(struct job *job, const char *session_id);
    } session;

    // Code that waits for its session (script.c).
    struct {
        int64_t timeout_ms;
        job_fn on_ran;
    } script;

    // The execution, and the reader of its lines.
    struct {
        struct execution *execution;
        struct subscription *subscription;
        struct loop_timer *more_lines;         // to be taken in the next iteration of the loop
        STAILQ_HEAD(, large_line) large_lines; // wait for a worker
        size_t large_bytes;                    // of them
        job_fn on_done;                        // also of a command
    } run;
    struct outcome outcome; // of the execution or the command; empty while a worker has it

    struct {
        struct session_command *running;
        struct sandbox_command_result result;
    } command;

    // Another operation under way; job_free() ends it by `cancel_work`.
    void *work;
    void (*cancel_work)(void *work);

    // The file that is read or written.
    struct {
        job_file_fn on_found;
        struct buf data;
        char *mime; // or NULL
        int64_t size;
        int64_t offset;
    } file;

    // A list that is being made, and what of it is still to be asked for.
    struct {
        json_t *gathered;
        json_t *waiting;
    } list;

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
// Answer and end the job. job_finish() takes `result`.
void job_finish(struct job *job, json_t *result);
// The job whose work has ended with `answer`; NULL: it has failed with `err`, which is answered.
struct job *job_after_work(struct job *job, const void *answer, const struct kg_error *err);
// With job->error_result.
void job_fail(struct job *job, const struct kg_error *err);

// A log message for a client that asked for this level.
void job_log(struct job *job, enum mcp_log_level level, const char *fmt, ...) KG_PRINTF(3, 4);

// ---- Arguments ------------------------------------------------------------------------------

// Absent and null are the same. The types were checked.
const char *job_string(const struct job *job, const char *name); // or NULL
double job_number(const struct job *job, const char *name, double fallback);
bool job_bool(const struct job *job, const char *name, bool fallback);
const json_t *job_value(const struct job *job, const char *name); // or NULL
// From seconds to milliseconds, within the bounds of the gateway.
KG_MUST_CHECK int job_timeout(const struct job *job, int64_t *ret_ms, struct kg_error *err);

// ---- Its session (job_session.c) -------------------------------------------------------------

enum job_session_kind {
    JOB_SESSION_OWN, // without an id: the MCP session's own, and where there is none, a new one
    JOB_SESSION_NEW, // without an id: a new one
    JOB_SESSION_ONE_SHOT, // a new one that ends with the execution
};

struct job_session {
    enum job_session_kind kind;
    const char *id;                // or NULL
    bool must_exist;               // an id that is unknown is an error; else it is made
    const struct kernelspec *spec; // whose kernel must be ready; NULL: none needs to be
    const json_t *env;             // of a new session
    int64_t idle_timeout_s;        // of a new session; 0: the default
    bool creates;                  // that it is new is what was asked for, and is not noted
};
// Finds or makes the session, and goes on with `fn` (kernel is NULL where no spec was given and the
// session was ready), maybe before it returns. Answers errors itself.
void job_open_session(struct job *job, const struct job_session *want, job_ready_fn fn);
// The id that a call without one would use; NULL: it would make a session.
const char *job_own_session_id(const struct job *job);
// Its session was closed by the client: a new one needs no remark.
void job_forget_own_session(const struct job *job, const char *id);
// Ends a session; `fn` is called when nothing of it is left.
void job_close_session(struct job *job, struct session *session,
                       void (*fn)(struct job *job, const char *session_id));
// The ids of all sessions of the owner. A new reference.
json_t *job_session_ids(const struct job *job);
// The session `id`, or the MCP session's own where `id` is NULL.
struct session *job_find_session(struct job *job, const char *id, struct kg_error *err);

// ---- What runs in it (job_run.c) -------------------------------------------------------------

// Runs code; `fn` gets what came of it in job->outcome. Errors are answered.
void job_run(struct job *job, struct session *session, struct kernel *kernel, const char *text,
             int64_t timeout_ms, job_fn fn);
// Runs a command; its output in job->outcome, its end in job->command.result.
void job_run_command(struct job *job, struct session *session,
                     const struct sandbox_command_spec *spec, job_fn fn);
// Reads the lines of job->run.execution into the outcome, and calls job->run.on_done after the last
// (job_lines.c).
void job_read_lines(struct job *job);
// Releases what waits to be read.
void job_drop_lines(struct job *job);
// Starts progress notifications, if the client asked for them.
void job_start_progress(struct job *job);

// ---- Files (job_files.c) ---------------------------------------------------------------------

extern const char working_directory[];
// Models name files as their code does: below /mnt/data, or relative to it. Borrowed from `path`,
// of which NULL is the folder itself.
KG_MUST_CHECK int path_in_session(const char *path, const char **ret, struct kg_error *err);
// Opens the session of a call with the arguments `session_id` and `path`.
void job_with_files(struct job *job, bool must_exist, job_ready_fn fn);
// The argument `path`, checked by job_with_files().
const char *job_file_path(const struct job *job);
// Sets the file operation that the job waits for; NULL: it failed with `err`, which is answered.
void job_set_file_work(struct job *job, struct session_file_op *work, const struct kg_error *err);
// Looks the file of the argument `path` up, and continues with `fn`. Errors are answered.
void job_find_file(struct job *job, struct session *session, job_file_fn fn);
void cancel_file_work(void *work);
// The type without its parameters; of NULL that of any bytes. To be freed.
char *mime_essence(const char *mime);

// ---- Bytes (bytes.c) -------------------------------------------------------------------------

// Makes a JSON string of bytes, on a worker where they are many: the text itself where it is wanted
// and the bytes are UTF-8 without NULs, else base64. Copies `data`. `fn` takes the string, maybe
// before this returns.
void job_bytes_as_string(struct job *job, const void *data, size_t len, bool wants_text,
                         void (*fn)(struct job *job, json_t *string, bool is_text));
// Decodes into job->file.data, in the same way, and goes on with `fn`; KG_INVALID_CONTENT is
// answered.
void job_decode_base64(struct job *job, const char *text, job_fn fn);
