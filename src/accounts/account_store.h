// SPDX-License-Identifier: Apache-2.0
// The database of accounts: a SQLite file with users and their keys. These functions block, so the
// gateway calls them on a worker. All errors are KG_ACCOUNTS_UNAVAILABLE (locked, damaged, of
// another schema), KG_DISK_FULL, or as said below.
#pragma once

#include "base.h"

// One connection. One thread at a time may use it.
struct account_store;

// Opens the file; where it is older, brings its schema up to date. `make`: makes it, with mode
// 0600, if it does not exist. Waits up to `busy_ms` for other programs' locks, also later.
KG_MUST_CHECK struct account_store *account_store_open(const char *path, bool make, int busy_ms,
                                                       struct kg_error *err);
void account_store_close(struct account_store *store);
KG_DEFINE_AUTO(account_store, account_store_close)

// ---- Users ----------------------------------------------------------------------------------

// The name of a user is that of the owner whose sessions are used. 1 to 64 characters of
// A-Za-z0-9._-, and neither "default" nor "anonymous", which are owners without an account.
enum {
    ACCOUNT_SESSIONS_MAX = 10000,
    ACCOUNT_REQUESTS_MAX = 1000000,
    ACCOUNT_MEMORY_MIN_MB = 64,
    ACCOUNT_MEMORY_MAX_MB = 1 << 20,
};
struct account_quota {
    int64_t max_sessions;           // 0: as the gateway's settings say
    double max_requests_per_second; // 0: the same
    int64_t max_memory_mb;          // of each sandbox's processes; 0: the same
};
struct account_user {
    const char *name; // borrowed for the time of the callback
    bool disabled;
    bool administrator; // may manage users over HTTP
    bool has_password;
    bool registered; // made the account itself, and no administrator has set its role since
    struct account_quota quota;
    int64_t created_ms; // clock_wall_ms()
    int64_t n_keys;
};
typedef void (*account_user_fn)(const struct account_user *user, void *arg);

// In the order of their names.
KG_MUST_CHECK int account_user_each(struct account_store *store, account_user_fn fn, void *arg,
                                    struct kg_error *err);
// Fails with KG_NOT_FOUND if there is no such user.
KG_MUST_CHECK int account_user_check(struct account_store *store, const char *name,
                                     struct kg_error *err);
// Whether a name may be one of a user: see above.
bool account_user_name_is_valid(const char *name);
// Sets the error of a name that is taken, KG_INVALID, and returns -1.
int account_user_taken(const char *name, struct kg_error *err);
// Fails with KG_ADMINISTRATORS_ONLY if the user is none, is disabled, or does not exist.
KG_MUST_CHECK int account_user_check_administrator(struct account_store *store, const char *name,
                                                   struct kg_error *err);
// What is to be changed of a user. While one is disabled, none of its keys is valid.
struct account_change {
    const bool *disabled;      // each of them; NULL: stays
    const bool *administrator; // also: is not `registered` any more
    const int64_t *max_sessions;
    const double *max_requests_per_second;
    const int64_t *max_memory_mb;
};
// Makes a user who has what `wanted` says. KG_INVALID: the name is not allowed, or is taken, or a
// limit is.
KG_MUST_CHECK int account_user_add(struct account_store *store, const char *name,
                                   const struct account_change *wanted, struct kg_error *err);
// KG_INVALID: a limit is negative, or more than the setting of the same name may be. KG_NOT_FOUND.
KG_MUST_CHECK int account_user_change(struct account_store *store, const char *name,
                                      const struct account_change *change, struct kg_error *err);
// With all keys. KG_NOT_FOUND.
KG_MUST_CHECK int account_user_remove(struct account_store *store, const char *name,
                                      struct kg_error *err);

// ---- Keys -----------------------------------------------------------------------------------

