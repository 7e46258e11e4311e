// SPDX-License-Identifier: Apache-2.0
// Clients that read too slowly.

#include "pace.h"

#include "http.h"

struct http_pace {
    const struct http_request *request;
    struct http_pace_rule rule;
    void *arg;
    struct loop_timer *timer;
    size_t last_backlog;
    int n_slow;
    bool is_behind;
};

static bool
pace_is_slow(const struct http_pace *pace, size_t backlog)
{
    const struct http_pace_rule *rule = &pace->rule;
    bool has_grown = backlog > pace->last_backlog;
    if (!has_grown && pace->last_backlog - backlog >= rule->min_bytes)
        return false;
    if (!rule->owes_answer && (backlog == 0 || has_grown))
        return false;
    return !rule->counts || rule->counts(pace->arg);
}

// The callbacks come last: they may free the pace.
static void
pace_on_tick(void *arg)
{
    struct http_pace *pace = arg;
    const struct http_pace_rule *rule = &pace->rule;
    size_t backlog = http_stream_backlog(pace->request);
    bool is_slow = pace_is_slow(pace, backlog);
    pace->last_backlog = backlog;
    pace->n_slow = is_slow ? pace->n_slow + 1 : 0;
    if (pace->is_behind || (is_slow && pace->n_slow == rule->max_ticks)) {
        rule->on_slow(pace->arg);
        return;
    }
    if (backlog > 0 || !rule->rests)
        http_pace_put_off(pace);
    if (rule->on_tick)
        rule->on_tick(backlog, pace->arg);
}

struct http_pace *
http_pace_new(struct loop *loop, const struct http_request *request,
              const struct http_pace_rule *rule, void *arg)
{
    struct http_pace *pace = KG_NEW(struct http_pace);
    pace->request = request;
    pace->rule = *rule;
    pace->arg = arg;
    pace->timer = loop_timer_new(loop, pace_on_tick, pace);
    return pace;
}

void
http_pace_free(struct http_pace *pace)
{
    if (!pace)
        return;
    loop_timer_free(pace->timer);
    free(pace);
}

void
http_pace_start(struct http_pace *pace)
{
    if (loop_timer_active(pace->timer))
        return;
    pace->last_backlog = 0;
    pace->n_slow = 0;
    http_pace_put_off(pace);
}

void
http_pace_put_off(struct http_pace *pace)
{
    loop_timer_start(pace->timer, pace->rule.tick_ms);
}

void
http_pace_limit(struct http_pace *pace, size_t max_backlog)
{
    if (pace->is_behind || http_stream_backlog(pace->request) <= max_backlog)
        return;
    pace->is_behind = true;
    http_pace_start(pace);
}

bool
http_pace_is_behind(const struct http_pace *pace)
{
    return pace->is_behind;
}
