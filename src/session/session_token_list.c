// SPDX-License-Identifier: Apache-2.0
// The list of a session's tokens, in memory and as JSON for its record.

#include <string.h>

#include "session_tokens.h"
#include "sessions_priv.h"

void
session_tokens_add(struct session *session, const struct session_token *token)
{
    size_t n = session->n_tokens + 1;
    session->tokens = kg_realloc(session->tokens, n * sizeof *session->tokens);
    session->tokens[session->n_tokens++] = *token;
}

struct session_token *
session_tokens_find(const struct session *session, const char *id)
{
    for (size_t i = 0; i < session->n_tokens; i++)
        if (strcmp(session->tokens[i].id, id) == 0)
            return &session->tokens[i];
    return NULL;
}

void
session_tokens_remove(struct session *session, const struct session_token *token)
{
    size_t at = (size_t)(token - session->tokens);
    size_t n_behind = --session->n_tokens - at;
    memmove(&session->tokens[at], &session->tokens[at + 1], n_behind * sizeof *session->tokens);
}

void
session_tokens_forget_expired(struct session *session)
{
    int64_t now_ms = clock_wall_ms();
    for (size_t i = session->n_tokens; i-- > 0;)
        if (session->tokens[i].expires_wall_ms <= now_ms)
            session_tokens_remove(session, &session->tokens[i]);
}

json_t *
session_tokens_list(const struct session *session)
{
    int64_t now_ms = clock_wall_ms();
    json_t *list = json_array();
    for (size_t i = 0; i < session->n_tokens; i++) {
        const struct session_token *token = &session->tokens[i];
        if (token->expires_wall_ms > now_ms)
            json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "id", token->id, "scopes",
                                                  token->scopes, "created_ms",
                                                  (json_int_t)token->created_wall_ms, "expires_ms",
                                                  (json_int_t)token->expires_wall_ms));
    }
    return list;
}

void
session_tokens_restore(struct session *session, const json_t *list)
{
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry) {
        struct session_token token = {0};
        const char *id, *scopes;
        json_int_t created_ms, expires_ms;
        if (json_unpack(entry, "{s:s, s:s, s:I, s:I}", "id", &id, "scopes", &scopes, "created_ms",
                        &created_ms, "expires_ms", &expires_ms) < 0 ||
            strlen(id) != SESSION_TOKEN_ID_LEN || !*scopes ||
            strlen(scopes) > SESSION_TOKEN_SCOPES_MAX || session->n_tokens == SESSION_TOKENS_MAX)
            continue;
        memcpy(token.id, id, SESSION_TOKEN_ID_LEN);
        strcpy(token.scopes, scopes);
        token.created_wall_ms = created_ms;
        token.expires_wall_ms = expires_ms;
        session_tokens_add(session, &token);
    }
}
