// SPDX-License-Identifier: Apache-2.0
// The trees in the order of their last use, and how one is written.

#include "wheel_trees.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "package_folder.h"

enum { MAX_DEPTH = 32 }; // of folders in a wheel

struct wheel_tree {
    TAILQ_ENTRY(wheel_tree) link;
    int64_t bytes;
    size_t n_files;
    size_t n_holds;
    struct timespec mtime; // at the start
    char key[];
};

struct wheel_trees {
    struct loop *loop;
    char *dir; // unpacked
    char *incoming;
    struct wheel_tree_limits limits;
    wheel_trees_evict_fn on_evict;
    void *arg;
    int64_t bytes;
    size_t n_files;
    TAILQ_HEAD(wheel_tree_list, wheel_tree) list; // least recently used first
};

struct wheel_draft {
    struct wheel_trees *trees;
    char *key;
    char *path;
    int dir;
    json_t *expected; // [{"path", "size", "run"}]
    size_t n_begun;
    int fd;       // of the file that is being written, if it is kept; or -1
    char *folder; // that was made last; or NULL
    int64_t left;
    int64_t bytes;
    size_t n_files;
};

char *
wheel_tree_key(const char *sha256, const char *tag)
{
    return kg_asprintf("%s-%s", sha256, tag);
}

char *
wheel_tree_path(const struct wheel_trees *trees, const char *key)
{
    return kg_asprintf("%s/%s", trees->dir, key);
}

static struct wheel_tree *
wheel_trees_find(const struct wheel_trees *trees, const char *key)
{
    struct wheel_tree *tree;
    TAILQ_FOREACH(tree, &trees->list, link) {
        if (strcmp(tree->key, key) == 0)
            return tree;
    }
    return NULL;
}

static struct wheel_tree *
append(struct wheel_trees *trees, const char *key, int64_t bytes, size_t n_files)
{
    size_t len = strlen(key) + 1;
    struct wheel_tree *tree = kg_calloc(1, sizeof *tree + len);
    memcpy(tree->key, key, len);
    tree->bytes = bytes;
    tree->n_files = n_files;
    trees->bytes += bytes;
    trees->n_files += n_files;
    TAILQ_INSERT_TAIL(&trees->list, tree, link);
    return tree;
}

static void
wheel_trees_drop(struct wheel_trees *trees, struct wheel_tree *tree)
{
    TAILQ_REMOVE(&trees->list, tree, link);
    trees->bytes -= tree->bytes;
    trees->n_files -= tree->n_files;
    free(tree);
}

bool
wheel_trees_have(const struct wheel_trees *trees, const char *key)
{
    return wheel_trees_find(trees, key) != NULL;
}

struct wheel_tree_size
wheel_trees_size(const struct wheel_trees *trees, const char *key)
{
    const struct wheel_tree *tree = wheel_trees_find(trees, key);
    return tree ? (struct wheel_tree_size){.bytes = tree->bytes, .n_files = tree->n_files}
                : (struct wheel_tree_size){0};
}

void
wheel_trees_use(struct wheel_trees *trees, const char *key)
{
    struct wheel_tree *tree = wheel_trees_find(trees, key);
    KG_AUTO_FREE char *path = wheel_tree_path(trees, key);
    if (!tree)
        return;
    (void)utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
    TAILQ_REMOVE(&trees->list, tree, link);
    TAILQ_INSERT_TAIL(&trees->list, tree, link);
}

void
wheel_trees_hold(struct wheel_trees *trees, const char *key)
{
    struct wheel_tree *tree = wheel_trees_find(trees, key);
    if (tree)
        tree->n_holds++;
}

void
wheel_trees_let_go(struct wheel_trees *trees, const char *key)
{
    struct wheel_tree *tree = wheel_trees_find(trees, key);
    if (tree && tree->n_holds > 0)
        tree->n_holds--;
}

// How large a tree is stands beside it, since counting would take long at the start.
static char *
record_path(const struct wheel_trees *trees, const char *key)
{
    return kg_asprintf("%s/%s.json", trees->dir, key);
}

// ---- Room -----------------------------------------------------------------------------------

static void
evict(struct wheel_trees *trees, struct wheel_tree *tree)
{
    KG_AUTO_FREE char *path = wheel_tree_path(trees, tree->key);
    KG_AUTO_FREE char *record = record_path(trees, tree->key);
    log_info("removing an unpacked wheel", LOG_STR("tree", tree->key));
    trees->on_evict(tree->key, trees->arg);
    (void)unlink(record);
    package_folder_remove(trees->loop, path, trees->incoming);
    wheel_trees_drop(trees, tree);
}

