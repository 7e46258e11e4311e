// SPDX-License-Identifier: Apache-2.0
// A timer that looks at the control group.
#include "memory_report.h"

#include <stdlib.h>

#include "cgroup.h"

enum { INTERVAL_MS = 5000, CHANGE_MIN = 1 << 20 };

struct memory_report {
    const char *cgroup_root;
    struct events *events;
    struct loop_timer *timer;
    int64_t reported; // bytes; -1: none yet
};

static void
look(void *arg)
{
    struct memory_report *report = arg;
    int64_t now;

    if (!events_has_listener(report->events))
        return; // until the next one comes
    now = cgroup_memory(report->cgroup_root);
    loop_timer_start(report->timer, INTERVAL_MS);
    if (now < 0 || (report->reported >= 0 && llabs(now - report->reported) < CHANGE_MIN))
        return;
    if (events_send(report->events,
                    json_pack("{s:s, s:I}", "type", "memory", "bytes", (json_int_t)now)))
        report->reported = now;
}

struct memory_report *
memory_report_new(struct loop *loop, const char *cgroup_root, struct events *events)
{
    struct memory_report *report = KG_NEW(struct memory_report);

    report->cgroup_root = cgroup_root;
    report->events = events;
    report->timer = loop_timer_new(loop, look, report);
    return report;
}

void
memory_report_free(struct memory_report *report)
{
    if (!report)
        return;
    loop_timer_free(report->timer);
    free(report);
}

void
memory_report_begin(struct memory_report *report, bool wanted)
{
    report->reported = -1;
    if (wanted)
        loop_timer_start(report->timer, 0);
    else
        loop_timer_stop(report->timer);
}
