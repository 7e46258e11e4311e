// SPDX-License-Identifier: Apache-2.0
// GET /metrics: counters, and gauges that are read at the time of the request.

#include "metrics.h"

#include "api_priv.h"
#include "sessions.h"

void
handle_metrics(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    int64_t commands, terminals;
    metric_set(METRIC_SESSIONS, (double)sessions_count(context->face->sessions));
    metric_set(METRIC_INSTALLATION_SESSIONS,
               (double)sessions_count_everywhere(context->face->sessions));
    metric_set(METRIC_POOL_TARGET, (double)sessions_pool_target(context->face->sessions));
    metric_set(METRIC_POOL_READY, (double)sessions_n_pooled(context->face->sessions));
    metric_set(METRIC_POOL_STARTING, (double)sessions_n_starting(context->face->sessions));
    sessions_count_commands(context->face->sessions, &commands, &terminals);
    metric_set(METRIC_COMMANDS_RUNNING, (double)commands);
    metric_set(METRIC_TERMINALS, (double)terminals);
    const struct sessions_forks forks = sessions_count_forks(context->face->sessions);
    metric_set(METRIC_SAVEPOINTS, (double)forks.savepoints);
    metric_set(METRIC_SAVEPOINTS_MEMORY_BYTES, (double)forks.savepoint_bytes);
    metric_set(METRIC_BRANCHES, (double)forks.branches);
    metric_set(METRIC_BRANCHES_MEMORY_BYTES, (double)forks.branch_bytes);
    metrics_read_budgets();
    metrics_read_process();
    KG_AUTO_BUF text = {0};
    metrics_write(&text);
    http_reply(request, 200, "text/plain; version=0.0.4; charset=utf-8", text.data, text.len);
}
