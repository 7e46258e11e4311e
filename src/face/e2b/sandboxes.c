// SPDX-License-Identifier: Apache-2.0
// The control plane, but for creations: sandboxes that exist.

#include <string.h>

#include "e2b_priv.h"
#include "sandbox.h"

// ---- Showing --------------------------------------------------------------------------------

void
handle_sandbox_show(struct http_request *request, void *arg)
{
    const struct session *session = e2b_path_sandbox(request, arg);
    if (session)
        http_reply_json(request, 200, sandbox_model_detail(arg, request, session));
}

// ---- Timeouts -------------------------------------------------------------------------------

// A change of the end that waits until it is recorded; the request owns it.
struct extension {
    struct http_request *request;
    const struct e2b *e2b;
    struct session_recording *recording;
    bool shows; // answers with the sandbox; else with nothing
};

static void
extension_free(void *arg)
{
    struct extension *extension = arg;
    session_recording_cancel(extension->recording);
    free(extension);
}

static void
extension_reply(const struct extension *extension, const struct session *session)
{
    struct http_request *request = extension->request;
    if (extension->shows)
        http_reply_json(request, 200,
                        sandbox_model(extension->e2b, request, session_id(session),
                                      sandbox_face_member(session, SANDBOX_TEMPLATE)));
    else
        http_reply(request, 204, NULL, NULL, 0);
}

static void
on_recorded(const struct kg_error *err, void *arg)
{
    struct extension *extension = arg;
    extension->recording = NULL;
    if (err) {
        http_reply_error(extension->request, err);
        return;
    }
    const struct session *session = e2b_path_sandbox(extension->request, extension->e2b);
    if (session)
        extension_reply(extension, session);
}

// The sandbox lives for so many seconds from now. `may_shorten`: else its end only moves away.
static void
extend(struct http_request *request, const struct e2b *e2b, struct session *session,
       int64_t seconds, bool may_shorten, bool shows)
{
    struct kg_error err;
    const struct session_change change = {.idle_timeout_s = seconds, .lifetime_s = seconds};
    struct extension *extension = KG_NEW(struct extension);
    extension->request = request;
    extension->e2b = e2b;
    extension->shows = shows;
    http_request_own(request, extension, extension_free);
    if (!may_shorten && session_left_ms(session) >= seconds * 1000) {
        session_touch(session);
        extension_reply(extension, session);
        return;
    }
    extension->recording = session_change(session, &change, on_recorded, extension, &err);
    if (!extension->recording)
        http_reply_error(request, &err);
}

static void
extend_by_body(struct http_request *request, const struct e2b *e2b, const char *member,
               bool may_shorten, bool shows)
{
    struct kg_error err = {0};
    int64_t seconds;
    struct session *session = e2b_path_sandbox(request, e2b);
    if (!session)
        return;
    json_auto_t *root = http_request_json(request, &err);
    if (!root || timeout_parse(e2b, root, member, shows ? E2B_TIMEOUT_S : E2B_OLD_TIMEOUT_S,
                               &seconds, &err) < 0)
        http_reply_error(request, &err);
    else
        extend(request, e2b, session, seconds, may_shorten, shows);
}

void
handle_sandbox_connect(struct http_request *request, void *arg)
{
    extend_by_body(request, arg, "timeout", false, true);
}

void
handle_sandbox_timeout(struct http_request *request, void *arg)
{
    extend_by_body(request, arg, "timeout", true, false);
}

void
handle_sandbox_refresh(struct http_request *request, void *arg)
{
    extend_by_body(request, arg, "duration", false, false);
}

// ---- The end --------------------------------------------------------------------------------

static void
on_deleted(void *arg)
{
    http_reply(arg, 204, NULL, NULL, 0);
}

void
handle_sandbox_delete(struct http_request *request, void *arg)
{
    struct session *session = e2b_path_sandbox(request, arg);
    if (session)
        session_end(session, "the sandbox was killed by its owner", on_deleted, request);
}

// ---- Metrics --------------------------------------------------------------------------------

