// SPDX-License-Identifier: Apache-2.0
// Copying files and folders, in parts, so that the agent does other things between them. Whatever
// is swapped meanwhile, the copy only takes what is below the folders that it has open, and only
// writes into those that it has made.
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_parts.h"
#include "files.h"
#include "walk.h"

enum { MODE_BITS = 0777 };

// A folder that is being copied.
struct level {
    DIR *entries; // of the original
    int to;       // the copy
};

struct file_copy {
    char *to;
    const char *to_name; // the last one in `to`
    bool keep_existing;
    bool placed;
    int folder; // that the copy comes into
    char temporary[FILE_TEMPORARY_SIZE];
    struct file_copy_limits left;
    int64_t end_ms; // clock_mono_ms()
    struct level levels[FILE_COPY_LEVELS_MAX];
    int n_levels;
    struct file_parts file; // under way
};

// ---- Files ----------------------------------------------------------------------------------

static int
copy_failed(const struct file_copy *copy, struct kg_error *err)
{
    return file_fail("copy to", copy->to, errno, err);
}

static int
open_file(struct file_copy *copy, int folder, const char *name, int to, const char *to_name,
          struct kg_error *err)
{
    struct stat st;

    KG_AUTO_FD in = file_open_at(folder, name, name, O_RDONLY, &st, err);
    if (in < 0)
        return -1;
    int out = openat(to, to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                     st.st_mode & MODE_BITS);
    if (out < 0)
        return copy_failed(copy, err);
    file_parts_begin(&copy->file, KG_STEAL_FD(in), out, st.st_size, false);
    return 0;
}

static int
copy_part(struct file_copy *copy, struct kg_error *err)
{
    int result = file_parts_step(&copy->file, &copy->left.bytes);
    if (result < 0 && errno == EOVERFLOW)
        return kg_error_set(err, KG_INVALID, 0, "there are too many bytes to copy");
    if (result < 0)
        return copy_failed(copy, err);
    if (result == 0)
        file_parts_end(&copy->file);
    return 0;
}

// ---- Folders --------------------------------------------------------------------------------

static void
close_level(struct file_copy *copy)
{
    struct level *level = &copy->levels[--copy->n_levels];

    closedir(level->entries);
    close(level->to);
}

static int
open_level(struct file_copy *copy, int folder, const char *name, mode_t mode, int to,
           const char *to_name, struct kg_error *err)
{
    if (copy->n_levels == FILE_COPY_LEVELS_MAX)
        return kg_error_set(err, KG_INVALID_PATH, 0, "more than %d folders are in each other",
                            FILE_COPY_LEVELS_MAX);
    KG_AUTO_FD fd = walk_open_at(folder, name);
    if (fd < 0)
        return errno == ENOENT ? kg_error_set(err, KG_NOT_FOUND, 0, "there is no folder %s", name)
                               : file_fail("open the folder", name, errno, err);
    KG_AUTO_FD made =
        mkdirat(to, to_name, (mode & MODE_BITS) | S_IRWXU) == 0 ? walk_open_at(to, to_name) : -1;
    DIR *entries = made >= 0 ? fdopendir(fd) : NULL;
    if (!entries)
        return copy_failed(copy, err);
    (void)KG_STEAL_FD(fd);
    copy->levels[copy->n_levels++] = (struct level){entries, KG_STEAL_FD(made)};
    return 0;
}

static int
copy_link(struct file_copy *copy, int folder, const char *name, int to, const char *to_name,
          struct kg_error *err)
{
    char target[PATH_MAX + 1];

    ssize_t len = readlinkat(folder, name, target, sizeof target - 1);
    if (len < 0)
        return errno == ENOENT ? kg_error_set(err, KG_NOT_FOUND, 0, "there is no link %s", name)
                               : copy_failed(copy, err);
    target[len] = '\0';
    return symlinkat(target, to, to_name) == 0 ? 0 : copy_failed(copy, err);
}

// Copies `name`, as which `st` was found, or begins with it. KG_NOT_FOUND: it has vanished.
static int
begin_entry(struct file_copy *copy, int folder, const char *name, const struct stat *st, int to,
            const char *to_name, struct kg_error *err)
{
    mode_t mode = st->st_mode;

    if (S_ISDIR(mode))
        return open_level(copy, folder, name, mode, to, to_name, err);
    if (S_ISLNK(mode))
        return copy_link(copy, folder, name, to, to_name, err);
    if (!S_ISFIFO(mode) && !S_ISSOCK(mode))
        return open_file(copy, folder, name, to, to_name, err);
    return mknodat(to, to_name, mode & (S_IFMT | MODE_BITS), 0) == 0 ? 0 : copy_failed(copy, err);
}

