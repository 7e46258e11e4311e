// SPDX-License-Identifier: Apache-2.0
// GET /v2/sandboxes: an owner's sandboxes, of all gateways of the installation, in pages. A page's
// token is the start and the id of its last sandbox.

#include <string.h>

#include "e2b_priv.h"

enum { PAGE_MAX = 100, PAIRS_MAX = 32 };

struct filter {
    json_t *metadata; // an object of strings; or NULL
    const char *template;
    int64_t after_ms;  // of clock_wall_ms(); 0: any time
    const char *token; // of a page; or NULL
    int limit;
    bool ascending;
    bool running; // there are no others
};

// ---- The query ------------------------------------------------------------------------------

static char *
decode(const char *text, size_t len)
{
    char *plain = kg_strndup(text, len);
    if (percent_decode(plain, &len, PERCENT_FORM) < 0) {
        free(plain);
        return NULL;
    }
    plain[len] = '\0';
    return plain;
}

// A query string within the query, so that it is quoted once more. NULL: it is malformed.
static json_t *
metadata_parse(const char *text)
{
    json_auto_t *metadata = json_object();
    while (*text) {
        size_t len = strcspn(text, "&"), name_len = strcspn(text, "=");
        if (name_len >= len || json_object_size(metadata) == PAIRS_MAX)
            return NULL;
        KG_AUTO_FREE char *once = decode(text, name_len);
        KG_AUTO_FREE char *value_once = decode(text + name_len + 1, len - name_len - 1);
        KG_AUTO_FREE char *name = once ? decode(once, strlen(once)) : NULL;
        KG_AUTO_FREE char *value = value_once ? decode(value_once, strlen(value_once)) : NULL;
        if (!name || !value || json_object_set_new(metadata, name, json_string(value)) < 0)
            return NULL;
        text += len + (text[len] == '&');
    }
    return KG_STEAL(metadata);
}

// Reads a whole number from 1 to PAGE_MAX.
static int
limit_parse(const char *text, int *ret, struct kg_error *err)
{
    size_t len = text ? strlen(text) : 0;
    *ret = PAGE_MAX;
    if (!text)
        return 0;
    if (len == 0 || len > 3 || strspn(text, "0123456789") != len || atoi(text) < 1 ||
        atoi(text) > PAGE_MAX)
        return kg_error_set(err, KG_INVALID, 0, "limit must be a number from 1 to %d", PAGE_MAX);
    *ret = atoi(text);
    return 0;
}

