// SPDX-License-Identifier: Apache-2.0
// Tokens: secrets with which clients use one session, within scopes and for a limited time. A token
// names its session and the owner, and is signed, so every gateway that has the key can tell where
// it belongs. The session keeps the ids of its valid tokens, so that it can revoke one. It keeps no
// secret.
#pragma once

#include <jansson.h>

#include "session.h"

struct executions;
struct file_links;
struct sessions;

enum {
    SESSION_TOKEN_ID_LEN = 16,
    SESSION_TOKENS_MAX = 32,              // of a session
    SESSION_TOKEN_SCOPES_MAX = 63,        // bytes
    SESSION_TOKEN_MAX_S = 30 * 24 * 3600, // the longest life
};

struct session_token {
    char id[SESSION_TOKEN_ID_LEN + 1];
    // What the token allows. The caller chooses the words; they are stored as they are.
    char scopes[SESSION_TOKEN_SCOPES_MAX + 1];
    int64_t created_wall_ms, expires_wall_ms;
};

struct session_tokens;
// With a key made of that of the links; both are borrowed.
struct session_tokens *session_tokens_new(struct sessions *sessions, const struct file_links *links,
                                          const char *prefix);
void session_tokens_free(struct session_tokens *tokens);
KG_DEFINE_AUTO(session_tokens, session_tokens_free)

// Makes a token. `ret_secret` (to be freed) is to be given away when `fn` is called without an
// error, as of session_change(). `scopes` has 1 to SESSION_TOKEN_SCOPES_MAX bytes. KG_SESSION_BUSY:
// the session has too many, or is being created.
KG_MUST_CHECK struct session_recording *
session_token_make(const struct session_tokens *tokens, struct session *session, const char *scopes,
                   int64_t life_s, struct session_token *ret, char **ret_secret,
                   session_recorded_fn fn, void *arg, struct kg_error *err);
// From now on it is not valid. KG_NOT_FOUND: there is none of that id.
KG_MUST_CHECK struct session_recording *session_token_revoke(struct session *session,
                                                             const char *id, session_recorded_fn fn,
                                                             void *arg, struct kg_error *err);
// Those that are valid, the oldest first: [{"id", "scopes", "created_ms", "expires_ms"}]. A new
// reference.
json_t *session_tokens_list(const struct session *session);

// What a secret says.
struct session_token_claim {
    char owner[64 + 1];
    char session_id[SESSION_MAX_ID_LEN + 1];
    char scopes[SESSION_TOKEN_SCOPES_MAX + 1];
};
enum session_token_state {
    SESSION_TOKEN_NONE,      // it is not one of this installation
    SESSION_TOKEN_ENDED,     // by its time, by being revoked, or with its session
    SESSION_TOKEN_ELSEWHERE, // this gateway has no such session
    SESSION_TOKEN_VALID,
};
enum session_token_state session_token_read(const struct session_tokens *tokens, const char *secret,
                                            struct session_token_claim *ret);
// The secret of a token that is in no list: the same whenever it is asked for, of any gateway of the
// installation, and valid until the session ends. `label` (up to 15 of a-z) tells it from others,
// `sandbox` is the id of the session's. To be freed.
char *session_token_standing(const struct session_tokens *tokens,
                             const struct session_token_claim *claim, const char *sandbox,
                             const char *label);
// The id of an execution's session if it is of that session, and not of an earlier one of its name;
// else NULL. Borrowed.
const char *session_of_execution(const struct session_tokens *tokens, struct executions *executions,
                                 const char *execution_id, const char *owner,
                                 const char *session_id);
