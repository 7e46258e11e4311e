// SPDX-License-Identifier: Apache-2.0
// The gateway's side of the conversation with a kernel: key, ids, and the messages that it sends.

#include "signer_priv.h"

#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { ID_LEN = 16 };

// `keyed` is the state of the HMAC after the key; each signature starts with a copy.
struct jupyter_signer {
    bool is_signed;
    crypto_auth_hmacsha256_state keyed;
    char id[ID_LEN + 1];
    uint64_t n_messages;
};

struct jupyter_signer *
jupyter_signer_new(const char *key)
{
    struct jupyter_signer *signer = KG_NEW(struct jupyter_signer);
    signer->is_signed = key[0] != '\0';
    crypto_auth_hmacsha256_init(&signer->keyed, (const unsigned char *)key, strlen(key));
    id_random_hex(signer->id, ID_LEN);
    return signer;
}

const char *
signer_own_id(const struct jupyter_signer *signer)
{
    return signer->id;
}

struct jupyter_signer *
signer_copy(const struct jupyter_signer *signer)
{
    struct jupyter_signer *copy = KG_NEW(struct jupyter_signer);
    *copy = *signer;
    return copy;
}

void
jupyter_signer_free(struct jupyter_signer *signer)
{
    if (signer == NULL)
        return;
    sodium_memzero(signer, sizeof(*signer));
    free(signer);
}

void
signer_sign(const struct jupyter_signer *signer,
            const struct jupyter_frame frames[SIGNER_SIGNED_FRAMES],
            char ret_signature[SIGNER_SIGNATURE_LEN + 1])
{
    ret_signature[0] = '\0';
    if (!signer->is_signed)
        return;
    crypto_auth_hmacsha256_state state = signer->keyed;
    unsigned char digest[crypto_auth_hmacsha256_BYTES];
    for (size_t i = 0; i < SIGNER_SIGNED_FRAMES; i++)
        crypto_auth_hmacsha256_update(&state, frames[i].data, frames[i].len);
    crypto_auth_hmacsha256_final(&state, digest);
    sodium_bin2hex(ret_signature, SIGNER_SIGNATURE_LEN + 1, digest, sizeof(digest));
}

bool
signer_verify(const struct jupyter_signer *signer,
              const struct jupyter_frame frames[SIGNER_SIGNED_FRAMES],
              const struct jupyter_frame *signature)
{
    char expected[SIGNER_SIGNATURE_LEN + 1];

    if (!signer->is_signed)
        return true;
    if (signature->len != SIGNER_SIGNATURE_LEN)
        return false;
    signer_sign(signer, frames, expected);
    return sodium_memcmp(expected, signature->data, SIGNER_SIGNATURE_LEN) == 0;
}

static json_t *
new_header(const struct jupyter_signer *signer, const char *msg_id, const char *msg_type)
{
    char date[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(clock_wall_ms(), date);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "msg_id", msg_id, "session", signer->id,
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
signer_next_id(struct jupyter_signer *signer, char ret_msg_id[JUPYTER_MSG_ID_SIZE])
{
    snprintf(ret_msg_id, JUPYTER_MSG_ID_SIZE, "%s_%" PRIu64, signer->id, ++signer->n_messages);
}

struct jupyter_outgoing *
outgoing_make(const struct jupyter_signer *signer, const char *msg_id, const char *msg_type,
              json_t *content)
{
    struct jupyter_outgoing *outgoing = KG_NEW(struct jupyter_outgoing);
    char signature[SIGNER_SIGNATURE_LEN + 1];

    snprintf(outgoing->msg_id, sizeof(outgoing->msg_id), "%s", msg_id);
    outgoing->frames[0] = (struct jupyter_frame){SIGNER_DELIMITER, strlen(SIGNER_DELIMITER)};
    set_frame(outgoing, 2, dump(new_header(signer, msg_id, msg_type)));
    outgoing->frames[3] = outgoing->frames[4] = (struct jupyter_frame){"{}", 2};
    set_frame(outgoing, 5, dump(content));
    signer_sign(signer, &outgoing->frames[2], signature);
    set_frame(outgoing, 1, kg_strdup(signature));
    return outgoing;
}

struct jupyter_outgoing *
jupyter_outgoing_new(struct jupyter_signer *signer, const char *msg_type, json_t *content)
{
    char msg_id[JUPYTER_MSG_ID_SIZE];
    signer_next_id(signer, msg_id);
    return outgoing_make(signer, msg_id, msg_type, content);
}

struct jupyter_outgoing *
jupyter_outgoing_new_raw(const struct jupyter_signer *signer, struct jupyter_raw *raw)
{
    struct jupyter_outgoing *outgoing = KG_NEW(struct jupyter_outgoing);
    char signature[SIGNER_SIGNATURE_LEN + 1];

    outgoing->raw = raw;
    outgoing->frames[0] = (struct jupyter_frame){SIGNER_DELIMITER, strlen(SIGNER_DELIMITER)};
    memcpy(&outgoing->frames[2], raw->parts, sizeof(raw->parts));
    signer_sign(signer, &outgoing->frames[2], signature);
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
