// SPDX-License-Identifier: Apache-2.0
// Contexts of code. This file alone says what a context is here: the kernel of a language, one for
// each language of a sandbox, whose id is the kernelspec's name. So all contexts of a language
// share their variables.

#include <string.h>

#include "opensandbox_priv.h"
#include "sessions.h"

const struct kernelspec *
language_spec(const struct opensandbox *self, const char *language, struct kg_error *err)
{
    struct kg_error why = {0};
    const struct kernelspec *spec = kernelspecs_find(self->settings.face->specs, language, &why);
    if (!spec)
        kg_error_set(err, KG_INVALID, 0, "language: %s", why.message);
    return spec;
}

const struct kernelspec *
context_spec(const struct opensandbox *self, const json_t *context, struct kg_error *err)
{
    const char *id, *language;
    if (context && !json_is_null(context) && !json_is_object(context)) {
        kg_error_set(err, KG_INVALID, 0, "context must be an object");
        return NULL;
    }
    if (os_take_string(context, "id", &id, err) < 0 ||
        os_take_string(context, "language", &language, err) < 0)
        return NULL;
    if (!id || !*id)
        return language && *language ? language_spec(self, language, err)
                                     : self->settings.face->default_spec;
    const struct kernelspec *spec = kernelspecs_find(self->settings.face->specs, id, NULL);
    if (!spec || strcmp(spec->name, id) != 0) {
        kg_error_set(err, KG_NOT_FOUND, 0, "the sandbox has no context %.60s", id);
        return NULL;
    }
    if (language && *language && language_spec(self, language, err) != spec) {
        kg_error_set(err, KG_INVALID, 0, "context: language is %.40s, but %s is of another one",
                     language, spec->name);
        return NULL;
    }
    return spec;
}

static json_t *
describe(const struct kernelspec *spec)
{
    return json_pack("{s:s, s:s}", "id", spec->name, "language", spec->name);
}

// Whether the session has the kernel already.
static bool
is_there(const struct session *session, const struct kernelspec *spec)
{
    json_auto_t *described = session_describe(session);
    return json_object_get(json_object_get(described, "kernels"), spec->name);
}

// ---- Making ---------------------------------------------------------------------------------

struct opening {
    struct http_request *request;
    const struct kernelspec *spec;
    struct session_open *open;
};

static void
opening_free(void *arg)
{
    struct opening *opening = arg;
    if (opening->open)
        session_open_cancel(opening->open);
    free(opening);
}

static void
on_opened(struct session *session, struct kernel *kernel, const struct kg_error *err, void *arg)
{
    (void)session;
    (void)kernel;
    struct opening *opening = arg;
    opening->open = NULL;
    if (err)
        http_reply_error(opening->request, err);
    else
        http_reply_json(opening->request, 200, describe(opening->spec));
}

void
handle_os_context_create(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    const char *language = NULL;
    const struct session *session = find_sandbox(request, self);
    if (!session)
        return;
    json_auto_t *root = os_body_object(request, &err);
    const struct kernelspec *spec = NULL;
    if (root && os_take_string(root, "language", &language, &err) == 0)
        spec = language && *language ? language_spec(self, language, &err)
                                     : self->settings.face->default_spec;
    if (!spec) {
        http_reply_error(request, &err);
        return;
    }
    const struct session_request session_request = {.owner = http_request_owner(request),
                                                    .session_id = session_id(session),
                                                    .kernelspec = spec};
    struct opening *opening = KG_NEW(struct opening);
    *opening = (struct opening){.request = request, .spec = spec};
    http_request_own(request, opening, opening_free);
    opening->open = session_open_start(self->settings.face->sessions, &session_request, on_opened,
                                       opening, &err);
    if (!opening->open)
        http_reply_error(request, &err);
}

// ---- Looking and ending ---------------------------------------------------------------------

void
handle_os_context_list(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    const char *language = http_request_query(request, "language");
    const struct kernelspec *wanted = NULL;
    const struct session *session = find_sandbox(request, self);
    if (!session)
        return;
    if (language && *language && !(wanted = language_spec(self, language, &err))) {
        http_reply_error(request, &err);
        return;
    }
    json_t *contexts = json_array();
    for (size_t i = 0; i < kernelspecs_count(self->settings.face->specs); i++) {
        const struct kernelspec *spec = kernelspecs_at(self->settings.face->specs, i);
        if ((!wanted || spec == wanted) && is_there(session, spec))
            json_array_append_new(contexts, describe(spec));
    }
    http_reply_json(request, 200, contexts);
}

void
handle_os_context_show(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    const char *id = http_request_param(request, "context");
    const struct session *session = find_sandbox(request, self);
    if (!session)
        return;
    const struct kernelspec *spec = kernelspecs_find(self->settings.face->specs, id, NULL);
    if (spec && strcmp(spec->name, id) == 0 && is_there(session, spec)) {
        http_reply_json(request, 200, describe(spec));
        return;
    }
    kg_error_set(&err, KG_NOT_FOUND, 0, "the sandbox has no context %.60s", id);
    http_reply_error(request, &err);
}

void
handle_os_context_delete(struct http_request *request, void *arg)
{
    if (find_sandbox(request, arg))
        reply_not_served(request, 400,
                         "the context of a language ends with its sandbox: delete the sandbox");
}
