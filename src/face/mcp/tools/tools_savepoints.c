// SPDX-License-Identifier: Apache-2.0
// create_savepoint, restore_savepoint, and code that runs in a branch.

#include <string.h>

#include "script.h"
#include "session_kernels.h"
#include "session_savepoints.h"

static void
cancel_savepoint_call(void *work)
{
    savepoint_call_cancel(work);
}

// `err` is set if there is no call.
static void
wait_for_call(struct job *job, struct savepoint_call *call, const struct kg_error *err)
{
    job->work = call;
    job->cancel_work = cancel_savepoint_call;
    if (!call)
        job_fail(job, err);
}

// ---- Savepoints -----------------------------------------------------------------------------

static void
append_lost(struct buf *text, const json_t *savepoint)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(savepoint, "lost"), i, each)
        buf_printf(text, "%s%s", i ? ", " : " It does not have: ", json_string_value(each));
    if (i > 0)
        buf_append_str(text, ".");
}

static bool
has_files(const json_t *savepoint)
{
    return json_is_object(json_object_get(savepoint, "files"));
}

static void
savepoint_on_made(const json_t *savepoint, const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, savepoint, err);
    if (!job)
        return;
    const char *id = json_string_value(json_object_get(savepoint, "savepoint"));
    KG_AUTO_BUF text = {0};
    buf_printf(&text,
               "Savepoint %s has the variables%s as they are now. "
               "restore_savepoint(savepoint=\"%s\") brings them back%s.",
               id, has_files(savepoint) ? " and the files in /mnt/data" : "", id,
               has_files(savepoint) ? "" : "; files are not part of it");
    append_lost(&text, savepoint);
    job_finish(job, result_of_text(job, text.data, json_deep_copy(savepoint)));
}

// The session and the kernel of a call; NULL: the job has failed.
static struct session *
find_own(struct job *job, struct kernel **ret_kernel)
{
    struct kg_error err = {0};
    struct session *session = job_find_session(job, job_string(job, "session_id"), &err);
    const char *branch = job_string(job, "branch");
    *ret_kernel = !session ? NULL
                  : branch ? session_kernel_find(session, branch, &err)
                           : session_first_kernel(session);
    if (*ret_kernel)
        return session;
    if (err.code == KG_OK)
        kg_error_set(&err, KG_NOT_FOUND, 0, "the session has run no code yet");
    job_fail(job, &err);
    return NULL;
}

void
tool_create_savepoint(struct job *job)
{
    struct kg_error err = {0};
    struct kernel *kernel;
    struct session *session = find_own(job, &kernel);
    if (session)
        wait_for_call(job,
                      session_savepoint_make(session, kernel, job_string(job, "name"),
                                             job_bool(job, "files", false), savepoint_on_made, job,
                                             &err),
                      &err);
}

static void
savepoint_on_restored(const json_t *savepoint, const struct kg_error *err, void *arg)
{
    struct job *job = job_after_work(arg, savepoint, err);
    if (!job)
        return;
    KG_AUTO_FREE char *text =
        kg_asprintf("Variables%s are as they were at savepoint %s, which stays.%s",
                    has_files(savepoint) ? " and the files in /mnt/data" : "",
                    json_string_value(json_object_get(savepoint, "savepoint")),
                    has_files(savepoint) ? "" : " Files are as they are now.");
    job_finish(job, result_of_text(job, text, json_deep_copy(savepoint)));
}

void
tool_restore_savepoint(struct job *job)
{
    struct kg_error err = {0};
    struct session *session = job_find_session(job, job_string(job, "session_id"), &err);
    if (!session) {
        job_fail(job, &err);
        return;
    }
    json_auto_t *all = session_savepoints_describe(session);
    const json_t *list = json_object_get(all, "savepoints");
    const json_t *newest = json_array_get(list, json_array_size(list) - 1);
    const char *id = job_string(job, "savepoint");
    if (!id)
        id = json_string_value(json_object_get(newest, "savepoint"));
    if (!id) {
        if (session_taken_up_check(session, &err) == 0)
            kg_error_set(&err, KG_NOT_FOUND, 0,
                         "the session has no savepoint: create_savepoint first");
        job_fail(job, &err);
        return;
    }
    wait_for_call(job, session_savepoint_restore(session, id, savepoint_on_restored, job, &err),
                  &err);
}

// ---- Code in a branch -----------------------------------------------------------------------

static void
run_in_branch(struct job *job, struct session *session)
{
    struct kg_error err = {0};
    struct kernel *branch = session_kernel_find(session, job_string(job, "branch"), &err);
    if (branch)
        job_run(job, session, branch, job_string(job, "code"), job->script.timeout_ms,
                job->script.on_ran);
    else
        job_fail(job, &err);
}

static void
branch_on_opened(const json_t *savepoint, const struct kg_error *open_err, void *arg)
{
    struct job *job = arg;
    struct kg_error err = {0};
    (void)savepoint;
    job->work = NULL;
    struct session *session = open_err ? NULL : job_find_session(job, job->session.id, &err);
    if (session)
        run_in_branch(job, session);
    else
        job_fail(job, open_err ? open_err : &err);
}

void
script_run_in_branch(struct job *job, struct session *session, struct kernel *kernel)
{
    const char *branch = job_string(job, "branch");
    struct kg_error err = {0};
    if (session_kernel_find(session, branch, NULL))
        run_in_branch(job, session);
    else
        wait_for_call(
            job, session_branch_open(session, branch, NULL, kernel, branch_on_opened, job, &err),
            &err);
}
