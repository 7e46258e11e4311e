// SPDX-License-Identifier: Apache-2.0
// The folder of the database, in which SQLite makes further files, and its owner.

#include "account_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The database `name`, or what SQLite has beside it.
static bool
is_of_database(const char *entry, const char *name)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    size_t len = strlen(name);
    for (size_t i = 0; strncmp(entry, name, len) == 0 && i < KG_ARRAY_LEN(ends); i++) {
        if (strcmp(entry + len, ends[i]) == 0)
            return true;
    }
    return false;
}

// Calls `fn` for each entry, until it returns false.
static bool
folder_each(int folder, bool (*fn)(int folder, const char *entry, const void *arg), const void *arg)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    bool all = list != NULL;
    if (!list && copy >= 0)
        close(copy);
    for (const struct dirent *entry; all && list && (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            all = fn(folder, entry->d_name, arg);
    }
    if (list)
        closedir(list);
    return all;
}

struct handing {
    const char *name;
    uid_t user;
    gid_t group;
};

static bool
belongs(int folder, const char *entry, const void *arg)
{
    const struct handing *handing = arg;
    (void)folder;
    return is_of_database(entry, handing->name);
}

// What root has, such as the files of an earlier version; a file with other names is another's.
static bool
hand_over(int folder, const char *entry, const void *arg)
{
    const struct handing *handing = arg;
    struct stat st;
    if (!is_of_database(entry, handing->name))
        return true;
    KG_AUTO_FD fd = openat(folder, entry, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT;
    if (st.st_uid != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
        return true;
    return fchownat(fd, "", handing->user, handing->group, AT_EMPTY_PATH) == 0;
}

static int
folder_refuse(const char *folder, unsigned user, struct kg_error *err)
{
    return kg_error_set(err, KG_INVALID, 0,
                        "setting accounts-file: the folder %.100s must belong to the gateway's "
                        "user: move the database into a folder of its own, and chown both to %u",
                        folder, user);
}

// Whether that user may pass through all folders on the way.
static bool
is_reachable(const char *folder, uid_t user)
{
    KG_AUTO_FREE char *real = realpath(folder, NULL);
    struct stat st;
    if (!real)
        return false;
    for (char *slash; (slash = strrchr(real, '/')) && slash != real;) {
        *slash = '\0';
        if (stat(real, &st) < 0 || !(st.st_mode & (st.st_uid == user ? S_IXUSR : S_IXOTH)))
            return false;
    }
    return true;
}

// Opens the folder; fails if it is and stays another's. `ret_takes`: it is root's, and can be taken
// over.
static int
open_folder(const char *folder, const struct handing *handing, bool *ret_takes,
            struct kg_error *err)
{
    struct stat st;
    KG_AUTO_FD fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return kg_error_set(err, KG_INVALID, errno, "setting accounts-file: cannot open %s",
                            folder);
    if (handing->user != 0 && !is_reachable(folder, handing->user))
        return kg_error_set(err, KG_INVALID, 0,
                            "setting accounts-file: the gateway's user %u cannot reach %.100s: "
                            "choose a folder whose parents all users may pass through",
                            handing->user, folder);
    *ret_takes = st.st_uid == 0 && handing->user != 0 && folder_each(fd, belongs, handing);
    if (!*ret_takes && st.st_uid != handing->user)
        return folder_refuse(folder, handing->user, err);
    return KG_STEAL_FD(fd);
}

int
account_folder_check(const char *path, unsigned user, struct kg_error *err)
{
    KG_AUTO_FREE char *for_folder = kg_strdup(path);
    KG_AUTO_FREE char *for_name = kg_strdup(path);
    const struct handing handing = {.name = basename(for_name), .user = user};
    bool takes;
    KG_AUTO_FD fd = open_folder(dirname(for_folder), &handing, &takes, err);
    return fd < 0 ? -1 : 0;
}

int
account_folder_hand_over(const char *path, unsigned user, unsigned group, struct kg_error *err)
{
    KG_AUTO_FREE char *for_folder = kg_strdup(path);
    KG_AUTO_FREE char *for_name = kg_strdup(path);
    const char *folder = dirname(for_folder);
    const struct handing handing = {.name = basename(for_name), .user = user, .group = group};
    bool takes;
    KG_AUTO_FD fd = open_folder(folder, &handing, &takes, err);
    if (fd < 0)
        return -1;
    if (takes && fchown(fd, user, group) < 0)
        return kg_error_set(err, KG_INVALID, errno, "cannot change the owner of %s", folder);
    if (takes)
        log_info("the folder of the accounts belongs to the gateway's user now",
                 LOG_STR("folder", folder), LOG_INT("user", user));
    return folder_each(fd, hand_over, &handing) ? 0 : folder_refuse(folder, user, err);
}

bool
account_folder_is(const char *path, const char *folder)
{
    KG_AUTO_FREE char *copy = kg_strdup(path);
    struct stat own, other;
    return stat(dirname(copy), &own) == 0 && stat(folder, &other) == 0 &&
           own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

bool
account_folder_owner(const char *path, unsigned *ret_user, unsigned *ret_group)
{
    KG_AUTO_FREE char *copy = kg_strdup(path);
    struct stat st;
    if (stat(dirname(copy), &st) < 0)
        return false;
    *ret_user = st.st_uid;
    *ret_group = st.st_gid;
    return true;
}
