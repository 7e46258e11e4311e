// SPDX-License-Identifier: Apache-2.0
// Access to private ports: a link has a token, the token is exchanged once for a cookie of the
// port's host. A browser that has this cookie may use the port.

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "file_links.h"
#include "ports_priv.h"

enum {
    TOKEN_MS = 5 * 60 * 1000,
    TOKENS_OF_HOST_MAX = 32, // unused ones of one sandbox: more end the oldest
    COOKIE_S = 12 * 3600,
    SIGNATURE_HEX_LEN = crypto_auth_BYTES * 2,
};

// ---- Tokens ---------------------------------------------------------------------------------

struct port_token {
    TAILQ_ENTRY(port_token) link;
    struct port_host host;
    int64_t ends_ms; // of clock_mono_ms()
    char text[PORT_TOKEN_LEN + 1];
};

static void
token_free(struct port_tokens *tokens, struct port_token *token)
{
    TAILQ_REMOVE(tokens, token, link);
    sodium_memzero(token, sizeof *token);
    free(token);
}

// The oldest are first.
static void
drop_ended(struct port_tokens *tokens)
{
    int64_t now = clock_mono_ms();
    for (struct port_token *token; (token = TAILQ_FIRST(tokens)) && token->ends_ms <= now;)
        token_free(tokens, token);
}

static void
make_room(struct port_tokens *tokens, const char *id)
{
    struct port_token *token, *oldest = NULL;
    int n = 0;
    TAILQ_FOREACH(token, tokens, link) {
        if (strcmp(token->host.id, id) != 0)
            continue;
        oldest = oldest ? oldest : token;
        n++;
    }
    if (n >= TOKENS_OF_HOST_MAX)
        token_free(tokens, oldest);
}

const char *
port_token_make(struct port_tokens *tokens, const struct port_host *host, int64_t *ret_ends_ms)
{
    drop_ended(tokens);
    make_room(tokens, host->id);
    struct port_token *token = KG_NEW(struct port_token);
    token->host = *host;
    token->ends_ms = clock_mono_ms() + TOKEN_MS;
    id_random(token->text, PORT_TOKEN_LEN);
    TAILQ_INSERT_TAIL(tokens, token, link);
    *ret_ends_ms = clock_wall_ms() + TOKEN_MS;
    return token->text;
}

bool
port_token_take(struct port_tokens *tokens, const struct port_host *host, const char *text)
{
    struct port_token *token;
    drop_ended(tokens);
    if (strlen(text) != PORT_TOKEN_LEN)
        return false;
    TAILQ_FOREACH(token, tokens, link) {
        if (token->host.port == host->port && strcmp(token->host.id, host->id) == 0 &&
            sodium_memcmp(token->text, text, PORT_TOKEN_LEN) == 0) {
            token_free(tokens, token);
            return true;
        }
    }
    return false;
}

void
port_tokens_fini(struct port_tokens *tokens)
{
    for (struct port_token *token; (token = TAILQ_FIRST(tokens));)
        token_free(tokens, token);
}

char *
port_target_token(const char *target, char **ret_rest)
{
    static const char name[] = PORT_TOKEN_PARAM "=";
    const size_t name_len = strlen(name);
    size_t path_len = strcspn(target, "?");
    KG_AUTO_BUF rest = {0};
    KG_AUTO_FREE char *token = NULL;
    const char *mark = "?";
    buf_append(&rest, target, path_len);
    for (const char *at = target + path_len; *at;) {
        at++; // ? or &
        size_t len = strcspn(at, "&");
        if (strncmp(at, name, name_len) == 0 && len >= name_len) {
            if (!token)
                token = kg_strndup(at + name_len, len - name_len);
        } else if (len > 0) {
            buf_append_str(&rest, mark);
            buf_append(&rest, at, len);
            mark = "&";
        }
        at += len;
    }
    *ret_rest = buf_take(&rest);
    return KG_STEAL(token);
}

// ---- Cookies --------------------------------------------------------------------------------

