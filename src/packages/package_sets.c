// SPDX-License-Identifier: Apache-2.0
// Sets and their users, how a set is made, and how it leaves.

#include "package_sets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop.h"
#include "package_folder.h"
#include "wheel_trees.h"

enum { MAX_SETS = 1000, NAME_HEX = 64 };

static const struct wheel_tree_limits tree_limits = {
    .max_bytes = INT64_C(6) << 30,
    .max_files = 400 * 1000,
    .max_tree_files = 40 * 1000,
    .max_tree_bytes = INT64_C(2) << 30,
};

struct package_set {
    TAILQ_ENTRY(package_set) link;
    json_t *wheels;
    json_t *keys; // of their trees
    size_t n_users;
    char name[NAME_HEX + 1];
};

struct set_user {
    TAILQ_ENTRY(set_user) link;
    struct package_set *set;
    bool is_known; // to this gateway: else only to an earlier one
    char *name;
};

struct package_sets {
    struct loop *loop;
    struct wheel_trees *trees;
    char *dir;     // shared/sets
    char *records; // sets
    char *used;    // by whom
    char *incoming;
    unsigned char key[crypto_generichash_KEYBYTES];
    size_t n_sets;
    TAILQ_HEAD(, package_set) list; // least recently used first
    TAILQ_HEAD(, set_user) users;
};

struct package_set_making {
    struct package_sets *sets;
    char *name;
    json_t *wheels;
    json_t *keys;
    struct loop_work *work;
    package_set_fn fn;
    void *arg;
    // For the worker.
    char **trees; // NULL-terminated
    char *draft;
    char *final;
    struct kg_error err;
};

struct wheel_trees *
package_sets_trees(struct package_sets *sets)
{
    return sets->trees;
}

// ---- Sets -----------------------------------------------------------------------------------

static struct package_set *
find_set(const struct package_sets *sets, const char *name)
{
    struct package_set *set;
    TAILQ_FOREACH(set, &sets->list, link) {
        if (strcmp(set->name, name) == 0)
            return set;
    }
    return NULL;
}

static char *
record_path(const struct package_sets *sets, const char *name)
{
    return kg_asprintf("%s/%s.json", sets->records, name);
}

static json_t *
tree_keys(const json_t *wheels, const char *tag)
{
    json_t *keys = json_array();
    size_t i;
    json_t *wheel;
    json_array_foreach(wheels, i, wheel) {
        KG_AUTO_FREE char *key =
            wheel_tree_key(json_string_value(json_object_get(wheel, "sha256")), tag);
        json_array_append_new(keys, json_string(key));
    }
    return keys;
}

static void
hold_trees(const struct package_sets *sets, const json_t *keys, bool hold)
{
    size_t i;
    json_t *key;
    json_array_foreach(keys, i, key)
        (hold ? wheel_trees_hold : wheel_trees_let_go)(sets->trees, json_string_value(key));
}

bool
package_sets_can_make(struct package_sets *sets, const json_t *wheels, const char *tag)
{
    json_auto_t *keys = tree_keys(wheels, tag);
    size_t i;
    json_t *key;
    json_array_foreach(keys, i, key) {
        if (!wheel_trees_have(sets->trees, json_string_value(key)))
            return false;
    }
    json_array_foreach(keys, i, key)
        wheel_trees_use(sets->trees, json_string_value(key));
    return true;
}

static int
compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// A keyed hash: who knows the wheels cannot find out whether somebody has installed them.
static void
name_set(const struct package_sets *sets, const json_t *keys, char ret[NAME_HEX + 1])
{
    size_t n = json_array_size(keys);
    KG_AUTO_FREE const char **sorted = kg_calloc(n + 1, sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[i] = json_string_value(json_array_get(keys, i));
    qsort(sorted, n, sizeof *sorted, compare_keys);
    KG_AUTO_BUF text = {0};
    for (size_t i = 0; i < n; i++)
        buf_printf(&text, "%s\n", sorted[i]);
    unsigned char hash[NAME_HEX / 2];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)(text.data ? text.data : ""),
                       text.len, sets->key, sizeof sets->key);
    sodium_bin2hex(ret, NAME_HEX + 1, hash, sizeof hash);
}

