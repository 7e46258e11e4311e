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
#include <sys/statvfs.h>
#include <unistd.h>

#include "budget.h"
#include "loop.h"
#include "package_folder.h"
#include "wheel_trees.h"

enum { MAX_SETS = 1000, MAX_LINKS = 400 * 1000, NAME_HEX = 64, MAX_USER_BYTES = 4096 };

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
    size_t n_links;
    size_t n_users;
    char name[NAME_HEX + 1];
};

struct set_user {
    TAILQ_ENTRY(set_user) link;
    struct package_set *set;
    bool is_known; // to this gateway: else only to an earlier one
    char *owner;
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
    size_t n_links;                 // files and folders of all sets
    TAILQ_HEAD(, package_set) list; // least recently used first
    TAILQ_HEAD(, set_job) jobs;
    TAILQ_HEAD(, set_user) users;
};

// A set that is being made, tree by tree: one work of the loop for each, so that others have their
// turn. What the worker uses is the job's own.
struct set_job {
    TAILQ_ENTRY(set_job) link;
    struct package_sets *sets; // NULL: they have been freed
    char *name;
    json_t *wheels;
    json_t *keys;
    uint64_t lane;
    struct loop_work *work;
    LIST_HEAD(, package_set_making) waiters;
    char **trees; // NULL-terminated
    size_t n_begun;
    char *draft;
    struct kg_error err;
};

