// SPDX-License-Identifier: Apache-2.0
// The resource /api/v1/sessions.

#include <string.h>

#include "api_priv.h"
#include "sandbox.h"
#include "session.h"
#include "sessions.h"

static const char working_directory[] = "/mnt/data";

// ---- Create ---------------------------------------------------------------------------------

// Waits for the session, then for its files.
struct creation {
    struct http_request *request;
    json_t *root; // `body` borrows from it
    struct session_body body;
    struct session_open *open; // until the session is ready
    char session_id[SESSION_MAX_ID_LEN + 1];
    struct session_downloads *downloads;
};

static void
creation_free(void *arg)
{
    struct creation *creation = arg;
    if (creation->open)
        session_open_cancel(creation->open);
    session_downloads_cancel(creation->downloads);
    json_decref(creation->root);
    free(creation);
}

static void
on_downloaded(const json_t *files, const json_t *errors, void *arg)
{
    struct creation *creation = arg;
    creation->downloads = NULL;
    http_reply_header(creation->request, "X-Session-Id", creation->session_id);
    reply_envelope(creation->request,
                   json_pack("{s:s, s:s, s:O, s:O}", "session_id", creation->session_id,
                             "working_directory", working_directory, "downloaded_files", files,
                             "errors", errors));
}

static void
on_created(struct session *session, struct kernel *kernel, const struct kg_error *err, void *arg)
{
    (void)kernel;
    struct creation *creation = arg;
    creation->open = NULL;
    if (err) {
        http_reply_error(creation->request, err);
        return;
    }
    memcpy(creation->session_id, session_id(session), strlen(session_id(session)) + 1);
    if (creation->body.n_downloads > 0) {
        creation->downloads = session_downloads_start(
            session, creation->body.downloads, creation->body.n_downloads, on_downloaded, creation);
        return;
    }
    json_auto_t *none = json_array();
    on_downloaded(none, none, creation);
}

