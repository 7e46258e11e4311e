// SPDX-License-Identifier: Apache-2.0
// Contexts of code: the kernels of a sandbox. The default one of a language has the kernelspec's
// name for its id, and is started when code without an id asks for it.

#include <string.h>

#include "opensandbox_priv.h"
#include "session_kernels.h"

// ---- Finding --------------------------------------------------------------------------------

const struct kernelspec *
language_spec(const struct opensandbox *self, const char *language, struct kg_error *err)
{
    struct kg_error why = {0};
    const struct kernelspec *spec = kernelspecs_find(self->settings.face->specs, language, &why);
    if (!spec)
        kg_error_set(err, KG_INVALID, 0, "language: %s", why.message);
    return spec;
}

static int
fail_not_found(const char *id, struct kg_error *err)
{
    return kg_error_set(err, KG_NOT_FOUND, 0, "the sandbox has no context %.60s", id);
}

// The language that is named; without a name the gateway's default one.
static const struct kernelspec *
language_or_default(const struct opensandbox *self, const char *language, struct kg_error *err)
{
    return language && *language ? language_spec(self, language, err)
                                 : self->settings.face->default_spec;
}

int
os_context_find(const struct opensandbox *self, const struct session *session,
                const json_t *context, struct kernel **ret_kernel,
                const struct kernelspec **ret_spec, struct kg_error *err)
{
    const char *id, *language;
    *ret_kernel = NULL;
    if (context && !json_is_null(context) && !json_is_object(context))
        return kg_error_set(err, KG_INVALID, 0, "context must be an object");
    if (os_take_string(context, "id", &id, err) < 0 ||
        os_take_string(context, "language", &language, err) < 0)
        return -1;
    if (!id || !*id)
        return (*ret_spec = language_or_default(self, language, err)) ? 0 : -1;
    struct kernel *kernel = session_kernel_find(session, id, NULL);
    *ret_spec =
        kernel ? kernel_spec(kernel) : kernelspecs_find(self->settings.face->specs, id, NULL);
    if (!*ret_spec || (!kernel && strcmp((*ret_spec)->name, id) != 0))
        return fail_not_found(id, err);
    if (kernel && kernel_has_started(kernel))
        *ret_kernel = kernel;
    const struct kernelspec *wanted =
        language && *language ? language_spec(self, language, err) : *ret_spec;
    if (wanted && wanted != *ret_spec)
        kg_error_set(err, KG_INVALID, 0, "context: language is %.40s, but %.60s is of another one",
                     language, id);
    return wanted == *ret_spec ? 0 : -1;
}

static json_t *
describe(const struct kernel *kernel)
{
    return json_pack("{s:s, s:s}", "id", kernel_name(kernel), "language",
                     kernel_spec(kernel)->name);
}

// ---- Making ---------------------------------------------------------------------------------

// A request that waits for a kernel; the request owns it.
struct context_call {
    struct http_request *request;
    const struct opensandbox *self;
    const struct kernelspec *spec; // of a removal of several: their language; NULL: of all
    struct session_kernel_call *call;
};

static void
context_call_free(void *arg)
{
    struct context_call *call = arg;
    session_kernel_call_cancel(call->call);
    free(call);
}

static struct context_call *
context_call_new(struct http_request *request, const struct opensandbox *self)
{
    struct context_call *call = KG_NEW(struct context_call);
    *call = (struct context_call){.request = request, .self = self};
    http_request_own(request, call, context_call_free);
    return call;
}

static void
on_made(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct context_call *call = arg;
    call->call = NULL;
    if (err)
        http_reply_error(call->request, err);
    else
        http_reply_json(call->request, 200, describe(kernel));
}

