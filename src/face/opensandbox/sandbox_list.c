// SPDX-License-Identifier: Apache-2.0
// GET /v1/sandboxes: those of an owner, the newest first, in pages.

#include <string.h>
#include <strings.h>

#include "opensandbox_priv.h"
#include "sessions.h"

enum { PAGE_SIZE = 20, PAGE_SIZE_MAX = 10000, PAGE_MAX = 1000000 };

// ---- Filters --------------------------------------------------------------------------------

// Several states are alternatives; clients write them in any case.
static bool
has_state(const struct http_request *request, const json_t *sandbox)
{
    const json_t *status = json_object_get(sandbox, "status");
    const char *state = json_string_value(json_object_get(status, "state"));
    const char *wanted = http_request_query(request, "state");
    if (!wanted)
        return true;
    for (; wanted; wanted = http_request_query_next(request, "state", wanted))
        if (state && strcasecmp(state, wanted) == 0)
            return true;
    return false;
}

// `metadata` is itself a query: name=value&name=value, percent-encoded. A new reference.
static json_t *
parse_metadata(const char *text, struct kg_error *err)
{
    json_auto_t *ret = json_object();
    while (text && *text) {
        size_t len = strcspn(text, "&"), name_len = strcspn(text, "=&");
        KG_AUTO_FREE char *name = kg_strndup(text, name_len);
        KG_AUTO_FREE char *value =
            kg_strndup(text + name_len + (name_len < len), len - name_len - (name_len < len));
        size_t value_len = strlen(value);
        if (name_len == len || percent_decode(name, &name_len, PERCENT_FORM) < 0 ||
            percent_decode(value, &value_len, PERCENT_FORM) < 0) {
            kg_error_set(err, KG_INVALID, 0, "metadata must be name=value pairs, joined by &");
            return NULL;
        }
        name[name_len] = value[value_len] = '\0';
        if (json_object_set_new(ret, name, json_string(value)) < 0) {
            kg_error_set(err, KG_INVALID, 0, "metadata is not UTF-8");
            return NULL;
        }
        text += len + (text[len] == '&');
    }
    return session_metadata_check(ret, err) == 0 ? json_incref(ret) : NULL;
}

static bool
has_metadata(const json_t *sandbox, const json_t *wanted)
{
    const json_t *metadata = json_object_get(sandbox, "metadata");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)wanted, key, value) {
        if (!json_equal(value, json_object_get(metadata, key)))
            return false;
    }
    return true;
}

// ---- All of them ----------------------------------------------------------------------------

static void
add_one(struct session *session, void *all)
{
    json_array_append_new(all, sandbox_describe(session));
}

// Those of the other gateways of the installation.
static void
add_elsewhere(json_t *all, const struct http_request *request)
{
    size_t i;
    const json_t *body;
    json_array_foreach(http_request_elsewhere(request), i, body) {
        const json_t *items = json_object_get(body, "items");
        if (json_is_array(items))
            json_array_extend(all, (json_t *)(uintptr_t)items);
    }
}

static const char *
text_of(const json_t *sandbox, const char *name)
{
    const char *text = json_string_value(json_object_get(sandbox, name));
    return text ? text : "";
}

static int
compare(const void *one, const void *other)
{
    const json_t *a = *(json_t *const *)one, *b = *(json_t *const *)other;
    int order = strcmp(text_of(b, "createdAt"), text_of(a, "createdAt"));
    return order ? order : strcmp(text_of(a, "id"), text_of(b, "id"));
}

// Those that are wanted, in their order, borrowed from `all`; to be freed.
static json_t **
select_sandboxes(const struct http_request *request, const json_t *all, const json_t *metadata,
                 size_t *ret_n)
{
    json_t **found = kg_calloc(json_array_size(all) + 1, sizeof *found);
    size_t i, n = 0;
    json_t *sandbox;
    json_array_foreach(all, i, sandbox)
        if (has_state(request, sandbox) && has_metadata(sandbox, metadata))
            found[n++] = sandbox;
    qsort(found, n, sizeof *found, compare);
    *ret_n = n;
    return found;
}

static json_t *
page_of(json_t *const *found, size_t n, size_t page, size_t size)
{
    size_t first = (page - 1) * size;
    json_t *items = json_array();
    for (size_t i = first; i < n && i < first + size; i++)
        json_array_append(items, found[i]);
    size_t n_pages = (n + size - 1) / size;
    return json_pack("{s:o, s:{s:I, s:I, s:I, s:I, s:b}}", "items", items, "pagination", "page",
                     (json_int_t)page, "pageSize", (json_int_t)size, "totalItems", (json_int_t)n,
                     "totalPages", (json_int_t)n_pages, "hasNextPage", (int)(page < n_pages));
}

void
handle_os_list(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    int64_t page, size;
    size_t n;
    json_auto_t *metadata = parse_metadata(http_request_query(request, "metadata"), &err);
    if (!metadata ||
        parse_number(http_request_query(request, "page"), "page", 1, PAGE_MAX, &page, &err) < 0 ||
        parse_number(http_request_query(request, "pageSize"), "pageSize", PAGE_SIZE, PAGE_SIZE_MAX,
                     &size, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    if (page < 1 || size < 1) {
        kg_error_set(&err, KG_INVALID, 0, "page and pageSize begin with 1");
        http_reply_error(request, &err);
        return;
    }
    json_auto_t *all = json_array();
    sessions_each(self->settings.face->sessions, http_request_owner(request), add_one, all);
    add_elsewhere(all, request);
    KG_AUTO_FREE json_t **found = select_sandboxes(request, all, metadata, &n);
    http_reply_json(request, 200, page_of(found, n, (size_t)page, (size_t)size));
}
