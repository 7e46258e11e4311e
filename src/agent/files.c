// SPDX-License-Identifier: Apache-2.0
// Listing, opening and deleting; what the other files of this kind share.
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "walk.h"

// All paths of a page together, escaped at their worst, stay below what a gateway takes as one
// answer.
enum { PAGE_PATH_BYTES_MAX = 128 << 10 };

// ---- Listing --------------------------------------------------------------------------------

struct page {
    json_t *files;
    int limit;
    bool details;
    size_t path_bytes;
    char *last;
    bool more;
};

static bool
add_to_page(const char *path, const struct stat *st, void *arg)
{
    struct page *page = arg;

    // NULL where the name is not UTF-8: nobody could ask for such a file.
    json_t *entry =
        json_pack("{s:s, s:I, s:I, s:s}", "path", path, "size", (json_int_t)st->st_size, "mtime_ms",
                  (json_int_t)file_mtime_ms(st), "type", walk_type_name(st->st_mode));
    if (!entry)
        return true;
    if ((int)json_array_size(page->files) == page->limit ||
        page->path_bytes > PAGE_PATH_BYTES_MAX) {
        json_decref(entry);
        page->more = true;
        return false;
    }
    if (page->details)
        json_object_update_new(
            entry, json_pack("{s:i, s:I, s:I}", "mode", (int)(st->st_mode & FILE_PERMISSIONS),
                             "uid", (json_int_t)st->st_uid, "gid", (json_int_t)st->st_gid));
    json_array_append_new(page->files, entry);
    page->path_bytes += strlen(path);
    free(page->last);
    page->last = kg_strdup(path);
    return true;
}

json_t *
files_list(const char *root, const struct walk_query *query, int limit, bool details,
           struct kg_error *err)
{
    struct page page = {.limit = limit, .details = details};

    page.files = json_array();
    if (walk_files(root, query, add_to_page, &page, err) != 0) {
        json_decref(page.files);
        return NULL;
    }
    json_t *listing = json_pack("{s:o}", "files", page.files);
    if (page.more)
        json_object_set_new(listing, "next", json_string(page.last));
    free(page.last);
    return listing;
}

// ---- One file -------------------------------------------------------------------------------

int64_t
file_mtime_ms(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
}

void
file_etag(const struct stat *st, char ret[FILE_ETAG_MAX + 1])
{
    uint64_t mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec;

    snprintf(ret, FILE_ETAG_MAX + 1, "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"",
             (uint64_t)st->st_ino, (uint64_t)st->st_size, mtime_ns);
}

json_t *
file_describe(const struct stat *st)
{
    char etag[FILE_ETAG_MAX + 1];

    file_etag(st, etag);
    return json_pack("{s:I, s:I, s:s}", "size", (json_int_t)st->st_size, "mtime_ms",
                     (json_int_t)file_mtime_ms(st), "etag", etag);
}

int
file_check_regular(const struct stat *st, const char *path, struct kg_error *err)
{
    if (S_ISREG(st->st_mode))
        return 0;
    const char *what = "neither a file nor a folder";
    if (S_ISDIR(st->st_mode))
        what = "a folder";
    else if (S_ISLNK(st->st_mode))
        what = "a symbolic link, which is not followed";
    else if (S_ISFIFO(st->st_mode))
        what = "a FIFO";
    return kg_error_set(err, KG_INVALID_PATH, 0, "%.100s is %s", path, what);
}

int
file_fail(const char *verb, const char *path, int failure, struct kg_error *err)
{
    switch (failure) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
        return kg_error_set(err, KG_DISK_FULL, 0,
                            "the session's disk is full (setting disk-mb): cannot %s %.100s", verb,
                            path);
    case EEXIST:
        return kg_error_set(err, KG_FILE_EXISTS, 0, "%.100s exists", path);
    case EISDIR:
        return kg_error_set(err, KG_INVALID_PATH, 0, "%.100s is a folder", path);
    case ENOTDIR:
        return kg_error_set(err, KG_INVALID_PATH, 0, "%.100s is not a folder", path);
    case ENOTEMPTY:
        return kg_error_set(err, KG_INVALID_PATH, 0, "%.100s is a folder that is not empty", path);
    default:
        return kg_error_set(err, KG_INVALID_PATH, failure, "cannot %s %.100s", verb, path);
    }
}

void
file_temporary_name(const char *purpose, char ret[FILE_TEMPORARY_SIZE])
{
    char random[FILE_RANDOM_LEN + 1];

    id_random(random, FILE_RANDOM_LEN);
    snprintf(ret, FILE_TEMPORARY_SIZE, FILE_OWN_PREFIX "%.8s-%s", purpose, random);
}

int
file_write_bytes(int fd, const void *data, size_t len)
{
    for (const char *at = data; len > 0;) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return -1;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

int
file_check(const char *path, bool is_new, bool own, struct kg_error *err)
{
    if (own && !file_name_is_own(path))
        return kg_error_set(err, KG_INVALID_PATH, 0, "%.100s does not begin with %s", path,
                            FILE_OWN_PREFIX);
    return file_path_check(own ? path + strlen(FILE_OWN_PREFIX) : path, is_new, err);
}

int
file_open_at(int folder, const char *name, const char *path, int access, struct stat *ret_st,
             struct kg_error *err)
{
    // Looked at first: to open a device can do something.
    if (fstatat(folder, name, ret_st, AT_SYMLINK_NOFOLLOW) != 0)
        return kg_error_set(err, errno == ENOENT ? KG_NOT_FOUND : KG_INVALID_PATH, 0,
                            "there is no file %.100s", path);
    if (file_check_regular(ret_st, path, err) != 0)
        return -1;
    KG_AUTO_FD fd = openat(folder, name, access | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, ret_st) != 0)
        return kg_error_set(err, errno == ENOENT ? KG_NOT_FOUND : KG_INVALID_PATH, errno,
                            "cannot open %.100s", path);
    if (file_check_regular(ret_st, path, err) != 0)
        return -1;
    return KG_STEAL_FD(fd);
}

int
file_open(const char *root, const char *path, struct stat *ret_st, struct kg_error *err)
{
    const char *name;

    if (file_path_check(path, false, err) != 0)
        return -1;
    KG_AUTO_FD folder = walk_open_parent(root, path, WALK_OPEN, &name, err);
    return folder < 0 ? -1 : file_open_at(folder, name, path, O_RDONLY, ret_st, err);
}

int
file_delete(const char *root, const char *path, bool own, struct kg_error *err)
{
    const char *name;
    struct stat st;

    if (file_check(path, false, own, err) != 0)
        return -1;
    KG_AUTO_FD folder = walk_open_parent(root, path, WALK_OPEN, &name, err);
    if (folder < 0)
        return -1;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return kg_error_set(err, KG_NOT_FOUND, 0, "there is no file %.100s", path);
    if (path_remove_at(folder, name) != 0)
        return kg_error_set(err, KG_INVALID_PATH, errno, "cannot delete %.100s", path);
    return 0;
}