struct package_set_making {
    LIST_ENTRY(package_set_making) link;
    package_set_fn fn;
    void *arg;
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

// A keyed hash: who knows the wheels cannot find out whether somebody has installed them. Their
// order counts: where two have the same file, that of the first one is taken.
static void
name_set(const struct package_sets *sets, const json_t *keys, char ret[NAME_HEX + 1])
{
    KG_AUTO_BUF text = {0};
    size_t i;
    json_t *key;
    json_array_foreach(keys, i, key)
        buf_printf(&text, "%s\n", json_string_value(key));
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
    sets->n_links -= set->n_links;
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

static size_t
count_links(const struct package_sets *sets, const json_t *keys)
{
    size_t n = 1, i; // its own folder
    json_t *key;
    json_array_foreach(keys, i, key) {
        struct wheel_tree_size size = wheel_trees_size(sets->trees, json_string_value(key));
        n += size.n_files;
    }
    return n;
}

static struct package_set *
add_set(struct package_sets *sets, const char *name, json_t *wheels, json_t *keys)
{
    struct package_set *set = KG_NEW(struct package_set);
    memcpy(set->name, name, sizeof set->name);
    set->wheels = json_incref(wheels);
    set->keys = json_incref(keys);
    set->n_links = count_links(sets, keys);
    TAILQ_INSERT_TAIL(&sets->list, set, link);
    sets->n_sets++;
    sets->n_links += set->n_links;
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
    return inodes && sets->n_sets < MAX_SETS && sets->n_links + n_links <= MAX_LINKS;
}

static int
make_room(struct package_sets *sets, size_t n_links, struct kg_error *err)
{
    struct package_set *oldest;
    while (!has_room(sets, n_links) && (oldest = oldest_unused(sets)))
        remove_set(sets, oldest);
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
static void
on_tree_evicted(const char *key, void *arg)
{
    struct package_sets *sets = arg;
    struct package_set *next;
    for (struct package_set *set = TAILQ_FIRST(&sets->list); set; set = next) {
        next = TAILQ_NEXT(set, link);
        if (set->n_users == 0 && has_key(set, key))
            remove_set(sets, set);
    }
}

// ---- Making a set ---------------------------------------------------------------------------

static void
job_free(struct set_job *job)
{
    for (char **tree = job->trees; *tree; tree++)
        free(*tree);
    free(job->trees);
    free(job->draft);
    free(job->name);
    json_decref(job->wheels);
    json_decref(job->keys);
    free(job);
}

// Takes it away from its sets, which may be freed then.
static void
job_detach(struct set_job *job)
{
    hold_trees(job->sets, job->keys, false);
    TAILQ_REMOVE(&job->sets->jobs, job, link);
    job->sets = NULL;
}

// On a worker.
static void
link_tree(void *arg)
{
    struct set_job *job = arg;
    if (mkdir(job->draft, 0755) < 0 && errno != EEXIST)
        kg_error_set(&job->err, KG_INTERNAL, errno, "cannot create a folder for packages");
    else if (package_folder_link(job->trees[job->n_begun - 1], job->draft, &job->err) < 0)
        return;
}

// The record comes first: a folder without one would never be found again.
static int
place_set(const struct set_job *job, struct kg_error *err)
{
    const struct package_sets *sets = job->sets;
    KG_AUTO_FREE char *record_file = record_path(sets, job->name);
    KG_AUTO_FREE char *final = kg_asprintf("%s/%s", sets->dir, job->name);
    json_auto_t *record = json_pack("{s:O, s:O}", "wheels", job->wheels, "trees", job->keys);
    KG_AUTO_FREE char *text = json_dumps(record, JSON_COMPACT);
    if (file_write_atomic(record_file, text, strlen(text), 0600, err) < 0)
        return -1;
    if (chmod(job->draft, 0755) == 0 && rename(job->draft, final) == 0)
        return 0;
    kg_error_set(err, KG_INTERNAL, errno, "cannot move a set of packages to its place");
    (void)unlink(record_file);
    return -1;
}

// Calls back all who wait; these may cancel others who do, or the sets may end.
static void
job_finish(struct set_job *job)
{
    struct package_sets *sets = job->sets;
    struct kg_error err = job->err;
    KG_AUTO_FREE char *name = kg_strdup(job->name);
    LIST_HEAD(, package_set_making) waiters = LIST_HEAD_INITIALIZER(waiters);
    if (!err.code && place_set(job, &err) == 0)
        (void)add_set(sets, name, job->wheels, job->keys);
    if (err.code)
        package_folder_remove(sets->loop, job->draft, sets->incoming);
    for (struct package_set_making *making; (making = LIST_FIRST(&job->waiters));) {
        LIST_REMOVE(making, link);
        LIST_INSERT_HEAD(&waiters, making, link);
    }
    job_detach(job);
    job_free(job);
    for (struct package_set_making *making; (making = LIST_FIRST(&waiters));) {
        package_set_fn fn = making->fn;
        void *arg = making->arg;
        LIST_REMOVE(making, link);
        free(making);
        fn(err.code ? NULL : name, err.code ? &err : NULL, arg);
    }
}

static void link_next(struct set_job *job);

static void
on_linked(void *arg)
{
    struct set_job *job = arg;
    job->work = NULL;
    if (!job->err.code && LIST_EMPTY(&job->waiters))
        kg_error_set(&job->err, KG_INTERNAL, 0, "nobody waits for this set of packages");
    if (job->err.code || !job->trees[job->n_begun])
        job_finish(job);
    else
        link_next(job);
}

static void
link_next(struct set_job *job)
{
    job->n_begun++;
    job->work = loop_work_start(job->sets->loop, job->lane, link_tree, on_linked, job);
}

// Of a job whose sets have been freed; what it has linked goes when the next gateway starts.
static void
on_discarded(void *arg)
{
    job_free(arg);
}

static struct set_job *
find_job(const struct package_sets *sets, const char *name)
{
    struct set_job *job;
    TAILQ_FOREACH(job, &sets->jobs, link) {
        if (strcmp(job->name, name) == 0)
            return job;
    }
    return NULL;
}

static struct set_job *
job_start(struct package_sets *sets, const char *owner, const char *name, const json_t *wheels,
          json_t *keys)
{
    static unsigned number;
    struct set_job *job = KG_NEW(struct set_job);
    job->sets = sets;
    job->name = kg_strdup(name);
    job->wheels = json_deep_copy(wheels);
    job->keys = json_incref(keys);
    job->lane = loop_lane_of(owner);
    job->draft = kg_asprintf("%s/set-%u", sets->incoming, ++number);
    job->trees = kg_calloc(json_array_size(keys) + 1, sizeof *job->trees);
    for (size_t i = 0; i < json_array_size(keys); i++)
        job->trees[i] = wheel_tree_path(sets->trees, json_string_value(json_array_get(keys, i)));
    LIST_INIT(&job->waiters);
    TAILQ_INSERT_TAIL(&sets->jobs, job, link);
    hold_trees(sets, keys, true);
    link_next(job);
    return job;
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

// Whether all that the owner's sandboxes use, with these trees, is at most half of the cache.
static bool
is_within_share(const struct package_sets *sets, const char *owner, const json_t *keys)
{
    json_auto_t *used = json_object();
    const struct set_user *user;
    size_t i;
    json_t *key;
    const char *name;
    struct wheel_tree_size sum = {0};
    json_array_foreach(keys, i, key)
        json_object_set_new(used, json_string_value(key), json_null());
    TAILQ_FOREACH(user, &sets->users, link) {
        if (!budget_is_common(user->owner, owner))
            continue;
        json_array_foreach(user->set->keys, i, key)
            json_object_set_new(used, json_string_value(key), json_null());
    }
    json_object_foreach(used, name, key) {
        struct wheel_tree_size size = wheel_trees_size(sets->trees, name);
        sum.bytes += size.bytes;
        sum.n_files += size.n_files;
    }
    return sum.bytes <= tree_limits.max_bytes / 2 && sum.n_files <= tree_limits.max_files / 2;
}

static int
check_making(struct package_sets *sets, const struct package_set_request *request,
             const json_t *keys, struct kg_error *err)
{
    if (!has_all_trees(sets, keys))
        return kg_error_set(err, KG_INTERNAL, 0,
                            "some of these packages have left the cache meanwhile; try again, or "
                            "in a new session if the image has changed");
    if (request->is_shared && !is_within_share(sets, request->owner, keys))
        return kg_error_set(err, KG_DISK_FULL, 0,
                            "your sessions use half of the package cache: end some of them, or "
                            "install less");
    return make_room(sets, count_links(sets, keys), err);
}

struct package_set_making *
package_sets_make(struct package_sets *sets, const struct package_set_request *request,
                  package_set_fn fn, void *arg)
{
    json_auto_t *keys = tree_keys(request->wheels, request->tag);
    struct kg_error err = {0};
    char name[NAME_HEX + 1];
    name_set(sets, keys, name);
    struct package_set *known = find_set(sets, name);
    struct set_job *job = find_job(sets, name);
    if (known)
        touch_set(sets, known);
    if (known || (!job && check_making(sets, request, keys, &err) < 0)) {
        fn(known ? name : NULL, known ? NULL : &err, arg);
        return NULL;
    }
    if (!job)
        job = job_start(sets, request->owner, name, request->wheels, keys);
    struct package_set_making *making = KG_NEW(struct package_set_making);
    making->fn = fn;
    making->arg = arg;
    LIST_INSERT_HEAD(&job->waiters, making, link);
    return making;
}

// The job ends when its worker has done the tree that it is at, if nobody waits then.
void
package_set_making_cancel(struct package_set_making *making)
{
    if (!making)
        return;
    LIST_REMOVE(making, link);
    free(making);
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
add_user(struct package_sets *sets, const char *name, const char *owner, struct package_set *set,
         bool is_known)
{
    struct set_user *user = KG_NEW(struct set_user);
    user->name = kg_strdup(name);
    user->owner = kg_strdup(owner);
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
    free(user->owner);
    free(user);
}

void
package_sets_use(struct package_sets *sets, const char *name, const char *owner,
                 const char *set_name)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->used, name);
    struct set_user *old = find_user(sets, name);
    struct package_set *set = set_name ? find_set(sets, set_name) : NULL;
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

// Of a name "<64 digits>.json" only: others are drafts of records.
static void
read_set(struct package_sets *sets, const char *file)
{
    KG_AUTO_FREE char *record_file = kg_asprintf("%s/%s", sets->records, file);
    KG_AUTO_FREE char *name = kg_strndup(file, strspn(file, "0123456789abcdef"));
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", sets->dir, name);
    if (strlen(name) != NAME_HEX || strcmp(file + NAME_HEX, ".json") != 0) {
        (void)unlink(record_file);
        return;
    }
    json_auto_t *record = json_load_file(record_file, 0, NULL);
    json_t *wheels = json_object_get(record, "wheels");
    json_t *keys = json_object_get(record, "trees");
    struct stat st;
    if (json_is_array(wheels) && json_is_array(keys) && has_all_trees(sets, keys) &&
        stat(path, &st) == 0) {
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
    if (file_read(path, MAX_USER_BYTES, &text, &err) == 0 && text.len >= NAME_HEX) {
        KG_AUTO_FREE char *set_name = kg_strndup(text.data, NAME_HEX);
        set = find_set(sets, set_name);
    }
    if (set)
        add_user(sets, name, text.data + NAME_HEX, set, false);
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
    TAILQ_INIT(&sets->jobs);
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
    for (struct set_job *job; (job = TAILQ_FIRST(&sets->jobs));) {
        job_detach(job);
        loop_work_cancel(job->work, on_discarded);
    }
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
