// SPDX-License-Identifier: Apache-2.0
// Watches a streamed answer: sends keepalives, pauses the source of its lines while the client
// reads slowly, and notices a client that has stopped reading.

#include "api_priv.h"
#include "pace.h"

enum { MAX_STALLED = 4 }; // ticks in a row without a byte read

struct stream_watch {
    struct stream_watch_settings settings;
    struct http_pace *pace;
    bool paused;
};

static bool
watch_waits_for_client(const void *arg)
{
    const struct stream_watch *watch = arg;
    const struct stream_watch_settings *settings = &watch->settings;
    if (!settings->on_stalled && !settings->on_pause)
        return false;
    return settings->waits_for_client ? settings->waits_for_client(settings->arg) : watch->paused;
}

static void
watch_on_slow(void *arg)
{
    const struct stream_watch *watch = arg;
    if (watch->settings.on_stalled)
        watch->settings.on_stalled(watch->settings.arg);
    else
        http_stream_abort(watch->settings.request);
}

static void
watch_on_tick(size_t backlog, void *arg)
{
    const struct stream_watch *watch = arg;
    static const char line[] = "{\"type\":\"keepalive\"}\n";
    if (watch->settings.of_lines && backlog == 0)
        http_stream_write(watch->settings.request, line, sizeof line - 1);
}

struct stream_watch *
stream_watch_new(const struct stream_watch_settings *settings)
{
    struct stream_watch *watch = KG_NEW(struct stream_watch);
    watch->settings = *settings;
    watch->pace = http_pace_new(settings->loop, settings->request,
                                &(const struct http_pace_rule){
                                    .tick_ms = settings->tick_ms,
                                    .max_ticks = MAX_STALLED,
                                    .min_bytes = 1,
                                    .counts = watch_waits_for_client,
                                    .on_tick = watch_on_tick,
                                    .on_slow = watch_on_slow,
                                },
                                watch);
    return watch;
}

static void
watch_pause(struct stream_watch *watch, bool paused)
{
    watch->paused = paused;
    watch->settings.on_pause(paused, watch->settings.arg);
}

static void
watch_on_drain(void *arg)
{
    watch_pause(arg, false);
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
    if (!watch->settings.on_pause || watch->paused ||
        http_stream_backlog(watch->settings.request) <= STREAM_HIGH_WATERMARK)
        return;
    http_stream_on_drain(watch->settings.request, STREAM_LOW_WATERMARK, watch_on_drain, watch);
    watch_pause(watch, true);
}

void
stream_watch_free(struct stream_watch *watch)
{
    if (!watch)
        return;
    http_pace_free(watch->pace);
    free(watch);
}

void
stream_watch_start(struct stream_watch *watch)
{
    http_pace_put_off(watch->pace);
}
