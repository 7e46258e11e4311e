// SPDX-License-Identifier: Apache-2.0
// A client of the Docker Engine's API: address, calls, errors, lines of JSON, lists of containers.
#include <stdio.h>
#include <string.h>

#include "docker_priv.h"

#define CALL_TIMEOUT_MS 20000             // an engine that hangs must not keep a deletion for long
#define LIST_MAX_BYTES ((size_t)64 << 20) // some 4 KiB per container
#define API_MINOR 41                      // of 1.x: the oldest that has everything we use

// ---- The address ----------------------------------------------------------------------------

int
docker_parse_host(struct docker *docker, const char *host, struct kg_error *err)
{
    static const char unix_scheme[] = "unix://";
    static const char tcp_scheme[] = "tcp://";
    docker->host = kg_strdup(host);
    if (strncmp(host, unix_scheme, strlen(unix_scheme)) == 0 && host[strlen(unix_scheme)] == '/') {
        docker->socket_path = kg_strdup(host + strlen(unix_scheme));
        docker->url = kg_strdup("http://docker");
        return 0;
    }
    const char *address = host + strlen(tcp_scheme);
    if (strncmp(host, tcp_scheme, strlen(tcp_scheme)) != 0 || !*address || strchr(address, '/'))
        return kg_error_set(err, KG_INVALID, 0,
                            "setting docker-host: %s is neither unix:///path nor tcp://host:port",
                            host);
    // The port may follow the brackets of an IPv6 address.
    const char *last = strrchr(address, ']');
    bool port = strchr(last ? last : address, ':') != NULL;
    docker->url = kg_asprintf("http://%s%s", address, port ? "" : ":2375");
    return 0;
}

// ---- Calls ----------------------------------------------------------------------------------

char *
docker_escape(const char *text)
{
    struct buf escaped = {0};
    percent_append(&escaped, text, "");
    return escaped.data ? buf_take(&escaped) : kg_strdup("");
}

static char *
versioned(const struct docker *docker, const char *path)
{
    if (!docker->api_minor) // not asked yet
        return kg_asprintf("%s%s", docker->url, path);
    return kg_asprintf("%s/v1.%d%s", docker->url, docker->api_minor, path);
}

struct http_call *
docker_call(struct docker *docker, const char *method, const char *path, json_t *body,
            http_call_fn on_done, void *arg, struct kg_error *err)
{
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    json_auto_t *stolen = body;
    KG_AUTO_FREE char *url = versioned(docker, path);
    KG_AUTO_FREE char *text = stolen ? json_dumps(stolen, JSON_COMPACT) : NULL;
    if (stolen && !text) {
        kg_error_set(err, KG_INTERNAL, 0, "a path of the sandbox is not UTF-8");
        return NULL;
    }
    struct http_call_spec spec = {
        .method = method,
        .url = url,
        .unix_path = docker->socket_path,
        .headers = text ? headers : NULL,
        .body = text,
        .body_len = text ? strlen(text) : 0,
        .timeout_ms = CALL_TIMEOUT_MS,
        .max_body_bytes = LIST_MAX_BYTES,
    };
    return http_call_start(docker->http, &spec, NULL, on_done, arg, err);
}

struct http_call *
docker_stream(struct docker *docker, const char *method, const char *path,
              http_call_data_fn on_data, http_call_fn on_done, void *arg, struct kg_error *err)
{
    KG_AUTO_FREE char *url = versioned(docker, path);
    struct http_call_spec spec = {.method = method, .url = url, .unix_path = docker->socket_path};
    return http_call_start(docker->http, &spec, on_data, on_done, arg, err);
}

int
docker_check(const struct docker *docker, const struct http_call_result *result,
             struct kg_error *err)
{
    if (result->err && result->err->sys_errno) // nothing listens there
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, result->err->sys_errno,
                            "setting docker-host: no Docker Engine at %.80s", docker->host);
    if (result->err)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                            "docker at %.80s does not answer: %.120s", docker->host,
                            result->err->message);
    if (result->status < 300)
        return 0;
    json_auto_t *body = json_loadb(result->body, result->body_len, 0, NULL);
    const char *message = json_string_value(json_object_get(body, "message"));
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "docker: %.200s (%d)",
                        message ? message : "no reason given", result->status);
}

