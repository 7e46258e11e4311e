// SPDX-License-Identifier: Apache-2.0
// Sandboxes as E2B's clients see them.

#include <math.h>
#include <string.h>

#include "e2b_priv.h"
#include "ports.h"

json_t *
sandbox_face(const char *template_id, const char *key, const char *body)
{
    return json_pack("{s:{s:s, s:s*, s:s*}}", "e2b", SANDBOX_TEMPLATE, template_id, SANDBOX_KEY,
                     key, SANDBOX_BODY, body);
}

const char *
sandbox_face_member(const struct session *session, const char *name)
{
    return json_string_value(json_object_get(json_object_get(session_face(session), "e2b"), name));
}

// What all the answers have. A session of another face has no template, and is a `base`.
static json_t *
sandbox_begin(const char *id, const char *template_id)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "sandboxID", id, "clientID", "kernelgate",
                     "templateID", template_id ? template_id : "base", "envdVersion",
                     E2B_ENVD_VERSION);
}

static void
add_access(json_t *model, const struct e2b *e2b, const struct http_request *request, const char *id)
{
    const char *owner = http_request_owner(request);
    KG_AUTO_FREE char *envd = e2b_envd_token(e2b, owner, id);
    KG_AUTO_FREE char *traffic = e2b_traffic_token(e2b, owner, id);
    KG_AUTO_FREE char *domain = ports_domain(e2b->settings.face->ports, request);
    json_object_set_new(model, "envdAccessToken", json_string(envd));
    json_object_set_new(model, "trafficAccessToken", json_string(traffic));
    json_object_set_new(model, "domain", domain ? json_string(domain) : json_null());
}

json_t *
sandbox_model(const struct e2b *e2b, const struct http_request *request, const char *id,
              const char *template_id)
{
    json_t *model = sandbox_begin(id, template_id);
    add_access(model, e2b, request, id);
    return model;
}

json_t *
sandbox_model_listed(const struct e2b *e2b, const struct session *session, bool for_gateways)
{
    const struct e2b_settings *settings = &e2b->settings;
    json_auto_t *description = session_describe(session);
    json_t *ends = json_object_get(description, "ends_at");
    json_t *model =
        sandbox_begin(session_id(session), sandbox_face_member(session, SANDBOX_TEMPLATE));
    // One without an end expires when it has been idle.
    if (json_is_null(ends))
        ends = json_object_get(description, "expires_at");
    json_object_update_new(
        model, json_pack("{s:O, s:O, s:O, s:s, s:i, s:I, s:I}", "startedAt",
                         json_object_get(description, "created_at"), "endAt", ends, "metadata",
                         json_object_get(description, "metadata"), "state", "running", "cpuCount",
                         (int)ceil(settings->cpus), "memoryMB", (json_int_t)settings->memory_mb,
                         "diskSizeMB", (json_int_t)settings->disk_mb));
    if (for_gateways)
        json_object_update_new(
            model, json_pack("{s:s*, s:s*}", SANDBOX_KEY, sandbox_face_member(session, SANDBOX_KEY),
                             SANDBOX_BODY, sandbox_face_member(session, SANDBOX_BODY)));
    return model;
}

json_t *
sandbox_model_detail(const struct e2b *e2b, const struct http_request *request,
                     const struct session *session)
{
    json_t *model = sandbox_model_listed(e2b, session, false);
    add_access(model, e2b, request, session_id(session));
    json_object_update_new(model, json_pack("{s:b, s:{s:b, s:s}}", "allowInternetAccess",
                                            e2b->settings.network, "lifecycle", "autoResume", 0,
                                            "onTimeout", "kill"));
    return model;
}
