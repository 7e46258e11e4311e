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

// A descriptor of the folder `name` in `parent`; -1 with errno, also where it is a symbolic link,
// or one of the kernel's, such as /proc: those have no end.
int walk_open_at(int parent, const char *name);
// From now on `name` below `root` is opened as `folder`, if that is the same folder, mounted twice
// or linked; else, and without a name (NULL), as what it is. So a link there is followed, and files
// are renamed between the two names, which Linux does not do between mounts. The strings are
// borrowed. Of one agent in a process.
void walk_use_second_name(const char *root, const char *name, const char *folder);
// What of `path` below `root` comes after that name, borrowed from `path`: "" for the folder
// itself, NULL where the path does not begin with it.
const char *walk_in_second_name(const char *root, const char *path);
// A descriptor of the folder `path` below `root`; "" is `root` itself.
KG_MUST_CHECK int walk_open_folder(const char *root, const char *path, struct kg_error *err);
// A descriptor of the folder that holds `path` (which file_path_check() has seen); `ret_name` is
// the last name in it, and points into `path`.
KG_MUST_CHECK int walk_open_parent(const char *root, const char *path, enum walk_way way,
                                   const char **ret_name, struct kg_error *err);

// What a walk visits.
struct walk_query {
    const char *path;  // the folder
    const char *after; // begins with what comes after that path; NULL: with the first
    bool shallow;      // only what is in the folder itself
    bool whole;        // `root` is the sandbox's root: what file_is_reserved() is left out
};
// Visits what is below a folder, folders before what is in them, names in the order of their bytes.
// Names of kernelgate's own, paths that are too long and folders that are too deep are left out. A
// visitor that returns false ends it.
typedef bool (*walk_fn)(const char *path, const struct stat *st, void *arg);
KG_MUST_CHECK int walk_files(const char *root, const struct walk_query *query, walk_fn fn,
                             void *arg, struct kg_error *err);

// "file", "dir", "symlink" or "other".
const char *walk_type_name(mode_t mode);
