// SPDX-License-Identifier: Apache-2.0
// The table of users.

#include <string.h>

#include "accounts_priv.h"

// Owners that requests have without an account.
static const char *const reserved[] = {"default", "anonymous"};

static int
check_name(const char *name, struct kg_error *err)
{
    size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    if (len < 1 || len > HTTP_OWNER_MAX || name[len])
        return kg_error_set(err, KG_INVALID, 0,
                            "the user's name must have 1 to %d characters of A-Za-z0-9._-",
                            HTTP_OWNER_MAX);
    for (size_t i = 0; i < KG_ARRAY_LEN(reserved); i++) {
        if (strcmp(name, reserved[i]) == 0)
            return kg_error_set(err, KG_INVALID, 0, "the name %s is reserved: choose another",
                                name);
    }
    return 0;
}

bool
account_user_name_is_valid(const char *name)
{
    return check_name(name, NULL) == 0;
}

static int
not_found(const char *name, struct kg_error *err)
{
    return kg_error_set(err, KG_NOT_FOUND, 0, "there is no user %.64s", name);
}

int
user_find_id(struct account_store *store, const char *name, int64_t *ret_id, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err, "SELECT id FROM users WHERE name = ?", "s", name);
    int found = statement ? store_step(store, statement, err) : -1;
    if (found == 0)
        return not_found(name, err);
    if (found == 1)
        *ret_id = sqlite3_column_int64(statement, 0);
    return found < 0 ? -1 : 0;
}

int
account_user_check(struct account_store *store, const char *name, struct kg_error *err)
{
    int64_t id;
    return user_find_id(store, name, &id, err);
}

int
account_user_taken(const char *name, struct kg_error *err)
{
    return kg_error_set(err, KG_INVALID, 0, "there is a user %s already", name);
}

int
user_note_use(struct account_store *store, int64_t user_id, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err, "UPDATE users SET unused = 0 WHERE id = ? AND unused", "i", user_id);
    return statement ? store_step(store, statement, err) : -1;
}

int
user_check_never_removed(struct account_store *store, const char *name, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err, "SELECT 1 FROM removed_users WHERE name = ?", "s", name);
    int found = statement ? store_step(store, statement, err) : -1;
    return found > 0 ? account_user_taken(name, err) : found;
}

int
user_insert(struct account_store *store, const char *name, struct kg_error *err)
{
    if (check_name(name, err) < 0)
        return -1;
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err, "INSERT INTO users (name, created_ms) VALUES (?, ?)", "si", name,
                      clock_wall_ms());
    if (!statement)
        return -1;
    int result = store_step(store, statement, err);
    if (result < 0 && sqlite3_extended_errcode(store->db) == SQLITE_CONSTRAINT_UNIQUE)
        account_user_taken(name, err);
    return result;
}

int
account_user_each(struct account_store *store, account_user_fn fn, void *arg, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err,
                      "SELECT name, disabled, created_ms, "
                      "(SELECT count(*) FROM keys WHERE user_id = users.id AND expires_ms = 0), "
                      "max_sessions, max_requests_per_second, administrator, password <> '', "
                      "max_memory_mb, registered "
                      "FROM users ORDER BY name",
                      "");
    int row = statement ? 1 : -1;
    while (row > 0 && (row = store_step(store, statement, err)) > 0) {
        const struct account_user user = {
            .name = (const char *)sqlite3_column_text(statement, 0),
            .disabled = sqlite3_column_int(statement, 1) != 0,
            .created_ms = sqlite3_column_int64(statement, 2),
            .n_keys = sqlite3_column_int64(statement, 3),
            .quota.max_sessions = sqlite3_column_int64(statement, 4),
            .quota.max_requests_per_second = sqlite3_column_double(statement, 5),
            .administrator = sqlite3_column_int(statement, 6) != 0,
            .has_password = sqlite3_column_int(statement, 7) != 0,
            .quota.max_memory_mb = sqlite3_column_int64(statement, 8),
            .registered = sqlite3_column_int(statement, 9) != 0,
        };
        fn(&user, arg);
    }
    return row;
}

