// SPDX-License-Identifier: Apache-2.0
// Tokens of sessions. A secret is the prefix and, in base64url, a MAC and what it covers: the
// token's id, the owner, the session, the session's sandbox, the scopes and the expiry, each ended
// by a NUL. A sandbox has one session in its life, so a later session of that name is another one.

#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "file_links.h"
#include "session_tokens.h"
#include "sessions_priv.h"

enum { N_PARTS = 6, TEXT_MAX = 512, SECRET_MAX = 1024 };
// What the id of a standing token begins with, and no other one's.
enum { STANDING = '_' };
enum { BASE64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING };

struct session_tokens {
    unsigned char key[crypto_auth_KEYBYTES];
    struct sessions *sessions;
    char *prefix;
};

struct session_tokens *
session_tokens_new(struct sessions *sessions, const struct file_links *links, const char *prefix)
{
    struct session_tokens *tokens = KG_NEW(struct session_tokens);
    tokens->sessions = sessions;
    tokens->prefix = kg_strdup(prefix);
    file_links_derive(links, "kernelgate session tokens", tokens->key, sizeof tokens->key);
    return tokens;
}

void
session_tokens_free(struct session_tokens *tokens)
{
    if (!tokens)
        return;
    sodium_memzero(tokens->key, sizeof tokens->key);
    free(tokens->prefix);
    free(tokens);
}

// ---- Secrets --------------------------------------------------------------------------------

// To be freed.
static char *
write_secret(const struct session_tokens *tokens, const char *owner, const char *session,
             const char *sandbox, const struct session_token *token)
{
    KG_AUTO_FREE char *expires = kg_asprintf("%" PRId64, token->expires_wall_ms);
    const char *const parts[N_PARTS] = {token->id, owner,         session,
                                        sandbox,   token->scopes, expires};
    unsigned char mac[crypto_auth_BYTES] = {0};
    char base64[SECRET_MAX];
    KG_AUTO_BUF text = {0};
    buf_append(&text, (const char *)mac, sizeof mac);
    for (size_t i = 0; i < N_PARTS; i++)
        buf_append(&text, parts[i], strlen(parts[i]) + 1);
    crypto_auth((unsigned char *)text.data, (const unsigned char *)text.data + sizeof mac,
                text.len - sizeof mac, tokens->key);
    sodium_bin2base64(base64, sizeof base64, (const unsigned char *)text.data, text.len, BASE64);
    return kg_asprintf("%s%s", tokens->prefix, base64);
}

// What the secret covers, in `text`, if it was signed here.
static bool
read_secret(const struct session_tokens *tokens, const char *secret, unsigned char text[TEXT_MAX],
            const char *parts[N_PARTS])
{
    size_t len, n = 0, prefix = strlen(tokens->prefix);
    if (strncmp(secret, tokens->prefix, prefix) != 0 ||
        sodium_base642bin(text, TEXT_MAX, secret + prefix, strlen(secret + prefix), NULL, &len,
                          NULL, BASE64) != 0 ||
        len <= crypto_auth_BYTES ||
        crypto_auth_verify(text, text + crypto_auth_BYTES, len - crypto_auth_BYTES, tokens->key) !=
            0)
        return false;
    const char *at = (const char *)text + crypto_auth_BYTES, *end = (const char *)text + len;
    for (; n < N_PARTS && at < end; at += strlen(at) + 1)
        parts[n++] = at; // it is what write_secret() wrote: each part has its NUL
    return n == N_PARTS;
}

