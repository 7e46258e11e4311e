// SPDX-License-Identifier: Apache-2.0
// GET …/metrics: the processor and memory of a sandbox at the moment.

#include <unistd.h>

#include "opensandbox_priv.h"
#include "sandbox.h"

enum { AGENT_TIMEOUT_MS = 5000, SAMPLE_MS = 200 };

// The processor is looked at twice.
struct measuring {
    struct http_request *request;
    const struct opensandbox *self;
    struct sandbox_call *call;
    struct loop_timer *timer;
    bool has_first;
    double first_s;   // of the processor
    int64_t first_us; // when it was asked
};

static void
measuring_free(void *arg)
{
    struct measuring *measuring = arg;
    sandbox_call_cancel(measuring->call);
    loop_timer_free(measuring->timer);
    free(measuring);
}

static double
cpu_count(const struct opensandbox *self)
{
    return self->settings.cpus > 0 ? self->settings.cpus : (double)sysconf(_SC_NPROCESSORS_ONLN);
}

static void
reply(const struct measuring *measuring, double cpu_s, double memory_bytes)
{
    double elapsed_s = (double)(clock_mono_us() - measuring->first_us) / 1e6;
    double used = elapsed_s > 0 ? (cpu_s - measuring->first_s) / elapsed_s : 0;
    double count = cpu_count(measuring->self);
    double percent = used > 0 ? used / count * 100 : 0;
    http_reply_json(measuring->request, 200,
                    json_pack("{s:f, s:f, s:f, s:f, s:I}", "cpu_count", count, "cpu_used_pct",
                              percent < 100 ? percent : 100.0, "mem_total_mib",
                              (double)measuring->self->settings.memory_mb, "mem_used_mib",
                              memory_bytes / (1 << 20), "timestamp", (json_int_t)clock_wall_ms()));
}

static void
on_stats(const json_t *stats, const struct kg_error *err, void *arg)
{
    struct measuring *measuring = arg;
    measuring->call = NULL;
    if (!stats) {
        http_reply_error(measuring->request, err);
        return;
    }
    double cpu_s = json_number_value(json_object_get(stats, "cpu_seconds"));
    if (measuring->has_first) {
        reply(measuring, cpu_s, json_number_value(json_object_get(stats, "memory_bytes")));
        return;
    }
    measuring->has_first = true;
    measuring->first_s = cpu_s;
    measuring->first_us = clock_mono_us();
    loop_timer_start(measuring->timer, SAMPLE_MS);
}

static void
ask(void *arg)
{
    struct measuring *measuring = arg;
    struct kg_error err = {0};
    const struct session *session = find_sandbox(measuring->request, measuring->self);
    if (!session)
        return;
    struct sandbox *sandbox = session_sandbox(session);
    if (!sandbox)
        kg_error_set(&err, KG_SESSION_BUSY, 0, "the sandbox is still being created");
    else
        measuring->call =
            sandbox_agent_call(sandbox, "stats", NULL, AGENT_TIMEOUT_MS, on_stats, measuring, &err);
    if (!measuring->call)
        http_reply_error(measuring->request, &err);
}

void
handle_os_metrics(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct measuring *measuring = KG_NEW(struct measuring);
    *measuring = (struct measuring){.request = request, .self = self};
    measuring->timer = loop_timer_new(self->settings.loop, ask, measuring);
    http_request_own(request, measuring, measuring_free);
    ask(measuring);
}
