// SPDX-License-Identifier: Apache-2.0
// A timer that looks at the control group and the commands.
#include "usage_report.h"

#include <stdlib.h>

#include "cgroup.h"
#include "commands.h"
#include "kernels.h"

enum { INTERVAL_MS = 5000, SOON_MS = 200, CHANGE_MIN = 1 << 20 };

struct usage_report {
    const char *cgroup_root;
    const struct commands *commands;
    struct kernels *kernels;
    struct events *events;
    struct loop_timer *timer;
    bool wants_memory, wants_commands, wants_kernels, is_new;
    int64_t memory; // bytes, as reported; -1: none yet
    bool has_activity;
    struct commands_activity activity; // as reported
};

static void
report_memory(struct usage_report *report)
{
    int64_t now = cgroup_memory(report->cgroup_root);

    if (now < 0 || (report->memory >= 0 && llabs(now - report->memory) < CHANGE_MIN))
        return;
    if (events_send(report->events,
                    json_pack("{s:s, s:I}", "type", "memory", "bytes", (json_int_t)now)))
        report->memory = now;
}

static void
report_commands(struct usage_report *report)
{
    const struct commands_activity now = commands_activity(report->commands);
    const struct commands_activity *told = &report->activity;

    if (report->has_activity && now.n_running == told->n_running &&
        now.n_terminals == told->n_terminals && now.working == told->working)
        return;
    if (!events_send(report->events,
                     json_pack("{s:s, s:i, s:i, s:b}", "type", "commands", "running", now.n_running,
                               "terminals", now.n_terminals, "working", (int)now.working)))
        return;
    report->has_activity = true;
    report->activity = now;
}

static void
look(void *arg)
{
    struct usage_report *report = arg;

    if (!events_has_listener(report->events))
        return; // until the next one comes
    if (report->wants_commands)
        report_commands(report);
    if (report->wants_memory)
        report_memory(report);
    bool more = report->wants_kernels && kernels_report_memory(report->kernels, report->is_new);
    report->is_new = false;
    loop_timer_start(report->timer, more ? SOON_MS : INTERVAL_MS);
}

struct usage_report *
usage_report_new(struct loop *loop, const char *cgroup_root, const struct commands *commands,
                 struct kernels *kernels, struct events *events)
{
    struct usage_report *report = KG_NEW(struct usage_report);

    report->cgroup_root = cgroup_root;
    report->commands = commands;
    report->kernels = kernels;
    report->events = events;
    report->timer = loop_timer_new(loop, look, report);
    return report;
}

void
usage_report_free(struct usage_report *report)
{
    if (!report)
        return;
    loop_timer_free(report->timer);
    free(report);
}

void
usage_report_begin(struct usage_report *report, bool memory, bool commands, bool kernels)
{
    report->memory = -1;
    report->has_activity = false;
    report->wants_memory = memory;
    report->wants_commands = commands;
    report->wants_kernels = kernels;
    report->is_new = true;
    if (memory || commands || kernels)
        loop_timer_start(report->timer, 0);
    else
        loop_timer_stop(report->timer);
}

void
usage_report_look(struct usage_report *report)
{
    if (report->wants_commands)
        loop_timer_start(report->timer, 0);
}
