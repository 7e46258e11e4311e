// SPDX-License-Identifier: Apache-2.0
// Users' passwords, and logins, which are keys that end.

#include <stdio.h>
#include <string.h>

#include "accounts_priv.h"

enum { ENDED_AT_ONCE = 100 }; // logins that are removed with a new one

int
account_password_get(struct account_store *store, const char *user,
                     char ret_hash[ACCOUNT_HASH_SIZE], struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err, "SELECT password FROM users WHERE name = ? AND NOT disabled", "s", user);
    int found = statement ? store_step(store, statement, err) : -1;
    const char *hash = found > 0 ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    bool known = hash && strlen(hash) < ACCOUNT_HASH_SIZE; // else not written by kernelgate
    strcpy(ret_hash, known ? hash : "");
    return found < 0 ? -1 : 0;
}

static int
end_logins(struct account_store *store, int64_t user_id, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err, "DELETE FROM keys WHERE user_id = ? AND expires_ms > 0", "i", user_id);
    return statement ? store_step(store, statement, err) : -1;
}

int
password_update(struct account_store *store, int64_t user_id, const char *expected,
                const char *hash, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err,
        "UPDATE users SET password = ?1 WHERE id = ?2 AND (?3 IS NULL OR password = ?3)", "sis",
        hash, user_id, expected);
    if (!statement || store_step(store, statement, err) < 0)
        return -1;
    if (sqlite3_changes(store->db) == 0)
        return kg_error_set(err, KG_INVALID, 0, "the password was changed meanwhile");
    return 0;
}

int
account_password_set(struct account_store *store, const char *user, const char *expected,
                     const char *hash, struct kg_error *err)
{
    int64_t id = 0;
    if (store_begin(store, err) < 0)
        return -1;
    bool set = user_find_id(store, user, &id, err) == 0 && user_note_use(store, id, err) == 0 &&
               password_update(store, id, expected, hash, err) == 0 &&
               end_logins(store, id, err) == 0;
    return store_end(store, set ? 0 : -1, err);
}

// Removes some that are over, of any user: each login more than it adds, so that they become fewer.
static int
remove_ended(struct account_store *store, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err,
                      "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE expires_ms > 0 AND "
                      "expires_ms <= ? ORDER BY expires_ms LIMIT ?)",
                      "ii", clock_wall_ms(), (int64_t)ENDED_AT_ONCE);
    return statement ? store_step(store, statement, err) : -1;
}

// Removes the user's oldest beyond what leaves room for one more.
static int
remove_oldest(struct account_store *store, int64_t user_id, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err,
                      "DELETE FROM keys WHERE id IN "
                      "(SELECT id FROM keys WHERE user_id = ? AND expires_ms > 0 "
                      "ORDER BY created_ms DESC LIMIT -1 OFFSET ?)",
                      "ii", user_id, (int64_t)(ACCOUNT_LOGINS_MAX - 1));
    return statement ? store_step(store, statement, err) : -1;
}

int
login_insert(struct account_store *store, int64_t user_id, char ret_key[ACCOUNT_KEY_LEN + 1],
             struct kg_error *err)
{
    int64_t ends_ms = clock_wall_ms() + ACCOUNT_LOGIN_S * 1000LL;
    return remove_ended(store, err) < 0 || remove_oldest(store, user_id, err) < 0
               ? -1
               : key_insert(store, user_id, "", ends_ms, ret_key, err);
}

static int
find_with_hash(struct account_store *store, const char *user, const char *hash, int64_t *ret_id,
               struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err, "SELECT id FROM users WHERE name = ? AND password = ? AND NOT disabled", "ss",
        user, hash);
    int found = statement ? store_step(store, statement, err) : -1;
    if (found == 0)
        return kg_error_set(err, KG_UNAUTHORIZED, 0, "the password was changed meanwhile");
    if (found > 0)
        *ret_id = sqlite3_column_int64(statement, 0);
    return found < 0 ? -1 : 0;
}

static int
find_and_add(struct account_store *store, const char *user, const char *hash,
             char ret_key[ACCOUNT_KEY_LEN + 1], struct kg_error *err)
{
    int64_t id = 0;
    if (store_begin(store, err) < 0)
        return -1;
    bool added = find_with_hash(store, user, hash, &id, err) == 0 &&
                 user_note_use(store, id, err) == 0 && login_insert(store, id, ret_key, err) == 0;
    return store_end(store, added ? 0 : -1, err);
}

// A power failure may undo it, and one logs in again: checks of keys wait for the file meanwhile.
int
account_login_add(struct account_store *store, const char *user, const char *hash,
                  char ret_key[ACCOUNT_KEY_LEN + 1], struct kg_error *err)
{
    store_set_durable(store, false);
    int result = find_and_add(store, user, hash, ret_key, err);
    store_set_durable(store, true);
    return result;
}
