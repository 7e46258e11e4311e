// SPDX-License-Identifier: Apache-2.0
// Writing a file: to a temporary name beside its own, then renamed.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "walk.h"

enum { RANDOM_LEN = 12, FILE_MODE = 0644 };

struct file_write {
    int folder;
    int fd;
    char temporary[sizeof FILE_OWN_PREFIX "upload-" + RANDOM_LEN];
    bool placed;
    bool keep_existing;
    int64_t len;
    char *path;
    const char *name; // the last one in `path`
};

static int
write_failed(const struct file_write *write, int failure, struct kg_error *err)
{
    if (failure == ENOSPC || failure == EDQUOT || failure == EFBIG || failure == ENOMEM)
        return kg_error_set(err, KG_DISK_FULL, 0,
                            "the session's disk is full: %.100s was not written", write->path);
    if (failure == EISDIR || failure == ENOTEMPTY)
        return kg_error_set(err, KG_INVALID_PATH, 0, "%.100s is a folder", write->path);
    return kg_error_set(err, KG_INVALID_PATH, failure, "cannot write %.100s", write->path);
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
        return kg_error_set(err, KG_FILE_EXISTS, 0, "%.100s exists", write->path);
    return S_ISDIR(st.st_mode) ? write_failed(write, EISDIR, err) : 0;
}

struct file_write *
file_write_begin(const char *root, const char *path, int64_t size, unsigned flags,
                 struct kg_error *err)
{
    char random[RANDOM_LEN + 1];

    if (file_check(path, true, flags & FILE_OWN, err) != 0)
        return NULL;
    KG_AUTO(file_write) write = KG_NEW(struct file_write);
    write->fd = -1;
    write->path = kg_strdup(path);
    write->keep_existing = flags & FILE_KEEP;
    write->folder = walk_open_parent(root, write->path, true, &write->name, err);
    if (write->folder < 0 || look_at_target(write, err) != 0)
        return NULL;
    id_random(random, RANDOM_LEN);
    snprintf(write->temporary, sizeof write->temporary, FILE_OWN_PREFIX "upload-%s", random);
    write->fd = openat(write->folder, write->temporary,
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    // Where the file system can, a disk that is too small is noticed now.
    if (write->fd < 0 || (size > 0 && fallocate(write->fd, FALLOC_FL_KEEP_SIZE, 0, size) != 0 &&
                          errno != EOPNOTSUPP)) {
        (void)write_failed(write, errno, err);
        return NULL;
    }
    return KG_STEAL(write);
}

int
file_write_add(struct file_write *file, const void *data, size_t len, struct kg_error *err)
{
    for (const char *at = data; len > 0;) {
        ssize_t n = write(file->fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return write_failed(file, n < 0 ? errno : ENOSPC, err);
        file->len += n;
        at += n;
        len -= (size_t)n;
    }
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

// renameat2 knows how to keep what is there, and linkat does where the file system does not.
static int
place(struct file_write *write)
{
    if (!write->keep_existing)
        return renameat(write->folder, write->temporary, write->folder, write->name);
    if (renameat2(write->folder, write->temporary, write->folder, write->name, RENAME_NOREPLACE) ==
        0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (linkat(write->folder, write->temporary, write->folder, write->name, 0) != 0)
        return -1;
    return unlinkat(write->folder, write->temporary, 0);
}

int
file_write_commit(struct file_write *write, struct stat *ret_st, bool *ret_created,
                  struct kg_error *err)
{
    struct stat before;

    assert(!write->placed);
    *ret_created = fstatat(write->folder, write->name, &before, AT_SYMLINK_NOFOLLOW) != 0;
    if (place(write) != 0) {
        if (errno == EEXIST)
            return kg_error_set(err, KG_FILE_EXISTS, 0, "%.100s exists", write->path);
        return write_failed(write, errno, err);
    }
    write->placed = true;
    if (fstat(write->fd, ret_st) != 0)
        return write_failed(write, errno, err);
    return 0;
}
