// SPDX-License-Identifier: Apache-2.0
// The keys in force and the users, in memory: sorted, so that a request needs no access to the
// file.

#include <sodium.h>
#include <string.h>

#include "accounts_priv.h"

struct listed_key {
    char id[ACCOUNT_KEY_ID_LEN + 1];
    unsigned char hash[KEY_HASH_LEN];
    char owner[HTTP_OWNER_MAX + 1];
    int64_t expires_ms; // clock_wall_ms(); 0: never
    bool used;
};

struct listed_user {
    char name[HTTP_OWNER_MAX + 1];
    struct account_quota quota;
};

struct account_list {
    struct listed_key *keys;
    size_t n_keys, cap_keys;
    struct listed_user *users;
    size_t n_users, cap_users, n_enabled;
};

static void
take_key(struct account_list *list, sqlite3_stmt *row)
{
    const char *id = (const char *)sqlite3_column_text(row, 0);
    const char *owner = (const char *)sqlite3_column_text(row, 2);
    const void *hash = sqlite3_column_blob(row, 1);
    if (!id || !owner || !hash || strlen(id) != ACCOUNT_KEY_ID_LEN ||
        sqlite3_column_bytes(row, 1) != KEY_HASH_LEN || strlen(owner) > HTTP_OWNER_MAX)
        return; // not written by kernelgate: not valid
    if (list->n_keys == list->cap_keys) {
        list->cap_keys = list->cap_keys ? 2 * list->cap_keys : 64;
        list->keys = kg_realloc(list->keys, list->cap_keys * sizeof *list->keys);
    }
    struct listed_key *key = &list->keys[list->n_keys++];
    *key = (struct listed_key){.expires_ms = sqlite3_column_int64(row, 3)};
    strcpy(key->id, id);
    strcpy(key->owner, owner);
    memcpy(key->hash, hash, KEY_HASH_LEN);
}

static int
read_keys(struct account_list *list, struct account_store *store, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement =
        store_prepare(store, err,
                      "SELECT keys.id, keys.hash, users.name, keys.expires_ms FROM keys "
                      "JOIN users ON users.id = keys.user_id WHERE NOT users.disabled "
                      "ORDER BY keys.id",
                      "");
    int row = statement ? 1 : -1;
    while (row > 0 && (row = store_step(store, statement, err)) > 0)
        take_key(list, statement);
    return row;
}

static void
take_user(struct account_list *list, sqlite3_stmt *row)
{
    const char *name = (const char *)sqlite3_column_text(row, 0);
    if (!name || strlen(name) > HTTP_OWNER_MAX)
        return;
    if (list->n_users == list->cap_users) {
        list->cap_users = list->cap_users ? 2 * list->cap_users : 16;
        list->users = kg_realloc(list->users, list->cap_users * sizeof *list->users);
    }
    struct listed_user *user = &list->users[list->n_users++];
    *user = (struct listed_user){
        .quota.max_sessions = sqlite3_column_int64(row, 2),
        .quota.max_requests_per_second = sqlite3_column_double(row, 3),
        .quota.max_memory_mb = sqlite3_column_int64(row, 4),
    };
    strcpy(user->name, name);
    list->n_enabled += sqlite3_column_int(row, 1) == 0;
}

static int
read_users(struct account_list *list, struct account_store *store, struct kg_error *err)
{
    STORE_AUTO_STATEMENT statement = store_prepare(
        store, err,
        "SELECT name, disabled, max_sessions, max_requests_per_second, max_memory_mb FROM users "
        "ORDER BY name",
        "");
    int row = statement ? 1 : -1;
    while (row > 0 && (row = store_step(store, statement, err)) > 0)
        take_user(list, statement);
    return row;
}

struct account_list *
account_list_read(struct account_store *store, struct kg_error *err)
{
    KG_AUTO(account_list) list = KG_NEW(struct account_list);
    if (store_check_version(store, err) < 0 || read_keys(list, store, err) < 0 ||
        read_users(list, store, err) < 0)
        return NULL;
    return KG_STEAL(list);
}

void
account_list_free(struct account_list *list)
{
    if (!list)
        return;
    free(list->keys);
    free(list->users);
    free(list);
}

size_t
account_list_users(const struct account_list *list)
{
    return list->n_enabled;
}

bool
account_list_is_empty(const struct account_list *list)
{
    return list->n_users == 0;
}

static int
compare_name(const void *name, const void *user)
{
    return strcmp(name, ((const struct listed_user *)user)->name);
}

const struct account_quota *
account_list_quota(const struct account_list *list, const char *name)
{
    const struct listed_user *user =
        list->n_users > 0 ? bsearch(name, list->users, list->n_users, sizeof *user, compare_name)
                          : NULL;
    return user ? &user->quota : NULL;
}

size_t
account_list_keys(const struct account_list *list)
{
    return list->n_keys;
}

static int
compare_id(const void *id, const void *key)
{
    return strcmp(id, ((const struct listed_key *)key)->id);
}

const char *
account_list_find(struct account_list *list, const char *id, const char *credential,
                  bool *ret_first)
{
    unsigned char hash[KEY_HASH_LEN];
    struct listed_key *key =
        list->n_keys > 0 ? bsearch(id, list->keys, list->n_keys, sizeof *key, compare_id) : NULL;
    key_hash(credential, hash);
    if (!key || sodium_memcmp(hash, key->hash, sizeof hash) != 0 ||
        (key->expires_ms > 0 && key->expires_ms <= clock_wall_ms()))
        return NULL;
    *ret_first = !key->used;
    key->used = true;
    return key->owner;
}

void
account_list_forget_uses(struct account_list *list)
{
    for (size_t i = 0; i < list->n_keys; i++)
        list->keys[i].used = false;
}
