// SPDX-License-Identifier: Apache-2.0
// Removes and links folders of the package cache.

#include "package_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop.h"

// ---- Removing -------------------------------------------------------------------------------

// What cannot be removed goes when the next gateway starts.
static void
remove_tree(void *arg)
{
    KG_AUTO_FREE char *path = arg;
    (void)!path_remove_tree(path, NULL);
}

void
package_folder_remove(struct loop *loop, const char *path, const char *incoming)
{
    static atomic_uint number;
    KG_AUTO_FREE char *away = kg_asprintf("%s/gone-%u", incoming, atomic_fetch_add(&number, 1));
    if (rename(path, away) == 0)
        (void)loop_work_start(loop, LOOP_LANE_GATEWAY, remove_tree, NULL, KG_STEAL(away));
    else if (errno != ENOENT)
        log_warning("a folder of the package cache stays", LOG_STR("path", path),
                    LOG_STR("error", strerror(errno)));
}

// ---- Linking --------------------------------------------------------------------------------

static int link_entries(int from, int to);

static int
link_folder(int from, int to, const char *name)
{
    int result = -1;
    int below = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int copy = -1;
    if (below >= 0 && (mkdirat(to, name, 0755) == 0 || errno == EEXIST))
        copy = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (copy >= 0 && fchmod(copy, 0755) == 0)
        result = link_entries(KG_STEAL_FD(below), copy);
    if (copy >= 0)
        close(copy);
    if (below >= 0)
        close(below);
    return result;
}

static int
link_entry(int from, int to, const struct dirent *entry)
{
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
        return 0;
    struct stat st;
    if (fstatat(from, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    if (S_ISDIR(st.st_mode))
        return link_folder(from, to, entry->d_name);
    return linkat(from, entry->d_name, to, entry->d_name, 0) == 0 || errno == EEXIST ? 0 : -1;
}

// Closes `from`.
static int
link_entries(int from, int to)
{
    DIR *stream = fdopendir(from);
    int result = 0;
    if (!stream) {
        close(from);
        return -1;
    }
    for (const struct dirent *entry; result == 0 && (entry = readdir(stream));)
        result = link_entry(dirfd(stream), to, entry);
    closedir(stream);
    return result;
}

int
package_folder_link(const char *from, const char *to, struct kg_error *err)
{
    int source = open(from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int target = open(to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int result = -1;
    if (source >= 0 && target >= 0)
        result = link_entries(KG_STEAL_FD(source), target);
    if (result < 0)
        kg_error_set(err, KG_INTERNAL, errno, "cannot link the files of an unpacked wheel");
    if (source >= 0)
        close(source);
    if (target >= 0)
        close(target);
    return result;
}
