// SPDX-License-Identifier: Apache-2.0
// Walking folders.
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { DEPTH_MAX = 32 };

struct walk {
    walk_fn fn;
    void *arg;
    struct buf path; // of what is visited
    bool shallow;
    bool whole;
    bool over;
};

// ---- The second name of a folder --------------------------------------------------------------

static struct {
    const char *root; // NULL: there is none
    const char *name;
    const char *folder;
} second;

void
walk_use_second_name(const char *root, const char *name, const char *folder)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", root, name ? name : "");
    struct stat a, b;

    bool same = name && stat(path, &a) == 0 && stat(folder, &b) == 0 && a.st_dev == b.st_dev &&
                a.st_ino == b.st_ino;
    second.root = same ? root : NULL;
    second.name = name;
    second.folder = folder;
}

const char *
walk_in_second_name(const char *root, const char *path)
{
    if (!second.root || strcmp(root, second.root) != 0)
        return NULL;
    size_t len = strlen(second.name);
    if (strncmp(path, second.name, len) != 0 || (path[len] && path[len] != '/'))
        return NULL;
    return path[len] ? path + len + 1 : path + len;
}

// ---- Opening --------------------------------------------------------------------------------

int
walk_open_at(int parent, const char *name)
{
    static const unsigned long kernels[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
                                            CGROUP2_SUPER_MAGIC};
    struct statfs system;

    KG_AUTO_FD fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstatfs(fd, &system) != 0)
        return -1;
    for (size_t i = 0; i < KG_ARRAY_LEN(kernels); i++) {
        if ((unsigned long)system.f_type == kernels[i]) {
            errno = EACCES;
            return -1;
        }
    }
    return KG_STEAL_FD(fd);
}

static bool
is_missing(int parent, const char *name, enum walk_way way, int failure)
{
    struct stat st;

    if (failure == ENOENT)
        return true;
    return way == WALK_LOOK && (failure == ENOTDIR || failure == ELOOP) &&
           fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISLNK(st.st_mode);
}

static int
open_failed(int parent, const char *name, enum walk_way way, struct kg_error *err)
{
    int failure = errno;

    if (is_missing(parent, name, way, failure))
        return kg_error_set(err, way == WALK_INTO ? KG_INVALID_PATH : KG_NOT_FOUND, 0,
                            "there is no folder %.100s", name);
    if (failure == ENOTDIR || failure == ELOOP)
        return kg_error_set(err, KG_INVALID_PATH, 0,
                            "%.100s is not a folder (symbolic links are not followed)", name);
    if (failure == ENOSPC || failure == EDQUOT)
        return kg_error_set(err, KG_DISK_FULL, 0, "the session's disk is full (setting disk-mb)");
    return kg_error_set(err, KG_INVALID_PATH, failure, "cannot open the folder %.100s", name);
}

// Takes `fd`; returns the folder `name` in it.
static int
step_into(int fd, const char *name, enum walk_way way, struct kg_error *err)
{
    KG_AUTO_FD parent = fd;

    if (way == WALK_MAKE && mkdirat(parent, name, WALK_FOLDER_MODE) != 0 && errno != EEXIST)
        return open_failed(parent, name, way, err);
    int next = walk_open_at(parent, name);
    return next >= 0 ? next : open_failed(parent, name, way, err);
}