// A key is "kgk_", its id, "_" and its secret. The file has the id and the key's SHA-256.
#define ACCOUNT_KEY_PREFIX "kgk_"
enum {
    ACCOUNT_KEY_ID_LEN = 10,
    ACCOUNT_KEY_SECRET_LEN = 32, // 160 bits
    ACCOUNT_KEY_LEN = 4 + ACCOUNT_KEY_ID_LEN + 1 + ACCOUNT_KEY_SECRET_LEN,
    ACCOUNT_KEY_NAME_MAX = 64, // bytes
    ACCOUNT_KEYS_MAX = 100,    // of one user
};
struct account_key {
    const char *id; // strings are borrowed for the time of the callback
    const char *user;
    const char *name; // what its user calls it; may be empty
    int64_t created_ms;
    int64_t used_ms; // 0: never
};
typedef void (*account_key_fn)(const struct account_key *key, void *arg);

// The id of a key or login; false: the credential has another form, and `ret_id` is "".
bool account_key_id(const char *credential, char ret_id[ACCOUNT_KEY_ID_LEN + 1]);

// Makes a key and writes it to `ret_key`; it cannot be had again. KG_NOT_FOUND: there is no such
// user. KG_INVALID: the name is not allowed, or the user has ACCOUNT_KEYS_MAX keys.
KG_MUST_CHECK int account_key_add(struct account_store *store, const char *user, const char *name,
                                  char ret_key[ACCOUNT_KEY_LEN + 1], struct kg_error *err);
// Of one user, or of all (NULL), in the order in which they were made. KG_NOT_FOUND.
KG_MUST_CHECK int account_key_each(struct account_store *store, const char *user, account_key_fn fn,
                                   void *arg, struct kg_error *err);
// Whether a credential that was valid when its request began still is. KG_UNAUTHORIZED: it has the
// form of a key, and is not one, or no longer. NULL and credentials of another form are not
// checked.
KG_MUST_CHECK int account_key_check(struct account_store *store, const char *credential,
                                    struct kg_error *err);
// `user`: the key must be this user's; NULL: it may be any user's. `id`: may also be the whole key.
// KG_NOT_FOUND.
KG_MUST_CHECK int account_key_revoke(struct account_store *store, const char *user, const char *id,
                                     struct kg_error *err);

// ---- Passwords and logins -------------------------------------------------------------------

// A hash is a text that password_hash() made (password.h); a user without a password has "". A
// login is a key that ends, and is not listed: it is valid, or not, wherever a key is.
enum {
    ACCOUNT_HASH_SIZE = 128, // with its NUL
    ACCOUNT_LOGIN_S = 7 * 24 * 3600,
    ACCOUNT_LOGINS_MAX = 20, // of one user; a further one ends the oldest
};
// "" also if there is no such user, or it is disabled.
KG_MUST_CHECK int account_password_get(struct account_store *store, const char *user,
                                       char ret_hash[ACCOUNT_HASH_SIZE], struct kg_error *err);
// Ends the user's logins. `expected`: the hash that is replaced, else KG_INVALID; NULL: any.
// KG_NOT_FOUND.
KG_MUST_CHECK int account_password_set(struct account_store *store, const char *user,
                                       const char *expected, const char *hash,
                                       struct kg_error *err);
// `hash`: that of the password which was right. KG_UNAUTHORIZED: the user has another one now, or
// is disabled. A power failure may undo it.
KG_MUST_CHECK int account_login_add(struct account_store *store, const char *user, const char *hash,
                                    char ret_key[ACCOUNT_KEY_LEN + 1], struct kg_error *err);
// Makes a user with a password, and a login. `first`: it becomes an administrator, and must be the
// only user; else KG_REGISTRATION_CLOSED. KG_INVALID: the name is not allowed, or is taken, or,
// unless `first`, was that of a user who was removed, whose sessions may still be there.
KG_MUST_CHECK int account_register(struct account_store *store, const char *user, const char *hash,
                                   bool first, char ret_key[ACCOUNT_KEY_LEN + 1],
                                   struct kg_error *err);
// How many accounts people may make themselves.
struct account_registration {
    int64_t max;       // of all of them; 0: no limit
    int64_t unused_ms; // until one that was not used again may be removed; 0: never
};
// Before account_register(): removes some accounts that were not used again since they were made;
// `ret_removed`: how many. KG_REGISTRATION_CLOSED: there are as many as there may be.
KG_MUST_CHECK int account_registration_check(struct account_store *store,
                                             const struct account_registration *limits,
                                             int *ret_removed, struct kg_error *err);
