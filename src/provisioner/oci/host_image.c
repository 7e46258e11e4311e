// SPDX-License-Identifier: Apache-2.0
// The root of a sandbox. With image `host`: a skeleton of folders below the state folder, into
// which the host's /usr and little else are mounted read-only. Otherwise: a rootfs folder.
#include "oci_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOME_LINK "home" // in the state folder: a /home whose only entry is a link to SANDBOX_DATA
#define BIND_FILE "bind,ro,nosuid,nodev" // with rro, crun 1.8 mistakes a file for a folder

// Paths of the host's root that are links into /usr or folders.
static const char *const usr_friends[] = {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};

// Other paths of the host that are mounted, if they exist.
static const char *const host_paths[] = {
    "/usr",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/matplotlibrc",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/var/cache/fontconfig",
};

// Folders in these that are hidden: settings with tokens in them, sources.
static const char *const hidden[] = {"/usr/local/etc", "/usr/src"};

static const struct {
    const char *path;
    const char *text;
} generated[] = {
    {"/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"},
    {"/etc/hostname", "sandbox\n"},
    {"/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"},
    {"/etc/resolv.conf", ""}, // no network, no resolver
};

// Mount points that every root has, whatever the image.
static const char *const mount_points[] = {
    "/proc", "/dev", "/sys", SANDBOX_HOME, SANDBOX_DATA, SANDBOX_DOOR, SANDBOX_AGENT,
};

// Creates `path` below `root`, as a folder or as an empty file, with its parents. Existing files
// are never replaced: they may be mount points of running sandboxes, which would lose the mount.
static int
make_point(const char *root, const char *path, bool folder, struct kg_error *err)
{
    KG_AUTO_FREE char *full = kg_asprintf("%s%s", root, path);
    if (path_make_parents(full, strlen(root), err) < 0)
        return -1;
    if (folder)
        return dir_make(full, 0755, err);
    KG_AUTO_FD fd = open(full, O_CREAT | O_RDONLY | O_CLOEXEC, 0644);
    return fd < 0 ? kg_error_set(err, KG_INTERNAL, errno, "cannot create %s", full) : 0;
}

static int
make_link(const char *root, const char *path, const char *target, struct kg_error *err)
{
    KG_AUTO_FREE char *full = kg_asprintf("%s%s", root, path);
    if (symlink(target, full) < 0 && errno != EEXIST)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot create %s", full);
    return 0;
}

static bool
is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

// A link of the host becomes the same link in the skeleton; anything else is mounted.
static int
make_usr_friends(const char *root, struct kg_error *err)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(usr_friends); i++) {
        char target[256] = "";
        if (readlink(usr_friends[i], target, sizeof(target) - 1) > 0) {
            if (make_link(root, usr_friends[i], target, err) < 0)
                return -1;
        } else if (is_folder(usr_friends[i]) && make_point(root, usr_friends[i], true, err) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
make_host_points(const char *root, struct kg_error *err)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(host_paths); i++)
        if (access(host_paths[i], F_OK) == 0 &&
            make_point(root, host_paths[i], is_folder(host_paths[i]), err) < 0)
            return -1;
    return make_usr_friends(root, err);
}

static int
make_generated(const char *root, struct kg_error *err)
{
    if (make_point(root, "/etc", true, err) < 0 || make_point(root, "/var", true, err) < 0 ||
        make_link(root, "/var/tmp", SANDBOX_HOME, err) < 0 ||
        make_point(root, "/app", true, err) < 0 ||
        make_link(root, "/app/results", SANDBOX_DATA, err) < 0) // used by code for other systems
        return -1;
    for (size_t i = 0; i < KG_ARRAY_LEN(generated); i++) {
        KG_AUTO_FREE char *path = kg_asprintf("%s%s", root, generated[i].path);
        if (file_write_atomic(path, generated[i].text, strlen(generated[i].text), 0644, err) < 0)
            return -1;
    }
    KG_AUTO_FREE char *passwd = kg_asprintf("%s/etc/passwd", root);
    KG_AUTO_FREE char *group = kg_asprintf("%s/etc/group", root);
    return sandbox_write_users(passwd, group, SANDBOX_UID, err);
}

// The mount point of the second name of SANDBOX_DATA, and the folder that hides it where only a
// link is possible.
static int
make_home(const struct oci *oci, struct kg_error *err)
{
    KG_AUTO_FREE char *links = kg_asprintf("%s/" HOME_LINK, oci->base.state_dir);
    const char *name = SANDBOX_USER_HOME + strlen(SANDBOX_HOMES);
    if (make_point(oci->root_dir, SANDBOX_USER_HOME, true, err) < 0)
        return -1;
    return dir_make(links, 0755, err) < 0 ? -1 : make_link(links, name, SANDBOX_DATA, err);
}

