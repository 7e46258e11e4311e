// SPDX-License-Identifier: Apache-2.0
// Helpers that endpoints share: the session that a path names, and the shapes of answers.

#include <stdio.h>
#include <string.h>

#include "api_priv.h"
#include "sessions.h"

struct session *
api_session(struct http_request *request, const struct api_context *context, struct kg_error *err)
{
    return sessions_find(context->face->sessions, http_request_owner(request),
                         http_request_param(request, "id"), err);
}

struct session *
api_find_session(struct http_request *request, const struct api_context *context)
{
    struct kg_error err = {0};
    struct session *session = api_session(request, context, &err);
    if (!session)
        http_reply_error(request, &err);
    return session;
}

void
reply_envelope(struct http_request *request, json_t *data)
{
    http_reply_json(
        request, 200,
        json_pack("{s:i, s:s, s:o}", "resultCode", 0, "resultMsg", "success", "data", data));
}

void
reply_message(struct http_request *request, json_t *more, const char *fmt, ...)
{
    char message[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    json_t *body = json_pack("{s:s}", "message", message);
    if (more)
        json_object_update(body, more);
    json_decref(more);
    http_reply_json(request, 200, body);
}

json_t *
api_signal_name(int signum)
{
    const char *name = sigabbrev_np(signum);
    KG_AUTO_FREE char *text = name ? kg_asprintf("SIG%s", name) : NULL;
    return text ? json_string(text) : json_integer(signum);
}
