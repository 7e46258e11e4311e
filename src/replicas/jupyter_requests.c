// SPDX-License-Identifier: Apache-2.0
// Requests of Jupyter's API. A kernel is a session. A notebook's session is known only to the
// replica that has made it, so the others are asked.
#include <string.h>

#include "replicas_priv.h"

const char *
replicas_jupyter_resource(const struct replicas *replicas, const char *route)
{
    static const char *const resources[] = {"/api/kernels", "/api/sessions", "/api/contents"};
    const char *prefix = replicas->settings.jupyter_prefix;
    if (prefix && begins(route, prefix))
        route += strlen(prefix);
    for (size_t i = 0; i < KG_ARRAY_LEN(resources); i++) {
        char next = begins(route, resources[i]) ? route[strlen(resources[i])] : 'x';
        if (next == '\0' || next == '/')
            return route + strlen("/api/");
    }
    return NULL;
}

// The place of the first listed notebook session of which that member is that string. NULL: none.
static const struct provisioner_place *
place_of(const struct survey_answer *answers, size_t n, const char *member, const char *value)
{
    const json_t *model;
    size_t j;
    for (size_t i = 0; value && i < n; i++)
        json_array_foreach(answers[i].body, j, model) {
            const char *text = json_string_value(json_object_get(model, member));
            if (text && strcmp(text, value) == 0)
                return &answers[i].place;
        }
    return NULL;
}

static void
record_on_answers(struct replicas *replicas, struct http_request *request,
                  const struct survey_answer *answers, size_t n)
{
    const struct provisioner_place *place =
        place_of(answers, n, "id", http_request_param(request, "id"));
    if (place)
        replicas_send(replicas, request, place, NULL);
    else
        http_request_handle(request);
}

// A notebook that has a session keeps it. A new session is made where its kernel is.
static void
creation_on_answers(struct replicas *replicas, struct http_request *request,
                    const struct survey_answer *answers, size_t n)
{
    json_auto_t *path = replicas_read_string(request, "path", NULL);
    json_auto_t *kernel = replicas_read_string(request, "kernel", "id");
    const struct provisioner_place *place = place_of(answers, n, "path", json_string_value(path));
    if (place)
        replicas_send(replicas, request, place, NULL);
    else if (!inquiry_start(replicas, request, http_request_owner(request),
                            json_string_value(kernel)))
        http_request_handle(request);
}

// Asks for the notebook sessions of the other replicas: only their holder knows them.
static void
ask_for_records(struct replicas *replicas, struct http_request *request, const char *resource,
                survey_fn fn)
{
    const char *route = http_request_route(request);
    const char *query = strchr(http_request_target(request), '?');
    KG_AUTO_FREE char *target =
        kg_asprintf("%.*ssessions%s", (int)(resource - route), route, query ? query : "");
    survey_start(replicas, request, target, fn);
}

bool
replicas_on_jupyter_request(struct replicas *replicas, struct http_request *request,
                            const char *resource, bool is_forwarded)
{
    static const char *const lists[] = {"kernels", "sessions", "contents"};
    const char *owner = http_request_owner(request);
    enum http_method method = http_request_method(request);
    bool changes = method != HTTP_GET && method != HTTP_HEAD;
    if (begins(resource, "kernels/{id}"))
        return inquiry_start(replicas, request, owner, http_request_param(request, "id"));
    if (begins(resource, "contents/{path...}")) { // its first part is a session
        const char *path = http_request_param(request, "path");
        KG_AUTO_FREE char *id = kg_strndup(path, strcspn(path, "/"));
        return inquiry_start(replicas, request, owner, id);
    }
    if (changes && strcmp(resource, "kernels") == 0)
        return inquiry_start(replicas, request, owner, NULL);
    if (is_forwarded)
        return false;
    if (replicas->left) {
        replicas_reply_lost(request);
        return true;
    }
    if (begins(resource, "sessions/{id}"))
        ask_for_records(replicas, request, resource, record_on_answers);
    else if (changes && strcmp(resource, "sessions") == 0)
        ask_for_records(replicas, request, resource, creation_on_answers);
    else if (!changes && is_among(resource, lists, KG_ARRAY_LEN(lists)))
        survey_start_list(replicas, request, http_request_target(request));
    else
        return false;
    return true;
}
