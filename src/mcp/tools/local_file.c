// SPDX-License-Identifier: Apache-2.0
// Reads a file of this machine for an upload.

#include "local_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Both have no symlinks any more.
static bool
is_below(const char *root, const char *path)
{
    size_t len = strlen(root);
    if (len > 0 && root[len - 1] == '/')
        len--; // the root of all
    return strncmp(root, path, len) == 0 && path[len] == '/';
}

// What does not exist: whether it would lie below, as far as its name tells. What there is
// elsewhere is nobody's business.
static bool
is_named_below(const char *root, const char *path)
{
    size_t len = strlen(path);
    bool climbs = strstr(path, "/../") || (len >= 3 && strcmp(path + len - 3, "/..") == 0);
    return is_below(root, path) && !climbs;
}

// Where an open file is now: a folder on the way may have become a link since it was looked at.
static bool
is_open_below(const char *root, int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0)
        return false;
    path[len] = '\0';
    return is_below(root, path);
}

static int
read_all(int fd, size_t size, struct buf *ret, struct kg_error *err)
{
    char *to = buf_reserve(ret, size);
    for (size_t n = 0; n < size;) {
        ssize_t got = read(fd, to + n, size - n);
        if (got < 0)
            return kg_error_set(err, KG_INTERNAL, errno, "cannot read the file");
        if (got == 0)
            return kg_error_set(err, KG_INVALID_CONTENT, 0, "the file shrank while it was read");
        n += (size_t)got;
    }
    to[size] = '\0';
    ret->len += size;
    return 0;
}

int
local_file_read(const char *root, const char *path, size_t max, struct buf *ret,
                struct kg_error *err)
{
    char real_root[PATH_MAX], real_path[PATH_MAX];
    if (!realpath(root, real_root))
        return kg_error_set(err, KG_INTERNAL, errno, "the folder for uploads");
    bool exists = realpath(path, real_path) != NULL;
    if (!exists && (is_named_below(real_root, path) || is_named_below(root, path)))
        return kg_error_set(err, errno == ENOENT ? KG_NOT_FOUND : KG_INVALID_PATH, errno,
                            "local_file_path");
    if (!exists || !is_below(real_root, real_path))
        return kg_error_set(err, KG_INVALID_PATH, 0, "only files below %.100s can be uploaded",
                            root);
    // A FIFO must not hold up the gateway.
    KG_AUTO_FD fd = open(real_path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) < 0)
        return kg_error_set(err, KG_INVALID_PATH, errno, "local_file_path");
    if (!is_open_below(real_root, fd))
        return kg_error_set(err, KG_INVALID_PATH, 0, "local_file_path has just been moved");
    if (!S_ISREG(about.st_mode))
        return kg_error_set(err, KG_INVALID_PATH, 0, "local_file_path is no regular file");
    if (about.st_size < 0 || (size_t)about.st_size > max)
        return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0,
                            "the file has %lld bytes; at most %zu are taken",
                            (long long)about.st_size, max);
    return read_all(fd, (size_t)about.st_size, ret, err);
}
