// SPDX-License-Identifier: Apache-2.0
// The sets of packages that are there, their records, and the room that they take.

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "package_folder.h"
#include "package_sets_priv.h"

struct package_set *
set_find(const struct package_sets *sets, const char *name)
{
    struct package_set *set;
    TAILQ_FOREACH(set, &sets->list, link) {
        if (strcmp(set->name, name) == 0)
            return set;
    }
    return NULL;
}

char *
set_record_path(const struct package_sets *sets, const char *name)
{
    return kg_asprintf("%s/%s.json", sets->records, name);
}

bool
set_has_trees(const struct package_sets *sets, const json_t *keys)
{
    size_t i;
    json_t *key;
    json_array_foreach(keys, i, key) {
        if (!json_is_string(key) || !wheel_trees_have(sets->trees, json_string_value(key)))
            return false;
    }
    return true;
}

void
set_hold_trees(const struct package_sets *sets, const json_t *keys, bool hold)
{
    size_t i;
    json_t *key;
    json_array_foreach(keys, i, key)
        (hold ? wheel_trees_hold : wheel_trees_let_go)(sets->trees, json_string_value(key));
}

void
set_free(struct package_sets *sets, struct package_set *set)
{
    TAILQ_REMOVE(&sets->list, set, link);
    sets->n_sets--;
    sets->n_links -= set->n_links;
    json_decref(set->wheels);
    json_decref(set->keys);
    free(set);
}

void
set_remove(struct package_sets *sets, struct package_set *set)
{
    KG_AUTO_FREE char *record = set_record_path(sets, set->name);
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->dir, set->name);
    (void)unlink(record);
    package_folder_remove(sets->loop, path, sets->incoming);
    set_free(sets, set);
}

size_t
set_count_links(const struct package_sets *sets, const json_t *keys)
{
    size_t n = 1, i; // its own folder
    json_t *key;
    json_array_foreach(keys, i, key) {
        struct wheel_tree_size size = wheel_trees_size(sets->trees, json_string_value(key));
        n += size.n_files;
    }
    return n;
}

struct package_set *
set_add(struct package_sets *sets, const char *name, json_t *wheels, json_t *keys)
{
    struct package_set *set = KG_NEW(struct package_set);
    memcpy(set->name, name, sizeof set->name);
    set->wheels = json_incref(wheels);
    set->keys = json_incref(keys);
    set->n_links = set_count_links(sets, keys);
    TAILQ_INSERT_TAIL(&sets->list, set, link);
    sets->n_sets++;
    sets->n_links += set->n_links;
    return set;
}

void
set_touch(struct package_sets *sets, struct package_set *set)
{
    KG_AUTO_FREE char *record = set_record_path(sets, set->name);
    (void)utimensat(AT_FDCWD, record, NULL, AT_SYMLINK_NOFOLLOW);
    TAILQ_REMOVE(&sets->list, set, link);
    TAILQ_INSERT_TAIL(&sets->list, set, link);
}

static struct package_set *
oldest_unused(const struct package_sets *sets)
{
    struct package_set *set;
    TAILQ_FOREACH(set, &sets->list, link) {
        if (set->n_users == 0)
            return set;
    }
    return NULL;
}

// A link takes an inode where the file system is memory, and room in folders elsewhere.
static bool
has_room(const struct package_sets *sets, size_t n_links)
{
    struct statvfs disk;
    bool inodes =
        statvfs(sets->incoming, &disk) < 0 || disk.f_files == 0 || disk.f_favail / 2 > n_links;
    return inodes && sets->n_sets < sets->limits.max_sets &&
           sets->n_links + n_links <= sets->limits.max_links;
}

int
set_make_room(struct package_sets *sets, size_t n_links, struct kg_error *err)
{
    struct package_set *oldest;
    while (!has_room(sets, n_links) && (oldest = oldest_unused(sets)))
        set_remove(sets, oldest);
    if (has_room(sets, n_links))
        return 0;
    return kg_error_set(err, KG_DISK_FULL, 0,
                        "the package cache is full, and sessions use all that is in it");
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
void
set_on_tree_evicted(const char *key, void *arg)
{
    struct package_sets *sets = arg;
    struct package_set *next;
    for (struct package_set *set = TAILQ_FIRST(&sets->list); set; set = next) {
        next = TAILQ_NEXT(set, link);
        if (set->n_users == 0 && has_key(set, key))
            set_remove(sets, set);
    }
}