static int
check_limits(const struct account_change *wanted, struct kg_error *err)
{
    const int64_t *sessions = wanted->max_sessions;
    const double *requests = wanted->max_requests_per_second;
    if (sessions && (*sessions < 0 || *sessions > ACCOUNT_SESSIONS_MAX))
        return kg_error_set(err, KG_INVALID, 0, "max-sessions must be 0 to %d",
                            ACCOUNT_SESSIONS_MAX);
    if (requests && !(*requests >= 0 && *requests <= ACCOUNT_REQUESTS_MAX))
        return kg_error_set(err, KG_INVALID, 0, "max-requests-per-second must be 0 to %d",
                            ACCOUNT_REQUESTS_MAX);
    const int64_t *memory = wanted->max_memory_mb;
    if (memory && *memory != 0 &&
        (*memory < ACCOUNT_MEMORY_MIN_MB || *memory > ACCOUNT_MEMORY_MAX_MB))
        return kg_error_set(err, KG_INVALID, 0, "max-memory-mb must be 0, or %d to %d",
                            ACCOUNT_MEMORY_MIN_MB, ACCOUNT_MEMORY_MAX_MB);
    return 0;
}

// Runs a statement that changes one user, within a transaction.
static int
change_one(struct account_store *store, sqlite3_stmt *statement, const char *name,
           struct kg_error *err)
{
    if (!statement || store_step(store, statement, err) < 0)
        return -1;
    if (sqlite3_changes(store->db) == 0)
        return not_found(name, err);
    return sqlite3_reset(statement) == SQLITE_OK ? 0 : store_fail(store, err);
}

// -1 is never a value. Who gets a role from an administrator does not count as registered any more.
static int
update(struct account_store *store, const char *name, const struct account_change *wanted,
       struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err,
                      "UPDATE users SET disabled = ifnull(nullif(?, -1), disabled), "
                      "administrator = ifnull(nullif(?2, -1), administrator), "
                      "registered = iif(?2 = -1, registered, 0), "
                      "unused = iif(?2 = -1, unused, 0), "
                      "max_sessions = ifnull(nullif(?, -1), max_sessions), "
                      "max_requests_per_second = ifnull(nullif(?, -1.0), max_requests_per_second), "
                      "max_memory_mb = ifnull(nullif(?, -1), max_memory_mb) "
                      "WHERE name = ?",
                      "iiidis", wanted->disabled ? (int64_t)*wanted->disabled : -1,
                      wanted->administrator ? (int64_t)*wanted->administrator : -1,
                      wanted->max_sessions ? *wanted->max_sessions : -1,
                      wanted->max_requests_per_second ? *wanted->max_requests_per_second : -1.0,
                      wanted->max_memory_mb ? *wanted->max_memory_mb : -1, name);
    return change_one(store, statement, name, err);
}

int
account_user_add(struct account_store *store, const char *name, const struct account_change *wanted,
                 struct kg_error *err)
{
    if (check_limits(wanted, err) < 0 || store_begin(store, err) < 0)
        return -1;
    int result = user_insert(store, name, err);
    return store_end(store, result < 0 ? result : update(store, name, wanted, err), err);
}

int
account_user_change(struct account_store *store, const char *name,
                    const struct account_change *wanted, struct kg_error *err)
{
    if (check_limits(wanted, err) < 0 || store_begin(store, err) < 0)
        return -1;
    return store_end(store, update(store, name, wanted, err), err);
}

int
account_user_check_administrator(struct account_store *store, const char *name,
                                 struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err, "SELECT 1 FROM users WHERE name = ? AND administrator AND NOT disabled", "s",
        name);
    int found = statement ? store_step(store, statement, err) : -1;
    if (found == 0)
        return kg_error_set(err, KG_ADMINISTRATORS_ONLY, 0,
                            "only administrators may do this; kernelgate user role makes one");
    return found < 0 ? -1 : 0;
}

static int
erase(struct account_store *store, const char *name, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err, "DELETE FROM users WHERE name = ?", "s", name);
    return change_one(store, statement, name, err);
}

static int
note_removed(struct account_store *store, const char *name, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err, "INSERT OR IGNORE INTO removed_users (name) VALUES (?)", "s", name);
    return statement ? store_step(store, statement, err) : -1;
}

int
user_remove(struct account_store *store, const char *name, struct kg_error *err)
{
    return erase(store, name, err) < 0 ? -1 : note_removed(store, name, err);
}

int
account_user_remove(struct account_store *store, const char *name, struct kg_error *err)
{
    if (store_begin(store, err) < 0)
        return -1;
    return store_end(store, user_remove(store, name, err), err);
}
