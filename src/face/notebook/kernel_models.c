// SPDX-License-Identifier: Apache-2.0
// What clients see of kernels and kernelspecs.

#include <stdio.h>
#include <string.h>

#include "notebook_priv.h"

// ---- Ids ------------------------------------------------------------------------------------

void
kernel_id_random(char ret[KERNEL_ID_LEN + 1])
{
    char hex[33];
    id_random_hex(hex, 32);
    hex[12] = '4';                            // version
    hex[16] = "89ab"[hex_value(hex[16]) & 3]; // variant
    snprintf(ret, KERNEL_ID_LEN + 1, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
}

bool
kernel_id_is_valid(const char *id)
{
    static const char pattern[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    size_t i = 0;
    for (; pattern[i] && id[i]; i++) {
        if (pattern[i] == 'x' ? hex_value(id[i]) < 0 : id[i] != '-')
            return false;
    }
    return pattern[i] == id[i];
}

// ---- Kernelspecs ----------------------------------------------------------------------------

const char *
kernelspec_name(const struct kernelspec *spec)
{
    size_t i;
    json_t *alias;
    json_array_foreach(spec->aliases, i, alias) {
        if (strcmp(json_string_value(alias), "python3") == 0)
            return json_string_value(alias);
    }
    return spec->name;
}

json_t *
kernelspec_model(const struct kernelspec *spec)
{
    const char *name = kernelspec_name(spec);
    return json_pack(
        "{s:s, s:{s:O, s:{}, s:s, s:s, s:s, s:O}, s:{}}", "name", name, "spec", "argv", spec->argv,
        "env", "display_name", spec->display_name, "language", spec->language, "interrupt_mode",
        spec->interrupt_by_message ? "message" : "signal", "metadata", spec->metadata, "resources");
}

// ---- Kernels --------------------------------------------------------------------------------

static const char *
execution_state_of(const struct kernel *kernel)
{
    if (!kernel)
        return "starting";
    switch (kernel_state(kernel)) {
    case KERNEL_STARTING:
        return "starting";
    case KERNEL_RESTARTING:
        return "restarting";
    case KERNEL_DEAD:
        return "dead";
    case KERNEL_READY:
    case KERNEL_BUSY:
    case KERNEL_INTERRUPTING:
        return kernel_is_busy(kernel) ? "busy" : "idle";
    }
    return "dead";
}

// As the kernel's last status says. Clients connect again where they are sent `restarting`.
const char *
kernel_first_state(const struct kernel *kernel)
{
    if (kernel && kernel_is_running(kernel))
        return "busy";
    switch (kernel ? kernel_state(kernel) : KERNEL_STARTING) {
    case KERNEL_STARTING:
    case KERNEL_RESTARTING:
        return "starting";
    case KERNEL_DEAD:
        return "dead";
    case KERNEL_READY:
    case KERNEL_BUSY:
    case KERNEL_INTERRUPTING:
        return "idle";
    }
    return "dead";
}

json_t *
kernel_model(const struct notebook *notebook, const struct session *session)
{
    const struct kernel *kernel = session_first_kernel(session);
    const struct kernelspec *spec = kernel ? kernel_spec(kernel) : notebook->face->default_spec;
    json_auto_t *described = session_describe(session);
    return json_pack(
        "{s:s, s:s, s:O, s:s, s:i}", "id", session_id(session), "name", kernelspec_name(spec),
        "last_activity", json_object_get(described, "last_activity"), "execution_state",
        execution_state_of(kernel), "connections", kernel_sockets_count(notebook, session));
}

json_t *
kernel_models(const struct notebook *notebook, const char *owner)
{
    json_auto_t *ids = sessions_ids(notebook->face->sessions, owner);
    json_t *models = json_array();
    size_t i;
    json_t *id;
    json_array_foreach(ids, i, id) {
        const struct session *session = kernel_find(notebook, owner, json_string_value(id), NULL);
        if (session)
            json_array_append_new(models, kernel_model(notebook, session));
    }
    return models;
}

struct session *
kernel_find(const struct notebook *notebook, const char *owner, const char *id,
            struct kg_error *err)
{
    struct session *session =
        kernel_id_is_valid(id) ? sessions_find(notebook->face->sessions, owner, id, NULL) : NULL;
    if (!session)
        kg_error_set(err, KG_NOT_FOUND, 0, "Kernel does not exist: %s", id);
    return session;
}

struct session *
kernel_of_request(const struct notebook *notebook, struct http_request *request)
{
    struct kg_error err = {0};
    struct session *session =
        kernel_find(notebook, http_request_owner(request), http_request_param(request, "id"), &err);
    if (!session)
        reply_failure(request, &err);
    return session;
}

// ---- Answers --------------------------------------------------------------------------------

void
reply_failure_as(struct http_request *request, int status, const struct kg_error *err)
{
    const struct kg_code_info *info = kg_code_info(err->code);
    if (info->retryable && (status == 429 || status == 503))
        http_reply_header(request, "Retry-After", "1");
    http_reply_json(request, status,
                    json_pack("{s:s, s:s, s:s}", "message", err->message, "reason", info->title,
                              "short_message", info->title));
}

void
reply_failure(struct http_request *request, const struct kg_error *err)
{
    reply_failure_as(request, kg_code_info(err->code)->http_status, err);
}

void
reply_no_content(void *request)
{
    http_reply(request, 204, NULL, NULL, 0);
}

void
reply_list(struct http_request *request, json_t *models)
{
    json_t *list;
    size_t i;
    json_array_foreach(http_request_elsewhere(request), i, list)
        json_array_extend(models, list);
    http_reply_json(request, 200, models);
}