enum { AGENT_TIMEOUT_MS = 5000 };

struct sample {
    struct http_request *request;
    const struct e2b *e2b;
    int64_t age_ms;
};

static int64_t
number(const json_t *stats, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(stats, name));
    return value > 0 ? value : 0;
}

// In percent of one processor, on average since the sandbox began.
static double
cpu_percent(const json_t *stats, int64_t age_ms)
{
    double seconds = json_number_value(json_object_get(stats, "cpu_seconds"));
    return age_ms > 0 ? 100 * seconds * 1000 / (double)age_ms : 0;
}

// One sample, of now: no history is kept.
static void
on_stats(const json_t *stats, const struct kg_error *err, void *arg)
{
    KG_AUTO_FREE struct sample *sample = arg;
    const struct e2b_settings *settings = &sample->e2b->settings;
    char text[CLOCK_RFC3339_LEN];
    int64_t now_ms = clock_wall_ms();
    if (err) {
        http_reply_error(sample->request, err);
        return;
    }
    clock_format_rfc3339(now_ms, text);
    http_reply_json(sample->request, 200,
                    json_pack("[{s:s, s:I, s:i, s:f, s:I, s:I, s:i, s:I, s:I}]", "timestamp", text,
                              "timestampUnix", (json_int_t)(now_ms / 1000), "cpuCount",
                              (int)settings->cpus, "cpuUsedPct", cpu_percent(stats, sample->age_ms),
                              "memUsed", (json_int_t)number(stats, "memory_bytes"), "memTotal",
                              (json_int_t)settings->memory_mb << 20, "memCache", 0, "diskUsed",
                              (json_int_t)number(stats, "disk_bytes"), "diskTotal",
                              (json_int_t)settings->disk_mb << 20));
}

// Whether the times that are asked for (seconds since 1970) include now.
static bool
wants_now(const struct http_request *request)
{
    const char *start = http_request_query(request, "start");
    const char *end = http_request_query(request, "end");
    int64_t now_s = clock_wall_ms() / 1000;
    return (!start || !*start || strtoll(start, NULL, 10) <= now_s) &&
           (!end || !*end || strtoll(end, NULL, 10) >= now_s);
}

void
handle_sandbox_metrics(struct http_request *request, void *arg)
{
    struct kg_error err;
    struct session *session = e2b_path_sandbox(request, arg);
    if (!session)
        return;
    if (!wants_now(request)) {
        http_reply_json(request, 200, json_array());
        return;
    }
    struct sample *sample = KG_NEW(struct sample);
    sample->request = request;
    sample->e2b = arg;
    sample->age_ms = session_age_ms(session);
    if (sandbox_agent_call(session_sandbox(session), "stats", NULL, AGENT_TIMEOUT_MS, on_stats,
                           sample, &err))
        return;
    free(sample);
    http_reply_error(request, &err);
}

// ---- What is not there ----------------------------------------------------------------------

void
handle_missing(struct http_request *request, void *arg)
{
    static const struct {
        const char *part; // of the route
        const char *what;
    } missing[] = {
        {"/pause", "sandboxes cannot be paused here: their processes live until the timeout"},
        {"/resume", "sandboxes cannot be paused here, so none can be resumed"},
        {"snapshots", "there are no snapshots here"},
        {"/fork", "sandboxes cannot be forked here"},
        {"/network", "the network is the same for all sandboxes here (setting network)"},
        {"/secrets", "there are no secrets here; pass them as envVars"},
        {"/volume", "there are no volumes here; upload files"},
        {"/templates", "there are no templates here: \"base\" and \"code-interpreter-v1\" are the "
                       "gateway's one image"},
    };
    const char *what = "this is not there";
    (void)arg;
    for (size_t i = 0; i < KG_ARRAY_LEN(missing); i++)
        if (strstr(http_request_route(request), missing[i].part))
            what = missing[i].what;
    http_reply_json(request, 501, json_pack("{s:i, s:s}", "code", 501, "message", what));
}
