// SPDX-License-Identifier: Apache-2.0
// Files of tool calls: paths, and the file operation that a job waits for.

#include <string.h>

#include "tools_priv.h"

const char working_directory[] = "/mnt/data";

// ---- MIME types -----------------------------------------------------------------------------

char *
mime_essence(const char *mime)
{
    return mime ? kg_strndup(mime, strcspn(mime, "; ")) : kg_strdup("application/octet-stream");
}

// ---- Paths and sessions ---------------------------------------------------------------------

int
path_in_session(const char *path, const char **ret, struct kg_error *err)
{
    *ret = path ? path : "";
    size_t len = strlen(working_directory);
    if (strncmp(*ret, working_directory, len) == 0 && ((*ret)[len] == '/' || !(*ret)[len]))
        *ret += len + ((*ret)[len] == '/');
    else if (**ret == '/')
        return kg_error_set(
            err, KG_INVALID_PATH, 0,
            "path must be below %s, or relative to it; run_command can use other files",
            working_directory);
    while (strncmp(*ret, "./", 2) == 0)
        *ret += 2;
    if (strcmp(*ret, ".") == 0)
        *ret += 1;
    return 0;
}

void
cancel_file_work(void *work)
{
    session_file_op_cancel(work);
}

void
job_set_file_work(struct job *job, struct session_file_op *work, const struct kg_error *err)
{
    job->work = work;
    job->cancel_work = cancel_file_work;
    if (!work)
        job_fail(job, err);
}

void
job_with_files(struct job *job, bool must_exist, job_ready_fn fn)
{
    struct kg_error err = {0};
    const char *path;
    if (path_in_session(job_string(job, "path"), &path, &err) < 0) {
        job_fail(job, &err);
        return;
    }
    const struct job_session want = {
        .kind = JOB_SESSION_OWN, .id = job_string(job, "session_id"), .must_exist = must_exist};
    job_open_session(job, &want, fn);
}

const char *
job_file_path(const struct job *job)
{
    const char *path = "";
    return path_in_session(job_string(job, "path"), &path, NULL) < 0 ? "" : path;
}

// ---- Looking up -----------------------------------------------------------------------------

static void
job_on_stat(const struct session_file *file, const struct kg_error *stat_err, void *arg)
{
    struct job *job = job_after_work(arg, file, stat_err);
    struct kg_error err = {0};
    if (!job)
        return;
    struct session *session = job_find_session(job, job->session.id, &err);
    if (session)
        job->file.on_found(job, session, file);
    else
        job_fail(job, &err);
}

void
job_find_file(struct job *job, struct session *session, job_file_fn fn)
{
    struct kg_error err = {0};
    job->file.on_found = fn;
    job_set_file_work(job, session_file_stat(session, job_file_path(job), job_on_stat, job, &err),
                      &err);
}