// The runtime's setup runs as the user that is root in the sandbox's user namespace, and must be
// able to reach the skeleton.
static int
open_way(const struct oci *oci, struct kg_error *err)
{
    KG_AUTO_FREE char *tmp = kg_asprintf("%s" SANDBOX_HOME, oci->root_dir);
    if (chmod(oci->root_dir, 0755) < 0 || chmod(tmp, 01777) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot set the mode of %s", oci->root_dir);
    return 0;
}

// Copies single files, for roots that are overlays.
static int
copy_files(const struct oci *oci, struct kg_error *err)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(host_paths); i++)
        if (access(host_paths[i], F_OK) == 0 && !is_folder(host_paths[i]) &&
            layers_copy(oci, host_paths[i], host_paths[i], 0644, err) < 0)
            return -1;
    return 0;
}

int
host_image_make(const struct oci *oci, struct kg_error *err)
{
    const char *root = oci->root_dir;
    mode_t mask = umask(022);
    int made = dir_make(root, 0755, err);
    for (size_t i = 0; made == 0 && i < KG_ARRAY_LEN(mount_points); i++)
        made = make_point(root, mount_points[i], strcmp(mount_points[i], SANDBOX_AGENT) != 0, err);
    for (size_t i = 0; made == 0 && i < oci->n_kernel_envs; i++) {
        KG_AUTO_FREE char *path = kg_asprintf(SANDBOX_KERNELS "/%s", oci->kernel_envs[i].name);
        made = make_point(root, path, true, err);
    }
    if (made == 0)
        made = make_home(oci, err);
    if (made == 0)
        made = make_generated(root, err);
    if (made == 0)
        made = make_host_points(root, err);
    if (made == 0)
        made = copy_files(oci, err);
    umask(mask);
    return made < 0 ? -1 : open_way(oci, err);
}

static bool
has_point(const struct oci *oci, const char *path)
{
    KG_AUTO_FREE char *full = kg_asprintf("%s%s", oci->root_dir, path);
    return access(full, F_OK) == 0;
}

// Only what has its mount point in the skeleton: a package that was installed since then has none.
void
host_image_mounts(const struct oci *oci, json_t *mounts)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(host_paths); i++) {
        if (!has_point(oci, host_paths[i]))
            continue;
        if (is_folder(host_paths[i]))
            mount_add_overlay(oci, mounts, host_paths[i], host_paths[i]);
        else if (!mount_root_is_overlay(oci) && access(host_paths[i], F_OK) == 0)
            mount_add(mounts, host_paths[i], "bind", host_paths[i], BIND_FILE);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(usr_friends); i++) {
        struct stat st;
        if (lstat(usr_friends[i], &st) == 0 && S_ISDIR(st.st_mode) &&
            has_point(oci, usr_friends[i]))
            mount_add_overlay(oci, mounts, usr_friends[i], usr_friends[i]);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(hidden); i++)
        if (is_folder(hidden[i]))
            mount_add(mounts, hidden[i], "tmpfs", "tmpfs",
                      "ro,nosuid,nodev,noexec,mode=755,size=4k");
}

void
host_image_mount_home_link(const struct oci *oci, json_t *mounts)
{
    KG_AUTO_FREE char *links = kg_asprintf("%s/" HOME_LINK, oci->base.state_dir);
    mount_add_folder(mounts, SANDBOX_HOMES, links);
}

static int
check_point(const struct oci *oci, const char *path, struct kg_error *err)
{
    KG_AUTO_FREE char *full = kg_asprintf("%s%s", oci->root_dir, path);
    if (access(full, F_OK) == 0)
        return 0;
    return kg_error_set(
        err, KG_INVALID, 0, "image: %s lacks %s, the mount point of %s", oci->root_dir, path,
        strcmp(path, SANDBOX_AGENT) == 0 ? "the agent (an empty file)" : "a folder");
}

int
folder_image_check(const struct oci *oci, struct kg_error *err)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(mount_points); i++)
        if (check_point(oci, mount_points[i], err) < 0)
            return -1;
    for (size_t i = 0; i < oci->n_kernel_envs; i++) {
        KG_AUTO_FREE char *path = kg_asprintf(SANDBOX_KERNELS "/%s", oci->kernel_envs[i].name);
        if (check_point(oci, path, err) < 0)
            return -1;
    }
    return 0;
}
