// SPDX-License-Identifier: Apache-2.0
// The state of a request that requires input is sent to the client and comes back. It is signed,
// and bound to one owner, method and name.

#include <sodium.h>
#include <string.h>

#include "mcp_priv.h"

enum {
    STATE_MAX = 64 << 10,
    STATE_LIFE_MS = 60 * 60 * 1000,
    ENCODING = sodium_base64_VARIANT_URLSAFE_NO_PADDING,
};

_Static_assert(sizeof((struct mcp *)0)->key == crypto_auth_KEYBYTES, "the key's size");

char *
mcp_seal_state(const struct mcp *mcp, const struct mcp_call *call, const json_t *state)
{
    json_auto_t *envelope =
        json_pack("{s:O, s:s, s:s, s:s, s:I}", "state", state, "owner", call->owner, "method",
                  call->method->name, "name", call->name ? call->name : "", "until",
                  (json_int_t)(clock_wall_ms() + STATE_LIFE_MS));
    size_t len;
    KG_AUTO_FREE char *text = rpc_dump(envelope, &len);
    KG_AUTO_BUF sealed = {0};
    char *at = buf_reserve(&sealed, crypto_auth_BYTES + len);
    crypto_auth((unsigned char *)at, (const unsigned char *)text, len, mcp->key);
    memcpy(at + crypto_auth_BYTES, text, len);
    sealed.len = crypto_auth_BYTES + len;
    size_t size = sodium_base64_encoded_len(sealed.len, ENCODING);
    char *ret = kg_calloc(1, size);
    sodium_bin2base64(ret, size, (const unsigned char *)sealed.data, sealed.len, ENCODING);
    return ret;
}

static bool
is_for(const json_t *envelope, const struct mcp_call *call)
{
    const char *owner = rpc_string(envelope, "owner");
    const char *method = rpc_string(envelope, "method");
    const char *name = rpc_string(envelope, "name");
    json_int_t until = json_integer_value(json_object_get(envelope, "until"));
    return owner && strcmp(owner, call->owner) == 0 && method &&
           strcmp(method, call->method->name) == 0 && name &&
           strcmp(name, call->name ? call->name : "") == 0 && until > clock_wall_ms();
}

json_t *
mcp_unseal_state(const struct mcp *mcp, const struct mcp_call *call, const char *text)
{
    size_t text_len = strlen(text);
    if (text_len > STATE_MAX)
        return NULL;
    KG_AUTO_BUF sealed = {0};
    unsigned char *bytes = (unsigned char *)buf_reserve(&sealed, text_len + 1);
    if (sodium_base642bin(bytes, text_len + 1, text, text_len, NULL, &sealed.len, NULL, ENCODING) !=
            0 ||
        sealed.len <= crypto_auth_BYTES)
        return NULL;
    const unsigned char *payload = bytes + crypto_auth_BYTES;
    size_t len = sealed.len - crypto_auth_BYTES;
    if (crypto_auth_verify(bytes, payload, len, mcp->key) != 0)
        return NULL;
    json_auto_t *envelope = json_loadb((const char *)payload, len, 0, NULL);
    if (!envelope || !is_for(envelope, call))
        return NULL;
    return json_incref(json_object_get(envelope, "state"));
}
