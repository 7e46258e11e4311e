// SPDX-License-Identifier: Apache-2.0
// What clients see of kernels and kernelspecs.

#include <stdio.h>
#include <string.h>

#include "notebook_priv.h"
#include "session_kernels.h"

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

// Into the UUID and the kernel's name, which is empty for the main kernel.
static bool
kernel_id_parse(const char *id, char ret_session[KERNEL_ID_LEN + 1],
                char ret_name[KERNEL_MAX_NAME_LEN + 1])
{
    size_t len = strlen(id), n = 0;
    snprintf(ret_session, KERNEL_ID_LEN + 1, "%s", id);
    ret_name[0] = '\0';
    if (!kernel_id_is_valid(ret_session) || len == KERNEL_ID_LEN)
        return len == KERNEL_ID_LEN;
    if (len > KERNEL_ID_MAX || id[KERNEL_ID_LEN] != '_')
        return false;
    for (const char *c = id + KERNEL_ID_LEN + 1; *c && n < KERNEL_MAX_NAME_LEN; c++) {
        if (*c == '_' && *++c != '_' && *c != 'd')
            return false;
        ret_name[n++] = c[-1] == '_' && *c == 'd' ? '-' : *c;
    }
    ret_name[n] = '\0';
    return kernel_name_valid(ret_name);
}

void
kernel_id_make(const struct session *session, const struct kernel *kernel,
               char ret[KERNEL_ID_MAX + 1])
{
    size_t n = (size_t)snprintf(ret, KERNEL_ID_MAX + 1, "%s", session_id(session));
    if (!kernel || session_kernel_is_default(kernel))
        return;
    ret[n++] = '_';
    for (const char *c = kernel_name(kernel); *c; c++) {
        if (*c == '_' || *c == '-')
            ret[n++] = '_';
        ret[n++] = *c;
        if (*c == '-')
            ret[n - 1] = 'd';
    }
    ret[n] = '\0';
}

void
kernel_id_ask(struct http_request *request, struct http_concern *ret, char **ret_name, void *arg)
{
    (void)arg;
    ret->kind = HTTP_CONCERNS_SESSION;
    *ret_name = kg_strndup(http_request_param(request, "id"), KERNEL_ID_LEN);
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
kernel_model(const struct notebook *notebook, const struct session *session,
             const struct kernel *kernel)
{
    char id[KERNEL_ID_MAX + 1];
    const struct kernelspec *spec = kernel ? kernel_spec(kernel) : notebook->face->default_spec;
    json_auto_t *described = session_describe(session);
    kernel_id_make(session, kernel, id);
    return json_pack("{s:s, s:s, s:O, s:s, s:i}", "id", id, "name", kernelspec_name(spec),
                     "last_activity", json_object_get(described, "last_activity"),
                     "execution_state", execution_state_of(kernel), "connections",
                     kernel_sockets_count(notebook, session, id));
}

static void
append_models(const struct notebook *notebook, const struct session *session, json_t *models)
{
    const struct kernel *kernel;
    json_array_append_new(models, kernel_model(notebook, session, session_first_kernel(session)));
    for (size_t i = 0; (kernel = session_kernel_at(session, i)); i++) {
        if (!session_kernel_is_default(kernel))
            json_array_append_new(models, kernel_model(notebook, session, kernel));
    }
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
            append_models(notebook, session, models);
    }
    return models;
}

struct session *
kernel_find(const struct notebook *notebook, const char *owner, const char *id,
            struct kg_error *err)
{
    char session_id[KERNEL_ID_LEN + 1], name[KERNEL_MAX_NAME_LEN + 1];
    struct session *session = kernel_id_parse(id, session_id, name)
                                  ? sessions_find(notebook->face->sessions, owner, session_id, NULL)
                                  : NULL;
    // Further kernels are not known before the session was taken up.
    if (session &&
        (name[0] == '\0' || kernel_named(session, id) || session_taken_up_check(session, NULL) < 0))
        return session;
    kg_error_set(err, KG_NOT_FOUND, 0, "Kernel does not exist: %s", id);
    return NULL;
}

struct kernel *
kernel_named(const struct session *session, const char *id)
{
    char session_id[KERNEL_ID_LEN + 1], name[KERNEL_MAX_NAME_LEN + 1];
    if (!kernel_id_parse(id, session_id, name))
        return NULL;
    if (name[0] == '\0')
        return session_first_kernel(session);
    struct kernel *kernel = session_kernel_find(session, name, NULL);
    return kernel && !session_kernel_is_default(kernel) ? kernel : NULL;
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

// A further kernel that is being ended.
struct shutdown {
    loop_fn on_done;
    void *arg;
};

static void
shutdown_on_removed(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    KG_AUTO_FREE struct shutdown *shutdown = arg;
    (void)kernel;
    (void)err; // logged; or the session has ended meanwhile
    if (shutdown->on_done)
        shutdown->on_done(shutdown->arg);
}

void
kernel_shut_down(struct session *session, const char *id, const char *reason, loop_fn on_done,
                 void *arg)
{
    struct kg_error err = {0};
    if (strlen(id) == KERNEL_ID_LEN) {
        session_end(session, reason, on_done, arg);
        return;
    }
    const struct kernel *kernel = kernel_named(session, id);
    struct shutdown *shutdown = KG_NEW(struct shutdown);
    *shutdown = (struct shutdown){.on_done = on_done, .arg = arg};
    if (!kernel ||
        !session_kernel_remove(session, kernel_name(kernel), shutdown_on_removed, shutdown, &err))
        shutdown_on_removed(NULL, &err, shutdown);
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
