// SPDX-License-Identifier: Apache-2.0
// How E2B's clients say who they are, what they read of an error, and which sandbox they mean.

#include <sodium.h>
#include <string.h>

#include "e2b_priv.h"
#include "session_tokens.h"

// ---- Credentials ----------------------------------------------------------------------------

// SDKs until 2.45 accept only keys of the form e2b_<hex>: that of the bytes of one of our keys. To
// be freed; NULL: the key is something else.
static char *
key_in_hex(const char *key)
{
    static const char prefix[] = "e2b_";
    enum { KEY_MAX = 1024 };
    char plain[KEY_MAX + 1] = "";
    size_t len, skip = strlen(prefix);
    if (strncmp(key, prefix, skip) != 0 ||
        sodium_hex2bin((unsigned char *)plain, KEY_MAX, key + skip, strlen(key + skip), NULL, &len,
                       NULL) != 0 ||
        len == 0)
        return NULL;
    for (size_t i = 0; i < len; i++)
        if (plain[i] <= ' ' || plain[i] > '~')
            return NULL;
    return kg_strdup(plain);
}

static const char *
header(const struct http_request *request, const char *name)
{
    const char *value = http_request_header(request, name);
    return value && *value ? value : NULL;
}

static char *
api_key(const struct http_request *request)
{
    const char *key = header(request, "X-API-Key");
    char *plain = key ? key_in_hex(key) : NULL;
    return plain ? plain : key ? kg_strdup(key) : NULL;
}

// The SDKs send no other one with what they ask of contexts than the traffic token.
static char *
sandbox_credential(const struct http_request *request)
{
    const char *token = header(request, "X-Access-Token");
    char *key = token ? kg_strdup(token) : api_key(request);
    const char *traffic = key ? NULL : header(request, E2B_TRAFFIC_HEADER);
    return traffic ? kg_strdup(traffic) : key;
}

// ---- Errors ---------------------------------------------------------------------------------

static json_t *
describe(const char *message, int status)
{
    return json_pack("{s:i, s:s}", "code", status, "message", message);
}

// A creation that failed is repeated by the SDKs at these statuses, and takes as long each time.
// While the gateway drains another one may do it.
static json_t *
describe_error(struct http_request *request, const struct kg_error *err, int *status)
{
    if (*status > 500 && err->code != KG_DRAINING)
        http_reply_header(request, "Should-Retry", "false");
    return describe(err->message, *status);
}

// Nobody has a sandbox of that id, or it has ended: the SDKs tell this by the status and by the
// words "was not found".
static json_t *
describe_sandbox_error(struct http_request *request, const struct kg_error *err, int *status)
{
    const struct e2b *e2b = http_request_arg(request);
    const char *id = http_request_header(request, E2B_SANDBOX_HEADER);
    bool is_about_it = err->code == KG_SESSION_NOT_FOUND || err->code == KG_UNAUTHORIZED ||
                       err->code == KG_TOKEN_SCOPE;
    if (!is_about_it || (id && sessions_find_by_sandbox(e2b->settings.face->sessions, id)))
        return describe(err->message, *status);
    *status = 502;
    return describe(id ? "The sandbox was not found"
                       : "The sandbox was not found: the header E2b-Sandbox-Id names none",
                    *status);
}

const struct http_dialect e2b_dialect = {.credential = api_key, .describe_error = describe_error};
const struct http_dialect e2b_sandbox_dialect = {.credential = sandbox_credential,
                                                 .describe_error = describe_sandbox_error};

// ---- The sandbox ----------------------------------------------------------------------------

struct session *
e2b_sandbox(struct http_request *request, const struct e2b *e2b, struct kg_error *err)
{
    const char *id = http_request_header(request, E2B_SANDBOX_HEADER);
    return sessions_find(e2b->settings.face->sessions, http_request_owner(request), id ? id : "",
                         err);
}

struct session *
e2b_path_sandbox(struct http_request *request, const struct e2b *e2b)
{
    struct kg_error err;
    const char *id = http_request_param(request, "id");
    struct session *session =
        sessions_find(e2b->settings.face->sessions, http_request_owner(request), id, &err);
    if (!session) {
        kg_error_set(&err, KG_SESSION_NOT_FOUND, 0, "Sandbox \"%.64s\" was not found", id);
        http_reply_error(request, &err);
    }
    return session;
}

bool
e2b_is_for_code(const struct http_request *request)
{
    const char *port = http_request_header(request, E2B_PORT_HEADER);
    return port && atoi(port) == E2B_CODE_PORT;
}

// ---- Tokens ---------------------------------------------------------------------------------

static char *
token_of(const struct e2b *e2b, const char *owner, const char *id, const char *label, int scopes)
{
    _Static_assert((int)SESSION_TOKEN_SCOPES_MAX >= (int)HTTP_SCOPES_TEXT_MAX, "names of scopes");
    struct session_token_claim claim = {0};
    snprintf(claim.owner, sizeof claim.owner, "%s", owner);
    snprintf(claim.session_id, sizeof claim.session_id, "%s", id);
    http_scopes_format(scopes, claim.scopes);
    return session_token_standing(e2b->settings.tokens, &claim, id, label);
}

char *
e2b_envd_token(const struct e2b *e2b, const char *owner, const char *id)
{
    return token_of(e2b, owner, id, "envd", HTTP_SCOPES);
}

char *
e2b_traffic_token(const struct e2b *e2b, const char *owner, const char *id)
{
    return token_of(e2b, owner, id, "traffic", HTTP_SCOPE_PORTS);
}
