// SPDX-License-Identifier: Apache-2.0
// Reads a file of the gateway's machine for an upload.

#include "local_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

struct local_read {
    int fd;
    size_t left;
    struct buf *to;
    struct loop_timer *next;
    local_read_fn fn;
    void *arg;
};

// Neither path contains symlinks.
static bool
is_below(const char *root, const char *path)
{
    size_t len = strlen(root);
    if (len > 0 && root[len - 1] == '/')
        len--; // "/"
    return strncmp(root, path, len) == 0 && path[len] == '/';
}

// Whether a path that does not exist would be below `root`, judging by its name. The answer must
// not reveal what exists elsewhere.
static bool
is_named_below(const char *root, const char *path)
{
    size_t len = strlen(path);
    bool climbs = strstr(path, "/../") || (len >= 3 && strcmp(path + len - 3, "/..") == 0);
    return is_below(root, path) && !climbs;
}

// The path of an open file: a folder on the way may have been replaced by a link since the check.
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

// Opens the file if it may be read; else -1 with `err`.
static int
open_below(const char *root, const char *path, size_t max, size_t *ret_size, struct kg_error *err)
{
    char real_root[PATH_MAX], real_path[PATH_MAX];
    if (!realpath(root, real_root))
        return kg_error_set(err, KG_INTERNAL, errno, "setting upload-root");
    bool exists = realpath(path, real_path) != NULL;
    if (!exists && (is_named_below(real_root, path) || is_named_below(root, path)))
        return kg_error_set(err, errno == ENOENT ? KG_NOT_FOUND : KG_INVALID_PATH, errno,
                            "local_file_path");
    if (!exists || !is_below(real_root, real_path))
        return kg_error_set(err, KG_INVALID_PATH, 0, "only files below %.100s can be uploaded",
                            root);
    // A FIFO must not block the gateway.
    KG_AUTO_FD fd = open(real_path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) < 0)
        return kg_error_set(err, KG_INVALID_PATH, errno, "local_file_path");
    if (!is_open_below(real_root, fd))
        return kg_error_set(err, KG_INVALID_PATH, 0,
                            "local_file_path: the file has just been moved");
    if (!S_ISREG(about.st_mode))
        return kg_error_set(err, KG_INVALID_PATH, 0, "local_file_path: not a regular file");
    if (about.st_size < 0 || (size_t)about.st_size > max)
        return kg_error_set(
            err, KG_UPLOAD_TOO_LARGE, 0,
            "local_file_path: the file has %lld bytes, the limit is %zu (setting max-upload-bytes)",
            (long long)about.st_size, max);
    *ret_size = (size_t)about.st_size;
    return KG_STEAL_FD(fd);
}

// ---- Reading --------------------------------------------------------------------------------

void
local_read_cancel(void *arg)
{
    struct local_read *read = arg;
    loop_timer_free(read->next);
    close(read->fd);
    free(read);
}

static int
read_piece(struct local_read *reading, struct kg_error *err)
{
    size_t len = reading->left < PIECE_BYTES ? reading->left : PIECE_BYTES;
    char *to = buf_reserve(reading->to, len);
    ssize_t got = len > 0 ? read(reading->fd, to, len) : 0;
    if (got < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "local_file_path: the file cannot be read");
    if (got == 0 && len > 0)
        return kg_error_set(err, KG_INVALID_CONTENT, 0,
                            "local_file_path: the file became shorter while it was read");
    reading->to->len += (size_t)got;
    reading->left -= (size_t)got;
    return 0;
}

static void
local_file_on_next(void *arg)
{
    struct local_read *read = arg;
    struct kg_error err = {0};
    bool failed = read_piece(read, &err) < 0;
    if (!failed && read->left > 0) {
        loop_timer_start(read->next, 0);
        return;
    }
    local_read_fn fn = read->fn;
    void *fn_arg = read->arg;
    local_read_cancel(read);
    fn(failed ? &err : NULL, fn_arg);
}

struct local_read *
local_read_start(struct loop *loop, const char *root, const char *path, size_t max, struct buf *ret,
                 local_read_fn fn, void *arg, struct kg_error *err)
{
    size_t size;
    int fd = open_below(root, path, max, &size, err);
    if (fd < 0)
        return NULL;
    struct local_read *read = KG_NEW(struct local_read);
    *read = (struct local_read){.fd = fd, .left = size, .to = ret, .fn = fn, .arg = arg};
    (void)buf_reserve(ret, size);
    read->next = loop_timer_new(loop, local_file_on_next, read);
    loop_timer_start(read->next, 0);
    return read;
}