static void
set_free(struct package_sets *sets, struct package_set *set)
{
    TAILQ_REMOVE(&sets->list, set, link);
    sets->n_sets--;
    json_decref(set->wheels);
    json_decref(set->keys);
    free(set);
}

static void
remove_set(struct package_sets *sets, struct package_set *set)
{
    KG_AUTO_FREE char *record = record_path(sets, set->name);
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->dir, set->name);
    (void)unlink(record);
    package_folder_remove(sets->loop, path, sets->incoming);
    set_free(sets, set);
}

static struct package_set *
add_set(struct package_sets *sets, const char *name, json_t *wheels, json_t *keys)
{
    struct package_set *set = KG_NEW(struct package_set);
    memcpy(set->name, name, sizeof set->name);
    set->wheels = json_incref(wheels);
    set->keys = json_incref(keys);
    TAILQ_INSERT_TAIL(&sets->list, set, link);
    sets->n_sets++;
    return set;
}

static void
touch_set(struct package_sets *sets, struct package_set *set)
{
    KG_AUTO_FREE char *record = record_path(sets, set->name);
    (void)utimensat(AT_FDCWD, record, NULL, AT_SYMLINK_NOFOLLOW);
    TAILQ_REMOVE(&sets->list, set, link);
    TAILQ_INSERT_TAIL(&sets->list, set, link);
}

static void
remove_old_sets(struct package_sets *sets)
{
    struct package_set *next;
    for (struct package_set *set = TAILQ_FIRST(&sets->list); set && sets->n_sets >= MAX_SETS;
         set = next) {
        next = TAILQ_NEXT(set, link);
        if (set->n_users == 0)
            remove_set(sets, set);
    }
}

static bool
has_key(const struct package_set *set, const char *key)
{
    size_t i;
    json_t *item;
    json_array_foreach(set->keys, i, item) {
        if (strcmp(json_string_value(item), key) == 0)
            return true;
    }
    return false;
}

// Their links would keep the tree's bytes on the disk. A tree that is not held is in no set that
// anybody uses.
static void
on_tree_evicted(const char *key, void *arg)
{
    struct package_sets *sets = arg;
    struct package_set *next;
    for (struct package_set *set = TAILQ_FIRST(&sets->list); set; set = next) {
        next = TAILQ_NEXT(set, link);
        if (has_key(set, key))
            remove_set(sets, set);
    }
}

// ---- Making a set ---------------------------------------------------------------------------

static void
making_free(struct package_set_making *making)
{
    hold_trees(making->sets, making->keys, false);
    for (char **tree = making->trees; *tree; tree++)
        free(*tree);
    free(making->trees);
    free(making->draft);
    free(making->final);
    free(making->name);
    json_decref(making->wheels);
    json_decref(making->keys);
    free(making);
}

// Before it is made, too: a folder without a record would never be found again.
static int
write_record(const struct package_set_making *making, struct kg_error *err)
{
    KG_AUTO_FREE char *path = record_path(making->sets, making->name);
    json_auto_t *record = json_pack("{s:O, s:O}", "wheels", making->wheels, "trees", making->keys);
    KG_AUTO_FREE char *text = json_dumps(record, JSON_COMPACT);
    return file_write_atomic(path, text, strlen(text), 0600, err);
}

// On a worker. A set of the same name may have been made meanwhile.
static void
make(void *arg)
{
    struct package_set_making *making = arg;
    if (write_record(making, &making->err) < 0)
        return;
    if (mkdir(making->draft, 0755) < 0 || chmod(making->draft, 0755) < 0) {
        kg_error_set(&making->err, KG_INTERNAL, errno, "cannot create a folder for packages");
        return;
    }
    for (char **tree = making->trees; *tree; tree++) {
        if (package_folder_link(*tree, making->draft, &making->err) < 0)
            return;
    }
    if (rename(making->draft, making->final) < 0 && errno != EEXIST && errno != ENOTEMPTY)
        kg_error_set(&making->err, KG_INTERNAL, errno,
                     "cannot move a set of packages to its place");
}

