// SPDX-License-Identifier: Apache-2.0
// Asks the other replicas on behalf of a client. Each answers about what it holds.
#include <assert.h>
#include <string.h>

#include "http_client.h"
#include "replicas_priv.h"

// All answers together have at most 10,000 sessions (max-sessions) of the owner's, some 400 bytes
// each and as much metadata as one may have (4 KiB).
enum { TIMEOUT_MS = 5000, MAX_BYTES = 48 << 20 };

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

enum { HEADERS_MAX = 8 };

// Sends `spec` to the replica at `place`, with the Host and the credential of the request's client,
// and those of the request's `headers`, NULL-terminated.
static struct http_call *
call_start(struct replicas *replicas, struct http_request *request,
           const struct http_call_spec *spec, const char *target, const char *const *headers,
           const struct provisioner_place *place, http_call_fn fn, void *arg, struct kg_error *err)
{
    KG_AUTO_FREE char *forwarded = replicas_forwarded_line(place, 1);
    KG_AUTO_FREE char *authorization = authorization_of(request);
    KG_AUTO_FREE char *url = kg_asprintf("http://%s%s", place->address, target);
    char *copied[HEADERS_MAX] = {0};
    const char *lines[HEADERS_MAX + 3] = {forwarded, authorization};
    size_t n = authorization ? 2 : 1, n_copied = 0;
    for (const char *name = "Host"; name; name = *headers++) {
        const char *value = http_request_header(request, name);
        assert(n_copied < HEADERS_MAX);
        if (value)
            lines[n++] = copied[n_copied++] = kg_asprintf("%s: %s", name, value);
    }
    struct http_call_spec whole = *spec;
    whole.url = url;
    whole.headers = lines;
    whole.timeout_ms = TIMEOUT_MS;
    struct http_call *call = http_call_start(replicas->settings.client, &whole, NULL, fn, arg, err);
    for (size_t i = 0; i < n_copied; i++)
        free(copied[i]);
    return call;
}

// ---- Questions ------------------------------------------------------------------------------

struct question {
    struct fan_out *fan_out;
    struct http_call *call;
};

struct fan_out {
    struct replicas *replicas;
    struct http_request *request;
    struct fan_out_asker asker;
    struct kg_error err;
    size_t n_left;
    size_t n;
    struct question questions[PROVISIONER_REPLICAS_MAX];
    struct fan_out_answer answers[PROVISIONER_REPLICAS_MAX];
};

static void
fan_out_free(struct fan_out *fan_out)
{
    for (size_t i = 0; i < fan_out->n; i++) {
        http_call_cancel(fan_out->questions[i].call);
        json_decref(fan_out->answers[i].body);
    }
    free(fan_out);
}

static void
fan_out_discard(void *arg)
{
    struct fan_out *fan_out = arg;
    if (fan_out->asker.discard)
        fan_out->asker.discard(fan_out->asker.arg);
    fan_out_free(fan_out);
}

static void
fan_out_finish(struct fan_out *fan_out)
{
    struct http_request *request = fan_out->request;
    if (fan_out->err.code) {
        http_reply_error(request, &fan_out->err);
        return;
    }
    http_request_disown(request);
    fan_out->asker.fn(request, fan_out->answers, fan_out->n, fan_out->asker.arg);
    fan_out_free(fan_out);
}

// A list that lacks sessions would look as if they had ended. A replica without sessions of the
// client's has nothing to add.
static void
note_missing(struct fan_out *fan_out, const struct provisioner_place *place)
{
    const char *owner = http_request_owner(fan_out->request);
    if (!owner || provisioner_holds_for(fan_out->replicas->settings.provisioner, place->id, owner))
        kg_error_set(&fan_out->err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "a replica does not list its sessions; if it has ended, another one takes "
                     "over within 20 seconds");
}

static void
on_answer(const struct http_call_result *result, void *arg)
{
    struct question *question = arg;
    struct fan_out *fan_out = question->fan_out;
    struct fan_out_answer *answer = &fan_out->answers[question - fan_out->questions];
    question->call = NULL;
    if (!result->err && result->status == 200)
        answer->body = json_loadb(result->body, result->body_len, 0, NULL);
    if (!answer->body)
        note_missing(fan_out, &answer->place);
    if (--fan_out->n_left == 0)
        fan_out_finish(fan_out);
}

void
fan_out_start(struct replicas *replicas, struct http_request *request, const char *target,
              const struct fan_out_asker *asker)
{
    static const char *const no_headers[] = {NULL};
    const struct http_call_spec spec = {.method = "GET", .max_body_bytes = MAX_BYTES};
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    struct fan_out *fan_out = KG_NEW(struct fan_out);
    fan_out->replicas = replicas;
    fan_out->request = request;
    fan_out->asker = *asker;
    fan_out->n = provisioner_other_replicas(replicas->settings.provisioner, places);
    http_request_own(request, fan_out, fan_out_discard);
    for (size_t i = 0; i < fan_out->n; i++) {
        struct question *question = &fan_out->questions[i];
        question->fan_out = fan_out;
        fan_out->answers[i].place = places[i];
        struct kg_error err = {0};
        question->call = call_start(replicas, request, &spec, target, no_headers, &places[i],
                                    on_answer, question, &err);
        if (question->call)
            fan_out->n_left++;
        else
            note_missing(fan_out, &places[i]);
    }
    if (fan_out->n_left == 0)
        fan_out_finish(fan_out);
}

// ---- Lists ----------------------------------------------------------------------------------

static void
list_on_answers(struct http_request *request, const struct fan_out_answer *answers, size_t n,
                void *arg)
{
    (void)arg;
    json_t *bodies = json_array();
    for (size_t i = 0; i < n; i++)
        if (answers[i].body)
            json_array_append(bodies, answers[i].body);
    http_request_set_elsewhere(request, bodies);
    http_request_handle(request);
}

void
fan_out_list(struct replicas *replicas, struct http_request *request, const char *target)
{
    static const struct fan_out_asker asker = {.fn = list_on_answers};
    fan_out_start(replicas, request, target, &asker);
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
fan_out_tell(struct replicas *replicas, struct http_request *request, const char *const *headers)
{
    struct provisioner_place places[PROVISIONER_REPLICAS_MAX];
    struct http_call_spec spec = {.method = "POST"};
    spec.body = http_request_body(request, &spec.body_len);
    size_t n = provisioner_other_replicas(replicas->settings.provisioner, places);
    for (size_t i = 0; i < n; i++) {
        struct kg_error err = {0};
        if (!call_start(replicas, request, &spec, http_request_target(request), headers, &places[i],
                        on_told, NULL, &err))
            on_told(&(struct http_call_result){.err = &err}, NULL);
    }
}
