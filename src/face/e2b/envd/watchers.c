// SPDX-License-Identifier: Apache-2.0
// Filesystem.CreateWatcher, GetWatcherEvents and RemoveWatcher: watches whose events wait until
// they are asked for. A watcher ends with its sandbox, when nobody has asked for long, and with
// this gateway.
#include "envd_priv.h"

#include <string.h>

#include "message.h"
#include "session_watch.h"

enum {
    WATCHER_ID_LEN = 20,
    WATCHERS_OF_SESSION = 32,      // also those whose folder is gone
    WATCHER_TEXT_MAX = 64 << 10,   // bytes of events that wait; then the watch pauses
    WATCHER_IDLE_MS = 3600 * 1000, // without a question
    WATCHER_SWEEP_MS = 60 * 1000,
};

struct watcher {
    LIST_ENTRY(watcher) link;
    struct envd *envd;
    char id[WATCHER_ID_LEN + 1];
    char *owner;
    char session_id[SESSION_MAX_ID_LEN + 1];
    struct envd_path folder;
    struct session_watch *watch;  // NULL: its folder is gone
    struct http_request *request; // of its creation, as long as it waits
    struct buf events;            // their text, with a comma after each
    bool paused;
    int64_t used_ms;
};

static void
watcher_free(struct watcher *watcher)
{
    LIST_REMOVE(watcher, link);
    if (watcher->watch)
        session_watch_cancel(watcher->watch);
    envd_path_fini(&watcher->folder);
    buf_fini(&watcher->events);
    free(watcher->owner);
    free(watcher);
}

void
watchers_end(struct envd *envd)
{
    while (!LIST_EMPTY(&envd->watchers))
        watcher_free(LIST_FIRST(&envd->watchers));
}

void
watchers_on_sweep(void *arg)
{
    struct envd *envd = arg;
    struct watcher *next;
    int64_t oldest_ms = clock_mono_ms() - WATCHER_IDLE_MS;
    for (struct watcher *watcher = LIST_FIRST(&envd->watchers); watcher; watcher = next) {
        next = LIST_NEXT(watcher, link);
        if (watcher->used_ms < oldest_ms && !watcher->request)
            watcher_free(watcher);
    }
    if (!LIST_EMPTY(&envd->watchers))
        loop_timer_start(envd->sweep, WATCHER_SWEEP_MS);
}

// ---- What happens ---------------------------------------------------------------------------

// The client has left before its watcher was there.
static void
watcher_on_gone(void *arg)
{
    watcher_free(arg);
}

static void
watcher_on_started(int folders, void *arg)
{
    (void)folders;
    struct watcher *watcher = arg;
    struct http_request *request = KG_STEAL(watcher->request);
    http_request_disown(request);
    connect_reply(request, json_pack("{s:s}", "watcherId", watcher->id));
}

static void
watcher_on_event(const struct session_watch_event *event, void *arg)
{
    struct watcher *watcher = arg;
    json_t *messages[WATCH_MESSAGES_MAX];
    int n = watch_describe(event, &watcher->folder, messages);
    for (int i = 0; i < n; i++) {
        KG_AUTO_FREE char *text = json_dumps(messages[i], JSON_COMPACT);
        json_decref(messages[i]);
        buf_append_str(&watcher->events, text);
        buf_append(&watcher->events, ",", 1);
    }
    if (watcher->events.len > WATCHER_TEXT_MAX && !watcher->paused) {
        watcher->paused = true;
        session_watch_pause(watcher->watch, true);
    }
}

static void
watcher_on_end(const struct kg_error *err, void *arg)
{
    struct watcher *watcher = arg;
    struct http_request *request = KG_STEAL(watcher->request);
    struct kg_error removed = {0};
    watcher->watch = NULL;
    if (!err && !request)
        return; // what has happened in the folder can still be asked for
    (void)kg_error_set(&removed, KG_NOT_FOUND, 0, "%.200s is gone", watcher->folder.client);
    if (request) {
        http_request_disown(request);
        http_reply_error(request, err ? err : &removed);
    }
    watcher_free(watcher);
}

// ---- Calls ----------------------------------------------------------------------------------

