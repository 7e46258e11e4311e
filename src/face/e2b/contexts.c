// SPDX-License-Identifier: Apache-2.0
// Contexts: the kernels of a sandbox.

#include <string.h>

#include "e2b_priv.h"

struct context_open {
    struct session_open *open;
    session_open_fn fn;
    void *arg;
};

// ---- Languages ------------------------------------------------------------------------------

static const struct kernelspec *
spec_of(const struct e2b *e2b, const char *language, struct kg_error *err)
{
    static const struct {
        const char *language, *name;
    } names[] = {{"js", "javascript"}, {"typescript", "javascript"}, {"ts", "javascript"}};
    const struct face_context *face = e2b->settings.face;
    if (!language)
        return face->default_spec;
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        if (strcmp(names[i].language, language) == 0)
            language = names[i].name;
    return kernelspecs_find(face->specs, language, err);
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

// ---- Opening --------------------------------------------------------------------------------

static void
on_opened(struct session *session, struct kernel *kernel, const struct kg_error *err, void *arg)
{
    KG_AUTO_FREE struct context_open *opening = arg;
    opening->fn(session, kernel, err, opening->arg);
}

struct context_open *
context_open_start(struct http_request *request, const struct e2b *e2b, const json_t *body,
                   session_open_fn fn, void *arg, struct kg_error *err)
{
    const char *context, *language;
    struct session *session = e2b_sandbox(request, e2b, err);
    if (!session || take_string(body, "context_id", &context, err) < 0 ||
        take_string(body, "language", &language, err) < 0)
        return NULL;
    if (context && language) {
        kg_error_set(err, KG_INVALID, 0, "Only one of context_id or language can be provided");
        return NULL;
    }
    const struct kernelspec *spec = spec_of(e2b, context ? context : language, err);
    if (!spec) {
        if (context)
            kg_error_set(err, KG_NOT_FOUND, 0, "Context %.64s not found", context);
        return NULL;
    }
    const struct session_request wanted = {
        .owner = session_owner(session),
        .session_id = session_id(session),
        .kernelspec = spec,
    };
    struct context_open *opening = KG_NEW(struct context_open);
    opening->fn = fn;
    opening->arg = arg;
    opening->open =
        session_open_start(e2b->settings.face->sessions, &wanted, on_opened, opening, err);
    if (opening->open)
        return opening;
    free(opening);
    return NULL;
}

void
context_open_cancel(struct context_open *opening)
{
    if (!opening)
        return;
    session_open_cancel(opening->open);
    free(opening);
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
