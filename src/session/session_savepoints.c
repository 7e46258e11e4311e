// SPDX-License-Identifier: Apache-2.0
// How savepoints are made, restored and dropped, and calls about them.

#include "session_savepoints.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "sessions_priv.h"

enum { ID_LEN = 10, CHECK_TIMEOUT_MS = 10 * 1000 };

static struct session_savepoint *
savepoint_find(const struct session *session, const char *id, struct kg_error *err)
{
    struct session_savepoint *savepoint = session_savepoint_named(session, id);
    if (savepoint && session_savepoint_is_listed(savepoint))
        return savepoint;
    if (session_taken_up_check(session, err) == 0)
        kg_error_set(err, KG_NOT_FOUND, 0, "the session has no savepoint %.40s", id);
    return NULL;
}

// ---- Ends of savepoints ---------------------------------------------------------------------

static void
ignore_recorded(const struct kg_error *err, void *arg)
{
    (void)err; // logged
    (void)arg;
}

static void
record_later(struct session *session)
{
    struct kg_error err = {0};
    if (session->state == SESSION_READY && !session_record(session, ignore_recorded, NULL, &err))
        log_warning("the savepoints of a session are not recorded", LOG_STR("session", session->id),
                    LOG_ERR(&err));
}

// The process ends by kernels.remove, which also clears what the agent has of one that is not
// there.
static void
savepoint_drop(struct session *session, struct session_savepoint *savepoint, const char *reason)
{
    if (reason)
        session_savepoint_note_dropped(session, savepoint->id, savepoint->name, reason);
    bool has_files = savepoint->has_files;
    session_kernel_forget(session, savepoint->id, savepoint->is_ready);
    session_savepoint_remove(session, savepoint);
    if (has_files)
        session_savepoint_files_drop(session);
}

void
session_savepoint_on_exit(struct session *session, const char *id, bool oom)
{
    struct session_savepoint *savepoint = session_savepoint_named(session, id);
    if (!savepoint)
        return;
    savepoint->has_ended = true;
    if (!savepoint->is_ready || savepoint->is_hidden) // its call finds out
        return;
    savepoint_drop(session, savepoint,
                   oom ? "the sandbox had no memory left" : "its process ended");
    record_later(session);
}

static bool
is_used(const struct session *session, const char *id)
{
    const struct savepoint_call *call;
    TAILQ_FOREACH(call, &session->savepoint_calls, link) {
        if (strcmp(call->id, id) == 0)
            return true;
    }
    return false;
}

static struct session_savepoint *
oldest_without_name(const struct session *session)
{
    struct session_savepoint *savepoint;
    TAILQ_FOREACH(savepoint, &session->savepoints, link) {
        if (session_savepoint_is_listed(savepoint) && !savepoint->name &&
            !is_used(session, savepoint->id))
            return savepoint;
    }
    return NULL;
}

static int64_t
count_listed(const struct session *session)
{
    int64_t n = 0;
    const struct session_savepoint *savepoint;
    TAILQ_FOREACH(savepoint, &session->savepoints, link)
        n += session_savepoint_is_listed(savepoint);
    return n;
}

// Returns whether there was one.
static bool
drop_excess(struct session *session, const struct session_savepoint *newest)
{
    int64_t max = session->sessions->settings.max_savepoints;
    struct session_savepoint *oldest;
    bool has_dropped = false;
    while (count_listed(session) > max && (oldest = oldest_without_name(session)) != newest &&
           oldest) {
        savepoint_drop(session, oldest, "a newer savepoint replaced it (max-savepoints)");
        has_dropped = true;
    }
    return has_dropped;
}

// ---- Calls ----------------------------------------------------------------------------------

struct savepoint_call *
savepoint_call_new(struct session *session, savepoint_call_fn fn, void *arg)
{
    struct savepoint_call *call = KG_NEW(struct savepoint_call);
    call->session = session;
    call->fn = fn;
    call->arg = arg;
    TAILQ_INSERT_TAIL(&session->savepoint_calls, call, link);
    session_touch(session);
    return call;
}

void
savepoint_call_free(struct savepoint_call *call)
{
    struct session_savepoint *hidden = session_savepoint_named(call->session, call->id);
    savepoint_making_cancel(call->making);
    sandbox_call_cancel(call->check);
    session_kernel_call_cancel(call->kernel_call);
    session_recording_cancel(call->recording);
    json_decref(call->description);
    if (hidden && (hidden->is_hidden || !hidden->is_ready))
        savepoint_drop(call->session, hidden, NULL);
    TAILQ_REMOVE(&call->session->savepoint_calls, call, link);
    free(call);
}