static int
check_count(const struct envd *envd, const char *owner, const char *session_id,
            struct kg_error *err)
{
    const struct watcher *watcher;
    int n = 0;
    LIST_FOREACH(watcher, &envd->watchers, link) {
        n += strcmp(watcher->session_id, session_id) == 0 && strcmp(watcher->owner, owner) == 0;
    }
    if (n >= WATCHERS_OF_SESSION)
        return kg_error_set(err, KG_RATE_LIMITED, 0,
                            "the sandbox has %d watchers already; remove some", n);
    return 0;
}

static int
create(struct http_request *request, struct envd *envd, const json_t *message, struct kg_error *err)
{
    static const struct session_watch_events events = {
        .on_started = watcher_on_started, .on_event = watcher_on_event, .on_end = watcher_on_end};
    bool recursive;
    struct session *session = envd_sandbox(request, envd, err);
    if (!session)
        return -1;
    const char *owner = session_owner(session), *id = session_id(session);
    ENVD_AUTO_PATH folder = {0};
    if (watch_message_parse(message, &folder, &recursive, err) < 0 ||
        check_count(envd, owner, id, err) < 0)
        return -1;
    struct watcher *watcher = KG_NEW(struct watcher);
    watcher->envd = envd;
    watcher->owner = kg_strdup(owner);
    memcpy(watcher->session_id, id, strlen(id));
    watcher->folder = folder;
    folder = (struct envd_path){0};
    watcher->used_ms = clock_mono_ms();
    id_random(watcher->id, WATCHER_ID_LEN);
    LIST_INSERT_HEAD(&envd->watchers, watcher, link);
    watcher->watch =
        session_watch_start(session, watcher->folder.session, recursive, &events, watcher, err);
    if (!watcher->watch) {
        watcher_free(watcher);
        return -1;
    }
    watcher->request = request;
    http_request_own(request, watcher, watcher_on_gone);
    if (!loop_timer_active(envd->sweep))
        loop_timer_start(envd->sweep, WATCHER_SWEEP_MS);
    return 0;
}

void
handle_create_watcher(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    json_auto_t *message = connect_unary_message(request);
    if (message && create(request, arg, message, &err) < 0)
        http_reply_error(request, &err);
}

// The watcher that a message names, of the request's sandbox. NULL: it was answered.
static struct watcher *
named_watcher(struct http_request *request, struct envd *envd)
{
    struct kg_error err = {0};
    struct watcher *watcher;
    const char *id = NULL;
    json_auto_t *message = connect_unary_message(request);
    if (!message)
        return NULL;
    struct session *session = envd_sandbox(request, envd, &err);
    if (session && message_string(message, "watcherId", &id, &err) == 0) {
        LIST_FOREACH(watcher, &envd->watchers, link) {
            if (strcmp(watcher->id, id ? id : "") == 0 && !watcher->request &&
                strcmp(watcher->owner, session_owner(session)) == 0 &&
                strcmp(watcher->session_id, session_id(session)) == 0)
                return watcher;
        }
        (void)kg_error_set(&err, KG_NOT_FOUND, 0,
                           "there is no watcher %.40s: it was removed, or was not asked for long",
                           id ? id : "");
    }
    http_reply_error(request, &err);
    return NULL;
}

void
handle_watcher_events(struct http_request *request, void *arg)
{
    struct watcher *watcher = named_watcher(request, arg);
    KG_AUTO_BUF body = {0};
    if (!watcher)
        return;
    size_t len = watcher->events.len;
    buf_append_str(&body, "{\"events\":[");
    buf_append(&body, watcher->events.data, len - (len > 0));
    buf_append_str(&body, "]}");
    buf_consume(&watcher->events, len);
    watcher->used_ms = clock_mono_ms();
    if (watcher->paused && watcher->watch)
        session_watch_pause(watcher->watch, false);
    watcher->paused = false;
    http_reply(request, 200, "application/json", body.data, body.len);
}

void
handle_remove_watcher(struct http_request *request, void *arg)
{
    struct watcher *watcher = named_watcher(request, arg);
    if (!watcher)
        return;
    watcher_free(watcher);
    connect_reply(request, json_object());
}
