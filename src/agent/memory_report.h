// SPDX-License-Identifier: Apache-2.0
// Reports to the gateway, by events, how much memory the sandbox uses, while the gateway listens
// and wants to know: at most every five seconds, and only changes of 1 MiB or more.
#pragma once

#include "events.h"
#include "loop.h"

struct memory_report;
// `cgroup_root` and `events` are borrowed.
struct memory_report *memory_report_new(struct loop *loop, const char *cgroup_root,
                                        struct events *events);
void memory_report_free(struct memory_report *report);
// For the listener that has just come: reports at once, or not at all if it has not asked for it.
void memory_report_begin(struct memory_report *report, bool wanted);
