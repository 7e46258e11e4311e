// SPDX-License-Identifier: Apache-2.0
// Files and folders as entries: looking at one, making a folder, moving, unused names.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "walk.h"

json_t *
file_entry(const struct stat *st)
{
    return json_pack("{s:s, s:I, s:I, s:i}", "type", walk_type_name(st->st_mode), "size",
                     (json_int_t)st->st_size, "mtime_ms", (json_int_t)file_mtime_ms(st), "mode",
                     (int)(st->st_mode & FILE_PERMISSIONS));
}

bool
file_path_is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    return strncmp(path, folder, len) == 0 && path[len] == '/';
}

// ---- Looking --------------------------------------------------------------------------------

int
file_look_at(int folder, const char *name, const char *path, struct stat *ret_st,
             struct kg_error *err)
{
    if (fstatat(folder, name, ret_st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    if (errno == ENOENT)
        return kg_error_set(err, KG_NOT_FOUND, 0, "there is nothing at %.100s", path);
    return file_fail("look at", path, errno, err);
}

int
file_stat(const char *root, const char *path, struct stat *ret_st, struct kg_error *err)
{
    const char *name = ".";

    if (*path && file_path_check(path, false, err) != 0)
        return -1;
    KG_AUTO_FD folder = *path ? walk_open_parent(root, path, WALK_LOOK, &name, err)
                              : walk_open_folder(root, "", err);
    return folder < 0 ? -1 : file_look_at(folder, name, path, ret_st, err);
}

json_t *
file_details(const char *root, const char *path, const struct stat *st)
{
    char target[PATH_MAX + 1];
    struct kg_error err;
    struct stat target_st;
    const char *name = NULL;
    json_t *entry = file_entry(st);

    json_object_set_new(entry, "uid", json_integer(st->st_uid));
    json_object_set_new(entry, "gid", json_integer(st->st_gid));
    if (!S_ISLNK(st->st_mode))
        return entry;
    KG_AUTO_FD folder = walk_open_parent(root, path, WALK_LOOK, &name, &err);
    ssize_t len = folder < 0 ? -1 : readlinkat(folder, name, target, sizeof target);
    json_t *text = len > 0 ? json_stringn(target, (size_t)len) : NULL;
    if (text)
        json_object_set_new(entry, "target", text);
    if (folder >= 0 && fstatat(folder, name, &target_st, 0) == 0)
        json_object_set_new(entry, "target_type", json_string(walk_type_name(target_st.st_mode)));
    return entry;
}

int
file_chmod(const char *root, const char *path, mode_t mode, struct stat *ret_st,
           struct kg_error *err)
{
    const char *name;

    if (file_path_check(path, false, err) != 0)
        return -1;
    KG_AUTO_FD folder = walk_open_parent(root, path, WALK_LOOK, &name, err);
    if (folder < 0 || file_look_at(folder, name, path, ret_st, err) != 0)
        return -1;
    if (S_ISLNK(ret_st->st_mode))
        return file_check_regular(ret_st, path, err);
    if (fchmodat(folder, name, mode, AT_SYMLINK_NOFOLLOW) != 0)
        return file_fail("change the permissions of", path, errno, err);
    return file_look_at(folder, name, path, ret_st, err);
}

int
file_find_unused(const char *root, const char *folder, const struct file_names *names,
                 int *ret_number, struct kg_error *err)
{
    KG_AUTO_FREE char *longest =
        kg_asprintf("%s%s%d%s", names->start, names->insert, FILE_NUMBERS - 1, names->end);
    struct stat st;

    if (strchr(longest, '/'))
        return kg_error_set(err, KG_INVALID_PATH, 0, "a name must not contain a slash");
    if (file_path_check(longest, true, err) != 0)
        return -1;
    KG_AUTO_FD fd = walk_open_folder(root, folder, err);
    if (fd < 0)
        return -1;
    for (int i = 0; i < FILE_NUMBERS; i++) {
        char number[16] = "";
        if (i > 0)
            snprintf(number, sizeof number, "%d", i);
        KG_AUTO_FREE char *name =
            kg_asprintf("%s%s%s%s", names->start, i > 0 ? names->insert : "", number, names->end);
        if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        if (errno != ENOENT)
            return file_fail("look at", name, errno, err);
        *ret_number = i;
        return 0;
    }
    return kg_error_set(err, KG_FILE_EXISTS, 0, "all names like %.100s are taken", longest);
}

// ---- Making folders -------------------------------------------------------------------------

int
file_make_folder(const char *root, const char *path, unsigned flags, struct stat *ret_st,
                 bool *ret_created, struct kg_error *err)
{
    const char *name;

    if (file_path_check(path, true, err) != 0)
        return -1;
    KG_AUTO_FD folder =
        walk_open_parent(root, path, flags & FILE_NO_FOLDERS ? WALK_INTO : WALK_MAKE, &name, err);
    if (folder < 0)
        return -1;
    *ret_created = mkdirat(folder, name, WALK_FOLDER_MODE) == 0;
    if (!*ret_created && errno != EEXIST)
        return file_fail("make the folder", path, errno, err);
    if (file_look_at(folder, name, path, ret_st, err) != 0)
        return -1;
    if (!S_ISDIR(ret_st->st_mode))
        return kg_error_set(err, KG_FILE_EXISTS, 0, "%.100s exists and is not a folder", path);
    if (!*ret_created && flags & FILE_KEEP)
        return file_fail("make the folder", path, EEXIST, err);
    return 0;
}

// ---- Moving ---------------------------------------------------------------------------------

int
file_rename(int from_folder, const char *from, int to_folder, const char *to, bool keep)
{
    struct stat st;

    if (!keep)
        return renameat(from_folder, from, to_folder, to);
    if (renameat2(from_folder, from, to_folder, to, RENAME_NOREPLACE) == 0)
        return 0;
    if ((errno != EINVAL && errno != ENOSYS) ||
        fstatat(from_folder, from, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    // The file system cannot do it. A link replaces nothing either, nor does the making of a
    // folder, which another folder may then replace.
    if (!S_ISDIR(st.st_mode))
        return linkat(from_folder, from, to_folder, to, 0) == 0 ? unlinkat(from_folder, from, 0)
                                                                : -1;
    if (mkdirat(to_folder, to, WALK_FOLDER_MODE) != 0)
        return -1;
    if (renameat(from_folder, from, to_folder, to) == 0)
        return 0;
    int failure = errno;
    (void)unlinkat(to_folder, to, AT_REMOVEDIR);
    errno = failure;
    return -1;
}

static int
move_failed(const char *from, const char *to, struct kg_error *err)
{
    if (errno == ENOENT)
        return kg_error_set(err, KG_NOT_FOUND, 0, "there is nothing at %.100s", from);
    if (errno == EINVAL)
        return kg_error_set(err, KG_INVALID_PATH, 0, "%.100s cannot be moved into itself", from);
    return file_fail("move to", to, errno, err);
}

int
file_move(const char *root, const char *from, const char *to, unsigned flags, struct stat *ret_st,
          bool *ret_created, bool *ret_elsewhere, struct kg_error *err)
{
    enum walk_way way = flags & FILE_NO_FOLDERS ? WALK_INTO : WALK_MAKE;
    const char *from_name, *to_name;
    struct stat before;

    *ret_elsewhere = false;
    if (file_path_check(from, false, err) != 0 || file_path_check(to, true, err) != 0)
        return -1;
    KG_AUTO_FD source = walk_open_parent(root, from, WALK_LOOK, &from_name, err);
    if (source < 0 || file_look_at(source, from_name, from, ret_st, err) != 0)
        return -1;
    // Before folders are made in it.
    if (S_ISDIR(ret_st->st_mode) && file_path_is_below(to, from)) {
        errno = EINVAL;
        return move_failed(from, to, err);
    }
    KG_AUTO_FD target = walk_open_parent(root, to, way, &to_name, err);
    if (target < 0)
        return -1;
    *ret_created = fstatat(target, to_name, &before, AT_SYMLINK_NOFOLLOW) != 0;
    if (file_rename(source, from_name, target, to_name, flags & FILE_KEEP) != 0) {
        if (errno == EXDEV && faccessat(source, ".", W_OK | X_OK, 0) == 0)
            *ret_elsewhere = true;
        return move_failed(from, to, err);
    }
    return file_look_at(target, to_name, to, ret_st, err);
}