static int
remember(struct package_sets *sets, const struct package_set_making *making, struct kg_error *err)
{
    if (find_set(sets, making->name))
        return 0;
    remove_old_sets(sets);
    if (write_record(making, err) < 0)
        return -1;
    (void)add_set(sets, making->name, making->wheels, making->keys);
    return 0;
}

static void
on_made(void *arg)
{
    struct package_set_making *making = arg;
    struct package_sets *sets = making->sets;
    package_folder_remove(sets->loop, making->draft, sets->incoming);
    if (!making->err.code)
        (void)remember(sets, making, &making->err);
    const struct kg_error err = making->err;
    KG_AUTO_FREE char *name = KG_STEAL(making->name);
    package_set_fn fn = making->fn;
    void *fn_arg = making->arg;
    making_free(making);
    fn(err.code ? NULL : name, err.code ? &err : NULL, fn_arg);
}

static void
on_discarded(void *arg)
{
    struct package_set_making *making = arg;
    package_folder_remove(making->sets->loop, making->draft, making->sets->incoming);
    making_free(making);
}

struct package_set_making *
package_sets_make(struct package_sets *sets, const json_t *wheels, const char *tag,
                  package_set_fn fn, void *arg)
{
    static unsigned number;
    json_auto_t *keys = tree_keys(wheels, tag);
    char name[NAME_HEX + 1];
    name_set(sets, keys, name);
    struct package_set *known = find_set(sets, name);
    if (known) {
        touch_set(sets, known);
        fn(name, NULL, arg);
        return NULL;
    }
    struct package_set_making *making = KG_NEW(struct package_set_making);
    making->sets = sets;
    making->name = kg_strdup(name);
    making->wheels = json_deep_copy(wheels);
    making->keys = KG_STEAL(keys);
    making->fn = fn;
    making->arg = arg;
    making->draft = kg_asprintf("%s/set-%u", sets->incoming, ++number);
    making->final = kg_asprintf("%s/%s", sets->dir, name);
    making->trees = kg_calloc(json_array_size(making->keys) + 1, sizeof *making->trees);
    for (size_t i = 0; i < json_array_size(making->keys); i++)
        making->trees[i] =
            wheel_tree_path(sets->trees, json_string_value(json_array_get(making->keys, i)));
    hold_trees(sets, making->keys, true);
    making->work = loop_work_start(sets->loop, LOOP_LANE_GATEWAY, make, on_made, making);
    return making;
}

void
package_set_making_cancel(struct package_set_making *making)
{
    if (making)
        loop_work_cancel(making->work, on_discarded);
}

// ---- Users ----------------------------------------------------------------------------------

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
add_user(struct package_sets *sets, const char *name, struct package_set *set, bool is_known)
{
    struct set_user *user = KG_NEW(struct set_user);
    user->name = kg_strdup(name);
    user->set = set;
    user->is_known = is_known;
    set->n_users++;
    hold_trees(sets, set->keys, true);
    TAILQ_INSERT_TAIL(&sets->users, user, link);
}

static void
user_free(struct package_sets *sets, struct set_user *user)
{
    user->set->n_users--;
    hold_trees(sets, user->set->keys, false);
    TAILQ_REMOVE(&sets->users, user, link);
    free(user->name);
    free(user);
}

void
package_sets_use(struct package_sets *sets, const char *name, const char *set_name)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->used, name);
    struct set_user *old = find_user(sets, name);
    struct package_set *set = set_name ? find_set(sets, set_name) : NULL;
    struct kg_error err = {0};
    if (set)
        add_user(sets, name, set, true);
    if (old)
        user_free(sets, old);
    if (!set)
        (void)unlink(path);
    else if (file_write_atomic(path, set->name, NAME_HEX, 0600, &err) < 0)
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

// ---- The folders, at the start --------------------------------------------------------------

typedef void (*each_fn)(struct package_sets *sets, const char *name);

