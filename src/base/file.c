// SPDX-License-Identifier: Apache-2.0
// Small whole-file operations, for the gateway's own state and settings.

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base.h"

int
file_read(const char *path, size_t max, struct buf *ret, struct kg_error *err)
{
    KG_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot open %s", path);
    for (size_t total = 0;;) {
        enum { CHUNK = 16 << 10 };
        ssize_t n = read(fd, buf_reserve(ret, CHUNK), CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return kg_error_set(err, KG_INTERNAL, errno, "cannot read %s", path);
        ret->len += (size_t)n;
        ret->data[ret->len] = '\0';
        total += (size_t)n;
        if (n == 0)
            return 0;
        if (total > max)
            return kg_error_set(err, KG_INVALID, 0, "%s has more than %zu bytes", path, max);
    }
}

int
fd_read_at(int fd, int64_t offset, void *to, size_t len, struct kg_error *err)
{
    for (char *at = to; len > 0;) {
        ssize_t n = pread(fd, at, len, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return kg_error_set(err, KG_INTERNAL, n < 0 ? errno : 0, "a file cannot be read back");
        at += n;
        offset += n;
        len -= (size_t)n;
    }
    return 0;
}

static int
write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int
file_write_atomic(const char *path, const void *data, size_t len, unsigned mode,
                  struct kg_error *err)
{
    KG_AUTO_FREE char *temporary = kg_asprintf("%s.new", path);
    KG_AUTO_FD fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot create %s", temporary);
    if (write_all(fd, data, len) < 0 || rename(temporary, path) < 0) {
        int saved = errno;
        unlink(temporary);
        return kg_error_set(err, saved == ENOSPC ? KG_DISK_FULL : KG_INTERNAL, saved,
                            "cannot write %s", path);
    }
    return 0;
}

int64_t
disk_free_bytes(const char *path)
{
    const int64_t most = INT64_C(256) << 20;
    struct statvfs disk;
    if (statvfs(path, &disk) < 0)
        return INT64_MAX;
    int64_t total = (int64_t)(disk.f_blocks * disk.f_frsize);
    int64_t reserve = total / 8 < most ? total / 8 : most;
    int64_t left = (int64_t)(disk.f_bavail * disk.f_frsize) - reserve;
    return left > 0 ? left : 0;
}

int
disk_check_free(const char *path, int64_t bytes, struct kg_error *err)
{
    int64_t left = disk_free_bytes(path);
    if (bytes <= left)
        return 0;
    return kg_error_set(err, KG_DISK_FULL, 0,
                        "the gateway's disk at %.100s has %lld MiB left, but %lld MiB are needed; "
                        "free some space there, or set state-dir",
                        path, (long long)(left >> 20), (long long)(((bytes - 1) >> 20) + 1));
}

int
dir_make(const char *path, unsigned mode, struct kg_error *err)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot create the folder %s", path);
    return 0;
}

int
path_remove_at(int folder, const char *name)
{
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -1;
    }
    int result = 0;
    for (const struct dirent *entry; result == 0 && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = path_remove_at(fd, entry->d_name);
    }
    int saved = errno;
    closedir(dir);
    errno = saved;
    return result < 0 ? -1 : unlinkat(folder, name, AT_REMOVEDIR);
}

int
path_remove_tree(const char *path, struct kg_error *err)
{
    if (path_remove_at(AT_FDCWD, path) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot remove %s", path);
    return 0;
}

int
fd_set_nonblocking(int fd, struct kg_error *err)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot make descriptor %d non-blocking", fd);
    return 0;
}
