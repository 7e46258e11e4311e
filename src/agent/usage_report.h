// SPDX-License-Identifier: Apache-2.0
// Reports to the gateway, by events, what the sandbox uses and does, while the gateway listens and
// wants to know: memory, in steps of 1 MiB or more, of all and of each kernel, and what commands
// run. It looks every five seconds, and when a command starts or ends.
#pragma once

#include "events.h"
#include "loop.h"

struct commands;
struct kernels;

struct usage_report;
// All borrowed.
struct usage_report *usage_report_new(struct loop *loop, const char *cgroup_root,
                                      const struct commands *commands, struct kernels *kernels,
                                      struct events *events);
void usage_report_free(struct usage_report *report);
// For the listener that has just come: reports at once what it has asked for.
void usage_report_begin(struct usage_report *report, bool memory, bool commands, bool kernels);
// Commands have changed; the report comes in a later turn of the loop.
void usage_report_look(struct usage_report *report);
