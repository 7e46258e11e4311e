// SPDX-License-Identifier: Apache-2.0
// The resource /api/v1/sessions/{id}/tokens. What a token may do, src/http/token.c decides.

#include <string.h>

#include "api_priv.h"
#include "session.h"
#include "session_tokens.h"

static json_t *
rfc3339(int64_t wall_ms)
{
    char text[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(wall_ms, text);
    return json_string(text);
}

static json_t *
describe_token(const char *id, const char *scopes, int64_t created_ms, int64_t expires_ms)
{
    return json_pack("{s:s, s:o, s:o, s:o}", "token_id", id, "scope",
                     http_scopes_describe(http_scopes_parse(scopes)), "created_at",
                     rfc3339(created_ms), "expires_at", rfc3339(expires_ms));
}

static void
reply_made(struct api_recording *self, struct session *session)
{
    (void)session;
    http_reply_header(self->request, "Cache-Control", "no-store");
    http_reply_json(self->request, 201, KG_STEAL(self->body));
}

void
handle_token_make(struct http_request *request, void *arg)
{
    struct api_context *context = arg;
    struct kg_error err = {0};
    struct token_body body;
    struct session_token token;
    char scopes[HTTP_SCOPES_TEXT_MAX + 1];
    KG_AUTO_FREE char *secret = NULL;
    struct session *session = api_find_session(request, context);
    if (!session)
        return;
    json_auto_t *root = http_request_json(request, &err);
    if (!root || token_body_parse(root, &body, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    http_scopes_format(body.scopes, scopes);
    struct api_recording *making = api_recording_new(request, context, reply_made);
    making->recording = session_token_make(context->tokens, session, scopes, body.life_s, &token,
                                           &secret, api_on_recorded, making, &err);
    if (!making->recording) {
        http_reply_error(request, &err);
        return;
    }
    making->body =
        describe_token(token.id, token.scopes, token.created_wall_ms, token.expires_wall_ms);
    json_object_set_new(making->body, "token", json_string(secret));
    json_object_set_new(making->body, "session_id", json_string(session_id(session)));
}

void
handle_token_list(struct http_request *request, void *arg)
{
    const struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    json_auto_t *list = session_tokens_list(session);
    json_t *tokens = json_array();
    size_t i;
    json_t *token;
    json_array_foreach(list, i, token) {
        json_array_append_new(
            tokens, describe_token(json_string_value(json_object_get(token, "id")),
                                   json_string_value(json_object_get(token, "scopes")),
                                   json_integer_value(json_object_get(token, "created_ms")),
                                   json_integer_value(json_object_get(token, "expires_ms"))));
    }
    http_reply_json(request, 200, json_pack("{s:o}", "tokens", tokens));
}

static void
reply_revoked(struct api_recording *self, struct session *session)
{
    (void)session;
    reply_message(self->request, NULL, "Token %s revoked", self->id);
}

void
handle_token_revoke(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const char *id = http_request_param(request, "token");
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    struct api_recording *revoking = api_recording_new(request, arg, reply_revoked);
    revoking->recording = session_token_revoke(session, id, api_on_recorded, revoking, &err);
    if (revoking->recording)
        memcpy(revoking->id, id, SESSION_TOKEN_ID_LEN); // it is one
    else
        http_reply_error(request, &err);
}
