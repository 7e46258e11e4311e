// SPDX-License-Identifier: Apache-2.0

#include "file_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"

enum { PART_MAX = 128 << 10 };

void
file_parts_begin(struct file_parts *parts, int in, int out, int64_t size, bool compares)
{
    *parts = (struct file_parts){.in = in, .out = out, .size = size, .compares = compares};
}

void
file_parts_end(struct file_parts *parts)
{
    if (parts->in >= 0)
        close(parts->in);
    if (parts->out >= 0)
        close(parts->out);
    parts->in = parts->out = -1;
}

// The end may be a hole, and the file may have shrunk meanwhile.
static int
parts_finish(const struct file_parts *parts)
{
    struct stat st;

    if (fstat(parts->in, &st) != 0)
        return -1;
    return ftruncate(parts->out, st.st_size < parts->size ? st.st_size : parts->size);
}

// Where the next bytes begin that are not a hole; `size` or beyond where there are none.
static int64_t
next_data(const struct file_parts *parts)
{
    off_t at = lseek(parts->in, parts->at, SEEK_DATA);
    if (at < 0)
        at = errno == ENXIO ? parts->size : parts->at; // or the file system does not know
    return at;
}

// How many bytes follow up to a hole or the end, at most PART_MAX.
static size_t
part_len(const struct file_parts *parts)
{
    off_t end = lseek(parts->in, parts->at, SEEK_HOLE);
    if (end <= parts->at || end > parts->size)
        end = parts->size;
    return end - parts->at < PART_MAX ? (size_t)(end - parts->at) : PART_MAX;
}

// What is there in place of a hole goes.
static int
punch_hole(const struct file_parts *parts, int64_t end)
{
    struct stat st;

    if (fstat(parts->out, &st) != 0)
        return -1;
    if (end > st.st_size)
        end = st.st_size;
    return parts->at < end ? fallocate(parts->out, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                       parts->at, end - parts->at)
                           : 0;
}

static int
write_part(const struct file_parts *parts, const char *part, size_t len)
{
    static char there[PART_MAX];

    if (parts->compares && pread(parts->out, there, len, parts->at) == (ssize_t)len &&
        memcmp(there, part, len) == 0)
        return 0;
    return lseek(parts->out, parts->at, SEEK_SET) < 0 ? -1
                                                      : file_write_bytes(parts->out, part, len);
}

int
file_parts_step(struct file_parts *parts, int64_t *left)
{
    static char part[PART_MAX];

    int64_t data = next_data(parts);
    if (parts->compares && punch_hole(parts, data) != 0)
        return -1;
    parts->at = data;
    if (parts->at >= parts->size)
        return parts_finish(parts);
    ssize_t n = pread(parts->in, part, part_len(parts), parts->at);
    if (n == 0)
        return parts_finish(parts);
    if (n > *left) {
        errno = EOVERFLOW;
        return -1;
    }
    if (n < 0 || write_part(parts, part, (size_t)n) != 0)
        return -1;
    *left -= n;
    parts->at += n;
    return parts->at < parts->size ? 1 : parts_finish(parts);
}
