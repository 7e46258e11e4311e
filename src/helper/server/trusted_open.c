// SPDX-License-Identifier: Apache-2.0
// The way is walked by descriptors, one component at a time, so what was looked at is what is
// opened.
#include "trusted_open.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40 };      // as Linux's own bound
#define NOBODY ((unsigned)-1) // no id: setfsuid() changes nothing, and returns what is set

struct way {
    uid_t user;
    gid_t group;
    int folder; // open, by O_PATH
    char *rest; // of the path, from there
    int n_links;
    bool is_theirs; // something on the way is, or may be
};

// In a sticky folder only owners replace entries, and those are looked at themselves.
static void
way_note(struct way *way, const struct stat *st)
{
    bool others = (st->st_mode & S_IWOTH) || ((st->st_mode & S_IWGRP) && st->st_gid == way->group);
    bool guarded = S_ISLNK(st->st_mode) || (S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX));
    way->is_theirs |= st->st_uid == way->user || (others && !guarded);
}

static int
way_set_folder(struct way *way, int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (way->folder >= 0)
        close(way->folder);
    way->folder = fd;
    way_note(way, &st);
    return 0;
}

// The first component of the rest, which is taken off; NULL: none is left. To be freed.
static char *
way_next(struct way *way)
{
    const char *at = way->rest + strspn(way->rest, "/");
    size_t len = strcspn(at, "/");
    char *name = len > 0 ? kg_strndup(at, len) : NULL;
    char *rest = kg_strdup(at + len);
    free(way->rest);
    way->rest = rest;
    return name;
}

static int
way_follow(struct way *way, int link)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(link, "", target, sizeof target - 1);
    if (len < 0 || ++way->n_links > LINKS_MAX) {
        errno = len < 0 ? errno : ELOOP;
        return -1;
    }
    target[len] = '\0';
    char *rest = kg_asprintf("%s/%s", target, way->rest);
    free(way->rest);
    way->rest = rest;
    return target[0] == '/' ? way_set_folder(way, open("/", O_PATH | O_CLOEXEC)) : 0;
}

static bool
is_last(const struct way *way)
{
    return way->rest[strspn(way->rest, "/")] == '\0';
}

// Leaves the file's name in `ret_name`, in `way->folder`.
static int
way_walk(struct way *way, char **ret_name)
{
    for (char *name; (name = way_next(way));) {
        struct stat st;
        KG_AUTO_FREE char *component = name;
        KG_AUTO_FD fd = openat(way->folder, component, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
            return -1;
        way_note(way, &st);
        if (S_ISLNK(st.st_mode)) {
            if (way_follow(way, fd) < 0)
                return -1;
        } else if (is_last(way)) {
            *ret_name = KG_STEAL(component);
            return 0;
        } else if (way_set_folder(way, KG_STEAL_FD(fd)) < 0) {
            return -1;
        }
    }
    errno = EISDIR;
    return -1;
}

static int
way_open(const struct way *way, const char *name)
{
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    if (!way->is_theirs)
        return openat(way->folder, name, flags);
    // Linux takes the capabilities that concern files away meanwhile.
    setfsgid(way->group);
    setfsuid(way->user);
    bool became = setfsuid(NOBODY) == (int)way->user && setfsgid(NOBODY) == (int)way->group;
    int fd = became ? openat(way->folder, name, flags) : -1;
    int saved = became ? errno : EPERM;
    setfsuid(geteuid());
    setfsgid(getegid());
    errno = saved;
    return fd;
}

int
trusted_open(const char *path, uid_t user, gid_t group, struct kg_error *err)
{
    struct way way = {.user = user, .group = group, .folder = -1, .rest = kg_strdup(path)};
    char *name = NULL;
    struct stat st;
    int walked = way_set_folder(&way, open(path[0] == '/' ? "/" : ".", O_PATH | O_CLOEXEC));
    if (walked == 0)
        walked = way_walk(&way, &name);
    int saved = errno;
    KG_AUTO_FD fd = walked == 0 ? way_open(&way, name) : -1;
    saved = walked == 0 ? errno : saved;
    if (way.folder >= 0)
        close(way.folder);
    free(way.rest);
    free(name);
    if (fd < 0)
        return kg_error_set(err, KG_INVALID, saved, "cannot open %s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return kg_error_set(err, KG_INVALID, 0, "cannot open %s: it is not a regular file", path);
    return KG_STEAL_FD(fd);
}