static void
sign(const struct file_links *links, const struct port_host *host, const char *expires,
     char ret[SIGNATURE_HEX_LEN + 1])
{
    unsigned char key[crypto_auth_KEYBYTES], signature[crypto_auth_BYTES];
    KG_AUTO_BUF text = {0};
    buf_printf(&text, "%d-%s %s", host->port, host->id, expires);
    file_links_derive(links, "kernelgate cookies of ports", key, sizeof key);
    crypto_auth(signature, (const unsigned char *)text.data, text.len, key);
    sodium_memzero(key, sizeof key);
    sodium_bin2hex(ret, SIGNATURE_HEX_LEN + 1, signature, sizeof signature);
}

void
port_reply_cookie(struct http_request *request, const struct file_links *links,
                  const struct port_host *host)
{
    char signature[SIGNATURE_HEX_LEN + 1];
    bool is_https = http_request_is_https(request);
    KG_AUTO_FREE char *expires = kg_asprintf("%" PRId64, clock_wall_ms() / 1000 + COOKIE_S);
    sign(links, host, expires, signature);
    KG_AUTO_FREE char *cookie =
        kg_asprintf("%s=%s.%s; Path=/; HttpOnly; SameSite=Lax; Max-Age=%d%s",
                    is_https ? PORT_SECURE_COOKIE : PORT_COOKIE, expires, signature, COOKIE_S,
                    is_https ? "; Secure" : "");
    http_reply_header(request, "Set-Cookie", cookie);
}

static bool
value_is_valid(const struct file_links *links, const struct port_host *host, const char *value,
               size_t len)
{
    enum { EXPIRES_MAX = 20 };
    char expires[EXPIRES_MAX + 1] = "", wanted[SIGNATURE_HEX_LEN + 1];
    size_t n = strspn(value, "0123456789");
    if (n == 0 || n > EXPIRES_MAX || len != n + 1 + SIGNATURE_HEX_LEN || value[n] != '.')
        return false;
    memcpy(expires, value, n);
    sign(links, host, expires, wanted);
    // The expiry is signed, so it is a number that the gateway wrote.
    return sodium_memcmp(wanted, value + n + 1, SIGNATURE_HEX_LEN) == 0 &&
           strtoll(expires, NULL, 10) > clock_wall_ms() / 1000;
}

// Pages of other hosts of the domain may set a cookie of this name, too: any that is valid counts.
bool
port_has_cookie(const struct http_request *request, const struct file_links *links,
                const struct port_host *host)
{
    const char *at = http_request_header(request, "Cookie");
    const char *name = http_request_is_https(request) ? PORT_SECURE_COOKIE : PORT_COOKIE;
    const size_t name_len = strlen(name);
    while (at && *at) {
        at += strspn(at, "; ");
        size_t len = strcspn(at, ";");
        if (len > name_len && at[name_len] == '=' && strncmp(at, name, name_len) == 0 &&
            value_is_valid(links, host, at + name_len + 1, len - name_len - 1))
            return true;
        at += len;
    }
    return false;
}

// ---- Other origins --------------------------------------------------------------------------

// What browsers say of a request that sends no Origin (Fetch Metadata).
static bool
comes_from_other_site(const struct http_request *request)
{
    const char *site = http_request_header(request, "Sec-Fetch-Site");
    const char *mode = http_request_header(request, "Sec-Fetch-Mode");
    bool reads = http_request_method(request) & (HTTP_GET | HTTP_HEAD);
    if (!site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0)
        return false;
    return !(reads && mode && strcmp(mode, "navigate") == 0);
}

int
port_check_origin(const struct http_request *request, bool is_public, struct kg_error *err)
{
    bool is_own = http_request_has_own_origin(request);
    bool upgrades = http_upgrade_is_asked(request, "websocket");
    if (upgrades ? is_own : is_public || (is_own && !comes_from_other_site(request)))
        return 0;
    return kg_error_set(err, KG_FORBIDDEN_ORIGIN, 0,
                        "Origin: pages of another host may not use this port");
}