// The next entry of the innermost folder.
static int
copy_entry(struct file_copy *copy, struct kg_error *err)
{
    const struct level level = copy->levels[copy->n_levels - 1];
    struct kg_error why = {0};
    struct stat st;

    errno = 0;
    const struct dirent *entry = readdir(level.entries);
    if (!entry && errno != 0)
        return copy_failed(copy, err);
    if (!entry) {
        close_level(copy);
        return 0;
    }
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || file_name_is_own(name))
        return 0;
    if (copy->left.entries-- == 0)
        return kg_error_set(err, KG_INVALID, 0, "there are too many files and folders to copy");
    int from = dirfd(level.entries);
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : copy_failed(copy, err);
    if (begin_entry(copy, from, name, &st, level.to, name, &why) == 0 || why.code == KG_NOT_FOUND)
        return 0;
    *err = why;
    return -1;
}

// ---- All of it ------------------------------------------------------------------------------

int
file_copy_step(struct file_copy *copy, struct kg_error *err)
{
    int result;

    if (clock_mono_ms() > copy->end_ms)
        return kg_error_set(err, KG_INTERNAL, 0, "it took longer than %" PRId64 " s",
                            copy->left.ms / 1000);
    if (copy->file.in >= 0)
        result = copy_part(copy, err);
    else if (copy->n_levels > 0)
        result = copy_entry(copy, err);
    else
        return 0;
    return result == 0 ? 1 : -1;
}

// What may be in the place of the copy of a file or folder.
static int
look_at_target(const struct file_copy *copy, bool is_folder, struct kg_error *err)
{
    struct stat st;

    if (fstatat(copy->folder, copy->to_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    if (copy->keep_existing)
        return file_fail("copy to", copy->to, EEXIST, err);
    if (file_check_regular(&st, copy->to, err) != 0)
        return -1;
    return is_folder ? file_fail("copy to", copy->to, ENOTDIR, err) : 0;
}

static int
begin(struct file_copy *copy, const char *root, const char *from, enum walk_way way,
      struct kg_error *err)
{
    const char *name;
    struct stat st;

    KG_AUTO_FD source = walk_open_parent(root, from, WALK_LOOK, &name, err);
    if (source < 0 || file_look_at(source, name, from, &st, err) != 0)
        return -1;
    bool is_folder = S_ISDIR(st.st_mode);
    if (!is_folder && file_check_regular(&st, from, err) != 0)
        return -1;
    if (is_folder && file_path_is_below(copy->to, from))
        return kg_error_set(err, KG_INVALID_PATH, 0, "%.100s cannot be copied into itself", from);
    copy->folder = walk_open_parent(root, copy->to, way, &copy->to_name, err);
    if (copy->folder < 0 || look_at_target(copy, is_folder, err) != 0)
        return -1;
    file_temporary_name("copy", copy->temporary);
    return begin_entry(copy, source, name, &st, copy->folder, copy->temporary, err);
}

struct file_copy *
file_copy_begin(const char *root, const char *from, const char *to, unsigned flags,
                const struct file_copy_limits *limits, struct kg_error *err)
{
    if (file_path_check(from, false, err) != 0 || file_path_check(to, true, err) != 0)
        return NULL;
    KG_AUTO(file_copy) copy = KG_NEW(struct file_copy);
    copy->to = kg_strdup(to);
    copy->keep_existing = flags & FILE_KEEP;
    copy->folder = copy->file.in = copy->file.out = -1;
    copy->left = *limits;
    copy->end_ms = clock_mono_ms() + limits->ms;
    if (begin(copy, root, from, flags & FILE_NO_FOLDERS ? WALK_INTO : WALK_MAKE, err) != 0)
        return NULL;
    return KG_STEAL(copy);
}

int
file_copy_commit(struct file_copy *copy, struct stat *ret_st, bool *ret_created,
                 struct kg_error *err)
{
    struct stat before;

    assert(!copy->placed && copy->file.in < 0 && copy->n_levels == 0);
    *ret_created = fstatat(copy->folder, copy->to_name, &before, AT_SYMLINK_NOFOLLOW) != 0;
    if (file_rename(copy->folder, copy->temporary, copy->folder, copy->to_name,
                    copy->keep_existing) != 0)
        return copy_failed(copy, err);
    copy->placed = true;
    return file_look_at(copy->folder, copy->to_name, copy->to, ret_st, err);
}

const char *
file_copy_path(const struct file_copy *copy)
{
    return copy->to;
}

void
file_copy_free(struct file_copy *copy)
{
    if (!copy)
        return;
    file_parts_end(&copy->file);
    while (copy->n_levels > 0)
        close_level(copy);
    if (copy->folder >= 0 && copy->temporary[0] && !copy->placed)
        (void)!path_remove_at(copy->folder, copy->temporary);
    if (copy->folder >= 0)
        close(copy->folder);
    free(copy->to);
    free(copy);
}
