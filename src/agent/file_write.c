// SPDX-License-Identifier: Apache-2.0
// Writing a file: to a temporary name beside its own, which is then renamed, or appended to the
// file.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "walk.h"

enum { FILE_MODE = 0644 };

struct file_write {
    int folder;
    int fd;
    char temporary[FILE_TEMPORARY_SIZE];
    bool placed;
    bool keep_existing;
    int64_t len;
    char *path;
    const char *name; // the last one in `path`
};

static int
write_failed(const struct file_write *write, struct kg_error *err)
{
    return file_fail("write", write->path, errno, err);
}

void
file_write_free(struct file_write *write)
{
    if (!write)
        return;
    if (write->fd >= 0 && !write->placed)
        (void)unlinkat(write->folder, write->temporary, 0);
    if (write->fd >= 0)
        close(write->fd);
    if (write->folder >= 0)
        close(write->folder);
    free(write->path);
    free(write);
}

static int
look_at_target(const struct file_write *write, struct kg_error *err)
{
    struct stat st;

    if (fstatat(write->folder, write->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    if (write->keep_existing)
        return file_fail("write", write->path, EEXIST, err);
    return S_ISDIR(st.st_mode) ? file_fail("write", write->path, EISDIR, err) : 0;
}

struct file_write *
file_write_begin(const char *root, const char *path, int64_t size, unsigned flags,
                 struct kg_error *err)
{
    enum walk_way way = flags & FILE_NO_FOLDERS ? WALK_INTO : WALK_MAKE;

    if (file_check(path, true, flags & FILE_OWN, err) != 0)
        return NULL;
    KG_AUTO(file_write) write = KG_NEW(struct file_write);
    write->fd = -1;
    write->path = kg_strdup(path);
    write->keep_existing = flags & FILE_KEEP;
    write->folder = walk_open_parent(root, write->path, way, &write->name, err);
    if (write->folder < 0 || look_at_target(write, err) != 0)
        return NULL;
    file_temporary_name("upload", write->temporary);
    write->fd = openat(write->folder, write->temporary,
                       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    // Where the file system can, a disk that is too small is noticed now.
    if (write->fd < 0 || (size > 0 && fallocate(write->fd, FALLOC_FL_KEEP_SIZE, 0, size) != 0 &&
                          errno != EOPNOTSUPP)) {
        (void)write_failed(write, err);
        return NULL;
    }
    return KG_STEAL(write);
}

int
file_write_add(struct file_write *file, const void *data, size_t len, struct kg_error *err)
{
    if (file_write_bytes(file->fd, data, len) != 0)
        return write_failed(file, err);
    file->len += (int64_t)len;
    return 0;
}

int64_t
file_write_len(const struct file_write *write)
{
    return write->len;
}

const char *
file_write_path(const struct file_write *write)
{
    return write->path;
}

int
file_write_commit(struct file_write *write, struct stat *ret_st, bool *ret_created,
                  struct kg_error *err)
{
    struct stat before;

    assert(!write->placed);
    *ret_created = fstatat(write->folder, write->name, &before, AT_SYMLINK_NOFOLLOW) != 0;
    if (file_rename(write->folder, write->temporary, write->folder, write->name,
                    write->keep_existing) != 0)
        return write_failed(write, err);
    write->placed = true;
    if (fstat(write->fd, ret_st) != 0)
        return write_failed(write, err);
    return 0;
}

// ---- Appending ------------------------------------------------------------------------------

// Appends what was written to a file of `size` bytes, which keeps them if that fails.
static int
append_to(const struct file_write *write, int target, int64_t size)
{
    static char part[64 << 10];
    ssize_t n;

    for (int64_t at = 0; (n = pread(write->fd, part, sizeof part, at)) > 0; at += n) {
        if (file_write_bytes(target, part, (size_t)n) != 0)
            break;
    }
    if (n == 0)
        return 0;
    int failure = errno;
    (void)!ftruncate(target, size);
    errno = failure;
    return -1;
}

int
file_write_append(struct file_write *write, int64_t max, struct stat *ret_st, bool *ret_created,
                  struct kg_error *err)
{
    struct kg_error why = {0};
    KG_AUTO_FD target =
        file_open_at(write->folder, write->name, write->path, O_WRONLY | O_APPEND, ret_st, &why);

    *ret_created = false;
    if (target < 0 && why.code != KG_NOT_FOUND) {
        *err = why;
        return -1;
    }
    int64_t size = target < 0 ? 0 : ret_st->st_size;
    if (size > max || write->len > max - size)
        return 0;
    if (target < 0) {
        write->keep_existing = true;
        return file_write_commit(write, ret_st, ret_created, err) == 0 ? 1 : -1;
    }
    if (append_to(write, target, size) != 0 || fstat(target, ret_st) != 0)
        return write_failed(write, err);
    return 1;
}
