// SPDX-License-Identifier: Apache-2.0
// The gateway's side of the conversation with a kernel: key, ids, and the messages that it sends.

#include "session_priv.h"

#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { ID_LEN = 16 };

// `keyed` is the state of the HMAC after the key; each signature starts with a copy.
struct jupyter_session {
    bool is_signed;
    crypto_auth_hmacsha256_state keyed;
    char id[ID_LEN + 1];
    uint64_t n_messages;
};

struct jupyter_session *
jupyter_session_new(const char *key)
{
    struct jupyter_session *session = KG_NEW(struct jupyter_session);
    session->is_signed = key[0] != '\0';
    crypto_auth_hmacsha256_init(&session->keyed, (const unsigned char *)key, strlen(key));
    id_random_hex(session->id, ID_LEN);
    return session;
}

const char *
session_own_id(const struct jupyter_session *session)
{
    return session->id;
}

struct jupyter_session *
session_copy(const struct jupyter_session *session)
{
    struct jupyter_session *copy = KG_NEW(struct jupyter_session);
    *copy = *session;
    return copy;
}

void
jupyter_session_free(struct jupyter_session *session)
{
    if (session == NULL)
        return;
    sodium_memzero(session, sizeof(*session));
    free(session);
}

void
session_sign(const struct jupyter_session *session,
             const struct jupyter_frame frames[SESSION_SIGNED_FRAMES],
             char ret_signature[SESSION_SIGNATURE_LEN + 1])
{
    ret_signature[0] = '\0';
    if (!session->is_signed)
        return;
    crypto_auth_hmacsha256_state state = session->keyed;
    unsigned char digest[crypto_auth_hmacsha256_BYTES];
    for (size_t i = 0; i < SESSION_SIGNED_FRAMES; i++)
        crypto_auth_hmacsha256_update(&state, frames[i].data, frames[i].len);
    crypto_auth_hmacsha256_final(&state, digest);
    sodium_bin2hex(ret_signature, SESSION_SIGNATURE_LEN + 1, digest, sizeof(digest));
}

bool
session_verify(const struct jupyter_session *session,
               const struct jupyter_frame frames[SESSION_SIGNED_FRAMES],
               const struct jupyter_frame *signature)
{
    char expected[SESSION_SIGNATURE_LEN + 1];

    if (!session->is_signed)
        return true;
    if (signature->len != SESSION_SIGNATURE_LEN)
        return false;
    session_sign(session, frames, expected);
    return sodium_memcmp(expected, signature->data, SESSION_SIGNATURE_LEN) == 0;
}

static json_t *
new_header(const struct jupyter_session *session, const char *msg_id, const char *msg_type)
{
    char date[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(clock_wall_ms(), date);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "msg_id", msg_id, "session", session->id,
                     "username", "kernelgate", "date", date, "msg_type", msg_type, "version",
                     "5.3");
}

// Takes the reference of `json`, which the gateway made, so this cannot fail.
static char *
dump(json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    assert(text != NULL);
    json_decref(json);
    return text;
}

static void
set_frame(struct jupyter_outgoing *outgoing, size_t i, char *owned)
{
    outgoing->owned[i] = owned;
    outgoing->frames[i] = (struct jupyter_frame){.data = owned, .len = strlen(owned)};
}

void
session_next_id(struct jupyter_session *session, char ret_msg_id[JUPYTER_MSG_ID_SIZE])
{
    snprintf(ret_msg_id, JUPYTER_MSG_ID_SIZE, "%s_%" PRIu64, session->id, ++session->n_messages);
}

struct jupyter_outgoing *
outgoing_make(const struct jupyter_session *session, const char *msg_id, const char *msg_type,
              json_t *content)
{
    struct jupyter_outgoing *outgoing = KG_NEW(struct jupyter_outgoing);
    char signature[SESSION_SIGNATURE_LEN + 1];

    snprintf(outgoing->msg_id, sizeof(outgoing->msg_id), "%s", msg_id);
    outgoing->frames[0] = (struct jupyter_frame){SESSION_DELIMITER, strlen(SESSION_DELIMITER)};
    set_frame(outgoing, 2, dump(new_header(session, msg_id, msg_type)));
    outgoing->frames[3] = outgoing->frames[4] = (struct jupyter_frame){"{}", 2};
    set_frame(outgoing, 5, dump(content));
    session_sign(session, &outgoing->frames[2], signature);
    set_frame(outgoing, 1, kg_strdup(signature));
    return outgoing;
}

struct jupyter_outgoing *
jupyter_outgoing_new(struct jupyter_session *session, const char *msg_type, json_t *content)
{
    char msg_id[JUPYTER_MSG_ID_SIZE];
    session_next_id(session, msg_id);
    return outgoing_make(session, msg_id, msg_type, content);
}

struct jupyter_outgoing *
jupyter_outgoing_new_raw(const struct jupyter_session *session, struct jupyter_raw *raw)
{
    struct jupyter_outgoing *outgoing = KG_NEW(struct jupyter_outgoing);
    char signature[SESSION_SIGNATURE_LEN + 1];

    outgoing->raw = raw;
    outgoing->frames[0] = (struct jupyter_frame){SESSION_DELIMITER, strlen(SESSION_DELIMITER)};
    memcpy(&outgoing->frames[2], raw->parts, sizeof(raw->parts));
    session_sign(session, &outgoing->frames[2], signature);
    set_frame(outgoing, 1, kg_strdup(signature));
    return outgoing;
}

void
jupyter_outgoing_free(struct jupyter_outgoing *outgoing)
{
    if (outgoing == NULL)
        return;
    for (size_t i = 0; i < KG_ARRAY_LEN(outgoing->owned); i++)
        free(outgoing->owned[i]);
    jupyter_raw_free(outgoing->raw);
    free(outgoing);
}