// Opens the first `len` bytes of `path`.
static int
open_path(const char *root, const char *path, size_t len, enum walk_way way, struct kg_error *err)
{
    KG_AUTO_FREE char *copy = kg_strndup(path, len);
    const char *rest = walk_in_second_name(root, copy);
    int fd = open(rest ? second.folder : root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *save = NULL;

    if (fd < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open the working folder");
    char *names = rest ? copy + (rest - copy) : copy;
    for (char *name = strtok_r(names, "/", &save); name && fd >= 0;
         name = strtok_r(NULL, "/", &save))
        fd = step_into(fd, name, way, err);
    return fd;
}

int
walk_open_folder(const char *root, const char *path, struct kg_error *err)
{
    if (*path && file_path_check(path, false, err) != 0)
        return -1;
    return open_path(root, path, strlen(path), WALK_OPEN, err);
}

int
walk_open_parent(const char *root, const char *path, enum walk_way way, const char **ret_name,
                 struct kg_error *err)
{
    const char *slash = strrchr(path, '/');

    *ret_name = slash ? slash + 1 : path;
    return open_path(root, path, slash ? (size_t)(slash - path) : 0, way, err);
}

// ---- Visiting -------------------------------------------------------------------------------

struct names {
    char **list;
    size_t n;
    size_t cap;
};

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Takes `fd` for the time of the reading.
static void
read_names(int fd, struct names *names)
{
    DIR *dir = fdopendir(fd);

    if (!dir) {
        close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || file_name_is_own(name))
            continue;
        if (names->n == names->cap) {
            names->cap = names->cap ? names->cap * 2 : 32;
            names->list = kg_realloc(names->list, names->cap * sizeof *names->list);
        }
        names->list[names->n++] = kg_strdup(name);
    }
    closedir(dir);
    if (names->n > 1)
        qsort(names->list, names->n, sizeof *names->list, compare_names);
}

static void
names_fini(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->list[i]);
    free(names->list);
}

static void walk_folder(struct walk *walk, int fd, const char *after, int depth);

// `listed`: a page before this one has it, and the rest of what it holds is wanted.
static void
visit(struct walk *walk, int folder, const char *name, bool listed, const char *after, int depth)
{
    size_t len = walk->path.len;
    struct stat st;

    if (len + 1 + strlen(name) > FILE_PATH_MAX ||
        fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    if (len > 0)
        buf_append_str(&walk->path, "/");
    buf_append_str(&walk->path, name);
    if (walk->whole && file_is_reserved(walk->path.data)) {
        walk->path.len = len;
        walk->path.data[len] = '\0';
        return;
    }
    walk->over = !listed && !walk->fn(walk->path.data, &st, walk->arg);
    int fd = -1;
    if (!walk->over && S_ISDIR(st.st_mode) && depth < (walk->shallow ? 0 : DEPTH_MAX))
        fd = walk_open_at(folder, name);
    if (fd >= 0)
        walk_folder(walk, fd, after, depth + 1);
    walk->path.len = len;
    walk->path.data[len] = '\0';
}

// Owns `fd`.
static void
walk_folder(struct walk *walk, int fd, const char *after, int depth)
{
    KG_AUTO_FD folder = fd;
    struct names names = {0};
    size_t after_len = after ? strcspn(after, "/") : 0;

    int copy = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0)
        read_names(copy, &names);
    for (size_t i = 0; i < names.n && !walk->over; i++) {
        const char *name = names.list[i];
        int order = 1;
        if (after) {
            order = strncmp(name, after, after_len);
            order = order == 0 && strlen(name) > after_len ? 1 : order;
        }
        if (order > 0) {
            visit(walk, folder, name, false, NULL, depth);
        } else if (order == 0) {
            const char *rest = after[after_len] ? after + after_len + 1 : NULL;
            visit(walk, folder, name, true, rest, depth);
        }
    }
    names_fini(&names);
}

int
walk_files(const char *root, const struct walk_query *query, walk_fn fn, void *arg,
           struct kg_error *err)
{
    struct walk walk = {.fn = fn, .arg = arg, .shallow = query->shallow, .whole = query->whole};
    const char *path = query->path, *after = query->after;
    int fd = walk_open_folder(root, path, err);

    if (fd < 0)
        return -1;
    size_t len = strlen(path);
    buf_append_str(&walk.path, path);
    // What is listed comes by its whole path, and so does `after`.
    if (after && len > 0)
        after = strncmp(after, path, len) == 0 && after[len] == '/' ? after + len + 1 : NULL;
    walk_folder(&walk, fd, after, 0);
    buf_fini(&walk.path);
    return 0;
}

const char *
walk_type_name(mode_t mode)
{
    if (S_ISREG(mode))
        return "file";
    if (S_ISDIR(mode))
        return "dir";
    return S_ISLNK(mode) ? "symlink" : "other";
}
