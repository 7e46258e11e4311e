// SPDX-License-Identifier: Apache-2.0
// Watches a streamed answer: sends keepalives, and notices a client that has stopped reading.

#include "api_priv.h"

enum { MAX_STALLED = 4 }; // ticks in a row without a byte read

struct stream_watch {
    struct stream_watch_settings settings;
    struct loop_timer *timer;
    size_t last_backlog;
    int n_stalled;
};

static bool
has_stalled(struct stream_watch *watch, size_t backlog)
{
    const struct stream_watch_settings *settings = &watch->settings;
    bool stalled = settings->on_stalled && backlog > 0 && backlog == watch->last_backlog &&
                   settings->waits_for_client(settings->arg);
    watch->last_backlog = backlog;
    watch->n_stalled = stalled ? watch->n_stalled + 1 : 0;
    return watch->n_stalled == MAX_STALLED;
}

static void
watch_on_tick(void *arg)
{
    struct stream_watch *watch = arg;
    static const char line[] = "{\"type\":\"keepalive\"}\n";
    size_t backlog = http_stream_backlog(watch->settings.request);
    if (has_stalled(watch, backlog)) {
        watch->settings.on_stalled(watch->settings.arg);
        return;
    }
    if (watch->settings.of_lines && backlog == 0)
        http_stream_write(watch->settings.request, line, sizeof line - 1);
    stream_watch_start(watch);
}

struct stream_watch *
stream_watch_new(const struct stream_watch_settings *settings)
{
    struct stream_watch *watch = KG_NEW(struct stream_watch);
    watch->settings = *settings;
    watch->timer = loop_timer_new(settings->loop, watch_on_tick, watch);
    return watch;
}

void
stream_watch_line(struct stream_watch *watch, const json_t *line)
{
    KG_AUTO_BUF text = {0};
    KG_AUTO_FREE char *json = json_line(line, JSON_REAL_PRECISION(15));
    buf_append_str(&text, json);
    buf_append(&text, "\n", 1);
    http_stream_write(watch->settings.request, text.data, text.len);
    stream_watch_start(watch);
}

void
stream_watch_free(struct stream_watch *watch)
{
    if (!watch)
        return;
    loop_timer_free(watch->timer);
    free(watch);
}

void
stream_watch_start(struct stream_watch *watch)
{
    loop_timer_start(watch->timer, watch->settings.tick_ms);
}
