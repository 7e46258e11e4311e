// SPDX-License-Identifier: Apache-2.0
// The folders of the sets of packages: what a start finds there.

#include "package_sets.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "package_folder.h"
#include "package_sets_priv.h"

const struct package_set_limits package_set_limits_default = {
    .trees =
        {
            .max_bytes = INT64_C(6) << 30,
            .max_files = 400 * 1000,
            .max_tree_files = 40 * 1000,
            .max_tree_bytes = INT64_C(2) << 30,
        },
    .max_sets = 1000,
    .max_links = 400 * 1000,
};

struct wheel_trees *
package_sets_trees(struct package_sets *sets)
{
    return sets->trees;
}

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

// Of a name "<64 digits>.json" only: others are drafts of records.
static void
read_set(struct package_sets *sets, const char *file)
{
    KG_AUTO_FREE char *record_file = kg_asprintf("%s/%s", sets->records, file);
    KG_AUTO_FREE char *name = kg_strndup(file, strspn(file, "0123456789abcdef"));
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->dir, name);
    if (strlen(name) != SET_NAME_LEN || strcmp(file + SET_NAME_LEN, ".json") != 0) {
        (void)unlink(record_file);
        return;
    }
    json_auto_t *record = json_load_file(record_file, 0, NULL);
    json_t *wheels = json_object_get(record, "wheels");
    json_t *keys = json_object_get(record, "trees");
    struct stat st;
    if (json_is_array(wheels) && json_is_array(keys) && set_has_trees(sets, keys) &&
        stat(path, &st) == 0) {
        (void)set_add(sets, name, wheels, keys);
        return;
    }
    (void)unlink(record_file);
    package_folder_remove(sets->loop, path, sets->incoming);
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
package_sets_new(struct loop *loop, const char *dir, const struct package_set_limits *limits,
                 struct kg_error *err)
{
    KG_AUTO(package_sets) sets = KG_NEW(struct package_sets);
    sets->loop = loop;
    sets->limits = *limits;
    sets->dir = kg_asprintf("%s/shared/sets", dir);
    sets->records = kg_asprintf("%s/sets", dir);
    sets->used = kg_asprintf("%s/used", dir);
    sets->incoming = kg_asprintf("%s/incoming", dir);
    TAILQ_INIT(&sets->list);
    TAILQ_INIT(&sets->users);
    TAILQ_INIT(&sets->jobs);
    if (make_folders(sets, err) < 0 || load_key(sets, dir, err) < 0)
        return NULL;
    sets->trees = wheel_trees_new(loop, dir, &limits->trees, set_on_tree_evicted, sets, err);
    if (!sets->trees)
        return NULL;
    for_each(sets, sets->records, read_set);
    for_each(sets, sets->used, set_users_read);
    return KG_STEAL(sets);
}

void
package_sets_free(struct package_sets *sets)
{
    if (!sets)
        return;
    set_jobs_leave(sets);
    set_users_free(sets);
    for (struct package_set *set; (set = TAILQ_FIRST(&sets->list));)
        set_free(sets, set);
    wheel_trees_free(sets->trees);
    free(sets->dir);
    free(sets->records);
    free(sets->used);
    free(sets->incoming);
    free(sets);
}