void
savepoint_call_end(struct savepoint_call *call, const struct kg_error *err)
{
    savepoint_call_fn fn = call->fn;
    void *arg = call->arg;
    json_auto_t *description = json_incref(call->description);
    struct kg_error own = err ? *err : (struct kg_error){0};
    savepoint_call_free(call);
    if (fn)
        fn(err ? NULL : description, err ? &own : NULL, arg);
}

void
savepoint_call_cancel(struct savepoint_call *call)
{
    if (call)
        call->fn = NULL;
}

// ---- Making ---------------------------------------------------------------------------------

// One that the next gateway would not know is not kept; the others are there still.
static void
call_fail_to_record(struct savepoint_call *call, const struct kg_error *err)
{
    struct session_savepoint *savepoint = session_savepoint_named(call->session, call->id);
    if (savepoint)
        savepoint_drop(call->session, savepoint, NULL);
    savepoint_call_end(call, err);
}

static void
made_on_recorded(const struct kg_error *err, void *arg)
{
    struct savepoint_call *call = arg;
    struct kg_error own = {0};
    call->recording = NULL;
    const struct session_savepoint *savepoint = session_savepoint_named(call->session, call->id);
    if (err) {
        call_fail_to_record(call, err);
        return;
    }
    if (!savepoint)
        kg_error_set(&own, KG_SAVEPOINT_FAILED, 0, "the savepoint's process ended");
    else if (drop_excess(call->session, savepoint))
        record_later(call->session);
    savepoint_call_end(call, savepoint ? NULL : &own);
}

static void
call_on_made(const struct kernel_savepoint *made, const struct kg_error *err, void *arg)
{
    struct savepoint_call *call = arg;
    struct session_savepoint *savepoint = session_savepoint_named(call->session, call->id);
    struct kg_error own = {0};
    call->making = NULL;
    if (err) {
        savepoint_call_end(call, err);
        return;
    }
    assert(savepoint); // it is there as long as it is being made
    if (savepoint->has_ended) {
        kg_error_set(&own, KG_SAVEPOINT_FAILED, 0, "the savepoint's process ended");
        savepoint_call_end(call, &own);
        return;
    }
    savepoint->is_ready = true;
    savepoint->execution_count = made->execution_count;
    savepoint->memory_bytes = made->memory_bytes;
    savepoint->lost = json_incref(made->lost);
    savepoint->files_bytes = made->files_bytes;
    savepoint->files_entries = made->files_entries;
    session_touch(call->session);
    if (savepoint->is_hidden) {
        call->on_made(call);
        return;
    }
    call->description = session_savepoint_describe(savepoint);
    call->recording = session_record(call->session, made_on_recorded, call, &own);
    if (!call->recording)
        call_fail_to_record(call, &own);
}

int
savepoint_call_make(struct savepoint_call *call, struct kernel *kernel, const char *name,
                    bool files, struct kg_error *err)
{
    snprintf(call->id, sizeof call->id, "%s", SAVEPOINT_PREFIX);
    id_random(call->id + strlen(SAVEPOINT_PREFIX), ID_LEN);
    struct session_savepoint *savepoint = session_savepoint_add(
        call->session, call->id, kernel_spec(kernel), kernel_name(kernel), name);
    savepoint->is_hidden = call->on_made;
    savepoint->has_files = files;
    call->making = kernel_make_savepoint(kernel, call->id, files, call_on_made, call, err);
    if (call->making)
        return 0;
    session_savepoint_remove(call->session, savepoint); // the agent knows nothing of it
    return -1;
}

// The agent keeps or puts back the files of one savepoint at a time; a restore that found it busy
// would have ended its kernel already.
static int
check_files_idle(const struct session *session, struct kg_error *err)
{
    const struct savepoint_call *call;
    TAILQ_FOREACH(call, &session->savepoint_calls, link) {
        const struct session_savepoint *savepoint = session_savepoint_named(session, call->id);
        if (savepoint && savepoint->has_files && !*call->branch)
            return kg_error_set(err, KG_SESSION_BUSY, 0,
                                "the files of a savepoint are being kept or put back");
    }
    return 0;
}

int
session_savepoints_check(const struct session *session, struct kg_error *err)
{
    if (session->state != SESSION_READY)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
    if (session->sessions->settings.max_savepoints == 0)
        return kg_error_set(err, KG_UNSUPPORTED, 0,
                            "savepoints are off: setting max-savepoints is 0");
    return session_taken_up_check(session, err);
}

static int
check_room(const struct session *session, struct kg_error *err)
{
    int64_t max = session->sessions->settings.max_savepoints;
    if (count_listed(session) >= max && !oldest_without_name(session))
        return kg_error_set(err, KG_TOO_MANY_SAVEPOINTS, 0,
                            "the session has %lld savepoints with names (max-savepoints); delete "
                            "one first",
                            (long long)max);
    return 0;
}

