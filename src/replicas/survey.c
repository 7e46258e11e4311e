// SPDX-License-Identifier: Apache-2.0
// Asks the other replicas on behalf of a client. Each answers about what it holds.
#include <string.h>

#include "http_client.h"
#include "replicas_priv.h"

enum { TIMEOUT_MS = 5000, MAX_BYTES = 1 << 20 };

struct question {
    struct survey *survey;
    struct http_call *call;
};

struct survey {
    struct replicas *replicas;
    struct http_request *request;
    survey_fn fn;
    struct kg_error err;
    size_t n_left;
    size_t n;
    struct question questions[PROVISIONER_REPLICAS_MAX];
    struct survey_answer answers[PROVISIONER_REPLICAS_MAX];
};

static void
survey_free(struct survey *survey)
{
    for (size_t i = 0; i < survey->n; i++) {
        http_call_cancel(survey->questions[i].call);
        json_decref(survey->answers[i].body);
    }
    free(survey);
}

static void
survey_on_gone(void *arg)
{
    struct survey *survey = arg;
    http_request_abandon(survey->request);
    survey_free(survey);
}

static void
survey_finish(struct survey *survey)
{
    struct http_request *request = survey->request;
    http_request_on_gone(request, NULL, NULL);
    if (survey->err.code)
        http_reply_error(request, &survey->err);
    else
        survey->fn(survey->replicas, request, survey->answers, survey->n);
    survey_free(survey);
}

// A list that lacks sessions would look as if they had ended.
static void
on_answer(const struct http_call_result *result, void *arg)
{
    struct question *question = arg;
    struct survey *survey = question->survey;
    json_t *body = result->err ? NULL : json_loadb(result->body, result->body_len, 0, NULL);
    question->call = NULL;
    survey->answers[question - survey->questions].body = body;
    if (result->status != 200 || !body)
        kg_error_set(&survey->err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "a replica does not list its sessions; if it has ended, another one takes "
                     "over within 20 seconds");
    if (--survey->n_left == 0)
        survey_finish(survey);
}

static struct http_call *
ask(struct question *question, const char *target, const struct provisioner_place *place,
    struct kg_error *err)
{
    static const char *const names[] = {"Authorization", "X-API-Key", "Host"};
    const struct survey *survey = question->survey;
    KG_AUTO_FREE char *mark = replicas_mark(place, 1);
    KG_AUTO_FREE char *url = kg_asprintf("http://%s%s", place->address, target);
    char *lines[KG_ARRAY_LEN(names)] = {0};
    const char *headers[KG_ARRAY_LEN(names) + 2] = {mark};
    size_t n = 1;
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        const char *value = http_request_header(survey->request, names[i]);
        if (value)
            headers[n++] = lines[i] = kg_asprintf("%s: %s", names[i], value);
    }
    const struct http_call_spec spec = {.method = "GET",
                                        .url = url,
                                        .headers = headers,
                                        .timeout_ms = TIMEOUT_MS,
                                        .max_body_bytes = MAX_BYTES};
    struct http_call *call =
        http_call_start(survey->replicas->settings.client, &spec, NULL, on_answer, question, err);
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        free(lines[i]);
    return call;
}

void
survey_start(struct replicas *replicas, struct http_request *request, const char *target,
             survey_fn fn)
{
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    struct survey *survey = KG_NEW(struct survey);
    survey->replicas = replicas;
    survey->request = request;
    survey->fn = fn;
    survey->n = provisioner_other_replicas(replicas->settings.provisioner, places);
    http_request_on_gone(request, survey_on_gone, survey);
    for (size_t i = 0; i < survey->n; i++) {
        struct question *question = &survey->questions[i];
        question->survey = survey;
        survey->answers[i].place = places[i];
        question->call = ask(question, target, &places[i], &survey->err);
        survey->n_left += question->call != NULL;
    }
    if (survey->n_left == 0)
        survey_finish(survey);
}

// ---- Lists ----------------------------------------------------------------------------------

static void
list_on_answers(struct replicas *replicas, struct http_request *request,
                const struct survey_answer *answers, size_t n)
{
    (void)replicas;
    json_t *bodies = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append(bodies, answers[i].body);
    http_request_set_elsewhere(request, bodies);
    http_request_handle(request);
}

void
survey_start_list(struct replicas *replicas, struct http_request *request)
{
    survey_start(replicas, request, http_request_target(request), list_on_answers);
}
