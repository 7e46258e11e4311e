// SPDX-License-Identifier: Apache-2.0
// Answers and fields that the handlers share.

#include <ctype.h>
#include <string.h>

#include "opensandbox_priv.h"
#include "sessions.h"

// ---- Errors ---------------------------------------------------------------------------------

static char *
key_of(const struct http_request *request)
{
    const char *key = http_request_header(request, KEY_HEADER);
    return key && *key ? kg_strdup(key) : NULL;
}

// OpenSandbox's codes are in capitals.
static json_t *
describe_code(const char *name)
{
    KG_AUTO_FREE char *text = kg_strdup(name);
    for (char *c = text; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    return json_string(text);
}

static json_t *
describe_error(struct http_request *request, const struct kg_error *err, int *status)
{
    (void)request;
    (void)status;
    const char *name = err->code == KG_SESSION_NOT_FOUND ? "sandbox_not_found"
                       : err->code == KG_MAX_SESSIONS    ? "max_sandboxes"
                                                         : kg_code_info(err->code)->name;
    return json_pack("{s:o, s:s}", "code", describe_code(name), "message", err->message);
}

const struct http_dialect opensandbox_dialect = {
    .credential = key_of,
    .describe_error = describe_error,
};

void
reply_not_served(struct http_request *request, int status, const char *what)
{
    http_reply_json(request, status,
                    json_pack("{s:s, s:s}", "code", "NOT_SUPPORTED", "message", what));
}

void
os_reply_empty(struct http_request *request)
{
    http_reply(request, 200, NULL, "", 0);
}

struct session *
sandbox_of(const struct http_request *request, const struct opensandbox *self, struct kg_error *err)
{
    return sessions_find(self->settings.face->sessions, http_request_owner(request),
                         http_request_param(request, "id"), err);
}

struct session *
find_sandbox(struct http_request *request, const struct opensandbox *self)
{
    struct kg_error err = {0};
    struct session *session = sandbox_of(request, self, &err);
    if (!session)
        http_reply_error(request, &err);
    return session;
}

// ---- Fields ---------------------------------------------------------------------------------

json_t *
os_body_object(struct http_request *request, struct kg_error *err)
{
    json_t *body = http_request_json(request, err);
    if (!body || json_is_object(body))
        return body;
    json_decref(body);
    kg_error_set(err, KG_INVALID, 0, "the body must be a JSON object");
    return NULL;
}

int
os_take_string(const json_t *root, const char *name, const char **ret, struct kg_error *err)
{
    const json_t *value = json_object_get(root, name);
    *ret = json_string_value(value);
    if (value && !json_is_null(value) && !*ret)
        return kg_error_set(err, KG_INVALID, 0, "%s must be a string", name);
    return 0;
}

int
os_take_env(const json_t *root, const char *name, const json_t **ret, struct kg_error *err)
{
    const json_t *env = json_object_get(root, name);
    *ret = json_is_null(env) ? NULL : env;
    return *ret ? session_env_check(env, err) : 0;
}

int
parse_number(const char *text, const char *name, int64_t fallback, int64_t max, int64_t *ret,
             struct kg_error *err)
{
    enum { DIGITS_MAX = 18 };
    size_t len = text ? strlen(text) : 0;
    bool is_number = len > 0 && len <= DIGITS_MAX && strspn(text, "0123456789") == len;
    *ret = is_number ? strtoll(text, NULL, 10) : fallback;
    if (text && (!is_number || *ret > max))
        return kg_error_set(err, KG_INVALID, 0, "%s must be a whole number of at most %lld", name,
                            (long long)max);
    return 0;
}

// ---- Times ----------------------------------------------------------------------------------

json_t *
os_rfc3339(int64_t wall_ms)
{
    char text[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(wall_ms, text);
    return json_string(text);
}
