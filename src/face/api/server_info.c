// SPDX-License-Identifier: Apache-2.0
// Kernelspecs, limits, health and the probes.

#include "api_priv.h"
#include "sessions.h"

static json_t *
describe_spec(const struct kernelspec *spec, bool is_default, bool savepoints)
{
    return json_pack("{s:s, s:s, s:s, s:O, s:b, s:b}", "name", spec->name, "display_name",
                     spec->display_name, "language", spec->language, "aliases", spec->aliases,
                     "default", is_default, "savepoints",
                     (int)(savepoints && spec->savepoint_code));
}

void
handle_kernelspecs(struct http_request *request, void *arg)
{
    const struct face_context *face = ((const struct api_context *)arg)->face;
    const char *owner = http_request_owner(request);
    bool savepoints = sessions_limits_of(face->sessions, owner).max_savepoints > 0;
    json_t *specs = json_object();
    for (size_t i = 0; i < kernelspecs_count(face->specs); i++) {
        const struct kernelspec *spec = kernelspecs_at(face->specs, i);
        json_object_set_new(specs, spec->name,
                            describe_spec(spec, spec == face->default_spec, savepoints));
    }
    http_reply_json(
        request, 200,
        json_pack("{s:s, s:o}", "default", face->default_spec->name, "kernelspecs", specs));
}

// Each limit has the name of its setting.
static json_t *
describe_limits(const struct api_context *context, const struct sessions_limits *of,
                double requests_per_second)
{
    const struct face_context *face = context->face;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"max_sessions", of->max_sessions},
        {"memory_mb", of->max_memory_mb > 0 ? of->max_memory_mb : context->memory_mb},
        {"disk_mb", context->disk_mb},
        {"pids", context->pids},
        {"max_upload_bytes", (int64_t)face->max_upload_bytes},
        {"max_code_bytes", (int64_t)face->max_code_bytes},
        {"max_output_bytes", (int64_t)face->max_output_bytes},
        {"max_execution_time", face->default_timeout_ms / 1000},
        {"max_timeout", face->max_timeout_ms / 1000},
        {"idle_timeout", of->idle_timeout_s},
        {"max_session_lifetime", of->max_lifetime_s},
        {"max_savepoints", of->max_savepoints},
        {"tool_call_timeout", context->tool_call_timeout_s},
        {"max_tool_calls", context->max_tool_calls},
        {"max_tool_result", context->max_tool_result_bytes},
    };
    json_t *limits = json_pack("{s:f, s:f}", "cpus", context->cpus, "max_requests_per_second",
                               requests_per_second);
    for (size_t i = 0; i < KG_ARRAY_LEN(numbers); i++)
        json_object_set_new(limits, numbers[i].name, json_integer(numbers[i].value));
    return limits;
}

// `set_by` says what sets a limit, where that is not the setting of its name.
void
handle_limits(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    const struct sessions *sessions = context->face->sessions;
    const char *owner = http_request_owner(request);
    struct http_quota quota = http_server_quota(http_request_server(request), owner);
    struct sessions_limits of = sessions_limits_of(sessions, owner);
    json_t *set_by = json_object();
    if (of.max_sessions_from)
        json_object_set_new(set_by, "max_sessions", json_string(of.max_sessions_from));
    if (of.max_memory_mb > 0)
        json_object_set_new(set_by, "memory_mb", json_string("max-memory-mb of its account"));
    http_reply_json(request, 200,
                    json_pack("{s:s, s:I, s:o, s:o}", "owner", owner, "sessions",
                              (json_int_t)sessions_count_of(sessions, owner), "limits",
                              describe_limits(context, &of, quota.requests_per_second), "set_by",
                              set_by));
}

void
handle_health(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    const struct sessions *sessions = context->face->sessions;
    double uptime_s = (double)(clock_mono_ms() - context->started_ms) / 1000;
    http_reply_json(
        request, 200,
        json_pack("{s:s, s:s, s:I, s:{s:I, s:I}, s:f, s:s}", "status",
                  http_server_is_draining(http_request_server(request)) ? "draining" : "healthy",
                  "version", KG_VERSION, "active_sessions", (json_int_t)sessions_count(sessions),
                  "pool", "ready", (json_int_t)sessions_n_pooled(sessions), "target",
                  (json_int_t)sessions_pool_target(sessions), "uptime", uptime_s, "provisioner",
                  context->provisioner));
}

void
handle_alive(struct http_request *request, void *arg)
{
    (void)arg;
    static const char body[] = "{\"status\":\"alive\"}";
    http_reply(request, 200, "application/json", body, sizeof body - 1);
}

void
handle_ready(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    struct kg_error err = {0};
    if (http_server_is_draining(http_request_server(request))) {
        kg_error_set(&err, KG_DRAINING, 0, "the gateway is shutting down");
    } else if (sessions_check_ready(context->face->sessions, &err) == 0) {
        http_reply_json(request, 200, json_pack("{s:s}", "status", "ready"));
        return;
    }
    http_reply_error(request, &err);
}