static struct wheel_tree *
oldest_unused(const struct wheel_trees *trees)
{
    struct wheel_tree *tree;
    TAILQ_FOREACH(tree, &trees->list, link) {
        if (tree->n_holds == 0)
            return tree;
    }
    return NULL;
}

// How much unused trees could give back.
static struct wheel_tree_size
unused_size(const struct wheel_trees *trees)
{
    struct wheel_tree_size sum = {0};
    const struct wheel_tree *tree;
    TAILQ_FOREACH(tree, &trees->list, link) {
        if (tree->n_holds == 0) {
            sum.bytes += tree->bytes;
            sum.n_files += tree->n_files;
        }
    }
    return sum;
}

// Makes room for `bytes` and `n_files` of drafts, of which `new_bytes` are to be written now.
// Nothing leaves where that would not be enough. What leaves is removed by a worker: it counts as
// free at once.
static int
make_room(struct wheel_trees *trees, int64_t bytes, size_t n_files, int64_t new_bytes,
          struct kg_error *err)
{
    const struct wheel_tree_size unused = unused_size(trees);
    int64_t max_bytes = trees->limits.max_bytes - bytes;
    size_t max_files = trees->limits.max_files - n_files;
    int64_t disk = disk_free_bytes(trees->incoming);
    struct wheel_tree *oldest;
    if (trees->bytes - unused.bytes > max_bytes || n_files > trees->limits.max_files ||
        trees->n_files - unused.n_files > max_files)
        return kg_error_set(err, KG_DISK_FULL, 0,
                            "the package cache is full, and sessions use all that is in it");
    if (disk < new_bytes && disk + unused.bytes < new_bytes)
        return disk_check_free(trees->incoming, new_bytes, err);
    while ((trees->bytes > max_bytes || trees->n_files > max_files || disk < new_bytes) &&
           (oldest = oldest_unused(trees))) {
        disk = disk < INT64_MAX - oldest->bytes ? disk + oldest->bytes : INT64_MAX;
        evict(trees, oldest);
    }
    return 0;
}

// ---- A draft --------------------------------------------------------------------------------

static void
close_file(struct wheel_draft *draft)
{
    if (draft->fd >= 0)
        close(KG_STEAL_FD(draft->fd));
}

void
wheel_draft_cancel(struct wheel_draft *draft)
{
    if (!draft)
        return;
    close_file(draft);
    close(draft->dir);
    if (draft->path)
        package_folder_remove(draft->trees->loop, draft->path, draft->trees->incoming);
    json_decref(draft->expected);
    free(draft->folder);
    free(draft->path);
    free(draft->key);
    free(draft);
}

struct wheel_draft *
wheel_draft_new(struct wheel_trees *trees, const char *key, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/XXXXXX", trees->incoming);
    if (!mkdtemp(path)) {
        kg_error_set(err, KG_INTERNAL, errno, "cannot create a folder in %s", trees->incoming);
        return NULL;
    }
    struct wheel_draft *draft = KG_NEW(struct wheel_draft);
    draft->trees = trees;
    draft->key = kg_strdup(key);
    draft->fd = -1;
    draft->dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    draft->path = KG_STEAL(path);
    if (draft->dir >= 0 && fchmod(draft->dir, 0755) == 0)
        return draft;
    kg_error_set(err, KG_INTERNAL, errno, "cannot open %s", draft->path);
    wheel_draft_cancel(draft);
    return NULL;
}

// Python runs these modules whenever it starts, wherever they are in its path; and a session's
// packages are for its imports only.
static bool
runs_at_start(const char *path)
{
    static const char *const names[] = {"sitecustomize", "usercustomize"};
    static const char own[] = "kernelgate_"; // those of the kernels' environment
    static const char cache[] = "__pycache__/";
    bool in_cache = strncmp(path, cache, sizeof cache - 1) == 0;
    const char *name = in_cache ? path + sizeof cache - 1 : path;
    size_t len = strlen(path);
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        size_t n = strlen(names[i]);
        if (strncmp(name, names[i], n) == 0 && strchr("./", name[n]))
            return true;
    }
    if (strncmp(name, own, sizeof own - 1) == 0)
        return true;
    return !strchr(path, '/') && len > 4 && strcmp(path + len - 4, ".pth") == 0;
}

static size_t
count_slashes(const char *path)
{
    size_t n = 0;
    for (const char *at = path; (at = strchr(at, '/')); at++)
        n++;
    return n;
}