static bool
names(const char *list, const char *name)
{
    size_t len = strlen(name);
    while (*list) {
        size_t n = strcspn(list, ",");
        if (n == len && strncmp(list, name, len) == 0)
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

static int
filter_parse(const struct http_request *request, struct filter *ret, struct kg_error *err)
{
    const char *metadata = http_request_query(request, "metadata");
    const char *order = http_request_query(request, "order");
    const char *state = http_request_query(request, "state");
    const char *after = http_request_query(request, "startedAfter");
    *ret = (struct filter){
        .template = http_request_query(request, "template"),
        .token = http_request_query(request, "nextToken"),
        .ascending = order && strcmp(order, "asc") == 0,
        .running = !state || names(state, "running"),
    };
    if (ret->token && !*ret->token)
        ret->token = NULL;
    if (metadata && *metadata && !(ret->metadata = metadata_parse(metadata)))
        return kg_error_set(err, KG_INVALID, 0,
                            "metadata must be pairs name=value, percent-encoded, with & between");
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return kg_error_set(err, KG_INVALID, 0, "order must be asc or desc");
    if (after && clock_parse_rfc3339(after, &ret->after_ms) < 0)
        return kg_error_set(err, KG_INVALID, 0,
                            "startedAfter must be a time such as 2026-11-29T10:00:00Z");
    return limit_parse(http_request_query(request, "limit"), &ret->limit, err);
}

// ---- The list -------------------------------------------------------------------------------

struct gathering {
    const struct e2b *e2b;
    bool for_gateways;
    json_t *models;
};

static void
gather(struct session *session, void *arg)
{
    const struct gathering *gathering = arg;
    if (sandbox_face_member(session, SANDBOX_TEMPLATE) && session_sandbox(session))
        json_array_append_new(gathering->models, sandbox_model_listed(gathering->e2b, session,
                                                                      gathering->for_gateways));
}

static const char *
text_of(const json_t *model, const char *name)
{
    const char *text = json_string_value(json_object_get(model, name));
    return text ? text : "";
}

static bool
passes(const struct filter *filter, const json_t *model)
{
    const char *name;
    json_t *value;
    int64_t started_ms;
    if (clock_parse_rfc3339(text_of(model, "startedAt"), &started_ms) < 0 ||
        (filter->after_ms && started_ms < filter->after_ms) ||
        (filter->template && strcmp(filter->template, text_of(model, "templateID")) != 0))
        return false;
    json_object_foreach(filter->metadata, name, value)
        if (!json_equal(json_object_get(json_object_get(model, "metadata"), name), value))
            return false;
    return true;
}

// Our times have one form, so they can be compared as text.
static char *
token_of(const json_t *model)
{
    return kg_asprintf("%s_%s", text_of(model, "startedAt"), text_of(model, "sandboxID"));
}

static int
compare(const void *one, const void *other)
{
    KG_AUTO_FREE char *token = token_of(*(const json_t *const *)one);
    KG_AUTO_FREE char *other_token = token_of(*(const json_t *const *)other);
    return strcmp(token, other_token);
}

// The models of a page in their order, a new reference. `ret_next`: the token of the next one, to
// be freed; NULL: there is none.
static json_t *
page_of(const struct filter *filter, const json_t *models, char **ret_next)
{
    size_t n = json_array_size(models), i, n_passed = 0;
    const json_t **sorted = kg_calloc(n + 1, sizeof *sorted);
    const json_t *last = NULL;
    json_t *model, *page = json_array();
    json_array_foreach(models, i, model)
        if (passes(filter, model))
            sorted[n_passed++] = model;
    qsort(sorted, n_passed, sizeof *sorted, compare);
    *ret_next = NULL;
    for (i = 0; i < n_passed; i++) {
        const json_t *next = sorted[filter->ascending ? i : n_passed - 1 - i];
        KG_AUTO_FREE char *token = token_of(next);
        int order = filter->token ? strcmp(token, filter->token) : 0;
        if (filter->token && (filter->ascending ? order <= 0 : order >= 0))
            continue;
        if (json_array_size(page) == (size_t)filter->limit) {
            *ret_next = token_of(last);
            break;
        }
        json_object_del((json_t *)(uintptr_t)next, SANDBOX_KEY);
        json_object_del((json_t *)(uintptr_t)next, SANDBOX_BODY);
        json_array_append(page, (json_t *)(uintptr_t)next);
        last = next;
    }
    free(sorted);
    return page;
}

void
handle_sandbox_list(struct http_request *request, void *arg)
{
    const struct e2b *e2b = arg;
    struct kg_error err = {0};
    struct filter filter;
    const json_t *body;
    size_t i;
    int ok = filter_parse(request, &filter, &err);
    json_auto_t *metadata = filter.metadata;
    if (ok < 0) {
        http_reply_error(request, &err);
        return;
    }
    json_auto_t *models = json_array();
    bool for_gateways = http_request_is_forwarded(request); // by one that makes the page
    struct gathering gathering = {e2b, for_gateways, models};
    if (filter.running)
        sessions_each(e2b->settings.face->sessions, http_request_owner(request), gather,
                      &gathering);
    json_array_foreach(http_request_elsewhere(request), i, body)
        json_array_extend(models, (json_t *)(uintptr_t)body);
    if (for_gateways) {
        http_reply_json(request, 200, KG_STEAL(models));
        return;
    }
    KG_AUTO_FREE char *next = NULL;
    json_t *page = page_of(&filter, models, &next);
    if (next)
        http_reply_header(request, "X-Next-Token", next);
    http_reply_json(request, 200, page);
}
