// SPDX-License-Identifier: Apache-2.0
// The table of keys, and what a key looks like.

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "accounts_priv.h"

static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567"; // of id_random()

// ---- Keys as text ---------------------------------------------------------------------------

bool
key_parse(const char *credential, char *ret_id)
{
    size_t prefix = strlen(ACCOUNT_KEY_PREFIX);
    if (strlen(credential) != ACCOUNT_KEY_LEN ||
        strncmp(credential, ACCOUNT_KEY_PREFIX, prefix) != 0)
        return false;
    const char *id = credential + prefix;
    const char *secret = id + ACCOUNT_KEY_ID_LEN + 1;
    if (strspn(id, alphabet) != ACCOUNT_KEY_ID_LEN || secret[-1] != '_' ||
        strspn(secret, alphabet) != ACCOUNT_KEY_SECRET_LEN)
        return false;
    memcpy(ret_id, id, ACCOUNT_KEY_ID_LEN);
    ret_id[ACCOUNT_KEY_ID_LEN] = '\0';
    return true;
}

bool
account_key_id(const char *credential, char ret_id[ACCOUNT_KEY_ID_LEN + 1])
{
    ret_id[0] = '\0';
    return key_parse(credential, ret_id);
}

void
key_hash(const char *key, unsigned char ret[KEY_HASH_LEN])
{
    static_assert(KEY_HASH_LEN == crypto_hash_sha256_BYTES, "");
    crypto_hash_sha256(ret, (const unsigned char *)key, strlen(key));
}

static int
check_name(const char *name, struct kg_error *err)
{
    size_t len = strlen(name);
    bool plain = utf8_valid_prefix(name, len) == len;
    for (const char *c = name; *c; c++)
        plain &= (unsigned char)*c >= ' ' && *c != 0x7f;
    if (!plain || len > ACCOUNT_KEY_NAME_MAX)
        return kg_error_set(err, KG_INVALID, 0,
                            "the key's name may have %d bytes of UTF-8 without control characters",
                            ACCOUNT_KEY_NAME_MAX);
    return 0;
}

// ---- The table ------------------------------------------------------------------------------

static int
check_count(struct account_store *store, int64_t user_id, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err, "SELECT count(*) FROM keys WHERE user_id = ? AND expires_ms = 0", "i", user_id);
    if (!statement || store_step(store, statement, err) < 0)
        return -1;
    if (sqlite3_column_int(statement, 0) >= ACCOUNT_KEYS_MAX)
        return kg_error_set(err, KG_INVALID, 0, "a user may have %d keys: revoke one first",
                            ACCOUNT_KEYS_MAX);
    return 0;
}

int
key_insert(struct account_store *store, int64_t user_id, const char *name, int64_t expires_ms,
           char ret_key[ACCOUNT_KEY_LEN + 1], struct kg_error *err)
{
    char id[ACCOUNT_KEY_ID_LEN + 1], secret[ACCOUNT_KEY_SECRET_LEN + 1];
    id_random(id, ACCOUNT_KEY_ID_LEN);
    id_random(secret, ACCOUNT_KEY_SECRET_LEN);
    snprintf(ret_key, ACCOUNT_KEY_LEN + 1, ACCOUNT_KEY_PREFIX "%s_%s", id, secret);
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err,
                      "INSERT INTO keys (id, user_id, name, created_ms, expires_ms, hash) VALUES "
                      "(?, ?, ?, ?, ?, ?)",
                      "sisii", id, user_id, name, clock_wall_ms(), expires_ms);
    if (!statement)
        return -1;
    unsigned char hash[KEY_HASH_LEN];
    key_hash(ret_key, hash);
    if (sqlite3_bind_blob(statement, 6, hash, sizeof hash, SQLITE_TRANSIENT) != SQLITE_OK)
        return store_fail(store, err);
    return store_step(store, statement, err);
}

int
account_key_add(struct account_store *store, const char *user, const char *name,
                char ret_key[ACCOUNT_KEY_LEN + 1], struct kg_error *err)
{
    int64_t user_id = 0;
    if (check_name(name, err) < 0 || store_begin(store, err) < 0)
        return -1;
    bool made = user_find_id(store, user, &user_id, err) == 0 &&
                check_count(store, user_id, err) == 0 && user_note_use(store, user_id, err) == 0 &&
                key_insert(store, user_id, name, 0, ret_key, err) == 0;
    return store_end(store, made ? 0 : -1, err);
}

