// SPDX-License-Identifier: Apache-2.0
// The event stream: one listener, a short queue.
#include "events.h"

#include <string.h>

enum { QUEUE_MAX = 64, BACKLOG_MAX = 128 * 1024 };

struct events {
    struct request *listener; // or NULL
    json_t *queue;            // an array of events that were not sent
    loop_fn on_lost;
    void *on_lost_arg;
};

struct events *
events_new(void)
{
    struct events *events = KG_NEW(struct events);
    events->queue = json_array();
    return events;
}

static void
end_listener(void *arg)
{
    struct events *events = arg;

    if (!events->listener)
        return;
    request_reply(KG_STEAL(events->listener), json_object());
    if (events->on_lost)
        events->on_lost(events->on_lost_arg);
}

void
events_free(struct events *events)
{
    if (!events)
        return;
    end_listener(events);
    json_decref(events->queue);
    free(events);
}

static void
flush(struct events *events)
{
    while (events->listener && json_array_size(events->queue) > 0) {
        if (request_backlog(events->listener) > BACKLOG_MAX) {
            end_listener(events);
            return;
        }
        KG_AUTO_FREE char *text = json_dumps(json_array_get(events->queue, 0), JSON_COMPACT);
        request_send(events->listener, text, strlen(text));
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

void
events_on_lost(struct events *events, loop_fn fn, void *arg)
{
    events->on_lost = fn;
    events->on_lost_arg = arg;
}

bool
events_has_listener(const struct events *events)
{
    return events->listener != NULL;
}

bool
events_send(struct events *events, json_t *event)
{
    if (!events->listener || request_backlog(events->listener) > 0 ||
        json_array_size(events->queue) > 0) {
        json_decref(event);
        return false;
    }
    events_add(events, event);
    return true;
}

void
events_listen(struct events *events, struct request *request)
{
    end_listener(events);
    events->listener = request;
    request_on_gone(request, end_listener, events);
    request_begin(request, json_object());
    flush(events);
}
