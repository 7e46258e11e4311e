// SPDX-License-Identifier: Apache-2.0
// Makes a set of packages, once for all sessions that ask for it meanwhile.

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "budget.h"
#include "loop.h"
#include "package_folder.h"
#include "package_sets_priv.h"

// Made tree by tree, in one work of the loop for each, so that others have their turn. What the
// worker uses is the job's own.
struct set_job {
    TAILQ_ENTRY(set_job) link;
    struct package_sets *sets; // NULL: they have been freed
    char *name;
    char *owner; // of the first who waited
    json_t *wheels;
    json_t *keys;
    size_t n_links;
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

// ---- Which set it is ------------------------------------------------------------------------

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
name_set(const struct package_sets *sets, const json_t *keys, char ret[SET_NAME_LEN + 1])
{
    KG_AUTO_BUF text = {0};
    size_t i;
    json_t *key;
    json_array_foreach(keys, i, key)
        buf_printf(&text, "%s\n", json_string_value(key));
    unsigned char hash[SET_NAME_LEN / 2];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)(text.data ? text.data : ""),
                       text.len, sets->key, sizeof sets->key);
    sodium_bin2hex(ret, SET_NAME_LEN + 1, hash, sizeof hash);
}

// ---- Making it ------------------------------------------------------------------------------

static void
job_free(struct set_job *job)
{
    for (char **tree = job->trees; *tree; tree++)
        free(*tree);
    free(job->trees);
    free(job->draft);
    free(job->name);
    free(job->owner);
    json_decref(job->wheels);
    json_decref(job->keys);
    free(job);
}

// Takes it away from its sets, which may be freed then.
static void
job_detach(struct set_job *job)
{
    set_hold_trees(job->sets, job->keys, false);
    job->sets->n_sets--;
    job->sets->n_links -= job->n_links;
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
    KG_AUTO_FREE char *record_file = set_record_path(sets, job->name);
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
        (void)set_add(sets, name, job->wheels, job->keys);
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
    job->owner = kg_strdup(owner);
    job->wheels = json_deep_copy(wheels);
    job->keys = json_incref(keys);
    job->lane = loop_lane_of(owner);
    job->draft = kg_asprintf("%s/set-%u", sets->incoming, ++number);
    job->trees = kg_calloc(json_array_size(keys) + 1, sizeof *job->trees);
    for (size_t i = 0; i < json_array_size(keys); i++)
        job->trees[i] = wheel_tree_path(sets->trees, json_string_value(json_array_get(keys, i)));
    LIST_INIT(&job->waiters);
    job->n_links = set_count_links(sets, keys);
    sets->n_sets++;
    sets->n_links += job->n_links;
    TAILQ_INSERT_TAIL(&sets->jobs, job, link);
    set_hold_trees(sets, keys, true);
    link_next(job);
    return job;
}

// Whether all that the owner's sandboxes use, with what is being made for them and with this set,
// is at most half of the cache.
static bool
is_within_share(const struct package_sets *sets, const char *owner, const char *name,
                const json_t *keys)
{
    struct set_share share = {0};
    const struct set_job *job;
    const char *key;
    json_t *value;
    struct wheel_tree_size sum = {0};
    set_share_add(&share, name, keys, set_count_links(sets, keys));
    set_users_add_share(sets, owner, &share);
    TAILQ_FOREACH(job, &sets->jobs, link) {
        if (budget_is_common(job->owner, owner))
            set_share_add(&share, job->name, job->keys, job->n_links);
    }
    json_object_foreach(share.keys, key, value) {
        struct wheel_tree_size size = wheel_trees_size(sets->trees, key);
        sum.bytes += size.bytes;
        sum.n_files += size.n_files;
    }
    const struct package_set_limits *limits = &sets->limits;
    bool result = sum.bytes <= limits->trees.max_bytes / 2 &&
                  sum.n_files <= limits->trees.max_files / 2 &&
                  share.n_links <= limits->max_links / 2 &&
                  json_object_size(share.names) <= limits->max_sets / 2;
    set_share_clear(&share);
    return result;
}

// Also for a set that is there or is being made: the owner did not use it before.
static int
check_request(const struct package_sets *sets, const struct package_set_request *request,
              const char *name, const json_t *keys, struct kg_error *err)
{
    if (!set_has_trees(sets, keys))
        return kg_error_set(err, KG_INTERNAL, 0,
                            "some of these packages have left the cache meanwhile; try again, or "
                            "in a new session if the image has changed");
    if (request->is_shared && !is_within_share(sets, request->owner, name, keys))
        return kg_error_set(err, KG_DISK_FULL, 0,
                            "your sessions use half of the package cache: end some of them, or "
                            "install less");
    return 0;
}

struct package_set_making *
package_sets_make(struct package_sets *sets, const struct package_set_request *request,
                  package_set_fn fn, void *arg)
{
    json_auto_t *keys = tree_keys(request->wheels, request->tag);
    struct kg_error err = {0};
    char name[SET_NAME_LEN + 1];
    name_set(sets, keys, name);
    struct package_set *known = set_find(sets, name);
    struct set_job *job = find_job(sets, name);
    int result = check_request(sets, request, name, keys, &err);
    if (result == 0 && !known && !job)
        result = set_make_room(sets, set_count_links(sets, keys), &err);
    if (result < 0 || known) {
        if (known)
            set_touch(sets, known);
        fn(result == 0 ? name : NULL, result < 0 ? &err : NULL, arg);
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

void
set_jobs_leave(struct package_sets *sets)
{
    for (struct set_job *job; (job = TAILQ_FIRST(&sets->jobs));) {
        job_detach(job);
        loop_work_cancel(job->work, on_discarded);
    }
}
