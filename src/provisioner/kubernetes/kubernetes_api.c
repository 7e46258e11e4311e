// SPDX-License-Identifier: Apache-2.0
// A client of the API of Kubernetes: calls, errors.
#include <string.h>

#include "kubernetes_priv.h"

#define CALL_TIMEOUT_MS 5000 // less than operations have for their attempts
#define LIST_TIMEOUT_MS 20000
#define ANSWER_MAX_BYTES ((size_t)32 << 20) // a page of a list has 250 pods
#define WATCH_SLACK_MS 15000
#define PAUSE_MIN_MS 500
#define PAUSE_MAX_MS 8000
#define RETRY_AFTER_MAX_S 30

// ---- Calls ----------------------------------------------------------------------------------

static struct http_call *
start_call(struct kubernetes *kube, struct http_call_spec *spec, const char *path,
           http_call_data_fn on_data, http_call_fn on_done, void *arg, struct kg_error *err)
{
    bool patch = strcmp(spec->method, "PATCH") == 0;
    const struct kube_access *access = &kube->access;
    KG_AUTO_FREE char *url = kg_asprintf("%s%s", access->server, path);
    KG_AUTO_FREE char *token = NULL;
    const char *headers[] = {"Accept: application/json",
                             patch ? "Content-Type: application/json-patch+json"
                                   : "Content-Type: application/json",
                             NULL, NULL};
    if (kube_authorization(access, &token, err) < 0)
        return NULL;
    headers[2] = token;
    spec->url = url;
    spec->headers = headers;
    spec->max_body_bytes = ANSWER_MAX_BYTES;
    spec->ca_file = access->ca_file;
    spec->ca_pem = access->ca_pem;
    spec->certificate_file = access->certificate_file;
    spec->certificate_pem = access->certificate_pem;
    spec->key_file = access->key_file;
    spec->key_pem = access->key_pem;
    return http_call_start(kube->http, spec, on_data, on_done, arg, err);
}

struct http_call *
kube_call(struct kubernetes *kube, const char *method, const char *path, json_t *body,
          http_call_fn on_done, void *arg, struct kg_error *err)
{
    json_auto_t *stolen = body;
    KG_AUTO_FREE char *text = stolen ? json_dumps(stolen, JSON_COMPACT) : NULL;
    if (stolen && !text) {
        kg_error_set(err, KG_INTERNAL, 0, "a setting of the sandboxes' pods is not UTF-8");
        return NULL;
    }
    struct http_call_spec spec = {
        .method = method,
        .body = text,
        .body_len = text ? strlen(text) : 0,
        .timeout_ms = CALL_TIMEOUT_MS,
    };
    return start_call(kube, &spec, path, NULL, on_done, arg, err);
}

struct http_call *
kube_list(struct kubernetes *kube, const char *path, http_call_fn on_done, void *arg,
          struct kg_error *err)
{
    struct http_call_spec spec = {.method = "GET", .timeout_ms = LIST_TIMEOUT_MS};
    return start_call(kube, &spec, path, NULL, on_done, arg, err);
}

struct http_call *
kube_watch(struct kubernetes *kube, const char *path, int seconds, http_call_data_fn on_data,
           http_call_fn on_done, void *arg, struct kg_error *err)
{
    KG_AUTO_FREE char *bounded =
        kg_asprintf("%s&watch=1&allowWatchBookmarks=true&timeoutSeconds=%d", path, seconds);
    struct http_call_spec spec = {.method = "GET", .timeout_ms = seconds * 1000 + WATCH_SLACK_MS};
    return start_call(kube, &spec, bounded, on_data, on_done, arg, err);
}

int
kube_check(const struct kubernetes *kube, const struct http_call_result *result,
           struct kg_error *err)
{
    if (result->err)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                            "the API server at %.80s does not answer: %.110s", kube->access.server,
                            result->err->message);
    if (result->status < 300)
        return 0;
    json_auto_t *body = json_loadb(result->body, result->body_len, 0, NULL);
    const char *message = json_string_value(json_object_get(body, "message"));
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "kubernetes: %.200s (%d)",
                        message ? message : "no reason given", result->status);
}

bool
kube_already_exists(const struct http_call_result *result)
{
    json_auto_t *body =
        result->status == 409 ? json_loadb(result->body, result->body_len, 0, NULL) : NULL;
    const char *reason = json_string_value(json_object_get(body, "reason"));
    return reason && strcmp(reason, "AlreadyExists") == 0;
}

// Whether the account may not do this, or the server has only started: until it has read the roles,
// it denies everything. Of the other 403, a quota's message has no user.
static bool
is_denied(const struct http_call_result *result)
{
    json_auto_t *body =
        result->status == 403 ? json_loadb(result->body, result->body_len, 0, NULL) : NULL;
    const char *message = json_string_value(json_object_get(body, "message"));
    return message && strstr(message, " is forbidden: User ");
}

// Another 409 is a conflict within the server, of quotas for instance.
bool
kube_is_transient(const struct http_call_result *result)
{
    return result->err || result->status == 429 || result->status >= 500 ||
           (result->status == 409 && !kube_already_exists(result)) || is_denied(result);
}

int64_t
kube_pause_ms(const struct http_call_result *result, int n_attempts)
{
    int64_t asked_s = result->retry_after_s;
    if (asked_s > 0)
        return (asked_s < RETRY_AFTER_MAX_S ? asked_s : RETRY_AFTER_MAX_S) * 1000;
    int64_t pause_ms = PAUSE_MIN_MS;
    for (int i = 1; i < n_attempts && pause_ms < PAUSE_MAX_MS; i++)
        pause_ms *= 2;
    return pause_ms;
}

char *
kube_pod_path(const struct kubernetes *kube, const char *id)
{
    return kg_asprintf("%s/kg-%s", kube->pods_path, id);
}

json_t *
kube_precondition(const char *version)
{
    return json_pack("{s:s, s:s, s:{s:s}}", "apiVersion", "v1", "kind", "DeleteOptions",
                     "preconditions", "resourceVersion", version);
}
