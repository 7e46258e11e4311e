// SPDX-License-Identifier: Apache-2.0
// A set of API keys. Only hashes are kept, and a search compares with every one of them, so that
// its duration reveals nothing.

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "auth_priv.h"

enum { KEYS_FILE_MAX = 1024 * 1024 };
#define HASH_PREFIX "sha256:"

struct key {
    char owner[HTTP_OWNER_MAX + 1];
    unsigned char hash[crypto_hash_sha256_BYTES];
};

struct key_set {
    struct key *keys;
    size_t n;
};

struct key_set *
key_set_new(void)
{
    if (sodium_init() < 0)
        abort();
    return KG_NEW(struct key_set);
}

struct key_set *
key_set_copy(const struct key_set *set)
{
    struct key_set *copy = key_set_new();
    copy->n = set->n;
    if (set->n > 0) {
        copy->keys = kg_calloc(set->n, sizeof *copy->keys);
        memcpy(copy->keys, set->keys, set->n * sizeof *copy->keys);
    }
    return copy;
}

void
key_set_free(struct key_set *set)
{
    if (!set)
        return;
    free(set->keys);
    free(set);
}

static bool
owner_valid(const char *owner)
{
    size_t len = strspn(owner, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return len >= 1 && len <= HTTP_OWNER_MAX && !owner[len];
}

// No message repeats what was given: in a line with its parts swapped the owner would be the key.
int
key_set_add(struct key_set *set, const char *owner, const char *key, struct kg_error *err)
{
    if (!owner_valid(owner))
        return kg_error_set(err, KG_INVALID, 0,
                            "the owner's name must have 1 to %d characters of A-Za-z0-9._-",
                            HTTP_OWNER_MAX);
    struct key entry = {0};
    memcpy(entry.owner, owner, strlen(owner));
    size_t prefix = strlen(HASH_PREFIX);
    if (strncmp(key, HASH_PREFIX, prefix) == 0) {
        size_t len = 0;
        const char *hex = key + prefix;
        if (sodium_hex2bin(entry.hash, sizeof entry.hash, hex, strlen(hex), NULL, &len, NULL) ||
            len != sizeof entry.hash)
            return kg_error_set(err, KG_INVALID, 0,
                                "sha256: must be followed by the 64 hexadecimal digits of a hash");
    } else if (!*key) {
        return kg_error_set(err, KG_INVALID, 0, "the key is empty");
    } else {
        crypto_hash_sha256(entry.hash, (const unsigned char *)key, strlen(key));
    }
    set->keys = kg_realloc(set->keys, (set->n + 1) * sizeof *set->keys);
    set->keys[set->n++] = entry;
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

// Cuts the text into pieces, in place.
static int
key_set_add_text(struct key_set *set, struct buf *text, const char *path, struct kg_error *err)
{
    if (text->data && strlen(text->data) != text->len)
        return kg_error_set(err, KG_INVALID, 0, "%s contains a NUL byte", path);
    char *rest = text->data;
    size_t before = set->n;
    for (int number = 1; rest; number++) {
        char *line = trim(strsep(&rest, "\n"));
        if (!*line || *line == '#')
            continue;
        char *key = line;
        const char *owner = trim(strsep(&key, ":"));
        if (!key)
            return kg_error_set(err, KG_INVALID, 0, "%s, line %d: expected owner:key", path,
                                number);
        struct kg_error cause;
        if (key_set_add(set, owner, trim(key), &cause))
            return kg_error_set(err, KG_INVALID, 0, "%s, line %d: %s", path, number, cause.message);
    }
    if (set->n == before)
        return kg_error_set(err, KG_INVALID, 0, "%s contains no key", path);
    return 0;
}

int
key_set_add_file(struct key_set *set, const char *path, struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    if (file_read(path, KEYS_FILE_MAX, &text, err))
        return -1;
    return key_set_add_text(set, &text, path, err);
}

// Others may share the file's offset, so it is neither used nor moved.
static int
keys_file_read(int fd, const char *path, struct buf *text, struct kg_error *err)
{
    for (;;) {
        enum { CHUNK = 16 << 10 };
        ssize_t n = pread(fd, buf_reserve(text, CHUNK), CHUNK, (off_t)text->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kg_error_set(err, KG_INTERNAL, errno, "cannot read %s", path);
        text->len += (size_t)n;
        text->data[text->len] = '\0';
        if (n == 0)
            return 0;
        if (text->len > KEYS_FILE_MAX)
            return kg_error_set(err, KG_INVALID, 0, "%s has more than %d bytes", path,
                                KEYS_FILE_MAX);
    }
}

int
key_set_add_open_file(struct key_set *set, int fd, const char *path, struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    if (keys_file_read(fd, path, &text, err))
        return -1;
    return key_set_add_text(set, &text, path, err);
}

const char *
key_set_find(const struct key_set *set, const char *key)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, (const unsigned char *)key, strlen(key));
    const char *owner = NULL;
    for (size_t i = 0; i < set->n; i++)
        if (sodium_memcmp(hash, set->keys[i].hash, sizeof hash) == 0)
            owner = set->keys[i].owner;
    return owner;
}

size_t
key_set_count(const struct key_set *set)
{
    return set->n;
}

bool
key_set_has_owner(const struct key_set *set, const char *owner)
{
    for (size_t i = 0; i < set->n; i++) {
        if (strcmp(set->keys[i].owner, owner) == 0)
            return true;
    }
    return false;
}

bool
key_set_has_several_owners(const struct key_set *set)
{
    for (size_t i = 1; i < set->n; i++) {
        if (strcmp(set->keys[i].owner, set->keys[0].owner) != 0)
            return true;
    }
    return false;
}

bool
key_set_equal(const struct key_set *a, const struct key_set *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->keys, b->keys, a->n * sizeof *a->keys) == 0);
}