struct savepoint_call *
session_savepoint_make(struct session *session, struct kernel *kernel, const char *name, bool files,
                       savepoint_call_fn fn, void *arg, struct kg_error *err)
{
    if (session_savepoints_check(session, err) < 0 ||
        (name && session_savepoint_name_check(session, name, err) < 0) ||
        check_room(session, err) < 0 || (files && check_files_idle(session, err) < 0))
        return NULL;
    struct savepoint_call *call = savepoint_call_new(session, fn, arg);
    if (savepoint_call_make(call, kernel, name, files, err) == 0)
        return call;
    savepoint_call_free(call);
    return NULL;
}

// ---- Restoring and dropping -----------------------------------------------------------------

static void
call_on_restored(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct savepoint_call *call = arg;
    (void)kernel;
    call->kernel_call = NULL;
    savepoint_call_end(call, err);
}

static int
restore_kernel(struct savepoint_call *call, struct kg_error *err)
{
    const struct session_savepoint *savepoint = session_savepoint_named(call->session, call->id);
    if (!savepoint)
        return kg_error_set(err, KG_SAVEPOINT_FAILED, 0, "the savepoint's process ended");
    call->kernel_call = session_kernel_restore(call->session, savepoint->kernel, savepoint,
                                               call_on_restored, call, err);
    return call->kernel_call ? 0 : -1;
}

static void
call_on_checked(const json_t *body, const struct kg_error *agent_err, void *arg)
{
    struct savepoint_call *call = arg;
    struct kg_error err = {0};
    call->check = NULL;
    if (!body)
        savepoint_call_end(call, agent_err);
    else if (restore_kernel(call, &err) < 0)
        savepoint_call_end(call, &err);
}

// Before anything changes.
static int
check_files(struct savepoint_call *call, struct kg_error *err)
{
    json_auto_t *params = json_pack("{s:s}", "name", call->id);
    call->check = sandbox_agent_call(call->session->sandbox, "data.check", params, CHECK_TIMEOUT_MS,
                                     call_on_checked, call, err);
    return call->check ? 0 : -1;
}

struct savepoint_call *
session_savepoint_restore(struct session *session, const char *id, savepoint_call_fn fn, void *arg,
                          struct kg_error *err)
{
    const struct session_savepoint *savepoint = savepoint_find(session, id, err);
    if (!savepoint)
        return NULL;
    const struct kernel *kernel = session_kernel_find(session, savepoint->kernel, err);
    if (!kernel)
        return NULL;
    if (kernel_spec(kernel) != savepoint->spec) {
        kg_error_set(err, KG_NOT_FOUND, 0, "the kernel %.40s is another one now",
                     savepoint->kernel);
        return NULL;
    }
    if (savepoint->has_files && check_files_idle(session, err) < 0)
        return NULL;
    struct savepoint_call *call = savepoint_call_new(session, fn, arg);
    snprintf(call->id, sizeof call->id, "%s", savepoint->id);
    call->description = session_savepoint_describe(savepoint);
    if ((savepoint->has_files ? check_files : restore_kernel)(call, err) == 0)
        return call;
    savepoint_call_free(call);
    return NULL;
}

static void
drop_on_recorded(const struct kg_error *err, void *arg)
{
    struct savepoint_call *call = arg;
    (void)err; // logged; it is gone all the same
    call->recording = NULL;
    savepoint_call_end(call, NULL);
}

struct savepoint_call *
session_savepoint_drop(struct session *session, const char *id, savepoint_call_fn fn, void *arg,
                       struct kg_error *err)
{
    struct session_savepoint *savepoint = savepoint_find(session, id, err);
    if (!savepoint)
        return NULL;
    if (is_used(session, savepoint->id)) {
        kg_error_set(err, KG_SESSION_BUSY, 0, "the savepoint is being restored");
        return NULL;
    }
    struct savepoint_call *call = savepoint_call_new(session, fn, arg);
    savepoint_drop(session, savepoint, NULL);
    call->recording = session_record(session, drop_on_recorded, call, err);
    if (call->recording)
        return call;
    savepoint_call_free(call);
    return NULL;
}

// ---- The session's end --------------------------------------------------------------------

void
session_savepoints_end(struct session *session, const struct kg_error *err)
{
    for (struct savepoint_call *call; (call = TAILQ_FIRST(&session->savepoint_calls));) {
        savepoint_making_cancel(KG_STEAL(call->making));
        savepoint_call_end(call, err);
    }
}