static int
check_entry(const json_t *entry, int64_t *bytes, struct kg_error *err)
{
    const json_t *path = json_object_get(entry, "path");
    const json_t *size = json_object_get(entry, "size");
    const char *text = json_string_value(path);
    if (!text || strlen(text) != json_string_length(path) || !json_is_integer(size) ||
        json_integer_value(size) < 0 || json_integer_value(size) > INT64_MAX - *bytes)
        return kg_error_set(err, KG_INTERNAL, 0, "a file of the wheel is malformed");
    if (file_path_check(text, true, err) < 0 || count_slashes(text) > MAX_DEPTH)
        return kg_error_set(err, KG_INTERNAL, 0, "the wheel has a file that leads elsewhere: %.80s",
                            text);
    *bytes += json_integer_value(size);
    return 0;
}

int
wheel_draft_expect(struct wheel_draft *draft, const json_t *files, struct kg_error *err)
{
    const struct wheel_tree_limits *limits = &draft->trees->limits;
    int64_t bytes = draft->bytes;
    size_t n_files = draft->n_files + json_array_size(files);
    size_t i;
    json_t *entry;
    if (!json_is_array(files) || !wheel_draft_is_whole(draft))
        return kg_error_set(err, KG_INTERNAL, 0, "the wheel's files are malformed");
    json_array_foreach(files, i, entry) {
        if (check_entry(entry, &bytes, err) < 0)
            return -1;
    }
    if (bytes > limits->max_tree_bytes || n_files > limits->max_tree_files)
        return kg_error_set(err, KG_INTERNAL, 0,
                            "a wheel has more than %lld MiB or %zu files when it is unpacked",
                            (long long)(limits->max_tree_bytes >> 20), limits->max_tree_files);
    if (make_room(draft->trees, bytes, n_files, bytes - draft->bytes, err) < 0)
        return -1;
    json_decref(draft->expected);
    draft->expected = json_deep_copy(files);
    draft->n_begun = 0;
    draft->bytes = bytes;
    return wheel_draft_write(draft, "", 0, err); // files without contents have no data to wait for
}

static int
make_folder(struct wheel_draft *draft, const char *folder, struct kg_error *err)
{
    if (mkdirat(draft->dir, folder, 0755) < 0)
        return errno == EEXIST
                   ? 0
                   : kg_error_set(err, KG_INTERNAL, errno, "cannot create a folder of a wheel");
    // Folders count as files do.
    if (fchmodat(draft->dir, folder, 0755, 0) < 0 ||
        ++draft->n_files > draft->trees->limits.max_tree_files)
        return kg_error_set(err, KG_INTERNAL, 0, "a wheel has too many folders");
    return 0;
}

// Makes those that a file is in, unless the file before was in the same one.
static int
make_folders(struct wheel_draft *draft, const char *path, struct kg_error *err)
{
    const char *last = strrchr(path, '/');
    KG_AUTO_FREE char *parent = last ? kg_strndup(path, (size_t)(last - path)) : NULL;
    if (!parent || (draft->folder && strcmp(parent, draft->folder) == 0))
        return 0;
    for (const char *at = path; (at = strchr(at, '/')); at++) {
        KG_AUTO_FREE char *folder = kg_strndup(path, (size_t)(at - path));
        if (make_folder(draft, folder, err) < 0)
            return -1;
    }
    free(draft->folder);
    draft->folder = KG_STEAL(parent);
    return 0;
}

