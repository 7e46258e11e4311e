// SPDX-License-Identifier: Apache-2.0
// Branches: further kernels that are forked from a savepoint, which may be one that is made for
// this and dropped afterwards.

#include <string.h>

#include "session_savepoints.h"
#include "sessions_priv.h"

static void
branch_on_opened(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct savepoint_call *call = arg;
    (void)kernel;
    call->kernel_call = NULL;
    savepoint_call_end(call, err);
}

// From the savepoint of the call.
static int
branch_start(struct savepoint_call *call, struct kg_error *err)
{
    const struct session_savepoint *savepoint = session_savepoint_named(call->session, call->id);
    const struct session_kernel_request request = {
        .spec = savepoint->spec,
        .name = call->branch,
        .savepoint = savepoint->id,
    };
    call->kernel_call = session_kernel_open(call->session, &request, branch_on_opened, call, err);
    return call->kernel_call ? 0 : -1;
}

static void
branch_on_made(struct savepoint_call *call)
{
    struct kg_error err = {0};
    if (branch_start(call, &err) < 0)
        savepoint_call_end(call, &err);
}

static struct savepoint_call *
branch_call_new(struct session *session, const char *name, savepoint_call_fn fn, void *arg)
{
    struct savepoint_call *call = savepoint_call_new(session, fn, arg);
    snprintf(call->branch, sizeof call->branch, "%s", name);
    return call;
}

// One whose savepoint is being made is not a kernel yet.
static int
check_name(const struct session *session, const char *name, struct kg_error *err)
{
    const struct savepoint_call *call;
    TAILQ_FOREACH(call, &session->savepoint_calls, link) {
        if (call->on_made == branch_on_made && strcmp(call->branch, name) == 0)
            return kg_error_set(err, KG_NAME_EXISTS, 0,
                                "name: a branch \"%s\" is being started already", name);
    }
    return session_kernel_open_check(session, name, err);
}

struct savepoint_call *
session_branch_open(struct session *session, const char *name, const char *id,
                    struct kernel *kernel, savepoint_call_fn fn, void *arg, struct kg_error *err)
{
    const struct session_savepoint *savepoint = id ? session_savepoint_named(session, id) : NULL;
    if (id && (!savepoint || !session_savepoint_is_listed(savepoint))) {
        if (session_taken_up_check(session, err) == 0)
            kg_error_set(err, KG_NOT_FOUND, 0, "from: the session has no savepoint %.40s", id);
        return NULL;
    }
    if (session_savepoints_check(session, err) < 0 || check_name(session, name, err) < 0)
        return NULL;
    struct savepoint_call *call = branch_call_new(session, name, fn, arg);
    call->on_made = branch_on_made;
    if (id) {
        snprintf(call->id, sizeof call->id, "%s", id);
        call->description = session_savepoint_describe(savepoint);
    }
    if ((id ? branch_start(call, err) : savepoint_call_make(call, kernel, NULL, false, err)) == 0)
        return call;
    savepoint_call_free(call);
    return NULL;
}

// ---- Promoting ------------------------------------------------------------------------------

static void
promote_on_removed(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct savepoint_call *call = arg;
    (void)kernel;
    (void)err; // logged; the default kernel has what the branch had
    call->kernel_call = NULL;
    savepoint_call_end(call, NULL);
}

static void
promote_on_restored(struct kernel *kernel, const struct kg_error *restore_err, void *arg)
{
    struct savepoint_call *call = arg;
    struct kg_error err = {0};
    (void)kernel;
    call->kernel_call = NULL;
    if (restore_err) {
        savepoint_call_end(call, restore_err);
        return;
    }
    call->kernel_call =
        session_kernel_remove(call->session, call->branch, promote_on_removed, call, &err);
    if (!call->kernel_call)
        savepoint_call_end(call, NULL); // somebody else has removed it
}

static void
promote_on_made(struct savepoint_call *call)
{
    const struct session_savepoint *savepoint = session_savepoint_named(call->session, call->id);
    struct kg_error err = {0};
    call->kernel_call = session_kernel_restore(call->session, savepoint->spec->name, savepoint,
                                               promote_on_restored, call, &err);
    if (!call->kernel_call)
        savepoint_call_end(call, &err);
}

struct savepoint_call *
session_branch_promote(struct session *session, const char *name, savepoint_call_fn fn, void *arg,
                       struct kg_error *err)
{
    struct kernel *kernel = session_kernel_find(session, name, err);
    if (!kernel)
        return NULL;
    if (session_kernel_is_default(kernel)) {
        kg_error_set(err, KG_INVALID, 0, "%.40s is not a branch", name);
        return NULL;
    }
    if (session_savepoints_check(session, err) < 0 ||
        !session_kernel_find(session, kernel_spec(kernel)->name, err))
        return NULL;
    struct savepoint_call *call = branch_call_new(session, name, fn, arg);
    call->on_made = promote_on_made;
    if (savepoint_call_make(call, kernel, NULL, false, err) == 0)
        return call;
    savepoint_call_free(call);
    return NULL;
}