int
account_key_each(struct account_store *store, const char *user, account_key_fn fn, void *arg,
                 struct kg_error *err)
{
    int64_t user_id = 0;
    if (user && user_find_id(store, user, &user_id, err) < 0)
        return -1;
        // Two statements, since one for both would look at all keys for each user.
#define KEYS_WHERE(condition)                                                                      \
    "SELECT keys.id, users.name, keys.name, keys.created_ms, keys.used_ms "                        \
    "FROM keys JOIN users ON users.id = keys.user_id "                                             \
    "WHERE keys.expires_ms = 0" condition " ORDER BY keys.created_ms, keys.id"
    STORE_AUTO_STATEMENT statement =
        user ? store_prepare(store, err, KEYS_WHERE(" AND keys.user_id = ?"), "i", user_id)
             : store_prepare(store, err, KEYS_WHERE(""), "");
#undef KEYS_WHERE
    int row = statement ? 1 : -1;
    while (row > 0 && (row = store_step(store, statement, err)) > 0) {
        const struct account_key key = {
            .id = (const char *)sqlite3_column_text(statement, 0),
            .user = (const char *)sqlite3_column_text(statement, 1),
            .name = (const char *)sqlite3_column_text(statement, 2),
            .created_ms = sqlite3_column_int64(statement, 3),
            .used_ms = sqlite3_column_int64(statement, 4),
        };
        fn(&key, arg);
    }
    return row;
}

int
account_key_check(struct account_store *store, const char *credential, struct kg_error *err)
{
    char id[ACCOUNT_KEY_ID_LEN + 1];
    unsigned char hash[KEY_HASH_LEN];
    if (!credential || !key_parse(credential, id))
        return 0;
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err,
                      "SELECT keys.hash FROM keys JOIN users ON users.id = keys.user_id "
                      "WHERE keys.id = ? AND NOT users.disabled AND "
                      "(keys.expires_ms = 0 OR keys.expires_ms > ?)",
                      "si", id, clock_wall_ms());
    int found = statement ? store_step(store, statement, err) : -1;
    if (found < 0)
        return -1;
    key_hash(credential, hash);
    if (found == 0 || sqlite3_column_bytes(statement, 0) != KEY_HASH_LEN ||
        sodium_memcmp(sqlite3_column_blob(statement, 0), hash, sizeof hash) != 0)
        return kg_error_set(err, KG_UNAUTHORIZED, 0, "Invalid API key");
    return 0;
}

static int
delete_key(struct account_store *store, int64_t user_id, const char *id, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err, "DELETE FROM keys WHERE id = ?1 AND (?2 = 0 OR user_id = ?2)",
                      "si", id, user_id);
    if (!statement || store_step(store, statement, err) < 0)
        return -1;
    if (sqlite3_changes(store->db) == 0)
        return kg_error_set(err, KG_NOT_FOUND, 0, "there is no key with the id %.20s", id);
    return 0;
}

int
account_key_revoke(struct account_store *store, const char *user, const char *id,
                   struct kg_error *err)
{
    int64_t user_id = 0;
    char of_key[ACCOUNT_KEY_ID_LEN + 1];
    if (key_parse(id, of_key))
        id = of_key;
    if (store_begin(store, err) < 0)
        return -1;
    if (user && user_find_id(store, user, &user_id, err) < 0)
        return store_roll_back(store);
    return delete_key(store, user_id, id, err) < 0 ? store_roll_back(store)
                                                   : store_commit(store, err);
}

static int
write_use(struct account_store *store, const struct key_use *use, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err, "UPDATE keys SET used_ms = max(used_ms, ?) WHERE id = ?", "is",
                      use->used_ms, use->id);
    return statement ? store_step(store, statement, err) : -1;
}

static int
write_uses(struct account_store *store, const struct key_use *uses, size_t n, struct kg_error *err)
{
    if (store_begin(store, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (write_use(store, &uses[i], err) < 0)
            return store_roll_back(store);
    }
    return store_commit(store, err);
}

// A power failure may undo it, which saves waiting for the disk while checks wait for the file.
int
key_write_uses(struct account_store *store, const struct key_use *uses, size_t n,
               struct kg_error *err)
{
    store_set_durable(store, false);
    int result = write_uses(store, uses, n, err);
    store_set_durable(store, true);
    return result;
}
