// SPDX-License-Identifier: Apache-2.0
// Filesystem.WatchDir: what happens in a folder, as a stream.
#include "envd_priv.h"

#include "session_watch.h"

struct watch_dir {
    struct http_request *request;
    struct session_watch *watch; // NULL: it has ended
    struct connect_stream *stream;
    struct envd_path folder;
    bool paused;
};

static void
watch_dir_free(void *arg)
{
    struct watch_dir *self = arg;
    if (self->watch)
        session_watch_cancel(self->watch);
    connect_stream_free(self->stream);
    envd_path_fini(&self->folder);
    free(self);
}

static void
watch_dir_pause(struct watch_dir *self, bool paused)
{
    if (self->watch && self->paused != paused)
        session_watch_pause(self->watch, paused);
    self->paused = paused;
}

static void
watch_dir_on_room(void *arg)
{
    watch_dir_pause(arg, false);
}

static bool
watch_dir_waits(const void *arg)
{
    const struct watch_dir *self = arg;
    return self->paused;
}

static void
watch_dir_on_started(int folders, void *arg)
{
    (void)folders;
    struct watch_dir *self = arg;
    connect_stream_send(self->stream, json_pack("{s:{}}", "start"));
}

static void
watch_dir_on_event(const struct session_watch_event *event, void *arg)
{
    struct watch_dir *self = arg;
    json_t *messages[WATCH_MESSAGES_MAX];
    int n = watch_describe(event, &self->folder, messages);
    for (int i = 0; i < n; i++)
        connect_stream_send(self->stream, json_pack("{s:o}", "filesystem", messages[i]));
    if (connect_stream_is_full(self->stream))
        watch_dir_pause(self, true);
}

static void
watch_dir_on_end(const struct kg_error *err, void *arg)
{
    struct watch_dir *self = arg;
    self->watch = NULL;
    if (err)
        connect_stream_fail(self->stream, err);
    else
        connect_stream_end(self->stream, CONNECT_OK, NULL);
}

static int
watch_dir_start(struct watch_dir *self, struct envd *envd, const json_t *message,
                struct kg_error *err)
{
    static const struct session_watch_events events = {.on_started = watch_dir_on_started,
                                                       .on_event = watch_dir_on_event,
                                                       .on_end = watch_dir_on_end};
    bool recursive;
    int64_t timeout_ms;
    if (watch_message_parse(message, &self->folder, &recursive, err) < 0 ||
        connect_timeout_ms(self->request, &timeout_ms, err) < 0)
        return -1;
    struct session *session = envd_sandbox(self->request, envd, err);
    if (!session)
        return -1;
    self->stream = connect_stream_new(&(const struct connect_stream_settings){
        .loop = e2b_loop(envd->e2b),
        .request = self->request,
        .keepalive = "{\"keepalive\":{}}",
        .deadline_ms = timeout_ms,
        .on_room = watch_dir_on_room,
        .waits_for_client = watch_dir_waits,
        .arg = self,
    });
    self->watch = session_watch_start(session, self->folder.session, recursive, &events, self, err);
    return self->watch ? 0 : -1;
}

void
handle_watch_dir(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    json_auto_t *message = connect_stream_message(request);
    if (!message)
        return;
    struct watch_dir *self = KG_NEW(struct watch_dir);
    self->request = request;
    http_request_own(request, self, watch_dir_free);
    if (watch_dir_start(self, arg, message, &err) < 0)
        connect_refuse_stream_error(request, &err);
}
