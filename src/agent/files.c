// SPDX-License-Identifier: Apache-2.0
// Walking the tenant's files, as the tenant's user, one folder descriptor at a time: no path is
// looked up twice, so none can be swapped for a symlink in between.
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// All paths together, escaped at their worst, stay below what a gateway takes as one answer.
enum { ENTRIES_MAX = 1000, DEPTH_MAX = 32, PATH_BYTES_MAX = 1024, ALL_PATHS_BYTES_MAX = 128 << 10 };

struct walk {
    json_t *files;
    int seen;
    size_t path_bytes;
    bool truncated;
};

static int
open_folder(int parent, const char *name)
{
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int
open_below(const char *root, const char *path, struct kg_error *err)
{
    KG_AUTO_FREE char *copy = kg_strdup(path);
    KG_AUTO_FD fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *save = NULL;

    for (char *part = strtok_r(copy, "/", &save); part && fd >= 0;
         part = strtok_r(NULL, "/", &save)) {
        if (strcmp(part, "..") == 0)
            return kg_error_set(err, KG_INVALID_PATH, 0, "a path may not contain ..");
        int next = open_folder(fd, part);
        int failure = errno;
        close(fd);
        fd = next;
        errno = failure;
    }
    if (fd < 0)
        return kg_error_set(err, KG_NOT_FOUND, errno, "cannot open the folder");
    return KG_STEAL_FD(fd);
}

static const char *
type_name(mode_t mode)
{
    if (S_ISREG(mode))
        return "file";
    if (S_ISDIR(mode))
        return "dir";
    return S_ISLNK(mode) ? "symlink" : "other";
}

static void walk_folder(struct walk *walk, int fd, const char *prefix, int depth);

static void
add_entry(struct walk *walk, int folder, const char *prefix, const char *name, int depth)
{
    struct stat st;
    KG_AUTO_FREE char *path = kg_asprintf("%s%s%s", prefix, prefix[0] ? "/" : "", name);

    if (strlen(path) > PATH_BYTES_MAX || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    int64_t mtime_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    // NULL where the name is not UTF-8: nobody could ask for such a file.
    json_t *entry = json_pack("{s:s, s:I, s:I, s:s}", "path", path, "size", (json_int_t)st.st_size,
                              "mtime_ms", (json_int_t)mtime_ms, "type", type_name(st.st_mode));
    if (!entry)
        return;
    json_array_append_new(walk->files, entry);
    walk->path_bytes += strlen(path);
    if (walk->path_bytes > ALL_PATHS_BYTES_MAX)
        walk->truncated = true;
    if (!S_ISDIR(st.st_mode))
        return;
    int fd = depth < DEPTH_MAX ? open_folder(folder, name) : -1;
    if (fd >= 0)
        walk_folder(walk, fd, path, depth + 1);
    else
        walk->truncated = true;
}

// Owns `fd`.
static void
walk_folder(struct walk *walk, int fd, const char *prefix, int depth)
{
    DIR *dir = fdopendir(fd);
    const struct dirent *entry;

    if (!dir) {
        close(fd);
        return;
    }
    while (!walk->truncated && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (walk->seen++ == ENTRIES_MAX)
            walk->truncated = true;
        else
            add_entry(walk, fd, prefix, entry->d_name, depth);
    }
    closedir(dir);
}

json_t *
files_list(const char *root, const char *path, struct kg_error *err)
{
    struct walk walk = {0};
    int fd = open_below(root, path, err);

    if (fd < 0)
        return NULL;
    while (*path == '/')
        path++;
    walk.files = json_array();
    walk_folder(&walk, fd, path, 0);
    return json_pack("{s:o, s:b}", "files", walk.files, "truncated", walk.truncated);
}
