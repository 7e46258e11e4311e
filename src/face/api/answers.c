// SPDX-License-Identifier: Apache-2.0
// Helpers that endpoints share: the session that a path names, changes of it that are recorded, and
// the shapes of answers.

#include <stdio.h>
#include <string.h>

#include "api_priv.h"
#include "session.h"
#include "session_kernels.h"
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

char *
api_file_path(const struct http_request *request, const char *path, enum api_path_kind kind,
              struct kg_error *err)
{
    const char *root = http_request_query(request, "root");
    bool is_whole = root && strcmp(root, "/") == 0;
    bool is_new = kind == API_PATH_NEW;
    if (root && !is_whole && strcmp(root, "/mnt/data") != 0) {
        (void)kg_error_set(err, KG_INVALID, 0, "root must be /mnt/data or /");
        return NULL;
    }
    if (kind == API_PATH_FOLDER && (!path || !*path))
        return kg_strdup(is_whole ? "/" : "");
    if (file_path_check(path, is_new, err) < 0)
        return NULL;
    KG_AUTO_FREE char *ret = kg_asprintf("%s%s", is_whole ? "/" : "", path);
    return file_any_path_check(ret, is_new, err) == 0 ? KG_STEAL(ret) : NULL;
}

const char *
api_client_path(const char *path)
{
    return path + (*path == '/');
}

int
api_query_flag(const struct http_request *request, const char *name, bool fallback, bool *ret,
               struct kg_error *err)
{
    const char *text = http_request_query(request, name);
    *ret = text ? strcmp(text, "1") == 0 : fallback;
    if (text && !*ret && strcmp(text, "0") != 0)
        return kg_error_set(err, KG_INVALID, 0, "%s must be 0 or 1", name);
    return 0;
}

void
reply_envelope(struct http_request *request, json_t *data)
{
    http_reply_json(
        request, 200,
        json_pack("{s:i, s:s, s:o}", "resultCode", 0, "resultMsg", "success", "data", data));
}

struct kernel *
api_kernel_of(const struct session *session, const struct kernelspec *spec, const char *branch,
              struct kg_error *err)
{
    if (branch || spec)
        return session_kernel_find(session, branch ? branch : spec->name, err);
    struct kernel *first = session_first_kernel(session);
    if (!first)
        kg_error_set(err, KG_NOT_FOUND, 0, "the session has no kernel");
    return first;
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

static void
recording_free(void *arg)
{
    struct api_recording *self = arg;
    session_recording_cancel(self->recording);
    json_decref(self->body);
    free(self);
}

struct api_recording *
api_recording_new(struct http_request *request, struct api_context *context,
                  void (*reply)(struct api_recording *self, struct session *session))
{
    struct api_recording *self = KG_NEW(struct api_recording);
    self->request = request;
    self->context = context;
    self->reply = reply;
    http_request_own(request, self, recording_free);
    return self;
}

void
api_on_recorded(const struct kg_error *err, void *arg)
{
    struct api_recording *self = arg;
    self->recording = NULL;
    struct session *session = err ? NULL : api_find_session(self->request, self->context);
    if (err)
        http_reply_error(self->request, err);
    else if (session)
        self->reply(self, session);
}
