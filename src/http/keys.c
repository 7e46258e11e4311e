// SPDX-License-Identifier: Apache-2.0
// API keys and whose they are. Only hashes are kept, and comparing looks at every one of them, so
// that the time tells nothing.

#include <assert.h>
#include <sodium.h>
#include <string.h>
#include <strings.h>

#include "http_priv.h"

enum { KEYS_FILE_MAX = 1024 * 1024 };
#define HASH_PREFIX "sha256:"

struct key {
    char owner[HTTP_OWNER_MAX + 1];
    unsigned char hash[crypto_hash_sha256_BYTES];
};

struct http_keys {
    struct key *keys;
    size_t n;
};

struct http_keys *
http_keys_new(void)
{
    if (sodium_init() < 0)
        abort();
    return KG_NEW(struct http_keys);
}

void
http_keys_free(struct http_keys *keys)
{
    if (!keys)
        return;
    free(keys->keys);
    free(keys);
}

static bool
owner_valid(const char *owner)
{
    size_t len = strspn(owner, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return len >= 1 && len <= HTTP_OWNER_MAX && !owner[len];
}

int
http_keys_add(struct http_keys *keys, const char *owner, const char *key, struct kg_error *err)
{
    if (!owner_valid(owner))
        return kg_error_set(err, KG_INVALID, 0,
                            "an owner's name has 1 to %d characters of A-Za-z0-9._-",
                            HTTP_OWNER_MAX);
    struct key entry = {0};
    memcpy(entry.owner, owner, strlen(owner));
    size_t prefix = strlen(HASH_PREFIX);
    if (strncmp(key, HASH_PREFIX, prefix) == 0) {
        size_t len = 0;
        const char *hex = key + prefix;
        if (sodium_hex2bin(entry.hash, sizeof entry.hash, hex, strlen(hex), NULL, &len, NULL) ||
            len != sizeof entry.hash)
            return kg_error_set(err, KG_INVALID, 0, "the key of %s is no SHA-256 in hex", owner);
    } else if (!*key) {
        return kg_error_set(err, KG_INVALID, 0, "the key of %s is empty", owner);
    } else {
        crypto_hash_sha256(entry.hash, (const unsigned char *)key, strlen(key));
    }
    keys->keys = kg_realloc(keys->keys, (keys->n + 1) * sizeof *keys->keys);
    keys->keys[keys->n++] = entry;
    return 0;
}

static char *
trim(char *s)
{
    s += strspn(s, " \t\r");
    size_t len = strlen(s);
    while (len > 0 && strchr(" \t\r", s[len - 1]))
        s[--len] = '\0';
    return s;
}

int
http_keys_load(struct http_keys *keys, const char *path, struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    if (file_read(path, KEYS_FILE_MAX, &text, err))
        return -1;
    char *rest = text.data;
    size_t before = keys->n;
    for (int number = 1; rest; number++) {
        char *line = trim(strsep(&rest, "\n"));
        if (!*line || *line == '#')
            continue;
        char *key = line;
        const char *owner = trim(strsep(&key, ":"));
        if (!key)
            return kg_error_set(err, KG_INVALID, 0, "%s, line %d: not name:key", path, number);
        struct kg_error cause;
        if (http_keys_add(keys, owner, trim(key), &cause))
            return kg_error_set(err, KG_INVALID, 0, "%s, line %d: %s", path, number, cause.message);
    }
    if (keys->n == before)
        return kg_error_set(err, KG_INVALID, 0, "%s holds no key", path);
    return 0;
}

bool
http_keys_have_several_owners(const struct http_keys *keys)
{
    for (size_t i = 1; i < keys->n; i++) {
        if (strcmp(keys->keys[i].owner, keys->keys[0].owner) != 0)
            return true;
    }
    return false;
}

const char *
http_keys_owner(const struct http_keys *keys, const char *key)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, (const unsigned char *)key, strlen(key));
    const char *owner = NULL;
    for (size_t i = 0; i < keys->n; i++)
        if (sodium_memcmp(hash, keys->keys[i].hash, sizeof hash) == 0)
            owner = keys->keys[i].owner;
    return owner;
}

static const char *
key_sent(const struct http_request *request, int flags)
{
    const char *authorization = http_request_header(request, "Authorization");
    if (authorization && strncasecmp(authorization, "Bearer ", 7) == 0)
        return authorization + 7 + strspn(authorization + 7, " ");
    const char *key = http_request_header(request, "X-API-Key");
    if (!key && (flags & HTTP_KEY_IN_QUERY))
        key = http_request_query(request, "api_key");
    return key;
}

// A copy, as keys may be replaced while the request is open.
static void
set_owner(struct http_request *request, const char *owner)
{
    if (owner)
        memcpy(request->owner, owner, strlen(owner) + 1);
}

int
keys_check(const struct http_keys *keys, struct http_request *request, int flags,
           struct kg_error *err)
{
    if (!keys || keys->n == 0) {
        if (!origin_is_elsewhere(request))
            set_owner(request, "anonymous");
        else if (!(flags & HTTP_PUBLIC))
            return kg_error_set(err, KG_FORBIDDEN_HOST, 0,
                                "this gateway has no key, and a proxy brings this request from "
                                "another machine: start the gateway with --api-key");
        return 0;
    }
    const char *key = key_sent(request, flags);
    set_owner(request, key ? http_keys_owner(keys, key) : NULL);
    request->wrong_key = key && !request->owner[0];
    if (request->owner[0] || (flags & HTTP_PUBLIC))
        return 0;
    return kg_error_set(err, KG_UNAUTHORIZED, 0, key ? "Invalid API key" : "API key required");
}
