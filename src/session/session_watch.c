// SPDX-License-Identifier: Apache-2.0
// Watches of folders. What the agent says is untrusted.
#include "session_watch.h"

#include <string.h>

#include "agent_reply.h"
#include "sessions_priv.h"

enum {
    HEAD_MS = 30 * 1000,
    KEEP_MS = 1000,
    WATCHES_OF_ALL = 1024, // a sandbox has 8
};

struct session_watch {
    TAILQ_ENTRY(session_watch) link;
    struct session *session;
    struct sandbox_call *call;
    char *folder; // with the / that paths in it need, if any
    struct session_watch_events events;
    void *arg;
    struct budget_hold hold;
    int64_t kept_ms;
    bool paused;
    struct buf rest; // lines that wait, since it was paused before they were reported
    struct loop_timer *step;
    bool is_reporting; // inside report_lines(), which disposes of a watch that has ended meanwhile
    bool is_over;
};

static void
watch_dispose(struct session_watch *watch)
{
    buf_fini(&watch->rest);
    free(watch->folder);
    free(watch);
}

static void
watch_free(struct session_watch *watch)
{
    TAILQ_REMOVE(&watch->session->watches, watch, link);
    sandbox_call_cancel(watch->call);
    budget_hold_end(&watch->hold);
    loop_timer_free(watch->step);
    watch->is_over = true;
    if (!watch->is_reporting)
        watch_dispose(watch);
}

void
session_watch_cancel(struct session_watch *watch)
{
    watch_free(watch);
}

static void
watch_end(struct session_watch *watch, const struct kg_error *err)
{
    const struct session_watch_events events = watch->events;
    void *arg = watch->arg;
    watch_free(watch);
    events.on_end(err, arg);
}

void
session_watches_end(struct session *session, const struct kg_error *err)
{
    for (struct session_watch *watch; (watch = TAILQ_FIRST(&session->watches));)
        watch_end(watch, err);
}

void
sessions_drain_watches(struct sessions *sessions)
{
    struct kg_error err = {0};
    struct session *session;
    (void)kg_error_set(&err, KG_DRAINING, 0, "the gateway is shutting down");
    TAILQ_FOREACH(session, &sessions->live, link)
        session_watches_end(session, &err);
}

// What waits is reported first, in a turn of its own.
void
session_watch_pause(struct session_watch *watch, bool paused)
{
    watch->paused = paused;
    if (paused || watch->rest.len == 0)
        sandbox_stream_pause(watch->call, paused);
    else
        loop_timer_start(watch->step, 0);
}

// ---- What the agent says --------------------------------------------------------------------

static void
watch_on_head(const json_t *head, void *arg)
{
    struct session_watch *watch = arg;
    struct kg_error err = {0};
    int folders = agent_watch_start_parse(head, &err);
    if (folders < 0)
        watch_end(watch, &err);
    else
        watch->events.on_started(folders, watch->arg);
}

static void
watch_report(const struct session_watch *watch, const struct agent_watch_event *event)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s%s", watch->folder, event->path ? event->path : "");
    KG_AUTO_FREE char *from = kg_asprintf("%s%s", watch->folder, event->from ? event->from : "");
    const struct session_watch_event told = {.event = event->event,
                                             .path = path,
                                             .from = event->from ? from : NULL,
                                             .is_folder = event->is_folder};
    watch->events.on_event(&told, watch->arg);
}

static void
keep_session(struct session_watch *watch)
{
    int64_t now_ms = clock_mono_ms();
    if (now_ms - watch->kept_ms < KEEP_MS || !session_is_used(watch->session))
        return;
    watch->kept_ms = now_ms;
    session_keep(watch->session);
}

