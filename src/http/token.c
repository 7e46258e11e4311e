// SPDX-License-Identifier: Apache-2.0
// Tokens: credentials for one session, with scopes. This file alone decides what a request with a
// token may do: the flags of its route must have a scope (HTTP_SCOPE_…), the token must have that
// scope, too, and the request must concern the token's session and nothing else.

#include <assert.h>
#include <string.h>

#include "http_priv.h"

// Where a session is named in a body, that is searched on the loop: 3 ms.
enum { NAMING_BODY_MAX = 1 << 20 };

static const struct {
    const char *name;
    int scope;
    int includes;
} scopes[] = {
    {"read", HTTP_SCOPE_READ, 0},
    {"run", HTTP_SCOPE_RUN, HTTP_SCOPE_READ},
    {"files:read", HTTP_SCOPE_FILES_READ, 0},
    {"files", HTTP_SCOPE_FILES, HTTP_SCOPE_FILES_READ},
    {"terminal", HTTP_SCOPE_TERMINAL, 0},
    {"ports", HTTP_SCOPE_PORTS, 0},
};

int
http_scope_find(const char *name)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(scopes); i++)
        if (strcmp(scopes[i].name, name) == 0)
            return scopes[i].scope;
    return 0;
}

json_t *
http_scopes_describe(int of)
{
    json_t *names = json_array();
    for (size_t i = 0; i < KG_ARRAY_LEN(scopes); i++)
        if (of & scopes[i].scope)
            json_array_append_new(names, json_string(scopes[i].name));
    return names;
}

void
http_scopes_format(int of, char ret[HTTP_SCOPES_TEXT_MAX + 1])
{
    KG_AUTO_BUF text = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(scopes); i++)
        if (of & scopes[i].scope)
            buf_printf(&text, "%s%s", text.len ? " " : "", scopes[i].name);
    assert(text.len <= HTTP_SCOPES_TEXT_MAX); // test_http.c formats all of them
    memcpy(ret, text.len ? text.data : "", text.len);
    ret[text.len] = '\0';
}

int
http_scopes_parse(const char *text)
{
    int found = 0;
    while (*text) {
        size_t len = strcspn(text, " ");
        KG_AUTO_FREE char *name = kg_strndup(text, len);
        found |= http_scope_find(name);
        text += len;
        text += strspn(text, " ");
    }
    return found;
}

static const char *
scope_name(int scope)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(scopes); i++)
        if (scope == scopes[i].scope)
            return scopes[i].name;
    return "";
}

static bool
token_has(const struct http_token *token, int wanted)
{
    int has = token->scopes;
    for (size_t i = 0; i < KG_ARRAY_LEN(scopes); i++)
        if (token->scopes & scopes[i].scope)
            has |= scopes[i].includes;
    return has & wanted;
}

bool
http_request_has_token(const struct http_request *request)
{
    return request->token.scopes != 0;
}

void
http_server_set_tokens(struct http_server *server, const struct http_tokens *tokens)
{
    server->tokens = *tokens;
}

enum http_token_state
token_read(const struct http_server *server, const char *credential, struct http_token *ret,
           char *ret_owner)
{
    *ret = (struct http_token){0};
    if (!server->tokens.read ||
        strncmp(credential, HTTP_TOKEN_PREFIX, strlen(HTTP_TOKEN_PREFIX)) != 0)
        return HTTP_TOKEN_NONE;
    return server->tokens.read(credential, ret, ret_owner, server->tokens.arg);
}

static const struct http_concern *
naming_rule(const struct http_request *request)
{
    const struct http_concern *rule = request->concerns;
    bool names = rule && (rule->kind == HTTP_CONCERNS_SESSION || rule->kind == HTTP_CONCERNS_MADE);
    return names ? rule : NULL;
}

int
token_check_head(struct http_request *request, struct kg_error *err)
{
    const struct http_concern *rule = naming_rule(request);
    int wanted = request->flags & HTTP_SCOPES;
    if (!request->token.scopes)
        return 0;
    if (!wanted || !rule)
        return kg_error_set(err, KG_TOKEN_SCOPE, 0,
                            "a token of a session cannot be used here; use an API key");
    if (!token_has(&request->token, wanted))
        return kg_error_set(err, KG_TOKEN_SCOPE, 0, "this needs a token with the scope %s",
                            scope_name(wanted));
    if (rule->part == HTTP_IN_BODY && request->max_body > NAMING_BODY_MAX)
        request->max_body = NAMING_BODY_MAX;
    return 0;
}

// The session that a body names; NULL: none. What it finds is what the handler finds: names with
// escapes are not found, and bodies with the name twice are refused.
static char *
named_in_body(struct http_request *request, const struct http_concern *rule)
{
    size_t len;
    const char *body = http_request_body(request, &len);
    const char *text = len ? json_member(body, len, rule->name, &len) : NULL;
    bool is_short = text && len <= HTTP_TOKEN_SESSION_MAX + 2 && *text == '"';
    json_auto_t *value = is_short ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
    return value ? kg_strdup(json_string_value(value)) : NULL;
}

// To be freed; NULL: the request does not name one.
static char *
session_of(struct http_request *request)
{
    const struct http_concern *rule = naming_rule(request);
    if (!rule)
        return NULL;
    if (rule->kind == HTTP_CONCERNS_SESSION && rule->part == HTTP_IN_BODY)
        return named_in_body(request, rule);
    const char *name = rule->part == HTTP_IN_HEADER ? http_request_header(request, rule->name)
                                                    : http_request_param(request, rule->name);
    if (rule->kind == HTTP_CONCERNS_MADE)
        name = request->server->tokens.session_of(name, request->owner, &request->token,
                                                  request->server->tokens.arg);
    return name ? kg_strdup(name) : NULL;
}

// It is this gateway that should have the session, and know which of its tokens were revoked.
int
http_request_check_token(const struct http_request *request, struct kg_error *err)
{
    bool is_login;
    char owner[HTTP_OWNER_MAX + 1];
    struct http_token now;
    if (!request->token.scopes)
        return 0;
    KG_AUTO_FREE char *credential = http_request_credential(request, &is_login);
    if (!credential || token_read(request->server, credential, &now, owner) != HTTP_TOKEN_VALID)
        return kg_error_set(err, KG_UNAUTHORIZED, 0,
                            "the token has ended: its session has, or it was revoked");
    return 0;
}

int
token_check_whole(struct http_request *request, struct kg_error *err)
{
    const struct http_token *token = &request->token;
    if (!token->scopes)
        return 0;
    KG_AUTO_FREE char *session = session_of(request);
    if (!session || strcmp(session, token->session_id) != 0)
        return kg_error_set(err, KG_TOKEN_SCOPE, 0, "this token is for the session %s only",
                            token->session_id);
    return http_request_check_token(request, err);
}
