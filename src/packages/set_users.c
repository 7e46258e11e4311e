// SPDX-License-Identifier: Apache-2.0
// Who uses which set of packages: a sandbox uses one at most.

#include <string.h>
#include <unistd.h>

#include "budget.h"
#include "package_sets_priv.h"

enum { MAX_USER_BYTES = 4096 };

struct set_user {
    TAILQ_ENTRY(set_user) link;
    struct package_set *set;
    bool is_known; // to this gateway: else only to an earlier one
    char *owner;
    char *name;
};

static struct set_user *
find_user(const struct package_sets *sets, const char *name)
{
    struct set_user *user;
    TAILQ_FOREACH(user, &sets->users, link) {
        if (strcmp(user->name, name) == 0)
            return user;
    }
    return NULL;
}

static void
add_user(struct package_sets *sets, const char *name, const char *owner, struct package_set *set,
         bool is_known)
{
    struct set_user *user = KG_NEW(struct set_user);
    user->name = kg_strdup(name);
    user->owner = kg_strdup(owner);
    user->set = set;
    user->is_known = is_known;
    set->n_users++;
    set_hold_trees(sets, set->keys, true);
    TAILQ_INSERT_TAIL(&sets->users, user, link);
}

static void
user_free(struct package_sets *sets, struct set_user *user)
{
    user->set->n_users--;
    set_hold_trees(sets, user->set->keys, false);
    TAILQ_REMOVE(&sets->users, user, link);
    free(user->name);
    free(user->owner);
    free(user);
}

void
package_sets_use(struct package_sets *sets, const char *name, const char *owner,
                 const char *set_name)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->used, name);
    struct set_user *old = find_user(sets, name);
    struct package_set *set = set_name ? set_find(sets, set_name) : NULL;
    struct kg_error err = {0};
    if (set)
        add_user(sets, name, owner, set, true);
    if (old)
        user_free(sets, old);
    if (!set) {
        (void)unlink(path);
        return;
    }
    KG_AUTO_FREE char *text = kg_asprintf("%s%s", set->name, owner);
    if (file_write_atomic(path, text, strlen(text), 0600, &err) < 0)
        log_warning("after a restart the next gateway will not know that a session uses packages",
                    LOG_ERR(&err));
}

const json_t *
package_sets_wheels_of(const struct package_sets *sets, const char *name)
{
    const struct set_user *user = find_user(sets, name);
    return user ? user->set->wheels : NULL;
}

const char *
package_sets_name_of(const struct package_sets *sets, const char *name)
{
    const struct set_user *user = find_user(sets, name);
    return user ? user->set->name : NULL;
}

void
package_sets_keep(struct package_sets *sets, const char *name)
{
    struct set_user *user = find_user(sets, name);
    if (user)
        user->is_known = true;
}

void
package_sets_forget_others(struct package_sets *sets)
{
    struct set_user *next;
    for (struct set_user *user = TAILQ_FIRST(&sets->users); user; user = next) {
        next = TAILQ_NEXT(user, link);
        if (user->is_known)
            continue;
        KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->used, user->name);
        (void)unlink(path);
        user_free(sets, user);
    }
}

// ---- An owner's share -----------------------------------------------------------------------

void
set_share_add(struct set_share *share, const char *name, const json_t *keys, size_t n_links)
{
    size_t i;
    const json_t *key;
    if (!share->names)
        share->names = json_object();
    if (!share->keys)
        share->keys = json_object();
    if (json_object_get(share->names, name))
        return;
    json_object_set_new(share->names, name, json_null());
    share->n_links += n_links;
    json_array_foreach(keys, i, key)
        json_object_set_new(share->keys, json_string_value(key), json_null());
}

void
set_share_clear(struct set_share *share)
{
    json_decref(share->names);
    json_decref(share->keys);
    *share = (struct set_share){0};
}

void
set_users_add_share(const struct package_sets *sets, const char *owner, struct set_share *share)
{
    const struct set_user *user;
    TAILQ_FOREACH(user, &sets->users, link) {
        if (budget_is_common(user->owner, owner))
            set_share_add(share, user->set->name, user->set->keys, user->set->n_links);
    }
}

// ---- What an earlier gateway knew -----------------------------------------------------------

void
set_users_read(struct package_sets *sets, const char *file)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->used, file);
    KG_AUTO_BUF text = {0};
    struct kg_error err;
    struct package_set *set = NULL;
    if (file_read(path, MAX_USER_BYTES, &text, &err) == 0 && text.len >= SET_NAME_LEN) {
        KG_AUTO_FREE char *set_name = kg_strndup(text.data, SET_NAME_LEN);
        set = set_find(sets, set_name);
    }
    if (set)
        add_user(sets, file, text.data + SET_NAME_LEN, set, false);
    else
        (void)unlink(path);
}

void
set_users_free(struct package_sets *sets)
{
    for (struct set_user *user; (user = TAILQ_FIRST(&sets->users));)
        user_free(sets, user);
}
