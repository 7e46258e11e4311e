// SPDX-License-Identifier: Apache-2.0
// Kernelspecs, health and the probes.

#include "api_priv.h"
#include "sessions.h"

static json_t *
describe_spec(const struct kernelspec *spec, bool is_default)
{
    return json_pack("{s:s, s:s, s:s, s:O, s:b}", "name", spec->name, "display_name",
                     spec->display_name, "language", spec->language, "aliases", spec->aliases,
                     "default", is_default);
}

void
handle_kernelspecs(struct http_request *request, void *arg)
{
    const struct face_context *face = ((const struct api_context *)arg)->face;
    json_t *specs = json_object();
    for (size_t i = 0; i < kernelspecs_count(face->specs); i++) {
        const struct kernelspec *spec = kernelspecs_at(face->specs, i);
        json_object_set_new(specs, spec->name, describe_spec(spec, spec == face->default_spec));
    }
    http_reply_json(
        request, 200,
        json_pack("{s:s, s:o}", "default", face->default_spec->name, "kernelspecs", specs));
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
