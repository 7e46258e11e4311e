// SPDX-License-Identifier: Apache-2.0
// Signed links. The signature covers owner, session, the session's sandbox, path and expiry, each
// ended by a NUL, which none of them holds. It does not cover the method, since a link is for
// reading only. A sandbox has one session in its life, and recovery keeps its id.

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <string.h>

#include "file_links.h"
#include "sandbox.h"
#include "session.h"
#include "sessions.h"

enum { LIFE_S = 24 * 3600, SIGNATURE_HEX_LEN = crypto_auth_BYTES * 2 };

struct file_links {
    unsigned char key[crypto_auth_KEYBYTES];
    struct sessions *sessions; // borrowed; NULL: no link ends with its session
};

struct file_links *
file_links_new(const char *dir, struct kg_error *err)
{
    KG_AUTO(file_links) links = KG_NEW(struct file_links);
    KG_AUTO_FREE char *path = kg_asprintf("%s/link-key", dir);
    KG_AUTO_BUF key = {0};
    if (sodium_init() < 0)
        abort();
    if (file_read(path, sizeof links->key, &key, err) == 0 && key.len == sizeof links->key) {
        memcpy(links->key, key.data, key.len);
        sodium_memzero(key.data, key.len);
        return KG_STEAL(links);
    }
    crypto_auth_keygen(links->key);
    if (file_write_atomic(path, links->key, sizeof links->key, 0600, err) < 0)
        return NULL;
    return KG_STEAL(links);
}

void
file_links_free(struct file_links *links)
{
    if (!links)
        return;
    sodium_memzero(links, sizeof *links);
    free(links);
}

void
file_links_share_key(struct file_links *links, const unsigned char *secret, size_t len)
{
    static const unsigned char label[] = "kernelgate file links";
    crypto_generichash(links->key, sizeof links->key, label, sizeof label, secret, len);
}

void
file_links_derive(const struct file_links *links, const char *label, unsigned char *ret, size_t len)
{
    crypto_generichash(ret, len, (const unsigned char *)label, strlen(label), links->key,
                       sizeof links->key);
}

void
file_links_set_sessions(struct file_links *links, struct sessions *sessions)
{
    links->sessions = sessions;
}

// The id of the session's current sandbox; NULL: the session has ended, or has no sandbox yet.
static const char *
sandbox_of(const struct file_links *links, const char *owner, const char *session_id)
{
    if (!links->sessions)
        return "";
    const struct session *session = sessions_find(links->sessions, owner, session_id, NULL);
    const struct sandbox *sandbox = session ? session_sandbox(session) : NULL;
    return sandbox ? sandbox_id(sandbox) : NULL;
}

static void
sign(const struct file_links *links, const char *owner, const char *session_id, const char *sandbox,
     const char *path, const char *expires, char ret[SIGNATURE_HEX_LEN + 1])
{
    unsigned char signature[crypto_auth_BYTES];
    const char *const parts[] = {owner, session_id, sandbox, path, expires};
    KG_AUTO_BUF text = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(parts); i++)
        buf_append(&text, parts[i], strlen(parts[i]) + 1);
    crypto_auth(signature, (const unsigned char *)text.data, text.len, links->key);
    sodium_bin2hex(ret, SIGNATURE_HEX_LEN + 1, signature, sizeof signature);
}

char *
file_links_make(const struct file_links *links, const char *owner, const char *session_id,
                const char *path)
{
    char signature[SIGNATURE_HEX_LEN + 1];
    KG_AUTO_FREE char *expires = kg_asprintf("%" PRId64, clock_wall_ms() / 1000 + LIFE_S);
    const char *sandbox = sandbox_of(links, owner, session_id);
    KG_AUTO_BUF url = {0};
    sign(links, owner, session_id, sandbox ? sandbox : "", path, expires, signature);
    buf_printf(&url, FILE_LINKS_PATH "/%s/", session_id);
    percent_append(&url, path + (*path == '/'), "/");
    buf_append_str(&url, *path == '/' ? "?root=/&owner=" : "?owner=");
    percent_append(&url, owner, "");
    buf_printf(&url, "&expires=%s&signature=%s", expires, signature);
    return buf_take(&url);
}

bool
file_links_check(const struct file_links *links, const char *owner, const char *session_id,
                 const char *path, const char *expires, const char *signature)
{
    char wanted[SIGNATURE_HEX_LEN + 1];
    const char *sandbox = sandbox_of(links, owner, session_id);
    if (!sandbox)
        return false;
    sign(links, owner, session_id, sandbox, path, expires, wanted);
    // The expiry is signed, so it is a number that the gateway wrote.
    return strlen(signature) == SIGNATURE_HEX_LEN &&
           sodium_memcmp(wanted, signature, SIGNATURE_HEX_LEN) == 0 &&
           strtoll(expires, NULL, 10) > clock_wall_ms() / 1000;
}
