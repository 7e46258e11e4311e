// SPDX-License-Identifier: Apache-2.0
// The resource /api/v1/sessions/{id}/packages.

#include <string.h>

#include "api_priv.h"
#include "session.h"
#include "session_packages.h"

// The answer to an installation: a stream of lines, 202 at once, or the result at the end.
enum answer { ANSWER_STREAM, ANSWER_ACCEPTED, ANSWER_RESULT };

struct install_call {
    struct http_request *request;
    struct session_install *install;
    bool streams;
    struct stream_watch *watch;
    int64_t started_us;
    char session_id[SESSION_MAX_ID_LEN + 1];
};

static void
call_free(void *arg)
{
    struct install_call *call = arg;
    session_install_leave(call->install);
    stream_watch_free(call->watch);
    free(call);
}

// ---- Lines ----------------------------------------------------------------------------------

static void
install_on_line(const json_t *line, void *arg)
{
    struct install_call *call = arg;
    if (call->streams)
        stream_watch_line(call->watch, line);
}

static json_t *
describe_end(const struct install_call *call, const json_t *result, const struct kg_error *err)
{
    double ms = (double)(clock_mono_us() - call->started_us) / 1000;
    json_t *end = json_pack("{s:f, s:s}", "duration_ms", ms, "session_id", call->session_id);
    if (result)
        json_object_update(end, (json_t *)(uintptr_t)result);
    else
        json_object_update_new(end,
                               json_pack("{s:s, s:s}", "status", "died", "error", err->message));
    return end;
}

static void
install_on_end(const json_t *result, const struct kg_error *err, void *arg)
{
    struct install_call *call = arg;
    call->install = NULL;
    if (call->streams) {
        json_auto_t *done = json_pack("{s:s}", "type", "done");
        json_object_update_new(done, describe_end(call, result, err));
        stream_watch_line(call->watch, done);
        http_stream_end(call->request);
    } else if (result) {
        http_reply_json(call->request, 200, describe_end(call, result, err));
    } else {
        http_reply_error(call->request, err);
    }
}

// ---- POST -----------------------------------------------------------------------------------

static int
take_answer(struct http_request *request, enum answer *ret, struct kg_error *err)
{
    const char *wait = http_request_query(request, "wait");
    *ret = ANSWER_STREAM;
    if (wait && strcmp(wait, "0") == 0)
        *ret = ANSWER_ACCEPTED;
    else if (wait && strcmp(wait, "1") == 0)
        *ret = ANSWER_RESULT;
    else if (wait)
        return kg_error_set(err, KG_INVALID, 0, "wait must be 0 or 1");
    return 0;
}

static void
reply_accepted(struct http_request *request, const struct session *session)
{
    http_reply_header(request, "X-Session-Id", session_id(session));
    http_reply_json(
        request, 202,
        json_pack("{s:s, s:s}", "status", "installing", "session_id", session_id(session)));
}

static int
packages_start(struct http_request *request, struct api_context *context, const json_t *root,
               struct kg_error *err)
{
    static const struct session_install_events events = {install_on_line, install_on_end};
    static const struct session_install_events nobody = {0};
    const json_t *requirements;
    enum answer answer;
    struct session *session = api_session(request, context, err);
    if (!session || take_answer(request, &answer, err) < 0 ||
        packages_body_parse(root, &requirements, err) < 0)
        return -1;
    if (answer == ANSWER_ACCEPTED) {
        if (!session_install_start(session, requirements, &nobody, NULL, err))
            return -1;
        reply_accepted(request, session);
        return 0;
    }
    struct install_call *call = KG_NEW(struct install_call);
    call->request = request;
    call->streams = answer == ANSWER_STREAM;
    call->started_us = clock_mono_us();
    call->watch = stream_watch_new(&(const struct stream_watch_settings){
        .loop = context->loop, .request = request, .tick_ms = STREAM_TICK_MS, .of_lines = true});
    memcpy(call->session_id, session_id(session), strlen(session_id(session)));
    http_request_own(request, call, call_free);
    call->install = session_install_start(session, requirements, &events, call, err);
    if (!call->install)
        return -1;
    http_reply_header(request, "X-Session-Id", call->session_id);
    if (!call->streams)
        return 0;
    http_stream_start(request, 200, "application/x-ndjson; charset=utf-8");
    stream_watch_start(call->watch);
    return 0;
}

void
handle_packages_install(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    json_auto_t *root = http_request_json(request, &err);
    if (!root || packages_start(request, arg, root, &err) < 0)
        http_reply_error(request, &err);
}

// ---- GET ------------------------------------------------------------------------------------

struct listing {
    struct http_request *request;
    struct session_packages *query;
};

static void
listing_free(void *arg)
{
    struct listing *listing = arg;
    session_packages_cancel(listing->query);
    free(listing);
}

static void
on_listed(const json_t *body, const struct kg_error *err, void *arg)
{
    struct listing *listing = arg;
    listing->query = NULL;
    if (body)
        http_reply_json(listing->request, 200, json_incref((json_t *)(uintptr_t)body));
    else
        http_reply_error(listing->request, err);
}

static void
list(struct http_request *request, struct api_context *context, const char *name)
{
    struct kg_error err = {0};
    struct session *session = api_session(request, context, &err);
    struct listing *listing = KG_NEW(struct listing);
    listing->request = request;
    http_request_own(request, listing, listing_free);
    if (session)
        listing->query = session_packages_list(session, name, on_listed, listing, &err);
    if (!listing->query)
        http_reply_error(request, &err);
}

void
handle_packages_list(struct http_request *request, void *arg)
{
    list(request, arg, NULL);
}

void
handle_package_show(struct http_request *request, void *arg)
{
    list(request, arg, http_request_param(request, "name"));
}