static void
for_each(struct package_sets *sets, const char *dir, each_fn fn)
{
    DIR *stream = opendir(dir);
    const struct dirent *entry;
    while (stream && (entry = readdir(stream))) {
        if (entry->d_name[0] != '.')
            fn(sets, entry->d_name);
    }
    if (stream)
        closedir(stream);
}

static bool
has_all_trees(const struct package_sets *sets, const json_t *keys)
{
    size_t i;
    json_t *key;
    json_array_foreach(keys, i, key) {
        if (!json_is_string(key) || !wheel_trees_have(sets->trees, json_string_value(key)))
            return false;
    }
    return true;
}

static void
read_set(struct package_sets *sets, const char *file)
{
    KG_AUTO_FREE char *record_file = kg_asprintf("%s/%s", sets->records, file);
    KG_AUTO_FREE char *name = kg_strndup(file, strcspn(file, "."));
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->dir, name);
    json_auto_t *record = json_load_file(record_file, 0, NULL);
    json_t *wheels = json_object_get(record, "wheels");
    json_t *keys = json_object_get(record, "trees");
    struct stat st;
    if (strlen(name) == NAME_HEX && json_is_array(wheels) && json_is_array(keys) &&
        has_all_trees(sets, keys) && stat(path, &st) == 0) {
        (void)add_set(sets, name, wheels, keys);
        return;
    }
    (void)unlink(record_file);
    package_folder_remove(sets->loop, path, sets->incoming);
}

static void
read_user(struct package_sets *sets, const char *name)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->used, name);
    KG_AUTO_BUF text = {0};
    struct kg_error err;
    struct package_set *set = NULL;
    if (file_read(path, NAME_HEX, &text, &err) == 0 && text.len == NAME_HEX)
        set = find_set(sets, text.data);
    if (set)
        add_user(sets, name, set, false);
    else
        (void)unlink(path);
}

static int
load_key(struct package_sets *sets, const char *dir, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/key", dir);
    KG_AUTO_BUF text = {0};
    if (file_read(path, sizeof sets->key, &text, err) == 0 && text.len == sizeof sets->key) {
        memcpy(sets->key, text.data, sizeof sets->key);
        return 0;
    }
    randombytes_buf(sets->key, sizeof sets->key);
    return file_write_atomic(path, sets->key, sizeof sets->key, 0600, err);
}

// No user can list the folder of the sets, not even that of the gateway, who may be a sandbox's.
static int
make_folders(const struct package_sets *sets, struct kg_error *err)
{
    mode_t mask = umask(0);
    int result = dir_make(sets->dir, 0311, err);
    umask(mask);
    if (result < 0 || dir_make(sets->records, 0700, err) < 0)
        return -1;
    return dir_make(sets->used, 0700, err);
}

struct package_sets *
package_sets_new(struct loop *loop, const char *dir, struct kg_error *err)
{
    KG_AUTO(package_sets) sets = KG_NEW(struct package_sets);
    sets->loop = loop;
    sets->dir = kg_asprintf("%s/shared/sets", dir);
    sets->records = kg_asprintf("%s/sets", dir);
    sets->used = kg_asprintf("%s/used", dir);
    sets->incoming = kg_asprintf("%s/incoming", dir);
    TAILQ_INIT(&sets->list);
    TAILQ_INIT(&sets->users);
    if (make_folders(sets, err) < 0 || load_key(sets, dir, err) < 0)
        return NULL;
    sets->trees = wheel_trees_new(loop, dir, &tree_limits, on_tree_evicted, sets, err);
    if (!sets->trees)
        return NULL;
    for_each(sets, sets->records, read_set);
    for_each(sets, sets->used, read_user);
    return KG_STEAL(sets);
}

void
package_sets_free(struct package_sets *sets)
{
    if (!sets)
        return;
    for (struct set_user *user; (user = TAILQ_FIRST(&sets->users));)
        user_free(sets, user);
    for (struct package_set *set; (set = TAILQ_FIRST(&sets->list));)
        set_free(sets, set);
    wheel_trees_free(sets->trees);
    free(sets->dir);
    free(sets->records);
    free(sets->used);
    free(sets->incoming);
    free(sets);
}
