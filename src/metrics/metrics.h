// SPDX-License-Identifier: Apache-2.0
// What an operator can see of a process: counters, gauges and histograms in Prometheus's text
// format. A new metric is a name here, its row in metrics.c, and one line where it happens.
#pragma once

#include "base.h"

enum metric {
    METRIC_BUILD_INFO,
    METRIC_HTTP_REQUESTS,
    METRIC_HTTP_PROBLEMS,
    METRIC_SESSIONS,
    METRIC_INSTALLATION_SESSIONS,
    METRIC_MAX_SESSIONS,
    METRIC_SESSION_OPEN_SECONDS,
    METRIC_POOL_TARGET,
    METRIC_POOL_READY,
    METRIC_POOL_STARTING,
    METRIC_POOL_FAILED_STARTS,
    METRIC_SANDBOXES_LOST,
    METRIC_PROVISIONER_CALL_SECONDS,
    METRIC_PROVISIONER_ERRORS,
    METRIC_EXECUTIONS,
    METRIC_EXECUTION_FIRST_LINE_SECONDS,
    METRIC_EXECUTION_SECONDS,
    METRIC_OUTPUT_BYTES,
    METRIC_OUTPUT_DROPPED_LINES,
    METRIC_OUTPUT_DROPPED_BYTES,
    METRIC_COMMANDS,
    METRIC_COMMAND_SECONDS,
    METRIC_COMMANDS_RUNNING,
    METRIC_TERMINALS,
    METRIC_SAVEPOINTS,
    METRIC_SAVEPOINTS_MEMORY_BYTES,
    METRIC_BRANCHES,
    METRIC_BRANCHES_MEMORY_BYTES,
    METRIC_KERNEL_START_SECONDS,
    METRIC_KERNEL_FORKS_FAILED,
    METRIC_KERNEL_DEATHS,
    METRIC_KERNEL_BAD_MESSAGES,
    METRIC_KERNEL_LATE_MESSAGES,
    METRIC_TOOL_CALLS,
    METRIC_UPSTREAM_CALLS,
    METRIC_UPSTREAM_CALL_SECONDS,
    METRIC_UPSTREAM_UP,
    METRIC_UPSTREAM_TOOLS,
    METRIC_EGRESS_CONNECTIONS,
    METRIC_MCP_SESSIONS,
    METRIC_MCP_CALLS,
    METRIC_MCP_REQUESTS,
    METRIC_FILE_BYTES,
    METRIC_ARTIFACTS,
    METRIC_DOWNLOADS,
    METRIC_PACKAGE_INSTALLS,
    METRIC_PACKAGE_INSTALL_SECONDS,
    METRIC_PACKAGE_DOWNLOADS,
    METRIC_BUDGET_HELD,
    METRIC_BUDGET_MAX,
    METRIC_LOOP_LAG_SECONDS,
    METRIC_PROCESS_CPU_SECONDS,
    METRIC_PROCESS_RESIDENT_BYTES,
    METRIC_PROCESS_OPEN_FDS,
    METRIC_PROCESS_MAX_FDS,
    METRIC_PROCESS_START_SECONDS,
    METRIC_N
};

// After the value come the label values, as many as the metric's row names labels, all strings:
// words of the program's own or the operator's, never of a tenant's. Each new combination is one
// allocation for the life of the process; whatever comes beyond 1,000 combinations of a metric
// counts as "other".

// Adds to a counter, or to a gauge (there `amount` may be negative).
#define metric_add(metric, amount, ...) metric_add_(metric, amount, METRIC_LABELS_(__VA_ARGS__))
// Sets a gauge, or a counter that something else counts.
#define metric_set(metric, value, ...) metric_set_(metric, value, METRIC_LABELS_(__VA_ARGS__))
// Counts one duration in a histogram.
#define metric_observe(metric, seconds, ...)                                                       \
    metric_observe_(metric, seconds, METRIC_LABELS_(__VA_ARGS__))
// The same for the time that has passed since `start_us` on clock_mono_us().
#define metric_observe_since(metric, start_us, ...)                                                \
    metric_observe_(metric, (double)(clock_mono_us() - (start_us)) / 1e6,                          \
                    METRIC_LABELS_(__VA_ARGS__))

// Appends all metrics in the text format 0.0.4. A metric whose label values are known beforehand
// has all its series from the start, so that the first event shows as an increase.
void metrics_write(struct buf *buf);
// Sets the METRIC_PROCESS_* from what the system says of this process.
void metrics_read_process(void);
// Sets the METRIC_BUDGET_*, of all budgets of the process. On the thread of the loop.
void metrics_read_budgets(void);

#define METRIC_LABELS_(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})
void metric_add_(enum metric metric, double amount, const char *const *labels);
void metric_set_(enum metric metric, double value, const char *const *labels);
void metric_observe_(enum metric metric, double seconds, const char *const *labels);