void
handle_session_create(struct http_request *request, void *arg)
{
    struct api_context *context = arg;
    struct kg_error err = {0};
    struct creation *creation = KG_NEW(struct creation);
    struct session_body *body = &creation->body;
    creation->request = request;
    http_request_own(request, creation, creation_free);
    creation->root =
        http_request_body_len(request) == 0 ? json_object() : http_request_json(request, &err);
    if (!creation->root || session_body_parse(context, creation->root, body, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    const struct session_request session_request = {
        .owner = http_request_owner(request),
        .session_id = body->session_id,
        .kernelspec = body->spec,
        .env = body->env,
        .idle_timeout_s = body->own.idle_timeout_s,
        .max_lifetime_s = body->own.max_lifetime_s,
        .metadata = body->own.metadata,
    };
    creation->open =
        session_open_start(context->face->sessions, &session_request, on_created, creation, &err);
    if (!creation->open)
        http_reply_error(request, &err);
}

// ---- List and show --------------------------------------------------------------------------

// What a list is limited to. `ret_metadata` and `ret_busy` are what `ret` borrows; the first one is
// to be freed.
static int
read_filter(const struct http_request *request, const struct api_context *context,
            struct sessions_filter *ret, json_t **ret_metadata, bool *ret_busy,
            struct kg_error *err)
{
    const char *metadata = http_request_query(request, "metadata");
    const char *kernel = http_request_query(request, "kernel");
    const char *busy = http_request_query(request, "busy");
    *ret = (struct sessions_filter){0};
    if (metadata) {
        ret->metadata = *ret_metadata = http_json_parse(metadata, strlen(metadata), err);
        if (!ret->metadata || session_metadata_check(ret->metadata, err) < 0)
            return -1;
    }
    if (kernel && !(ret->spec = kernelspecs_find(context->face->specs, kernel, err)))
        return -1;
    if (busy && strcmp(busy, "true") != 0 && strcmp(busy, "false") != 0)
        return kg_error_set(err, KG_INVALID, 0, "busy must be true or false");
    *ret_busy = busy && strcmp(busy, "true") == 0;
    ret->busy = busy ? ret_busy : NULL;
    return 0;
}

void
handle_session_list(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    struct kg_error err = {0};
    struct sessions_filter filter;
    json_auto_t *metadata = NULL;
    bool busy;
    if (read_filter(request, context, &filter, &metadata, &busy, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    json_t *sessions =
        sessions_describe_some(context->face->sessions, http_request_owner(request), &filter);
    const json_t *body;
    size_t i;
    json_array_foreach(http_request_elsewhere(request), i, body)
        json_object_update(sessions, json_object_get(body, "sessions"));
    json_int_t total = (json_int_t)json_object_size(sessions);
    http_reply_json(request, 200, json_pack("{s:o, s:I}", "sessions", sessions, "total", total));
}

// A description of a session that waits for the agent's answers.
struct showing {
    struct http_request *request;
    struct api_context *context;
    json_t *body;
};

enum { AGENT_TIMEOUT_MS = 5000 };

static void
showing_free(struct showing *showing)
{
    json_decref(showing->body);
    free(showing);
}

static void
show_reply(struct showing *showing)
{
    http_reply_json(showing->request, 200, KG_STEAL(showing->body));
    showing_free(showing);
}

static void
on_stats(const json_t *stats, const struct kg_error *err, void *arg)
{
    struct showing *showing = arg;
    if (stats)
        json_object_set(showing->body, "usage", (json_t *)(uintptr_t)stats);
    else
        log_warning("cannot get a sandbox's usage", LOG_ERR(err));
    show_reply(showing);
}

// The agent's listing in the shape of the API.
static json_t *
describe_files(const json_t *listing)
{
    json_t *files = json_array();
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(listing, "files"), i, entry) {
        const char *path = json_string_value(json_object_get(entry, "path"));
        const char *type = json_string_value(json_object_get(entry, "type"));
        json_t *size = json_object_get(entry, "size");
        if (path && json_is_integer(size) && type && strcmp(type, "file") == 0)
            json_array_append_new(files, json_pack("{s:s, s:s, s:O, s:s, s:b}", "path", path,
                                                   "filename", path, "size", size, "mime",
                                                   mime_of_path(path), "exists", 1));
    }
    return files;
}

static void
on_files(const json_t *listing, const struct kg_error *err, void *arg)
{
    struct showing *showing = arg;
    if (!listing)
        log_warning("cannot list a sandbox's files", LOG_ERR(err));
    json_t *files = describe_files(listing);
    json_object_set_new(showing->body, "total_files",
                        json_integer((json_int_t)json_array_size(files)));
    json_object_set_new(showing->body, "files", files);
    struct session *session = api_session(showing->request, showing->context, NULL);
    if (!session || !session_sandbox(session) ||
        !sandbox_agent_call(session_sandbox(session), "stats", NULL, AGENT_TIMEOUT_MS, on_stats,
                            showing, NULL))
        show_reply(showing);
}

void
handle_session_show(struct http_request *request, void *arg)
{
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    struct showing *showing = KG_NEW(struct showing);
    showing->request = request;
    showing->context = arg;
    showing->body = session_describe(session);
    json_object_set_new(showing->body, "working_directory", json_string(working_directory));
    struct sandbox *sandbox = session_sandbox(session);
    if (!sandbox || !sandbox_agent_call(sandbox, "files.list", NULL, AGENT_TIMEOUT_MS, on_files,
                                        showing, NULL)) {
        json_object_update_new(showing->body, json_pack("{s:[], s:i}", "files", "total_files", 0));
        show_reply(showing);
    }
}

// ---- Change ---------------------------------------------------------------------------------

static void
reply_changed(struct api_recording *self, struct session *session)
{
    http_reply_json(self->request, 200, session_describe(session));
}

void
handle_session_change(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct session_change change;
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    json_auto_t *root = http_request_json(request, &err);
    if (!root || session_patch_body_parse(arg, root, &change, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    struct api_recording *changing = api_recording_new(request, arg, reply_changed);
    changing->recording = session_change(session, &change, api_on_recorded, changing, &err);
    if (!changing->recording)
        http_reply_error(request, &err);
}

// ---- Control --------------------------------------------------------------------------------

struct deletion {
    struct http_request *request;
    char id[SESSION_MAX_ID_LEN + 1];
};

static void
on_deleted(void *arg)
{
    KG_AUTO_FREE struct deletion *deletion = arg;
    reply_message(deletion->request, NULL, "Session %s terminated", deletion->id);
}

void
handle_session_delete(struct http_request *request, void *arg)
{
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    struct deletion *deletion = KG_NEW(struct deletion);
    deletion->request = request;
    memcpy(deletion->id, session_id(session), strlen(session_id(session)));
    session_end(session, "the session was ended by its owner", on_deleted, deletion);
}

void
handle_session_interrupt(struct http_request *request, void *arg)
{
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    bool any = session_interrupt(session);
    reply_message(request, json_pack("{s:b}", "interrupted", any), "Session %s %s",
                  session_id(session), any ? "interrupted" : "was not busy");
}

static void
on_restarted(const struct kg_error *err, void *arg)
{
    struct http_request *request = arg;
    if (err)
        http_reply_error(request, err);
    else
        reply_message(request, NULL, "Session %s restarted", http_request_param(request, "id"));
}

void
handle_session_restart(struct http_request *request, void *arg)
{
    struct session *session = api_find_session(request, arg);
    struct kg_error err = {0};
    if (session && session_restart(session, on_restarted, request, &err) < 0)
        http_reply_error(request, &err);
}

void
handle_session_touch(struct http_request *request, void *arg)
{
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    session_touch(session);
    http_reply_json(request, 200, session_describe(session));
}
