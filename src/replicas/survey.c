// SPDX-License-Identifier: Apache-2.0
// Asks the other replicas on behalf of a client. Each answers about what it holds.
#include <string.h>

#include "http_client.h"
#include "replicas_priv.h"

// All answers together have at most 10,000 sessions (max-sessions) of the owner's, some 300 bytes
// each.
enum { TIMEOUT_MS = 5000, MAX_BYTES = 8 << 20 };

// The client's credential as a header, wherever it had that; NULL: none. To be freed.
static char *
authorization_of(const struct http_request *request)
{
    bool is_login;
    KG_AUTO_FREE char *credential = http_request_credential(request, &is_login);
    for (const char *c = credential; c && *c; c++)
        if (*c <= ' ' || *c > '~') // it may come from a query, and would end the header
            return NULL;
    return credential ? kg_asprintf("Authorization: Bearer %s", credential) : NULL;
}

// Sends `spec` to the replica at `place`, with the credential of the request's client. A call with
// a body has the headers that say what it is.
static struct http_call *
call_start(struct replicas *replicas, struct http_request *request,
           const struct http_call_spec *spec, const char *target,
           const struct provisioner_place *place, http_call_fn fn, void *arg, struct kg_error *err)
{
    static const char *const names[] = {"Host", "Content-Type", "Accept", "Mcp-Session-Id",
                                        "MCP-Protocol-Version"};
    size_t n_names = spec->body ? KG_ARRAY_LEN(names) : 1;
    KG_AUTO_FREE char *mark = replicas_mark(place, 1);
    KG_AUTO_FREE char *authorization = authorization_of(request);
    KG_AUTO_FREE char *url = kg_asprintf("http://%s%s", place->address, target);
    char *lines[KG_ARRAY_LEN(names)] = {0};
    const char *headers[KG_ARRAY_LEN(names) + 3] = {mark, authorization};
    size_t n = authorization ? 2 : 1;
    for (size_t i = 0; i < n_names; i++) {
        const char *value = http_request_header(request, names[i]);
        if (value)
            headers[n++] = lines[i] = kg_asprintf("%s: %s", names[i], value);
    }
    struct http_call_spec whole = *spec;
    whole.url = url;
    whole.headers = headers;
    whole.timeout_ms = TIMEOUT_MS;
    struct http_call *call = http_call_start(replicas->settings.client, &whole, NULL, fn, arg, err);
    for (size_t i = 0; i < n_names; i++)
        free(lines[i]);
    return call;
}

// ---- Questions ------------------------------------------------------------------------------

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

// A list that lacks sessions would look as if they had ended. A replica without sessions of the
// client's has nothing to add.
static bool
is_missed(const struct survey *survey, const struct provisioner_place *place)
{
    const char *owner = http_request_owner(survey->request);
    return !owner ||
           provisioner_holds_for(survey->replicas->settings.provisioner, place->id, owner);
}

static void
on_answer(const struct http_call_result *result, void *arg)
{
    struct question *question = arg;
    struct survey *survey = question->survey;
    struct survey_answer *answer = &survey->answers[question - survey->questions];
    question->call = NULL;
    if (!result->err && result->status == 200)
        answer->body = json_loadb(result->body, result->body_len, 0, NULL);
    if (!answer->body && is_missed(survey, &answer->place))
        kg_error_set(&survey->err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "a replica does not list its sessions; if it has ended, another one takes "
                     "over within 20 seconds");
    if (--survey->n_left == 0)
        survey_finish(survey);
}

void
survey_start(struct replicas *replicas, struct http_request *request, const char *target,
             survey_fn fn)
{
    const struct http_call_spec spec = {.method = "GET", .max_body_bytes = MAX_BYTES};
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
        question->call = call_start(replicas, request, &spec, target, &places[i], on_answer,
                                    question, &survey->err);
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
        if (answers[i].body)
            json_array_append(bodies, answers[i].body);
    http_request_set_elsewhere(request, bodies);
    http_request_handle(request);
}

void
survey_start_list(struct replicas *replicas, struct http_request *request, const char *target)
{
    survey_start(replicas, request, target, list_on_answers);
}

// ---- News -----------------------------------------------------------------------------------

static void
on_told(const struct http_call_result *result, void *arg)
{
    (void)arg;
    if (result->err)
        log_warning("another replica was not told", LOG_ERR(result->err));
}

void
survey_tell(struct replicas *replicas, struct http_request *request)
{
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    struct http_call_spec spec = {.method = "POST"};
    spec.body = http_request_body(request, &spec.body_len);
    size_t n = provisioner_other_replicas(replicas->settings.provisioner, places);
    for (size_t i = 0; i < n; i++) {
        struct kg_error err = {0};
        if (!call_start(replicas, request, &spec, http_request_target(request), &places[i], on_told,
                        NULL, &err))
            on_told(&(struct http_call_result){.err = &err}, NULL);
    }
}
