// SPDX-License-Identifier: Apache-2.0
// A client of the API of Kubernetes: address, credentials, calls, errors.
#include <string.h>
#include <unistd.h>

#include "kubernetes_priv.h"

#define CALL_TIMEOUT_MS 5000 // less than operations have for their attempts
#define LIST_TIMEOUT_MS 20000
#define ANSWER_MAX_BYTES ((size_t)32 << 20) // a page of a list has 250 pods
#define TOKEN_MAX_BYTES ((size_t)64 << 10)
#define WATCH_SLACK_MS 15000
#define PAUSE_MIN_MS 500
#define PAUSE_MAX_MS 8000
#define RETRY_AFTER_MAX_S 30
#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

// ---- Access ---------------------------------------------------------------------------------

// Kubernetes sets these variables in a pod; an IPv6 address has no brackets there.
static char *
server_of_cluster(void)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!host || !*host || !port || !*port)
        return NULL;
    return strchr(host, ':') ? kg_asprintf("https://[%s]:%s", host, port)
                             : kg_asprintf("https://%s:%s", host, port);
}

static int
take_server(struct kubernetes *kube, const char *configured, struct kg_error *err)
{
    kube->server = configured ? kg_strdup(configured) : server_of_cluster();
    if (!kube->server)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                            "this is not a pod of a cluster; say where its API server is with "
                            "kubernetes-server");
    size_t len = strlen(kube->server);
    if (len && kube->server[len - 1] == '/')
        kube->server[len - 1] = '\0';
    if (strncmp(kube->server, "https://", 8) != 0 && strncmp(kube->server, "http://", 7) != 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "kubernetes-server: %.120s is not https://host:port", kube->server);
    return 0;
}

// The path `configured`, which must exist. If it is NULL, the service account's file, if there is
// one.
static int
take_file(char **ret, const char *setting, const char *configured, const char *of_account,
          struct kg_error *err)
{
    if (configured) {
        *ret = provisioner_real_path(setting, configured, err);
        return *ret ? 0 : -1;
    }
    if (of_account && access(of_account, R_OK) == 0)
        *ret = kg_strdup(of_account);
    return 0;
}

static int
take_namespace(struct kubernetes *kube, const char *configured, struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    if (configured) {
        kube->namespace = kg_strdup(configured);
    } else if (access(ACCOUNT "/namespace", R_OK) == 0) {
        if (file_read(ACCOUNT "/namespace", KUBE_NAME_MAX + 1, &text, err) < 0)
            return -1;
        kube->namespace = kg_strndup(text.len ? text.data : "", strcspn(text.data, "\n"));
    } else {
        kube->namespace = kg_strdup("default");
    }
    if (kube_name_valid(kube->namespace))
        return 0;
    return kg_error_set(err, KG_INVALID, 0, "kubernetes-namespace: %.80s is not a namespace's name",
                        kube->namespace);
}

int
kube_find_access(struct kubernetes *kube, const struct provisioner_kubernetes *settings,
                 struct kg_error *err)
{
    // A pod's service account is valid only in the pod's cluster.
    bool own = !settings->server;
    if (take_server(kube, settings->server, err) < 0 ||
        take_namespace(kube, settings->namespace, err) < 0)
        return -1;
    if (take_file(&kube->ca_file, "kubernetes-ca-file", settings->ca_file,
                  own ? ACCOUNT "/ca.crt" : NULL, err) < 0 ||
        take_file(&kube->token_file, "kubernetes-token-file", settings->token_file,
                  own && !settings->certificate_file ? ACCOUNT "/token" : NULL, err) < 0 ||
        take_file(&kube->certificate_file, "kubernetes-certificate-file",
                  settings->certificate_file, NULL, err) < 0 ||
        take_file(&kube->key_file, "kubernetes-key-file", settings->key_file, NULL, err) < 0)
        return -1;
    if (!kube->certificate_file != !kube->key_file)
        return kg_error_set(err, KG_INVALID, 0,
                            "kubernetes-certificate-file and kubernetes-key-file go together");
    return 0;
}

void
kube_access_fini(struct kubernetes *kube)
{
    free(kube->server);
    free(kube->ca_file);
    free(kube->token_file);
    free(kube->certificate_file);
    free(kube->key_file);
    free(kube->namespace);
}

// Tokens of service accounts change every hour.
static int
authorization(const struct kubernetes *kube, char **ret, struct kg_error *err)
{
    KG_AUTO_BUF token = {0};
    *ret = NULL;
    if (!kube->token_file)
        return 0;
    if (file_read(kube->token_file, TOKEN_MAX_BYTES, &token, err) < 0)
        return -1;
    size_t len = token.len ? strcspn(token.data, " \t\r\n") : 0;
    if (len == 0)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "%s has no token",
                            kube->token_file);
    *ret = kg_asprintf("Authorization: Bearer %.*s", (int)len, token.data);
    return 0;
}

// ---- Calls ----------------------------------------------------------------------------------

static struct http_call *
start_call(struct kubernetes *kube, struct http_call_spec *spec, const char *path,
           http_call_data_fn on_data, http_call_fn on_done, void *arg, struct kg_error *err)
{
    bool patch = strcmp(spec->method, "PATCH") == 0;
    KG_AUTO_FREE char *url = kg_asprintf("%s%s", kube->server, path);
    KG_AUTO_FREE char *token = NULL;
    const char *headers[] = {"Accept: application/json",
                             patch ? "Content-Type: application/json-patch+json"
                                   : "Content-Type: application/json",
                             NULL, NULL};
    if (authorization(kube, &token, err) < 0)
        return NULL;
    headers[2] = token;
    spec->url = url;
    spec->headers = headers;
    spec->max_body_bytes = ANSWER_MAX_BYTES;
    spec->ca_file = kube->ca_file;
    spec->certificate_file = kube->certificate_file;
    spec->key_file = kube->key_file;
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
                            "the API server at %.80s does not answer: %.110s", kube->server,
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

// Another 409 is a conflict within the server, of quotas for instance.
bool
kube_is_transient(const struct http_call_result *result)
{
    return result->err || result->status == 429 || result->status >= 500 ||
           (result->status == 409 && !kube_already_exists(result));
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
