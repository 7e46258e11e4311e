// SPDX-License-Identifier: Apache-2.0
// POST and DELETE …/code: runs code in a context, and interrupts it.

#include <string.h>

#include "opensandbox_priv.h"
#include "session_kernels.h"
#include "sessions.h"

// ---- Running --------------------------------------------------------------------------------

// A request whose kernel is being opened.
struct pending {
    struct http_request *request;
    const struct opensandbox *self;
    json_t *root; // `code` is borrowed from it
    const char *code;
    struct session_open *open;
};

static void
pending_free(void *arg)
{
    struct pending *pending = arg;
    if (pending->open)
        session_open_cancel(pending->open);
    json_decref(pending->root);
    free(pending);
}
KG_DEFINE_AUTO(pending, pending_free)

static void
on_kernel(struct session *session, struct kernel *kernel, const struct kg_error *open_err,
          void *arg)
{
    KG_AUTO(pending) pending = arg;
    struct http_request *request = pending->request;
    const struct opensandbox_settings *settings = &pending->self->settings;
    http_request_disown(request); // its answer has a state of its own
    pending->open = NULL;
    if (open_err) {
        http_reply_error(request, open_err);
        return;
    }
    // OpenSandbox has no limit of time: it is the gateway's longest.
    const struct session_code code = {.code = pending->code,
                                      .timeout_ms = settings->face->max_timeout_ms};
    struct kg_error err = {0};
    KG_AUTO(execution) execution = session_execute(session, kernel, &code, &err);
    if (execution)
        code_events_start(request, settings->loop, execution);
    else
        http_reply_error(request, &err);
}

static int
take_code(const struct opensandbox *self, const json_t *root, const char **ret,
          struct kg_error *err)
{
    size_t max = self->settings.face->max_code_bytes;
    if (os_take_string(root, "code", ret, err) < 0)
        return -1;
    if (!*ret)
        return kg_error_set(err, KG_INVALID, 0, "code is missing: a string with the code to run");
    if (strlen(*ret) > max)
        return kg_error_set(err, KG_CODE_TOO_LARGE, 0,
                            "code is %zu bytes; the limit is %zu (setting max-code-bytes)",
                            strlen(*ret), max);
    return 0;
}

static int
start(struct pending *pending, struct session *session, struct kg_error *err)
{
    const struct opensandbox *self = pending->self;
    struct kernel *kernel;
    const struct kernelspec *spec;
    pending->root = os_body_object(pending->request, err);
    if (!pending->root || take_code(self, pending->root, &pending->code, err) < 0)
        return -1;
    if (os_context_find(self, session, json_object_get(pending->root, "context"), &kernel, &spec,
                        err) < 0)
        return -1;
    if (kernel) {
        on_kernel(session, kernel, NULL, pending);
        return 0;
    }
    const struct session_request session_request = {
        .owner = http_request_owner(pending->request),
        .session_id = session_id(session),
        .kernelspec = spec,
    };
    pending->open = session_open_start(self->settings.face->sessions, &session_request, on_kernel,
                                       pending, err);
    return pending->open ? 0 : -1;
}

void
handle_os_code(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct session *session = find_sandbox(request, arg);
    if (!session)
        return;
    struct pending *pending = KG_NEW(struct pending);
    *pending = (struct pending){.request = request, .self = arg};
    http_request_own(request, pending, pending_free);
    if (start(pending, session, &err) < 0)
        http_reply_error(request, &err);
}

// ---- Interrupting ---------------------------------------------------------------------------

// `id` is that of the execution, which `init` has told, or of a context.
void
handle_os_code_interrupt(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    const char *id = http_request_query(request, "id");
    struct session *session = find_sandbox(request, self);
    if (!session)
        return;
    struct execution *execution =
        id ? executions_find(self->settings.face->executions, id, http_request_owner(request), NULL)
           : NULL;
    if (execution && strcmp(execution_session_id(execution), session_id(session)) == 0) {
        execution_interrupt(execution);
    } else if (!id || session_kernel_interrupt(session, id, NULL, NULL) < 0) {
        if (id)
            kg_error_set(&err, KG_NOT_FOUND, 0, "no execution or context %.60s in this sandbox",
                         id);
        else
            kg_error_set(&err, KG_INVALID, 0, "id is missing: that of init, or of a context");
        http_reply_error(request, &err);
        return;
    }
    session_touch(session);
    os_reply_empty(request);
}
