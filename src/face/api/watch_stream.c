// SPDX-License-Identifier: Apache-2.0
// GET /api/v1/sessions/{id}/watch: what changes in a folder, as a stream of lines.

#include <string.h>

#include "api_priv.h"
#include "session.h"
#include "session_watch.h"

struct watch_stream {
    struct http_request *request;
    struct session_watch *watch; // NULL: it has ended
    struct stream_watch *pace;
    char *path; // of the folder, as the client calls it
    bool recursive;
    bool started;
    char session_id[SESSION_MAX_ID_LEN + 1];
};

static void
stream_free(void *arg)
{
    struct watch_stream *stream = arg;
    if (stream->watch)
        session_watch_cancel(stream->watch);
    stream_watch_free(stream->pace);
    free(stream->path);
    free(stream);
}

static void
stream_on_pause(bool paused, void *arg)
{
    const struct watch_stream *stream = arg;
    if (stream->watch)
        session_watch_pause(stream->watch, paused);
}

// ---- Lines ----------------------------------------------------------------------------------

// Takes the line.
static void
stream_line(struct watch_stream *stream, json_t *line)
{
    stream_watch_line(stream->pace, line);
    json_decref(line);
}

static void
stream_on_started(int folders, void *arg)
{
    struct watch_stream *stream = arg;
    stream->started = true;
    http_reply_header(stream->request, "X-Session-Id", stream->session_id);
    http_stream_start(stream->request, 200, "application/x-ndjson; charset=utf-8");
    if (http_request_method(stream->request) == HTTP_HEAD) {
        http_stream_end(stream->request);
        return;
    }
    stream_watch_start(stream->pace);
    stream_line(stream, json_pack("{s:s, s:s, s:b, s:i, s:s}", "type", "started", "path",
                                  stream->path, "recursive", (int)stream->recursive, "folders",
                                  folders, "session_id", stream->session_id));
}

static void
stream_on_event(const struct session_watch_event *event, void *arg)
{
    struct watch_stream *stream = arg;
    if (strcmp(event->event, "overflow") == 0)
        stream_line(stream, json_pack("{s:s}", "type", "overflow"));
    else
        stream_line(stream, json_pack("{s:s, s:s, s:s, s:s*, s:b}", "type", "event", "event",
                                      event->event, "path", api_client_path(event->path), "from",
                                      event->from ? api_client_path(event->from) : NULL, "folder",
                                      (int)event->is_folder));
}

static json_t *
end_line(const struct kg_error *err)
{
    if (!err)
        return json_pack("{s:s, s:s}", "type", "done", "reason", "removed");
    if (err->code == KG_DRAINING)
        return json_pack("{s:s}", "type", "draining");
    return json_pack("{s:s, s:s, s:s}", "type", "done", "reason",
                     err->code == KG_SESSION_NOT_FOUND ? "session_ended" : "error", "message",
                     err->message);
}

static void
stream_on_end(const struct kg_error *err, void *arg)
{
    struct watch_stream *stream = arg;
    struct kg_error removed = {0};
    stream->watch = NULL;
    if (stream->started) {
        stream_line(stream, end_line(err));
        http_stream_end(stream->request);
        return;
    }
    if (!err)
        (void)kg_error_set(&removed, KG_NOT_FOUND, 0, "there is no folder %.100s", stream->path);
    http_reply_error(stream->request, err ? err : &removed);
}

// ---- Its start ------------------------------------------------------------------------------

static struct watch_stream *
stream_new(struct http_request *request, const struct api_context *context,
           const struct session *session, const char *folder, bool recursive)
{
    struct watch_stream *stream = KG_NEW(struct watch_stream);
    stream->request = request;
    stream->recursive = recursive;
    stream->path = kg_strdup(api_client_path(folder));
    memcpy(stream->session_id, session_id(session), strlen(session_id(session)));
    stream->pace = stream_watch_new(&(const struct stream_watch_settings){
        .loop = context->loop,
        .request = request,
        .tick_ms = STREAM_TICK_MS,
        .of_lines = true,
        .on_pause = stream_on_pause,
        .arg = stream,
    });
    http_request_own(request, stream, stream_free);
    return stream;
}

static int
start(struct http_request *request, const struct api_context *context, struct kg_error *err)
{
    static const struct session_watch_events events = {
        .on_started = stream_on_started, .on_event = stream_on_event, .on_end = stream_on_end};
    bool recursive;
    struct session *session = api_session(request, context, err);
    if (!session || api_query_flag(request, "recursive", false, &recursive, err) < 0)
        return -1;
    KG_AUTO_FREE char *folder =
        api_file_path(request, http_request_query(request, "path"), API_PATH_FOLDER, err);
    if (!folder)
        return -1;
    struct watch_stream *stream = stream_new(request, context, session, folder, recursive);
    stream->watch = session_watch_start(session, folder, recursive, &events, stream, err);
    return stream->watch ? 0 : -1;
}

void
handle_watch(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    if (start(request, arg, &err) < 0)
        http_reply_error(request, &err);
}
