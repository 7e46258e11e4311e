// SPDX-License-Identifier: Apache-2.0
// Reading the cache's folder, and what leaves it.

#include "wheel_room.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SPARE = 8 }; // a part of the whole that is made free at once

struct wheel_room {
    char *dir;
    int64_t max_bytes;
    size_t max_files;
    int64_t bytes;
    size_t n_files;
};

struct cached {
    char *path;
    int64_t size;
    struct timespec mtime;
};

struct listing {
    struct cached *files;
    size_t n;
    size_t capacity;
};

// ---- The folder -----------------------------------------------------------------------------

static void
list_file(struct listing *listing, char *path, const struct stat *st)
{
    if (listing->n == listing->capacity) {
        listing->capacity = listing->capacity ? 2 * listing->capacity : 64;
        listing->files = kg_realloc(listing->files, listing->capacity * sizeof *listing->files);
    }
    listing->files[listing->n++] =
        (struct cached){.path = path, .size = st->st_size, .mtime = st->st_mtim};
}

static void
list_folder(struct listing *listing, const char *dir, bool with_folders)
{
    DIR *stream = opendir(dir);
    const struct dirent *entry;
    while (stream && (entry = readdir(stream))) {
        struct stat st;
        if (entry->d_name[0] == '.' ||
            fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        KG_AUTO_FREE char *path = kg_asprintf("%s/%s", dir, entry->d_name);
        if (S_ISREG(st.st_mode))
            list_file(listing, KG_STEAL(path), &st);
        else if (S_ISDIR(st.st_mode) && with_folders)
            list_folder(listing, path, false);
    }
    if (stream)
        closedir(stream);
}

static void
listing_fini(struct listing *listing)
{
    for (size_t i = 0; i < listing->n; i++)
        free(listing->files[i].path);
    free(listing->files);
}

// Reads the folder; the sum is what is there.
static struct listing
look(struct wheel_room *room)
{
    struct listing listing = {0};
    list_folder(&listing, room->dir, true);
    room->n_files = listing.n;
    room->bytes = 0;
    for (size_t i = 0; i < listing.n; i++)
        room->bytes += listing.files[i].size;
    return listing;
}

// ---- Room -----------------------------------------------------------------------------------

static int
by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct cached *)a)->mtime;
    const struct timespec *y = &((const struct cached *)b)->mtime;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static void
evict(struct wheel_room *room, struct cached *file)
{
    char *name = strrchr(file->path, '/') + 1;
    if (unlink(file->path) < 0)
        return;
    log_info("a wheel leaves the cache", LOG_STR("file", name));
    room->bytes -= file->size;
    room->n_files--;
    name[-1] = '\0';
    if (strcmp(file->path, room->dir) != 0)
        (void)rmdir(file->path);
}

void
wheel_room_make(struct wheel_room *room, int64_t bytes)
{
    if (room->bytes + bytes <= room->max_bytes && room->n_files < room->max_files)
        return;
    int64_t low_bytes = room->max_bytes - room->max_bytes / SPARE - bytes;
    size_t low_files = room->max_files - room->max_files / SPARE;
    struct listing listing = look(room);
    qsort(listing.files, listing.n, sizeof *listing.files, by_age);
    for (size_t i = 0; i < listing.n && (room->bytes > low_bytes || room->n_files >= low_files);
         i++)
        evict(room, &listing.files[i]);
    listing_fini(&listing);
}

void
wheel_room_add(struct wheel_room *room, int64_t bytes, int64_t old_bytes)
{
    room->bytes += bytes - old_bytes;
    room->n_files += old_bytes == 0;
}

// ---- Its life -------------------------------------------------------------------------------

struct wheel_room *
wheel_room_new(const char *dir, int64_t max_bytes, size_t max_files)
{
    struct wheel_room *room = KG_NEW(struct wheel_room);
    room->dir = kg_strdup(dir);
    room->max_bytes = max_bytes;
    room->max_files = max_files;
    struct listing listing = look(room);
    listing_fini(&listing);
    return room;
}

void
wheel_room_free(struct wheel_room *room)
{
    if (!room)
        return;
    free(room->dir);
    free(room);
}
