// SPDX-License-Identifier: Apache-2.0
// GET sessions: each replica describes those that it holds.
#include <string.h>

#include "http_client.h"
#include "replicas_priv.h"
#include "sessions.h"

enum { TIMEOUT_MS = 5000, MAX_BYTES = 1 << 20 };

struct session_list;

struct question {
    struct session_list *list;
    struct http_call *call;
};

struct session_list {
    struct http_request *request;
    json_t *sessions;
    struct kg_error err;
    size_t n_left;
    size_t n;
    struct question questions[PROVISIONER_REPLICAS_MAX];
};

static void
list_free(struct session_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        http_call_cancel(list->questions[i].call);
    json_decref(list->sessions);
    free(list);
}

static void
list_on_gone(void *arg)
{
    struct session_list *list = arg;
    http_request_abandon(list->request);
    list_free(list);
}

static void
list_finish(struct session_list *list)
{
    struct http_request *request = list->request;
    json_int_t total = (json_int_t)json_object_size(list->sessions);
    http_request_on_gone(request, NULL, NULL);
    if (list->err.code)
        http_reply_error(request, &list->err);
    else
        http_reply_json(request, 200,
                        json_pack("{s:O, s:I}", "sessions", list->sessions, "total", total));
    list_free(list);
}

// A list that lacks sessions would look as if they had ended.
static void
on_listed(const struct http_call_result *result, void *arg)
{
    struct question *question = arg;
    struct session_list *list = question->list;
    question->call = NULL;
    json_auto_t *body = result->err ? NULL : json_loadb(result->body, result->body_len, 0, NULL);
    json_t *theirs = json_object_get(body, "sessions");
    if (result->status == 200 && json_is_object(theirs))
        json_object_update(list->sessions, theirs);
    else
        kg_error_set(&list->err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "a replica does not list its sessions; if it has ended, another one takes "
                     "over within 20 seconds");
    if (--list->n_left == 0)
        list_finish(list);
}

static struct http_call *
ask(const struct replicas *replicas, struct question *question,
    const struct provisioner_place *place, struct kg_error *err)
{
    static const char *const names[] = {"Authorization", "X-API-Key", "Host"};
    const struct http_request *request = question->list->request;
    KG_AUTO_FREE char *mark = replicas_mark(place);
    KG_AUTO_FREE char *url =
        kg_asprintf("http://%s%s", place->address, http_request_target(request));
    char *lines[KG_ARRAY_LEN(names)] = {0};
    const char *headers[KG_ARRAY_LEN(names) + 2] = {mark};
    size_t n = 1;
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        const char *value = http_request_header(request, names[i]);
        if (value)
            headers[n++] = lines[i] = kg_asprintf("%s: %s", names[i], value);
    }
    const struct http_call_spec spec = {.method = "GET",
                                        .url = url,
                                        .headers = headers,
                                        .timeout_ms = TIMEOUT_MS,
                                        .max_body_bytes = MAX_BYTES};
    struct http_call *call =
        http_call_start(replicas->settings.client, &spec, NULL, on_listed, question, err);
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        free(lines[i]);
    return call;
}

void
session_list_start(struct replicas *replicas, struct http_request *request)
{
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    struct session_list *list = KG_NEW(struct session_list);
    list->request = request;
    list->sessions = sessions_describe(replicas->settings.sessions, http_request_owner(request));
    list->n = provisioner_other_replicas(replicas->settings.provisioner, places);
    http_request_on_gone(request, list_on_gone, list);
    for (size_t i = 0; i < list->n; i++) {
        list->questions[i].list = list;
        list->questions[i].call = ask(replicas, &list->questions[i], &places[i], &list->err);
        list->n_left += list->questions[i].call != NULL;
    }
    if (list->n_left == 0)
        list_finish(list);
}
