// SPDX-License-Identifier: Apache-2.0
// The keys and users in memory, in balanced trees (tsearch), so that a request needs no access to
// the file and a change costs what it changes. Names are chosen by strangers, who could make a hash
// table slow.

#include <search.h>
#include <sodium.h>
#include <string.h>

#include "accounts_priv.h"

struct account_list {
    void *users; // by id; the tree owns them
    void *names; // the same ones, by name
    void *keys;  // by id; the tree owns them
    size_t n_users, n_enabled, n_keys;
};

static int
compare_users(const void *a, const void *b)
{
    const struct account_row *one = a, *other = b;
    return (one->user.id > other->user.id) - (one->user.id < other->user.id);
}

static int
compare_names(const void *a, const void *b)
{
    const struct account_row *one = a, *other = b;
    return strcmp(one->user.name, other->user.name);
}

static int
compare_keys(const void *a, const void *b)
{
    const struct account_row *one = a, *other = b;
    return strcmp(one->key.id, other->key.id);
}

// tfind() gives a node, whose first member is the row.
static struct account_row *
find_row(void *const *tree, const struct account_row *like,
         int (*compare)(const void *, const void *))
{
    struct account_row *const *node = tfind(like, tree, compare);
    return node ? *node : NULL;
}

// ---- Changes --------------------------------------------------------------------------------

static void
drop_user(struct account_list *list, const struct account_row *like)
{
    struct account_row *row = find_row(&list->users, like, compare_users);
    if (!row)
        return;
    list->n_users--;
    list->n_enabled -= !row->user.disabled;
    tdelete(row, &list->names, compare_names);
    tdelete(row, &list->users, compare_users);
    free(row);
}

static void
drop_key(struct account_list *list, const struct account_row *like)
{
    struct account_row *row = find_row(&list->keys, like, compare_keys);
    if (!row)
        return;
    list->n_keys--;
    tdelete(row, &list->keys, compare_keys);
    free(row);
}

static struct account_row *
copy_of(const struct account_row *row)
{
    struct account_row *copy = KG_NEW(struct account_row);
    *copy = *row;
    return copy;
}

static void
list_add(void **tree, struct account_row *row, int (*compare)(const void *, const void *))
{
    if (!tsearch(row, tree, compare))
        abort(); // as other small allocations do
}

// A user of the same name with another id is not in the file any more, where names are unique.
static void
put_user(struct account_list *list, const struct account_row *row)
{
    struct account_row *namesake = find_row(&list->names, row, compare_names);
    if (namesake)
        drop_user(list, namesake);
    drop_user(list, row);
    struct account_row *copy = copy_of(row);
    list_add(&list->users, copy, compare_users);
    list_add(&list->names, copy, compare_names);
    list->n_users++;
    list->n_enabled += !row->user.disabled;
}

static void
put_key(struct account_list *list, const struct account_row *row)
{
    drop_key(list, row);
    list_add(&list->keys, copy_of(row), compare_keys);
    list->n_keys++;
}

void
account_list_take(struct account_list *list, const struct account_row *row)
{
    if (row->kind == ROW_USER)
        row->gone ? drop_user(list, row) : put_user(list, row);
    else
        row->gone ? drop_key(list, row) : put_key(list, row);
}

// ---- Questions ------------------------------------------------------------------------------

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

size_t
account_list_keys(const struct account_list *list)
{
    return list->n_keys;
}

const struct listed_user *
account_list_user(const struct account_list *list, const char *name)
{
    struct account_row like = {.kind = ROW_USER};
    if (strlen(name) > HTTP_OWNER_MAX)
        return NULL;
    strcpy(like.user.name, name);
    const struct account_row *row = find_row(&list->names, &like, compare_names);
    return row ? &row->user : NULL;
}

// Of a key; NULL: there is none, or it is disabled.
static const char *
owner_of(const struct account_list *list, const struct listed_key *key)
{
    const struct account_row like = {.kind = ROW_USER, .user.id = key->user_id};
    const struct account_row *row = find_row(&list->users, &like, compare_users);
    return row && !row->user.disabled ? row->user.name : NULL;
}

const char *
account_list_find(struct account_list *list, const char *id, const char *credential, uint64_t round,
                  bool *ret_first)
{
    unsigned char hash[KEY_HASH_LEN];
    struct account_row like = {.kind = ROW_KEY};
    strcpy(like.key.id, id);
    struct account_row *row = find_row(&list->keys, &like, compare_keys);
    key_hash(credential, hash);
    if (!row || sodium_memcmp(hash, row->key.hash, sizeof hash) != 0 ||
        (row->key.expires_ms > 0 && row->key.expires_ms <= clock_wall_ms()))
        return NULL;
    const char *owner = owner_of(list, &row->key);
    *ret_first = owner && row->key.used_in != round;
    if (owner)
        row->key.used_in = round;
    return owner;
}

// ---- Life -----------------------------------------------------------------------------------

struct account_list *
account_list_new(void)
{
    return KG_NEW(struct account_list);
}

static void
keep(void *row)
{
    (void)row; // the other tree owns it
}

void
account_list_free(struct account_list *list)
{
    if (!list)
        return;
    tdestroy(list->names, keep);
    tdestroy(list->users, free);
    tdestroy(list->keys, free);
    free(list);
}
