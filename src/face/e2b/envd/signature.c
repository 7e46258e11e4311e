// SPDX-License-Identifier: Apache-2.0
// The SDKs sign URLs of files. A client that has such a URL needs no token:
//
//     signature=v1_<base64 of SHA-256 of "PATH:OPERATION:USER:TOKEN[:EXPIRATION]">
//
// where OPERATION is read or write, and TOKEN the sandbox's own. A request with such a URL stands
// for one with the token. A URL of the gateway's own host does not name the sandbox: its token is
// then looked for among those of all sandboxes.
#include "envd_priv.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "sessions.h"

#define TOKEN_HEADER "X-Access-Token"
#define PREFIX "v1_"
#define WRONG "invalid signature" // in place of a token

enum { BASE64 = sodium_base64_VARIANT_ORIGINAL_NO_PADDING };

struct signed_url {
    const struct e2b *e2b;
    const char *path, *operation, *user;
    const char *expiration; // or NULL
    const char *signature;
    char *token; // that has signed it
};

static bool
is_signed_with(const struct signed_url *url, const char *token)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char wanted[sodium_base64_ENCODED_LEN(crypto_hash_sha256_BYTES, BASE64)];
    KG_AUTO_FREE char *text =
        kg_asprintf("%s:%s:%s:%s%s%s", url->path, url->operation, url->user, token,
                    url->expiration ? ":" : "", url->expiration ? url->expiration : "");
    crypto_hash_sha256(hash, (const unsigned char *)text, strlen(text));
    sodium_bin2base64(wanted, sizeof wanted, hash, sizeof hash, BASE64);
    return strlen(url->signature) == strlen(PREFIX) + strlen(wanted) &&
           sodium_memcmp(url->signature + strlen(PREFIX), wanted, strlen(wanted)) == 0;
}

static bool
is_of_session(const struct session *session, void *arg)
{
    struct signed_url *url = arg;
    KG_AUTO_FREE char *token =
        e2b_envd_token(url->e2b, session_owner(session), session_id(session));
    if (!is_signed_with(url, token))
        return false;
    url->token = KG_STEAL(token);
    return true;
}

static bool
has_expired(const char *expiration)
{
    enum { DIGITS_MAX = 15 };
    size_t len = expiration ? strlen(expiration) : 0;
    if (!expiration)
        return false;
    return len == 0 || len > DIGITS_MAX || strspn(expiration, "0123456789") != len ||
           strtoll(expiration, NULL, 10) < clock_wall_ms() / 1000;
}

// The session whose token has signed it; NULL: none.
static const struct session *
find_signer(const struct http_request *request, struct signed_url *url)
{
    struct sessions *sessions = e2b_face(url->e2b)->sessions;
    const char *id = http_request_header(request, E2B_SANDBOX_HEADER);
    struct session *session = id ? sessions_find_by_sandbox(sessions, id) : NULL;
    if (strncmp(url->signature, PREFIX, strlen(PREFIX)) != 0 || has_expired(url->expiration))
        return NULL;
    if (id)
        return session && is_of_session(session, url) ? session : NULL;
    return sessions_find_where(sessions, is_of_session, url);
}

// One that is wrong stands for a token that is: the client has tried a secret.
void
signature_prepare(struct http_request *request)
{
    const struct envd *envd = http_request_arg(request);
    const char *path = http_request_query(request, "path");
    const char *user = http_request_query(request, "username");
    struct signed_url url = {
        .e2b = envd->e2b,
        .path = path ? path : "",
        .operation = http_request_method(request) == HTTP_POST ? "write" : "read",
        .user = user ? user : "",
        .expiration = http_request_query(request, "signature_expiration"),
        .signature = http_request_query(request, "signature"),
    };
    if (!url.signature || http_request_header(request, TOKEN_HEADER))
        return;
    const struct session *session = find_signer(request, &url);
    if (session)
        http_request_set_header(request, E2B_SANDBOX_HEADER, session_id(session));
    http_request_set_header(request, TOKEN_HEADER, session ? url.token : WRONG);
    free(url.token);
}

bool
signature_is_wrong(const struct http_request *request)
{
    const char *token = http_request_header(request, TOKEN_HEADER);
    return token && strcmp(token, WRONG) == 0;
}
