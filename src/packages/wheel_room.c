// SPDX-License-Identifier: Apache-2.0
// The files of the cache in the order of their last use.

#include "wheel_room.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

struct cached {
    TAILQ_ENTRY(cached) link;
    int64_t size;
    struct timespec mtime; // at the start
    char name[];
};

struct wheel_room {
    char *dir;
    int64_t max_bytes;
    size_t max_files;
    int64_t bytes;
    size_t n_files;
    TAILQ_HEAD(, cached) files; // least recently used first
};

// ---- The files ------------------------------------------------------------------------------

static struct cached *
cached_new(const char *name, int64_t size)
{
    size_t len = strlen(name) + 1;
    struct cached *file = kg_calloc(1, sizeof *file + len);
    file->size = size;
    memcpy(file->name, name, len);
    return file;
}

static void
room_append(struct wheel_room *room, struct cached *file)
{
    TAILQ_INSERT_TAIL(&room->files, file, link);
    room->bytes += file->size;
    room->n_files++;
}

static void
room_drop(struct wheel_room *room, struct cached *file)
{
    TAILQ_REMOVE(&room->files, file, link);
    room->bytes -= file->size;
    room->n_files--;
    free(file);
}

static struct cached *
room_find(const struct wheel_room *room, const char *name)
{
    struct cached *file;
    TAILQ_FOREACH(file, &room->files, link) {
        if (strcmp(file->name, name) == 0)
            return file;
    }
    return NULL;
}

// And its folder, if it was the last one there.
static void
room_remove(struct wheel_room *room, struct cached *file)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", room->dir, file->name);
    struct kg_error err = {0};
    if (unlink(path) < 0 && errno != ENOENT) {
        kg_error_set(&err, KG_INTERNAL, errno, "cannot remove %s", path);
        log_warning("cannot remove a file of the package cache", LOG_ERR(&err));
    }
    *strrchr(path, '/') = '\0';
    (void)rmdir(path);
    room_drop(room, file);
}

static void
room_evict(struct wheel_room *room, struct cached *file)
{
    log_info("removing a file of the package cache", LOG_STR("file", file->name));
    room_remove(room, file);
}

void
wheel_room_drop(struct wheel_room *room, const char *name)
{
    struct cached *file = room_find(room, name);
    if (file)
        room_remove(room, file);
}

void
wheel_room_make(struct wheel_room *room, int64_t bytes)
{
    int64_t left = disk_free_bytes(room->dir);
    bool scarce = left < room->max_bytes - room->bytes;
    int64_t max_bytes = scarce ? room->bytes + left : room->max_bytes;
    struct cached *oldest;
    while ((room->bytes + bytes > max_bytes || room->n_files >= room->max_files) &&
           (oldest = TAILQ_FIRST(&room->files)))
        room_evict(room, oldest);
}

void
wheel_room_add(struct wheel_room *room, const char *name, int64_t bytes)
{
    struct cached *old = room_find(room, name);
    if (old)
        room_drop(room, old);
    room_append(room, cached_new(name, bytes));
}

void
wheel_room_use(struct wheel_room *room, const char *name)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", room->dir, name);
    struct cached *file = room_find(room, name);
    (void)utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
    if (!file)
        return;
    TAILQ_REMOVE(&room->files, file, link);
    TAILQ_INSERT_TAIL(&room->files, file, link);
}

// ---- The folder, at the start ---------------------------------------------------------------

struct listing {
    struct cached **files;
    size_t n;
    size_t capacity;
};

static void
list_file(struct listing *listing, const char *name, const struct stat *st)
{
    if (listing->n == listing->capacity) {
        listing->capacity = listing->capacity ? 2 * listing->capacity : 64;
        listing->files = kg_realloc(listing->files, listing->capacity * sizeof(struct cached *));
    }
    struct cached *file = cached_new(name, st->st_size);
    file->mtime = st->st_mtim;
    listing->files[listing->n++] = file;
}

// `folder` is a folder of `dir`; NULL: `dir` itself.
static void
list_folder(struct listing *listing, const char *dir, const char *folder)
{
    KG_AUTO_FREE char *path = folder ? kg_asprintf("%s/%s", dir, folder) : kg_strdup(dir);
    DIR *stream = opendir(path);
    const struct dirent *entry;
    while (stream && (entry = readdir(stream))) {
        struct stat st;
        if (entry->d_name[0] == '.' ||
            fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISDIR(st.st_mode) && !folder)
            list_folder(listing, dir, entry->d_name);
        if (!S_ISREG(st.st_mode) || !folder)
            continue;
        KG_AUTO_FREE char *name = kg_asprintf("%s/%s", folder, entry->d_name);
        list_file(listing, name, &st);
    }
    if (stream)
        closedir(stream);
}

static int
by_age(const void *a, const void *b)
{
    const struct timespec *x = &(*(const struct cached *const *)a)->mtime;
    const struct timespec *y = &(*(const struct cached *const *)b)->mtime;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

struct wheel_room *
wheel_room_new(const char *dir, int64_t max_bytes, size_t max_files)
{
    struct wheel_room *room = KG_NEW(struct wheel_room);
    struct listing listing = {0};
    room->dir = kg_strdup(dir);
    room->max_bytes = max_bytes;
    room->max_files = max_files;
    TAILQ_INIT(&room->files);
    list_folder(&listing, dir, NULL);
    if (listing.n > 1)
        qsort(listing.files, listing.n, sizeof(struct cached *), by_age);
    for (size_t i = 0; i < listing.n; i++)
        room_append(room, listing.files[i]);
    free(listing.files);
    return room;
}

void
wheel_room_free(struct wheel_room *room)
{
    if (!room)
        return;
    for (struct cached *file; (file = TAILQ_FIRST(&room->files));)
        room_drop(room, file);
    free(room->dir);
    free(room);
}
