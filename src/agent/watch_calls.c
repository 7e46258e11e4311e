// SPDX-License-Identifier: Apache-2.0
// files.watch: a stream of what changes in a folder, as lines of JSON.
#include <string.h>

#include "agent_priv.h"
#include "folder_watch.h"

enum {
    WATCHES_MAX = 8,     // at a time: code in the sandbox needs instances of inotify, too
    PART_MAX = 64 << 10, // bytes of lines that are gathered, but for the last one
};

struct watching {
    struct agent *agent;
    struct request *request;
    struct folder_watch *watch;
    struct buf lines; // that are not sent yet
};

// The request has been ended.
static void
watching_free(struct watching *watching)
{
    watching->agent->n_watches--;
    folder_watch_free(watching->watch);
    buf_fini(&watching->lines);
    free(watching);
}

static void
watching_on_gone(void *arg)
{
    struct watching *watching = arg;

    request_reply(watching->request, json_object());
    watching_free(watching);
}

static void
watching_send(struct watching *watching)
{
    if (watching->lines.len > 0)
        request_send(watching->request, watching->lines.data, watching->lines.len);
    watching->lines.len = 0;
}

static void
watching_on_event(const json_t *event, void *arg)
{
    struct watching *watching = arg;
    KG_AUTO_FREE char *text = json_dumps(event, JSON_COMPACT);

    buf_append_str(&watching->lines, text);
    buf_append_str(&watching->lines, "\n");
    if (watching->lines.len > PART_MAX)
        watching_send(watching);
}

// A gateway that does not read holds events back, and their number is the system's.
static void
watching_on_events(void *arg)
{
    struct watching *watching = arg;

    watching_send(watching);
    if (folder_watch_is_over(watching->watch)) {
        request_reply(watching->request, json_object());
        watching_free(watching);
    } else if (request_backlog(watching->request) > WIRE_HIGH) {
        folder_watch_pause(watching->watch, true);
        request_want_room(watching->request);
    }
}

static void
watching_on_room(void *arg)
{
    struct watching *watching = arg;
    folder_watch_pause(watching->watch, false);
}

static struct folder_watch *
watching_begin(struct watching *watching, struct kg_error *err)
{
    const struct agent *agent = watching->agent;
    struct file_place place;
    json_error_t why;
    const char *path;
    int recursive;

    if (json_unpack_ex(request_params(watching->request), &why, 0, "{s:s, s:b !}", "path", &path,
                       "recursive", &recursive) != 0) {
        (void)params_failed(&why, err);
        return NULL;
    }
    if (agent->n_watches > WATCHES_MAX) {
        (void)kg_error_set(err, KG_SESSION_BUSY, 0, "%d folders are being watched", WATCHES_MAX);
        return NULL;
    }
    if (file_place_find(agent, path, &place, err) != 0)
        return NULL;
    const struct folder_watch_settings settings = {
        .loop = agent->loop,
        .root = place.root,
        .path = place.path,
        .whole = file_place_is_whole(agent, &place),
        .recursive = recursive != 0,
        .on_event = watching_on_event,
        .on_events = watching_on_events,
        .arg = watching,
    };
    return folder_watch_new(&settings, err);
}

void
files_watch_call(struct request *request, void *arg)
{
    struct watching *watching = KG_NEW(struct watching);
    struct kg_error err = {0};

    watching->agent = arg;
    watching->request = request;
    watching->agent->n_watches++;
    watching->watch = watching_begin(watching, &err);
    if (!watching->watch) {
        request_fail(request, &err);
        watching_free(watching);
        return;
    }
    request_on_gone(request, watching_on_gone, watching);
    request_on_room(request, watching_on_room, watching);
    request_begin(request, json_pack("{s:i}", "folders", folder_watch_count(watching->watch)));
}
