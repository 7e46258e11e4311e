// SPDX-License-Identifier: Apache-2.0
// The cookie of a login (RFC 6265), and the token that a page must send beside it, so that a
// request that another page has caused is refused.

#include <assert.h>
#include <sodium.h>
#include <string.h>

#include "http_priv.h"

static const char *
cookie_name(const struct http_request *request)
{
    return http_request_is_https(request) ? "__Host-" HTTP_LOGIN_COOKIE : HTTP_LOGIN_COOKIE;
}

// Two of them may differ: one was set by somebody else, and it is not known which.
char *
cookie_login(const struct http_request *request)
{
    const char *header = http_request_header(request, "Cookie");
    const char *name = cookie_name(request);
    const size_t name_len = strlen(name);
    KG_AUTO_FREE char *login = NULL;
    while (header && *header) {
        header += strspn(header, "; ");
        size_t len = strcspn(header, ";");
        if (len > name_len && header[name_len] == '=' && strncmp(header, name, name_len) == 0) {
            if (login)
                return NULL;
            login = kg_strndup(header + name_len + 1, len - name_len - 1);
        }
        header += len;
    }
    return KG_STEAL(login);
}

// A keyed hash, so that the token does not tell the credential.
void
http_csrf_token(const char *credential, char ret[HTTP_CSRF_TOKEN_LEN + 1])
{
    static const unsigned char purpose[] = "kernelgate X-CSRF-Token";
    unsigned char key[crypto_generichash_KEYBYTES], hash[HTTP_CSRF_TOKEN_LEN / 2];
    crypto_generichash(key, sizeof key, (const unsigned char *)credential, strlen(credential), NULL,
                       0);
    crypto_generichash(hash, sizeof hash, purpose, sizeof purpose - 1, key, sizeof key);
    sodium_bin2hex(ret, HTTP_CSRF_TOKEN_LEN + 1, hash, sizeof hash);
}

bool
cookie_is_meant(const struct http_request *request, const char *credential)
{
    const char *sent = http_request_header(request, "X-CSRF-Token");
    char token[HTTP_CSRF_TOKEN_LEN + 1];
    if (request->method == HTTP_GET || request->method == HTTP_HEAD)
        return true;
    http_csrf_token(credential, token);
    return sent && strlen(sent) == HTTP_CSRF_TOKEN_LEN &&
           sodium_memcmp(sent, token, HTTP_CSRF_TOKEN_LEN) == 0;
}

void
http_reply_login(struct http_request *request, const char *credential, int64_t seconds)
{
    KG_AUTO_FREE char *cookie = kg_asprintf(
        "%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%lld%s", cookie_name(request),
        credential, (long long)seconds, http_request_is_https(request) ? "; Secure" : "");
    http_reply_header(request, "Set-Cookie", cookie);
}
