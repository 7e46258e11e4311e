// SPDX-License-Identifier: Apache-2.0
// Ways through the tenant's files, as the tenant's user, one folder descriptor at a time: no path
// is looked up twice and no symlink is followed, so nothing can be swapped in between to lead
// astray.
#pragma once

#include <sys/stat.h>

#include "base.h"

enum { WALK_FOLDER_MODE = 0755 }; // of a folder that is made, before the umask

// What may be on the way to a path. A symbolic link there is KG_INVALID_PATH in any case.
enum walk_way {
    WALK_OPEN, // folders: a missing one is KG_NOT_FOUND, a file KG_INVALID_PATH
    WALK_LOOK, // the same, but a file is KG_NOT_FOUND, too: nothing has a path below it
    WALK_INTO, // folders, which are to get something: a missing one is KG_INVALID_PATH
    WALK_MAKE, // folders that are missing are made
};

// A descriptor of the folder `name` in `parent`; -1 with errno, also where it is a symbolic link.
int walk_open_at(int parent, const char *name);
// A descriptor of the folder `path` below `root`; "" is `root` itself.
KG_MUST_CHECK int walk_open_folder(const char *root, const char *path, struct kg_error *err);
// A descriptor of the folder that holds `path` (which file_path_check() has seen); `ret_name` is
// the last name in it, and points into `path`.
KG_MUST_CHECK int walk_open_parent(const char *root, const char *path, enum walk_way way,
                                   const char **ret_name, struct kg_error *err);

// Visits what is below `path`, folders before what is in them, names in the order of their bytes,
// from what comes after the path `after` (NULL: the first) on. Names of kernelgate's own, paths
// that are too long and folders that are too deep are left out. A visitor that returns false ends
// it.
typedef bool (*walk_fn)(const char *path, const struct stat *st, void *arg);
KG_MUST_CHECK int walk_files(const char *root, const char *path, const char *after, walk_fn fn,
                             void *arg, struct kg_error *err);

// "file", "dir", "symlink" or "other".
const char *walk_type_name(mode_t mode);