static int
begin_file(struct wheel_draft *draft, struct kg_error *err)
{
    const json_t *entry = json_array_get(draft->expected, draft->n_begun++);
    const char *path = json_string_value(json_object_get(entry, "path"));
    mode_t mode = json_is_true(json_object_get(entry, "run")) ? 0555 : 0444;
    draft->left = json_integer_value(json_object_get(entry, "size"));
    if (runs_at_start(path))
        return 0;
    if (make_folders(draft, path, err) < 0)
        return -1;
    draft->fd =
        openat(draft->dir, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (draft->fd < 0 || fchmod(draft->fd, mode) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot write the wheel's file %.80s", path);
    draft->n_files++;
    return 0;
}

static int
write_file(const struct wheel_draft *draft, const char *data, size_t len, struct kg_error *err)
{
    while (draft->fd >= 0 && len > 0) {
        ssize_t n = write(draft->fd, data, len);
        if (n < 0)
            return kg_error_set(err, KG_INTERNAL, errno, "cannot write to the package cache");
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int
wheel_draft_write(struct wheel_draft *draft, const void *data, size_t len, struct kg_error *err)
{
    const char *at = data;
    for (;;) {
        size_t part = (int64_t)len < draft->left ? len : (size_t)draft->left;
        if (write_file(draft, at, part, err) < 0)
            return -1;
        at += part;
        len -= part;
        draft->left -= (int64_t)part;
        if (draft->left > 0)
            return 0;
        close_file(draft);
        if (draft->n_begun == json_array_size(draft->expected))
            break;
        if (begin_file(draft, err) < 0)
            return -1;
    }
    if (len > 0)
        return kg_error_set(err, KG_INTERNAL, 0, "a wheel's files are larger than announced");
    return 0;
}

bool
wheel_draft_is_whole(const struct wheel_draft *draft)
{
    return draft->n_begun == json_array_size(draft->expected) && draft->left == 0;
}

// ---- To its place ---------------------------------------------------------------------------

static int
move_to_place(const struct wheel_draft *draft, struct kg_error *err)
{
    const struct wheel_trees *trees = draft->trees;
    KG_AUTO_FREE char *record = record_path(trees, draft->key);
    KG_AUTO_FREE char *final = wheel_tree_path(trees, draft->key);
    json_auto_t *size = json_pack("{s:I, s:I}", "bytes", (json_int_t)draft->bytes, "files",
                                  (json_int_t)draft->n_files);
    KG_AUTO_FREE char *text = json_dumps(size, JSON_COMPACT);
    if (file_write_atomic(record, text, strlen(text), 0600, err) < 0)
        return -1;
    if (rename(draft->path, final) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot move an unpacked wheel to its place");
    return 0;
}

int
wheel_draft_finish(struct wheel_draft *draft, struct kg_error *err)
{
    int result = 0;
    if (!wheel_draft_is_whole(draft)) {
        result = kg_error_set(err, KG_INTERNAL, 0, "a wheel's files are smaller than announced");
    } else if (!wheel_trees_have(draft->trees, draft->key)) {
        result = move_to_place(draft, err);
        if (result == 0) {
            append(draft->trees, draft->key, draft->bytes, draft->n_files);
            free(KG_STEAL(draft->path)); // nothing is there to be removed
        }
    }
    wheel_draft_cancel(draft);
    return result;
}

// ---- The folder, at the start ---------------------------------------------------------------

static struct wheel_tree *
read_tree(struct wheel_trees *trees, const char *key)
{
    KG_AUTO_FREE char *record = record_path(trees, key);
    KG_AUTO_FREE char *path = wheel_tree_path(trees, key);
    json_auto_t *size = json_load_file(record, 0, NULL);
    struct stat st;
    if (size && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        struct wheel_tree *tree =
            append(trees, key, json_integer_value(json_object_get(size, "bytes")),
                   (size_t)json_integer_value(json_object_get(size, "files")));
        tree->mtime = st.st_mtim;
        return tree;
    }
    (void)unlink(record);
    package_folder_remove(trees->loop, path, trees->incoming);
    return NULL;
}

static bool
is_younger(const struct wheel_tree *a, const struct wheel_tree *b)
{
    return a->mtime.tv_sec > b->mtime.tv_sec ||
           (a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec > b->mtime.tv_nsec);
}

// From its place at the end to that of its age.
static void
sort_in(struct wheel_trees *trees, struct wheel_tree *tree)
{
    struct wheel_tree *before = TAILQ_PREV(tree, wheel_tree_list, link);
    while (before && is_younger(before, tree))
        before = TAILQ_PREV(before, wheel_tree_list, link);
    TAILQ_REMOVE(&trees->list, tree, link);
    if (before)
        TAILQ_INSERT_AFTER(&trees->list, before, tree, link);
    else
        TAILQ_INSERT_HEAD(&trees->list, tree, link);
}

static void
read_all(struct wheel_trees *trees)
{
    DIR *stream = opendir(trees->dir);
    const struct dirent *entry;
    while (stream && (entry = readdir(stream))) {
        size_t len = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || (len > 5 && strcmp(entry->d_name + len - 5, ".json") == 0))
            continue;
        struct wheel_tree *tree = read_tree(trees, entry->d_name);
        if (tree)
            sort_in(trees, tree);
    }
    if (stream)
        closedir(stream);
}

struct wheel_trees *
wheel_trees_new(struct loop *loop, const char *dir, const struct wheel_tree_limits *limits,
                wheel_trees_evict_fn on_evict, void *arg, struct kg_error *err)
{
    KG_AUTO(wheel_trees) trees = KG_NEW(struct wheel_trees);
    trees->loop = loop;
    trees->dir = kg_asprintf("%s/unpacked", dir);
    trees->incoming = kg_asprintf("%s/incoming", dir);
    trees->limits = *limits;
    trees->on_evict = on_evict;
    trees->arg = arg;
    TAILQ_INIT(&trees->list);
    if (dir_make(trees->dir, 0700, err) < 0)
        return NULL;
    read_all(trees);
    return KG_STEAL(trees);
}

void
wheel_trees_free(struct wheel_trees *trees)
{
    if (!trees)
        return;
    for (struct wheel_tree *tree; (tree = TAILQ_FIRST(&trees->list));)
        wheel_trees_drop(trees, tree);
    free(trees->dir);
    free(trees->incoming);
    free(trees);
}
