// SPDX-License-Identifier: Apache-2.0
// Contexts: the kernels of a sandbox. The default one of a language has the id of its kernelspec,
// and is started when it is first used.

#include <string.h>

#include "e2b_priv.h"
#include "session_kernels.h"

// ---- Finding --------------------------------------------------------------------------------

static const struct kernelspec *
spec_of(const struct e2b *e2b, const char *language, struct kg_error *err)
{
    static const char *const names[] = {"js", "ts", "typescript"}; // the same kernel
    const struct face_context *face = e2b->settings.face;
    if (!language)
        return face->default_spec;
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        if (strcmp(names[i], language) == 0)
            language = "javascript";
    const struct kernelspec *spec = kernelspecs_find(face->specs, language, err);
    if (!spec)
        err->code = KG_INVALID;
    return spec;
}

static int
take_string(const json_t *body, const char *name, const char **ret, struct kg_error *err)
{
    const json_t *value = json_object_get(body, name);
    *ret = json_string_value(value);
    if (value && !json_is_null(value) && !*ret)
        return kg_error_set(err, KG_INVALID, 0, "%s must be a string", name);
    return 0;
}

static int
fail_not_found(const char *id, struct kg_error *err)
{
    return kg_error_set(err, KG_NOT_FOUND, 0, "Context %.64s not found", id);
}

int
context_find(const struct e2b *e2b, const struct session *session, const json_t *body,
             struct kernel **ret_kernel, const struct kernelspec **ret_spec, struct kg_error *err)
{
    const char *id, *language;
    *ret_kernel = NULL;
    if (take_string(body, "context_id", &id, err) < 0 ||
        take_string(body, "language", &language, err) < 0)
        return -1;
    if (id && language)
        return kg_error_set(err, KG_INVALID, 0,
                            "Only one of context_id or language can be provided");
    if (id)
        *ret_kernel = session_kernel_find(session, id, NULL);
    if (*ret_kernel && !kernel_has_started(*ret_kernel))
        *ret_kernel = NULL;
    *ret_spec = spec_of(e2b, id ? id : language, err);
    if (*ret_spec || *ret_kernel)
        return 0;
    return id ? fail_not_found(id, err) : -1;
}

// The SDKs show the text of this one as it is.
void
context_reply_error(struct http_request *request, const struct kg_error *err)
{
    if (err->code == KG_NOT_FOUND)
        http_reply(request, 404, "text/plain; charset=utf-8", err->message, strlen(err->message));
    else
        http_reply_error(request, err);
}

// ---- Describing -----------------------------------------------------------------------------

static json_t *
context_model(const struct session *session, const struct kernel *kernel)
{
    return json_pack("{s:s, s:s, s:s}", "id", kernel_name(kernel), "language",
                     kernel_spec(kernel)->name, "cwd", session_kernel_cwd(session, kernel));
}

// Those that start when they are first used.
static void
add_default_ones(json_t *contexts, const struct session *session, const struct kernelspecs *specs)
{
    const char *home = session_home(session);
    for (size_t i = 0; i < kernelspecs_count(specs); i++) {
        const char *name = kernelspecs_at(specs, i)->name;
        if (!session_kernel_find(session, name, NULL))
            json_array_append_new(contexts, json_pack("{s:s, s:s, s:s}", "id", name, "language",
                                                      name, "cwd", home ? home : "/mnt/data"));
    }
}

void
handle_context_list(struct http_request *request, void *arg)
{
    struct kg_error err;
    const struct kernel *kernel;
    const struct session *session = e2b_sandbox(request, arg, &err);
    if (!session) {
        http_reply_error(request, &err);
        return;
    }
    json_t *contexts = json_array();
    for (size_t i = 0; (kernel = session_kernel_at(session, i)); i++)
        json_array_append_new(contexts, context_model(session, kernel));
    add_default_ones(contexts, session, ((const struct e2b *)arg)->settings.face->specs);
    http_reply_json(request, 200, contexts);
}

// ---- Changing -------------------------------------------------------------------------------

// A request about one context, which waits for its kernel; the request owns it.
struct context_call {
    struct http_request *request;
    const struct e2b *e2b;
    struct session_kernel_call *call;
    bool shows; // answers with the context; else with null
};

static void
context_call_free(void *arg)
{
    struct context_call *call = arg;
    session_kernel_call_cancel(call->call);
    free(call);
}

static void
on_changed(struct kernel *kernel, const struct kg_error *called_err, void *arg)
{
    struct context_call *call = arg;
    struct http_request *request = call->request;
    struct kg_error err;
    call->call = NULL;
    const struct session *session = called_err ? NULL : e2b_sandbox(request, call->e2b, &err);
    if (!session)
        context_reply_error(request, called_err ? called_err : &err);
    else if (call->shows)
        http_reply_json(request, 200, context_model(session, kernel));
    else
        http_reply(request, 200, "application/json", "null", 4);
}

static struct context_call *
context_call_new(struct http_request *request, const struct e2b *e2b)
{
    struct context_call *call = KG_NEW(struct context_call);
    call->request = request;
    call->e2b = e2b;
    http_request_own(request, call, context_call_free);
    return call;
}

void
handle_context_create(struct http_request *request, void *arg)
{
    const struct e2b *e2b = arg;
    struct kg_error err = {0};
    struct session_kernel_request wanted = {0};
    const char *language;
    struct session *session = e2b_sandbox(request, e2b, &err);
    json_auto_t *body = session ? http_request_json(request, &err) : NULL;
    if (body && !json_is_object(body))
        kg_error_set(&err, KG_INVALID, 0, "the body must be an object");
    if (!json_is_object(body) || take_string(body, "language", &language, &err) < 0 ||
        take_string(body, "cwd", &wanted.cwd, &err) < 0 ||
        !(wanted.spec = spec_of(e2b, language, &err))) {
        http_reply_error(request, &err);
        return;
    }
    struct context_call *call = context_call_new(request, e2b);
    call->shows = true;
    call->call = session_kernel_open(session, &wanted, on_changed, call, &err);
    if (!call->call)
        http_reply_error(request, &err);
}

typedef struct session_kernel_call *(*change_fn)(struct session *session, const char *name,
                                                 session_kernel_fn fn, void *arg,
                                                 struct kg_error *err);

static void
change(struct http_request *request, const struct e2b *e2b, change_fn change_kernel)
{
    struct kg_error err = {0};
    const char *id = http_request_param(request, "context");
    struct session *session = e2b_sandbox(request, e2b, &err);
    if (!session) {
        http_reply_error(request, &err);
        return;
    }
    struct context_call *call = context_call_new(request, e2b);
    call->call = change_kernel(session, id, on_changed, call, &err);
    if (call->call)
        return;
    if (err.code == KG_NOT_FOUND)
        (void)fail_not_found(id, &err);
    context_reply_error(request, &err);
}

void
handle_context_restart(struct http_request *request, void *arg)
{
    change(request, arg, session_kernel_restart);
}

void
handle_context_delete(struct http_request *request, void *arg)
{
    change(request, arg, session_kernel_remove);
}
