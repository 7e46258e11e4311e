// SPDX-License-Identifier: Apache-2.0
// The state folder, divided between the helper, which is root, and the gateway, which is not:
//
//     lock, id, packages.json, link.key, link-key   root's; the gateway reads them before it gives
//                                                   up root's rights
//     sb/<id>/, root/, layer/, empty/, oci-*/       the helper's
//     gateway/                                      the gateway's: records, sockets, downloads
//     packages/                                     what the gateway unpacks. The folder is root's
//                                                   and sticky. `shared` in it is root's, too, and
//                                                   mounted into sandboxes: the gateway fills it,
//                                                   and cannot put anything else in its place
//
// This runs as root in folders in which an earlier gateway, which may have been an attacker's, has
// written. So it follows no symlink there, and takes over only what was that gateway's.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway.h"

#define UNFINISHED "gateway.new" // until all is in it that an earlier version has left
#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

enum { PACKAGES_MODE = 01771, SHARED_MODE = 0775 }; // group: the gateway's
enum { ASIDE_LEN = 8, DEPTH_MAX = 64 };

struct new_owner {
    uid_t from; // whose entries are taken over
    int depth;  // of the tree, above the entry
    uid_t user;
    gid_t group;
    bool links; // also files with several names, which only root can have made
};

// ---- Trees ----------------------------------------------------------------------------------

static int give_entry(int folder, const char *name, const struct new_owner *owner);

// Calls `fn` for the name of each entry, until it returns -1.
static int
each_entry(int folder, int (*fn)(int folder, const char *name, const struct new_owner *owner),
           const struct new_owner *owner)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    int result = list ? 0 : -1;
    if (!list && copy >= 0)
        close(copy);
    for (struct dirent *entry; list && result == 0 && (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = fn(folder, entry->d_name, owner);
    }
    if (list)
        closedir(list);
    return result;
}

static int
give_entry(int folder, const char *name, const struct new_owner *owner)
{
    struct stat st;
    KG_AUTO_FD fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? 0 : -1;
    bool takes =
        st.st_uid == owner->from && (owner->links || S_ISDIR(st.st_mode) || st.st_nlink == 1);
    if (takes && fchownat(fd, "", owner->user, owner->group, AT_EMPTY_PATH) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode))
        return 0;
    // An attacker's tree, each level of which takes descriptors, could have any depth.
    const struct new_owner deeper = {owner->from, owner->depth + 1, owner->user, owner->group,
                                     owner->links};
    KG_AUTO_FD below = openat(folder, name, OPEN_FOLDER);
    if (deeper.depth > DEPTH_MAX)
        return 0;
    return below < 0 ? -1 : each_entry(below, give_entry, &deeper);
}

// Opens a folder, which is made if it is not there.
static int
open_folder(int in, const char *name)
{
    if (mkdirat(in, name, 0700) < 0 && errno != EEXIST)
        return -1;
    return openat(in, name, OPEN_FOLDER);
}

static int
set_owner(int folder, uid_t user, gid_t group, unsigned mode)
{
    return fchown(folder, user, group) < 0 ? -1 : fchmod(folder, mode);
}

// ---- What version 0.2.0 has left ------------------------------------------------------------

// `sb/<id>` of the engine `oci` stays, without the session's record; that of another engine is the
// gateway's as a whole.
static int
move_sandbox(int all, const char *id, const struct new_owner *owner)
{
    (void)owner;
    KG_AUTO_FD to = open_folder(all, "../" UNFINISHED "/sb");
    KG_AUTO_FD from = openat(all, id, OPEN_FOLDER);
    if (to < 0 || from < 0)
        return to < 0 ? -1 : 0;
    if (faccessat(from, "config.json", F_OK, 0) < 0)
        return renameat(all, id, to, id);
    if (faccessat(from, "meta.json", F_OK, 0) < 0)
        return 0;
    KG_AUTO_FD own = open_folder(to, id);
    return own < 0 ? -1 : renameat(from, "meta.json", own, "meta.json");
}

static int
move_records(int root, int gateway)
{
    KG_AUTO_FD all = openat(root, "sb", OPEN_FOLDER);
    KG_AUTO_FD own = open_folder(gateway, "sb");
    if (own < 0 || (all >= 0 && each_entry(all, move_sandbox, NULL) < 0))
        return -1;
    return renameat(root, "notebooks", gateway, "notebooks") < 0 && errno != ENOENT ? -1 : 0;
}

// ---- The parts ------------------------------------------------------------------------------

static int
divide_gateway(int root, int gateway, bool first, const struct new_owner *owner)
{
    if (first && move_records(root, gateway) < 0)
        return -1;
    if (owner->from != owner->user && each_entry(gateway, give_entry, owner) < 0)
        return -1;
    return set_owner(gateway, owner->user, owner->group, 0700);
}