enum session_token_state
session_token_read(const struct session_tokens *tokens, const char *secret,
                   struct session_token_claim *ret)
{
    unsigned char text[TEXT_MAX];
    const char *parts[N_PARTS];
    *ret = (struct session_token_claim){0};
    if (!read_secret(tokens, secret, text, parts))
        return SESSION_TOKEN_NONE;
    snprintf(ret->owner, sizeof ret->owner, "%s", parts[1]);
    snprintf(ret->session_id, sizeof ret->session_id, "%s", parts[2]);
    snprintf(ret->scopes, sizeof ret->scopes, "%s", parts[4]);
    bool is_standing = parts[0][0] == STANDING;
    if (!is_standing && strtoll(parts[5], NULL, 10) <= clock_wall_ms())
        return SESSION_TOKEN_ENDED;
    const struct session *session =
        sessions_find(tokens->sessions, ret->owner, ret->session_id, NULL);
    if (!session)
        return SESSION_TOKEN_ELSEWHERE;
    bool same = session->sandbox && strcmp(sandbox_id(session->sandbox), parts[3]) == 0;
    bool is_valid = same && (is_standing || session_tokens_find(session, parts[0]));
    return is_valid ? SESSION_TOKEN_VALID : SESSION_TOKEN_ENDED;
}

char *
session_token_standing(const struct session_tokens *tokens, const struct session_token_claim *claim,
                       const char *sandbox, const char *label)
{
    struct session_token token = {0};
    snprintf(token.id, sizeof token.id, "%c%s", STANDING, label);
    snprintf(token.scopes, sizeof token.scopes, "%s", claim->scopes);
    return write_secret(tokens, claim->owner, claim->session_id, sandbox, &token);
}

// ---- Making and revoking --------------------------------------------------------------------

struct session_recording *
session_token_make(const struct session_tokens *tokens, struct session *session, const char *scopes,
                   int64_t life_s, struct session_token *ret, char **ret_secret,
                   session_recorded_fn fn, void *arg, struct kg_error *err)
{
    if (session->state != SESSION_READY) {
        kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
        return NULL;
    }
    session_tokens_forget_expired(session);
    if (session->n_tokens >= SESSION_TOKENS_MAX) {
        kg_error_set(err, KG_SESSION_BUSY, 0, "the session has %zu tokens already; revoke one",
                     session->n_tokens);
        return NULL;
    }
    int64_t now_ms = clock_wall_ms();
    *ret = (struct session_token){.created_wall_ms = now_ms,
                                  .expires_wall_ms = now_ms + life_s * 1000};
    assert(*scopes && strlen(scopes) <= SESSION_TOKEN_SCOPES_MAX);
    strcpy(ret->scopes, scopes);
    id_random(ret->id, SESSION_TOKEN_ID_LEN);
    session_tokens_add(session, ret);
    struct session_recording *recording = session_record(session, fn, arg, err);
    if (!recording) {
        session_tokens_remove(session, session_tokens_find(session, ret->id));
        return NULL;
    }
    *ret_secret = write_secret(tokens, session->owner, session->id,
                               sandbox_id(session->sandbox), ret);
    log_info("token made", LOG_STR("session", session->id), LOG_STR("owner", session->owner),
             LOG_STR("token", ret->id));
    return recording;
}

struct session_recording *
session_token_revoke(struct session *session, const char *id, session_recorded_fn fn, void *arg,
                     struct kg_error *err)
{
    session_tokens_forget_expired(session);
    const struct session_token *token = session_tokens_find(session, id);
    if (!token) {
        kg_error_set(err, KG_NOT_FOUND, 0, "the session has no token %s", id);
        return NULL;
    }
    log_info("token revoked", LOG_STR("session", session->id), LOG_STR("owner", session->owner),
             LOG_STR("token", token->id));
    session_tokens_remove(session, token);
    return session_record(session, fn, arg, err);
}

// ---- What belongs to a session --------------------------------------------------------------

const char *
session_of_execution(const struct session_tokens *tokens, struct executions *executions,
                     const char *execution, const char *owner, const char *session_id)
{
    const struct session *session = sessions_find(tokens->sessions, owner, session_id, NULL);
    const struct execution *found = executions_find(executions, execution, owner, NULL);
    if (!session || !found || strcmp(execution_session_id(found), session_id) != 0)
        return NULL;
    return execution_opened_us(found) >= session->created_us ? session->id : NULL;
}
