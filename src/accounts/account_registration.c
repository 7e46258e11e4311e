// SPDX-License-Identifier: Apache-2.0
// Accounts that people make themselves: how they are made, how many there may be, and which are
// removed again because nobody has used them.

#include <string.h>

#include "accounts_priv.h"

enum { UNUSED_AT_ONCE = 10 }; // accounts that are removed with a new one: more than it adds

// Makes the only user an administrator.
static int
promote(struct account_store *store, int64_t user_id, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err,
        "UPDATE users SET administrator = 1 WHERE id = ? AND (SELECT count(*) FROM users) = 1", "i",
        user_id);
    if (!statement || store_step(store, statement, err) < 0)
        return -1;
    if (sqlite3_changes(store->db) == 0)
        return kg_error_set(err, KG_REGISTRATION_CLOSED, 0, "there is a user already");
    return 0;
}

static int
mark_registered(struct account_store *store, int64_t user_id, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err, "UPDATE users SET registered = 1, unused = 1 WHERE id = ?", "i", user_id);
    return statement ? store_step(store, statement, err) : -1;
}

int
account_register(struct account_store *store, const char *user, const char *hash, bool first,
                 char ret_key[ACCOUNT_KEY_LEN + 1], struct kg_error *err)
{
    int64_t id = 0;
    if (store_begin(store, err) < 0)
        return -1;
    bool made = (first || user_check_never_removed(store, user, err) == 0) &&
                user_insert(store, user, err) == 0 && user_find_id(store, user, &id, err) == 0 &&
                password_update(store, id, NULL, hash, err) == 0 &&
                login_insert(store, id, ret_key, err) == 0 &&
                (first ? promote(store, id, err) : mark_registered(store, id, err)) == 0;
    return store_end(store, made ? 0 : -1, err);
}

// ---- How many -------------------------------------------------------------------------------

// Takes the name of one that is unused. Whoever has the first login still may come back with it,
// and what an administrator has disabled is not forgotten. 1: there is one.
static int
find_unused(struct account_store *store, int64_t unused_ms, char ret_name[HTTP_OWNER_MAX + 1],
            struct kg_error *err)
{
    int64_t now_ms = clock_wall_ms();
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err,
        "SELECT name FROM users WHERE unused = 1 AND NOT disabled AND created_ms < ? AND "
        "length(name) <= ? AND NOT EXISTS (SELECT 1 FROM keys WHERE user_id = users.id AND "
        "(expires_ms = 0 OR expires_ms > ?)) ORDER BY created_ms LIMIT 1",
        "iii", now_ms - unused_ms, (int64_t)HTTP_OWNER_MAX, now_ms);
    int found = statement ? store_step(store, statement, err) : -1;
    if (found > 0)
        strcpy(ret_name, (const char *)sqlite3_column_text(statement, 0));
    return found;
}

static int
remove_unused(struct account_store *store, int64_t unused_ms, int *ret_n, struct kg_error *err)
{
    char name[HTTP_OWNER_MAX + 1];
    for (int n = 0, found = 1; n < UNUSED_AT_ONCE; n++) {
        found = find_unused(store, unused_ms, name, err);
        if (found <= 0)
            return found;
        if (user_remove(store, name, err) < 0)
            return -1;
        ++*ret_n;
    }
    return 0;
}

static int
check_number(struct account_store *store, int64_t max, struct kg_error *err)
{
    int64_t n = 0;
    if (store_read_number(store, "SELECT count(*) FROM users WHERE registered = 1", &n, err) < 0)
        return -1;
    if (n >= max)
        return kg_error_set(err, KG_REGISTRATION_CLOSED, 0,
                            "%lld users registered themselves, and max-registered-users allows no "
                            "more: ask an administrator for an account",
                            (long long)n);
    return 0;
}

int
account_registration_check(struct account_store *store, const struct account_registration *limits,
                           int *ret_removed, struct kg_error *err)
{
    *ret_removed = 0;
    if (store_begin(store, err) < 0)
        return -1;
    int result =
        limits->unused_ms > 0 ? remove_unused(store, limits->unused_ms, ret_removed, err) : 0;
    if (store_end(store, result, err) < 0)
        return -1;
    return limits->max > 0 ? check_number(store, limits->max, err) : 0;
}
