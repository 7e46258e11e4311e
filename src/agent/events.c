// SPDX-License-Identifier: Apache-2.0
// The event stream: one listener, a short queue.
#include "events.h"

#include <string.h>

enum { QUEUE_MAX = 64, BACKLOG_MAX = 64 * 1024 };

struct events {
    struct http_request *listener; // or NULL
    json_t *queue;                 // an array of events that nobody has heard
};

struct events *
events_new(void)
{
    struct events *events = KG_NEW(struct events);
    events->queue = json_array();
    return events;
}

void
events_free(struct events *events)
{
    if (!events)
        return;
    if (events->listener)
        http_stream_end(events->listener);
    json_decref(events->queue);
    free(events);
}

static void
flush(struct events *events)
{
    while (events->listener && json_array_size(events->queue) > 0) {
        if (http_stream_backlog(events->listener) > BACKLOG_MAX) {
            http_stream_abort(KG_STEAL(events->listener));
            return;
        }
        KG_AUTO_FREE char *text = json_dumps(json_array_get(events->queue, 0), JSON_COMPACT);
        KG_AUTO_FREE char *line = kg_asprintf("%s\n", text);
        http_stream_write(events->listener, line, strlen(line));
        json_array_remove(events->queue, 0);
    }
}

void
events_add(struct events *events, json_t *event)
{
    if (json_array_size(events->queue) == QUEUE_MAX)
        json_array_remove(events->queue, 0);
    json_array_append_new(events->queue, event);
    flush(events);
}

static void
on_gone(void *arg)
{
    struct events *events = arg;
    http_stream_end(KG_STEAL(events->listener));
}

void
events_listen(struct events *events, struct http_request *request)
{
    if (events->listener)
        http_stream_end(KG_STEAL(events->listener));
    events->listener = request;
    http_request_on_gone(request, on_gone, events);
    http_stream_start(request, 200, "application/x-ndjson");
    flush(events);
}