void
handle_os_context_create(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    struct session_kernel_request wanted = {0};
    const char *language = NULL;
    struct session *session = find_sandbox(request, self);
    if (!session)
        return;
    json_auto_t *root = os_body_object(request, &err);
    if (!root || os_take_string(root, "language", &language, &err) < 0 ||
        !(wanted.spec = language_or_default(self, language, &err))) {
        http_reply_error(request, &err);
        return;
    }
    struct context_call *call = context_call_new(request, self);
    call->call = session_kernel_open(session, &wanted, on_made, call, &err);
    if (!call->call)
        http_reply_error(request, &err);
}

// ---- Looking --------------------------------------------------------------------------------

// The language in the query, or NULL for all. -1: it has replied with the error.
static int
query_language(struct http_request *request, const struct opensandbox *self,
               const struct kernelspec **ret)
{
    struct kg_error err = {0};
    const char *language = http_request_query(request, "language");
    *ret = NULL;
    if (!language || !*language || (*ret = language_spec(self, language, &err)))
        return 0;
    http_reply_error(request, &err);
    return -1;
}

void
handle_os_context_list(struct http_request *request, void *arg)
{
    const struct kernelspec *wanted;
    const struct kernel *kernel;
    const struct session *session = find_sandbox(request, arg);
    if (!session || query_language(request, arg, &wanted) < 0)
        return;
    json_t *contexts = json_array();
    for (size_t i = 0; (kernel = session_kernel_at(session, i)); i++)
        if (!wanted || kernel_spec(kernel) == wanted)
            json_array_append_new(contexts, describe(kernel));
    http_reply_json(request, 200, contexts);
}

void
handle_os_context_show(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const char *id = http_request_param(request, "context");
    const struct session *session = find_sandbox(request, arg);
    if (!session)
        return;
    const struct kernel *kernel = session_kernel_find(session, id, NULL);
    if (kernel) {
        http_reply_json(request, 200, describe(kernel));
        return;
    }
    (void)fail_not_found(id, &err);
    http_reply_error(request, &err);
}

// ---- Ending ---------------------------------------------------------------------------------

static void
on_removed(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    (void)kernel;
    struct context_call *call = arg;
    call->call = NULL;
    if (err)
        http_reply_error(call->request, err);
    else
        os_reply_empty(call->request);
}

void
handle_os_context_delete(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const char *id = http_request_param(request, "context");
    struct session *session = find_sandbox(request, arg);
    if (!session)
        return;
    struct context_call *call = context_call_new(request, arg);
    call->call = session_kernel_remove(session, id, on_removed, call, &err);
    if (call->call)
        return;
    if (err.code == KG_NOT_FOUND)
        (void)fail_not_found(id, &err);
    http_reply_error(request, &err);
}

static const struct kernel *
first_of(const struct session *session, const struct kernelspec *spec)
{
    const struct kernel *kernel;
    for (size_t i = 0; (kernel = session_kernel_at(session, i)); i++)
        if (!spec || kernel_spec(kernel) == spec)
            return kernel;
    return NULL;
}

// Removes the contexts of a language one after the other; `err`: the last one was not removed.
static void
remove_next(struct kernel *removed, const struct kg_error *removal_err, void *arg)
{
    (void)removed;
    struct context_call *call = arg;
    struct kg_error err = {0};
    call->call = NULL;
    if (removal_err) {
        http_reply_error(call->request, removal_err);
        return;
    }
    struct session *session = find_sandbox(call->request, call->self);
    if (!session)
        return;
    const struct kernel *next = first_of(session, call->spec);
    if (!next)
        os_reply_empty(call->request);
    else if (!(call->call =
                   session_kernel_remove(session, kernel_name(next), remove_next, call, &err)))
        http_reply_error(call->request, &err);
}

void
handle_os_contexts_delete(struct http_request *request, void *arg)
{
    const struct kernelspec *wanted;
    if (!find_sandbox(request, arg) || query_language(request, arg, &wanted) < 0)
        return;
    struct context_call *call = context_call_new(request, arg);
    call->spec = wanted;
    remove_next(NULL, NULL, call);
}