int
docker_take_version(struct docker *docker, const json_t *body, struct kg_error *err)
{
    const char *newest = json_string_value(json_object_get(body, "ApiVersion"));
    const char *oldest = json_string_value(json_object_get(body, "MinAPIVersion"));
    int newest_minor = 0;
    int oldest_minor = 0;
    if (!newest || sscanf(newest, "1.%d", &newest_minor) != 1)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                            "setting docker-host: %s is not a Docker engine", docker->host);
    if (newest_minor < API_MINOR)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                            "the Docker engine at %s has API 1.%d; kernelgate needs 1.%d "
                            "(Docker 20.10)",
                            docker->host, newest_minor, API_MINOR);
    bool newer = oldest && sscanf(oldest, "1.%d", &oldest_minor) == 1 && oldest_minor > API_MINOR;
    docker->api_minor = newer ? oldest_minor : API_MINOR;
    const json_t *component = json_array_get(json_object_get(body, "Components"), 0);
    const char *name = json_string_value(json_object_get(component, "Name"));
    docker->podman = name && strncmp(name, "Podman", strlen("Podman")) == 0;
    return 0;
}

// ---- Containers -----------------------------------------------------------------------------

char *
docker_container_path(const struct docker *docker, const char *id, const char *rest)
{
    KG_AUTO_FREE char *name = sandbox_container_name(docker->base.gateway_id, id);
    return kg_asprintf("/containers/%s%s", name, rest);
}

static struct http_call *
list_labelled(struct docker *docker, const char *labels, http_call_fn on_done, void *arg,
              struct kg_error *err)
{
    KG_AUTO_FREE char *filters = kg_asprintf("{\"label\":[%s]}", labels);
    KG_AUTO_FREE char *escaped = docker_escape(filters);
    KG_AUTO_FREE char *path = kg_asprintf("/containers/json?all=1&filters=%s", escaped);
    return docker_call(docker, "GET", path, NULL, on_done, arg, err);
}

struct http_call *
docker_list(struct docker *docker, const char *id, http_call_fn on_done, void *arg,
            struct kg_error *err)
{
    KG_AUTO_FREE char *one = id ? kg_asprintf(",\"" DOCKER_LABEL_SANDBOX "=%s\"", id) : NULL;
    KG_AUTO_FREE char *labels =
        kg_asprintf("\"" DOCKER_LABEL_GATEWAY "=%s\"%s", docker->base.gateway_id, one ? one : "");
    return list_labelled(docker, labels, on_done, arg, err);
}

struct http_call *
docker_list_all(struct docker *docker, http_call_fn on_done, void *arg, struct kg_error *err)
{
    return list_labelled(docker, "\"" DOCKER_LABEL_GATEWAY "\"", on_done, arg, err);
}

static bool
take_labels(const struct docker *docker, const json_t *labels, struct docker_container *ret)
{
    ret->gateway = json_string_value(json_object_get(labels, DOCKER_LABEL_GATEWAY));
    ret->sandbox = json_string_value(json_object_get(labels, DOCKER_LABEL_SANDBOX));
    ret->state_dir = json_string_value(json_object_get(labels, DOCKER_LABEL_STATE));
    ret->folder = json_string_value(json_object_get(labels, DOCKER_LABEL_FOLDER));
    if (!ret->id || !ret->gateway || !ret->sandbox || !sandbox_id_valid(ret->sandbox))
        return false;
    ret->ours = strcmp(ret->gateway, docker->base.gateway_id) == 0;
    return true;
}

static bool
name_matches(const struct docker_container *container, const char *name)
{
    KG_AUTO_FREE char *wanted = sandbox_container_name(container->gateway, container->sandbox);
    return name && strcmp(name + (*name == '/'), wanted) == 0;
}

bool
docker_take_listed(const struct docker *docker, const json_t *element, struct docker_container *ret)
{
    const char *state = json_string_value(json_object_get(element, "State"));
    const json_t *names = json_object_get(element, "Names");
    *ret = (struct docker_container){
        .id = json_string_value(json_object_get(element, "Id")),
        .lives = state && (strcmp(state, "running") == 0 || strcmp(state, "paused") == 0),
    };
    bool named = false;
    if (!take_labels(docker, json_object_get(element, "Labels"), ret))
        return false;
    for (size_t i = 0; i < json_array_size(names); i++)
        named |= name_matches(ret, json_string_value(json_array_get(names, i)));
    return named;
}

bool
docker_take_actor(const struct docker *docker, const json_t *actor, struct docker_container *ret)
{
    const json_t *attributes = json_object_get(actor, "Attributes");
    *ret = (struct docker_container){.id = json_string_value(json_object_get(actor, "ID"))};
    return take_labels(docker, attributes, ret) &&
           name_matches(ret, json_string_value(json_object_get(attributes, "name")));
}
