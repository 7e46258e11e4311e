// SPDX-License-Identifier: Apache-2.0
// A sandbox's mounts, as config.json has them. Locks, watches and times belong to an inode, so bind
// mounts share them with the host and all sandboxes. A read-only overlay for each sandbox has the
// same content under separate inodes; the page cache is still shared.
#include "oci_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LAYER "layer" // above every root: the agent, and the single files of image `host`
#define EMPTY "empty" // an overlay needs at least two folders
#define COPY_MAX (64 * MIB)
#define OPTIONS "nosuid,nodev,ro"

void
mount_add(json_t *mounts, const char *destination, const char *type, const char *source,
          const char *options)
{
    json_t *list = json_array();
    for (const char *at = options; *at; at += *at == ',') {
        size_t len = strcspn(at, ",");
        json_array_append_new(list, json_stringn(at, len));
        at += len;
    }
    json_array_append_new(mounts, json_pack("{s:s, s:s, s:s, s:o}", "destination", destination,
                                            "type", type, "source", source, "options", list));
}

void
mount_add_folder(json_t *mounts, const char *destination, const char *path)
{
    mount_add(mounts, destination, "bind", path, "rbind,ro,rro,nosuid,nodev");
}

bool
path_reachable(const char *path)
{
    KG_AUTO_FREE char *prefix = kg_strdup(path);
    for (char *slash = prefix; slash; slash = strrchr(prefix, '/')) {
        struct stat st;
        if (stat(prefix, &st) < 0 || !(st.st_mode & S_IXOTH))
            return false;
        *strrchr(prefix, '/') = '\0';
    }
    return true;
}

int
path_make_parents(char *path, size_t from, struct kg_error *err)
{
    for (char *slash = path + from; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        int made = dir_make(path, 0755, err);
        *slash = '/';
        if (made < 0)
            return -1;
    }
    return 0;
}

// ---- Overlays -------------------------------------------------------------------------------

// Copies a file, unless the copy has the same content already: sandboxes of an earlier gateway may
// still use it.
int
layers_copy(const struct oci *oci, const char *path, const char *source, unsigned mode,
            struct kg_error *err)
{
    KG_AUTO_FREE char *target = kg_asprintf("%s/" LAYER "%s", oci->base.state_dir, path);
    KG_AUTO_BUF wanted = {0};
    KG_AUTO_BUF there = {0};
    if (file_read(source, COPY_MAX, &wanted, err) < 0)
        return -1;
    if (file_read(target, COPY_MAX, &there, NULL) == 0 && there.len == wanted.len &&
        memcmp(there.data ? there.data : "", wanted.data ? wanted.data : "", wanted.len) == 0)
        return 0;
    if (path_make_parents(target, strlen(oci->base.state_dir), err) < 0)
        return -1;
    return file_write_atomic(target, wanted.data, wanted.len, mode, err);
}

// The machine's mount points, one per line: an overlay does not show mounts below its folders.
static char *
read_mount_points(void)
{
    struct buf points = {0};
    char line[4096];
    char point[1024];
    FILE *file = fopen("/proc/self/mountinfo", "re");
    buf_append_str(&points, "\n");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "%*s %*s %*s %*s %1023s", point) == 1)
            buf_printf(&points, "%s\n", point);
    if (file)
        fclose(file);
    return buf_take(&points);
}

int
layers_prepare(struct oci *oci, struct kg_error *err)
{
    struct stat st;
    const char *state_dir = oci->base.state_dir;
    KG_AUTO_FREE char *empty = kg_asprintf("%s/" EMPTY, state_dir);
    oci->mount_points = read_mount_points();
    // Other users may traverse the state folder, but not list it: the runtime mounts as the user
    // that is root in the sandbox's user namespace.
    if (stat(state_dir, &st) < 0 || chmod(state_dir, (st.st_mode & 07777) | S_IXOTH) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot set the mode of %s", state_dir);
    mode_t mask = umask(022);
    int made = dir_make(empty, 0755, err);
    if (made == 0)
        made = layers_copy(oci, SANDBOX_AGENT, oci->agent_path, 0755, err);
    umask(mask);
    return made;
}

// Whether an overlay shows all of the folder.
static bool
is_whole(const struct oci *oci, const char *path)
{
    KG_AUTO_FREE char *below = kg_asprintf("\n%s/", path);
    return !strpbrk(path, ":,\\ ") && !strpbrk(oci->base.state_dir, ":,\\ ") &&
           !strstr(oci->mount_points, below);
}

bool
mount_root_is_overlay(const struct oci *oci)
{
    return oci->inodes == INODES_OWN && is_whole(oci, oci->root_dir);
}

static char *
layers_option(const struct oci *oci, const char *upper, const char *lower)
{
    return kg_asprintf("lowerdir=%s/%s:%s", oci->base.state_dir, upper, lower);
}

static void
add_layers(const struct oci *oci, json_t *mounts, const char *destination, const char *upper,
           const char *lower)
{
    KG_AUTO_FREE char *layers = layers_option(oci, upper, lower);
    KG_AUTO_FREE char *options = kg_asprintf("%s," OPTIONS, layers);
    mount_add(mounts, destination, "overlay", "overlay", options);
}

void
mount_add_root(const struct oci *oci, json_t *mounts)
{
    add_layers(oci, mounts, "/", LAYER, oci->root_dir);
}

static bool
can_overlay(const struct oci *oci, const char *path)
{
    return oci->inodes != INODES_SHARED && is_whole(oci, path);
}

// Whether the runtime, which mounts as the root of the sandbox's user namespace, cannot reach it.
static bool
is_hidden(const struct oci *oci, const char *path)
{
    return oci->user_namespace && !path_reachable(path);
}

void
mount_add_overlay(const struct oci *oci, json_t *mounts, const char *destination, const char *path)
{
    if (can_overlay(oci, path) && !is_hidden(oci, path))
        add_layers(oci, mounts, destination, EMPTY, path);
    else
        mount_add_folder(mounts, destination, path);
}

char *
mount_hidden_overlay(const struct oci *oci, const char *path)
{
    return can_overlay(oci, path) && is_hidden(oci, path) ? layers_option(oci, EMPTY, path) : NULL;
}