// Reports lines of JSON until it is paused: the paths in them are short, and what the client gets
// begins each with the folder's, so all lines of a part can be much more than the part. False: the
// watch is gone.
static bool
report_lines(struct session_watch *watch, const char *at, size_t len, size_t *ret_taken)
{
    const char *start = at, *end = at + len;
    struct kg_error err = {0};
    watch->is_reporting = true;
    while (at < end && !watch->is_over && !watch->paused) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t line_len = (size_t)((newline ? newline : end) - at);
        struct agent_watch_event event;
        json_auto_t *line = agent_watch_event_parse(at, line_len, &event, &err);
        if (!line) {
            watch->is_reporting = false;
            watch_end(watch, &err);
            return false;
        }
        watch_report(watch, &event);
        at += line_len + (newline != NULL);
    }
    watch->is_reporting = false;
    if (watch->is_over) {
        watch_dispose(watch);
        return false;
    }
    *ret_taken = (size_t)(at - start);
    return true;
}

static void
watch_on_data(const void *data, size_t len, void *arg)
{
    struct session_watch *watch = arg;
    size_t taken;
    keep_session(watch);
    if (report_lines(watch, data, len, &taken) && taken < len)
        buf_append(&watch->rest, (const char *)data + taken, len - taken);
}

static void
watch_on_step(void *arg)
{
    struct session_watch *watch = arg;
    size_t taken;
    if (!report_lines(watch, watch->rest.data, watch->rest.len, &taken))
        return;
    buf_consume(&watch->rest, taken);
    if (watch->rest.len == 0 && !watch->paused)
        sandbox_stream_pause(watch->call, false);
}

static void
watch_on_end(const json_t *result, const struct kg_error *err, void *arg)
{
    struct session_watch *watch = arg;
    watch->call = NULL;
    watch_end(watch, result ? NULL : err);
}

// ---- Starting -------------------------------------------------------------------------------

struct session_watch *
session_watch_start(struct session *session, const char *folder, bool recursive,
                    const struct session_watch_events *events, void *arg, struct kg_error *err)
{
    static const struct sandbox_stream_events stream_events = {
        .on_head = watch_on_head, .on_data = watch_on_data, .on_end = watch_on_end};
    if (!folder)
        folder = "";
    if (*folder && file_any_path_check(folder, false, err) < 0)
        return NULL;
    if (!budget_has_room(&session->sessions->watches, session->owner, 1)) {
        (void)kg_error_set(err, KG_RATE_LIMITED, 0,
                           "too many folders are being watched already; try again later");
        return NULL;
    }
    if (session->state != SESSION_READY) {
        (void)kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
        return NULL;
    }
    json_auto_t *params = json_pack("{s:s, s:b}", "path", folder, "recursive", (int)recursive);
    if (!params) {
        (void)kg_error_set(err, KG_INVALID_PATH, 0, "the path is not UTF-8");
        return NULL;
    }
    const struct sandbox_stream_spec spec = {
        .method = "files.watch", .params = params, .head_timeout_ms = HEAD_MS};
    struct session_watch *watch = KG_NEW(struct session_watch);
    bool joins = *folder && strcmp(folder, "/") != 0;
    *watch = (struct session_watch){.session = session,
                                    .folder = kg_asprintf("%s%s", folder, joins ? "/" : ""),
                                    .events = *events,
                                    .arg = arg};
    watch->step = loop_timer_new(session->sessions->loop, watch_on_step, watch);
    TAILQ_INSERT_TAIL(&session->watches, watch, link);
    budget_hold_start(&watch->hold, &session->sessions->watches, session->owner);
    budget_hold_set(&watch->hold, 1);
    session_touch(session);
    watch->call = sandbox_agent_stream(session->sandbox, &spec, &stream_events, watch, err);
    if (watch->call)
        return watch;
    watch_free(watch);
    return NULL;
}

void
sessions_watches_init(struct sessions *sessions)
{
    budget_init(&sessions->watches, "watches", WATCHES_OF_ALL, WATCHES_OF_ALL);
    budget_set_several_owners(&sessions->watches, sessions->settings.several_owners);
}

void
sessions_watches_fini(struct sessions *sessions)
{
    budget_fini(&sessions->watches);
}