// What an earlier gateway may have made so that no other one can remove it.
static void
drop_incoming(int packages)
{
    char id[ASIDE_LEN + 1];
    if (path_remove_at(packages, "incoming") == 0)
        return;
    int failure = errno;
    id_random(id, ASIDE_LEN);
    KG_AUTO_FREE char *aside = kg_asprintf("gone-%s", id);
    log_warning("what was being unpacked cannot be removed", LOG_STR("error", strerror(failure)),
                LOG_STR("kept_as", aside));
    (void)renameat(packages, "incoming", packages, aside);
}

// Of another user, or of an earlier version that ran meanwhile. It can all be had again.
static int
drop_others(int packages, const char *name, const struct new_owner *owner)
{
    struct stat st;
    bool kept =
        strcmp(name, "shared") == 0 ||
        (fstatat(packages, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == owner->user);
    if (!kept && path_remove_at(packages, name) < 0)
        log_warning("a part of the packages' folder cannot be removed", LOG_STR("name", name));
    return 0;
}

static int
drop_entry(int folder, const char *name, const struct new_owner *owner)
{
    (void)owner;
    return path_remove_at(folder, name);
}

static int
divide_packages(int root, bool first, const struct new_owner *owner)
{
    KG_AUTO_FD packages = open_folder(root, "packages");
    if (packages < 0)
        return -1;
    drop_incoming(packages);
    if (each_entry(packages, first ? give_entry : drop_others, owner) < 0 ||
        set_owner(packages, 0, owner->group, PACKAGES_MODE) < 0)
        return -1;
    KG_AUTO_FD shared = open_folder(packages, "shared");
    bool changed = !first && owner->from != owner->user;
    if (shared < 0 || (changed && each_entry(shared, drop_entry, owner) < 0))
        return -1;
    return set_owner(shared, 0, owner->group, SHARED_MODE);
}

// What the helper trusts, because only root can have written it.
static int
check_roots(int root, const char *name, const struct new_owner *owner)
{
    static const char *const trusted[] = {"sb", "root", "layer", "empty", "id", "lock", "epoch"};
    struct stat st;
    bool is_trusted = strncmp(name, "oci-", strlen("oci-")) == 0;
    (void)owner;
    for (size_t i = 0; i < KG_ARRAY_LEN(trusted); i++)
        is_trusted |= strcmp(name, trusted[i]) == 0;
    if (!is_trusted || fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        (st.st_uid == 0 && !(st.st_mode & (S_IWGRP | S_IWOTH))))
        return 0;
    log_error("an entry of the state folder is not root's alone", LOG_STR("entry", name),
              LOG_INT("owner", st.st_uid), LOG_INT("mode", st.st_mode & 07777));
    errno = EPERM;
    return -1;
}

// From a descriptor, `..` leads upwards as far as folders let others pass.
static void
warn_of_neighbours(const char *path)
{
    KG_AUTO_FREE char *parent = kg_strdup(path);
    char *slash = strrchr(parent, '/');
    struct stat st;
    if (!slash || slash == parent)
        return;
    *slash = '\0';
    if (stat(parent, &st) == 0 && (st.st_mode & S_IXOTH))
        log_warning("the gateway's user can read what lies in this folder and is readable for "
                    "everybody, although it is below one that is closed",
                    LOG_STR("folder", parent));
}

int
state_divide(struct state *state, unsigned user, unsigned group, bool by_path, struct kg_error *err)
{
    struct stat st;
    KG_AUTO_FD root = open(state->root, OPEN_FOLDER);
    bool first = root >= 0 && fstatat(root, "gateway", &st, AT_SYMLINK_NOFOLLOW) < 0;
    KG_AUTO_FD gateway = root < 0 ? -1 : open_folder(root, first ? UNFINISHED : "gateway");
    if (gateway < 0 || fstat(gateway, &st) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open %s/gateway", state->root);
    const struct new_owner owner = {
        .from = first ? 0 : st.st_uid, .user = user, .group = group, .links = first};
    if (set_owner(root, 0, 0, 0711) < 0 || each_entry(root, check_roots, &owner) < 0 ||
        divide_packages(root, first, &owner) < 0 ||
        divide_gateway(root, gateway, first, &owner) < 0 ||
        (first && renameat(root, UNFINISHED, root, "gateway") < 0))
        return kg_error_set(err, KG_INTERNAL, errno, "cannot divide the state folder %s",
                            state->root);
    free(state->dir);
    free(state->packages);
    KG_AUTO_FREE char *own = kg_asprintf("%s/gateway", state->root);
    KG_AUTO_FREE char *packages = kg_asprintf("%s/packages", state->root);
    if (user != 0 && !path_is_reachable(own))
        warn_of_neighbours(state->root);
    state->dir = by_path ? KG_STEAL(own) : path_to_reach(own);
    state->packages = by_path ? KG_STEAL(packages) : path_to_reach(packages);
    return 0;
}
