// SPDX-License-Identifier: Apache-2.0
// Opening a further kernel of a session.

#include <string.h>

#include "session_files.h"
#include "session_kernels.h"
#include "sessions_priv.h"

enum { RANDOM_NAME_LEN = 12 };

int
session_folder_check(const char *field, const char *path, struct kg_error *err)
{
    struct kg_error why = {0};
    if (*path != '/')
        return kg_error_set(err, KG_INVALID, 0, "%s must be an absolute path", field);
    if (utf8_valid_prefix(path, strlen(path)) != strlen(path))
        return kg_error_set(err, KG_INVALID, 0, "%s must be UTF-8", field);
    if (file_any_path_check(path, true, &why) < 0)
        return kg_error_set(err, KG_INVALID, 0, "%s: %s", field, why.message);
    return 0;
}

static int
check_name(const struct session *session, const char *name, struct kg_error *err)
{
    if (strncmp(name, SAVEPOINT_PREFIX, strlen(SAVEPOINT_PREFIX)) == 0)
        return kg_error_set(err, KG_INVALID, 0, "name: \"%s…\" are the ids of savepoints",
                            SAVEPOINT_PREFIX);
    if (!kernel_name_valid(name))
        return kg_error_set(err, KG_INVALID, 0,
                            "name: a kernel's name is 1 to %d of A-Z, a-z, 0-9, _ and -",
                            KERNEL_MAX_NAME_LEN);
    if (kernelspecs_find(session->sessions->settings.specs, name, NULL))
        return kg_error_set(err, KG_INVALID, 0,
                            "name: \"%s\" is a kernelspec's; choose another one", name);
    const struct session_kernel_call *call;
    bool is_used = session_kernel_named(session, name);
    TAILQ_FOREACH(call, &session->kernel_calls, link)
        is_used |= strcmp(call->name, name) == 0;
    return is_used ? kg_error_set(err, KG_NAME_EXISTS, 0,
                                  "name: the session has a kernel \"%s\" already", name)
                   : 0;
}

static int
check_room(const struct session *session, struct kg_error *err)
{
    if (session->state != SESSION_READY)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
    if (session->n_kernels == SESSION_MAX_KERNELS)
        return kg_error_set(err, KG_INVALID, 0,
                            "a session has at most %d kernels; remove one first",
                            SESSION_MAX_KERNELS);
    if (!budget_has_room(&session->sessions->further_kernels, session->owner, 1))
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "all sessions together have too many kernels; remove some, or try "
                            "again later");
    return 0;
}

int
session_kernel_open_check(const struct session *session, const char *name, struct kg_error *err)
{
    return check_room(session, err) < 0 || check_name(session, name, err) < 0 ? -1 : 0;
}

static void
call_on_look(const struct session_entry *entry, const struct kg_error *look_err, void *arg)
{
    struct session_kernel_call *call = arg;
    struct kg_error err = {0};
    call->look = NULL;
    // Where a link is on the way, the kernel finds out.
    if (look_err && look_err->code == KG_NOT_FOUND)
        kg_error_set(&err, KG_NOT_FOUND, 0, "cwd: there is no such folder in the session");
    else if (entry && (strcmp(entry->type, "file") == 0 || strcmp(entry->type, "other") == 0))
        kg_error_set(&err, KG_INVALID, 0, "cwd: that is not a folder");
    session_kernel_call_settle(call, err.code == KG_OK ? NULL : &err);
}

struct session_kernel_call *
session_kernel_open(struct session *session, const struct session_kernel_request *request,
                    session_kernel_fn fn, void *arg, struct kg_error *err)
{
    char random[RANDOM_NAME_LEN + 1];
    const char *name = request->name ? request->name : random;
    id_random(random, RANDOM_NAME_LEN);
    if (session_kernel_open_check(session, name, err) < 0 ||
        (request->cwd && session_folder_check("cwd", request->cwd, err) < 0))
        return NULL;
    struct session_kernel_call *call =
        session_kernel_call_new(session, KERNEL_CALL_OPEN, name, fn, arg);
    if (request->cwd) {
        call->look = session_entry_stat(session, request->cwd, call_on_look, call, err);
        if (!call->look) {
            session_kernel_call_free(call);
            return NULL;
        }
    }
    call->n_pending = request->cwd ? 3 : 2;
    struct kernel_settings settings =
        session_kernel_settings(session, request->spec, name, request->cwd);
    settings.savepoint = request->savepoint;
    session_add_kernel(session, kernel_new(session->sessions->settings.kernels, session->sandbox,
                                           &settings, &session_kernel_events, session));
    session_kernel_call_record(call);
    session_touch(session);
    return call;
}

void
session_kernel_opens_fail(struct session *session, struct session_kernel *kernel)
{
    struct kg_error err = kernel->err;
    struct session_kernel_call *call =
        session_kernel_call_waiting(session, KERNEL_CALL_OPEN, kernel_name(kernel->kernel));
    session_kernel_begin_to_remove(session, kernel, NULL, NULL);
    if (!call)
        return;
    call->waits = false;
    session_kernel_call_settle(call, &err);
}
