// SPDX-License-Identifier: Apache-2.0
// Two passes over the same folders: one that removes, one that copies. So what is removed makes
// room for what is copied.
#include "mirror.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "file_parts.h"
#include "files.h"
#include "walk.h"

enum { BLOCK_BYTES = 512 };

// A pair of folders.
struct level {
    DIR *entries; // of the one that the pass reads: `to` while it removes, else `from`
    int from;
    int to;
    struct stat st; // of `from`
};

struct mirror {
    bool copies; // the second pass
    struct level levels[MIRROR_LEVELS_MAX];
    int n_levels;
    struct file_parts file; // under way
    struct stat file_st;
    int64_t left; // bytes, without an end
};

static int
mirror_failed(const char *verb, const char *name, struct kg_error *err)
{
    return file_fail(verb, name, errno, err);
}

static bool
is_left_out(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || file_name_is_own(name);
}

static bool
is_of_kind(const struct stat *a, const struct stat *b)
{
    return (a->st_mode & S_IFMT) == (b->st_mode & S_IFMT);
}

// A copy of a folder's descriptor with a position of its own.
static DIR *
list_folder(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

// ---- How much it is -------------------------------------------------------------------------

struct tally {
    struct mirror_size size;
    int64_t grows;    // bytes that files of `to` get more
    int64_t overlaps; // bytes of files that are in both
};

static int tally_folder(struct tally *tally, int from, int to, int depth, struct kg_error *err);

static int
tally_entry(struct tally *tally, int from, int to, const char *name, int depth,
            struct kg_error *err)
{
    struct stat st, there;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : mirror_failed("look at", name, err);
    if (++tally->size.entries > MIRROR_ENTRIES_MAX)
        return kg_error_set(err, KG_INVALID, 0, "there are more than %d files and folders",
                            MIRROR_ENTRIES_MAX);
    bool is_there =
        to >= 0 && fstatat(to, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && is_of_kind(&st, &there);
    if (S_ISREG(st.st_mode)) {
        int64_t bytes = st.st_blocks * BLOCK_BYTES;
        int64_t has = is_there ? there.st_blocks * BLOCK_BYTES : 0;
        tally->size.bytes += bytes;
        tally->grows += bytes > has ? bytes - has : 0;
        tally->overlaps += has;
        return faccessat(from, name, R_OK, AT_EACCESS) == 0 || errno == ENOENT
                   ? 0
                   : mirror_failed("read", name, err);
    }
    if (!S_ISDIR(st.st_mode))
        return 0;
    KG_AUTO_FD below = walk_open_at(from, name);
    KG_AUTO_FD below_to = is_there ? walk_open_at(to, name) : -1;
    if (below < 0)
        return errno == ENOENT ? 0 : mirror_failed("open the folder", name, err);
    return tally_folder(tally, below, below_to, depth + 1, err);
}

static int
tally_folder(struct tally *tally, int from, int to, int depth, struct kg_error *err)
{
    int result = 0;

    if (depth >= MIRROR_LEVELS_MAX)
        return kg_error_set(err, KG_INVALID, 0, "more than %d folders are in each other",
                            MIRROR_LEVELS_MAX);
    DIR *dir = list_folder(from);
    if (!dir)
        return mirror_failed("list", "a folder", err);
    for (const struct dirent *entry; result == 0 && (entry = readdir(dir));) {
        if (!is_left_out(entry->d_name))
            result = tally_entry(tally, from, to, entry->d_name, depth, err);
    }
    closedir(dir);
    return result;
}

int
mirror_check(int from, int to, struct mirror_size *ret, struct kg_error *err)
{
    struct tally tally = {0}, there = {0};
    struct statvfs disk;

    if (tally_folder(&tally, from, to, 0, err) != 0)
        return -1;
    if (fstatvfs(to, &disk) != 0)
        return mirror_failed("look at", "the disk", err);
    if (tally_folder(&there, to, -1, 0, err) != 0)
        *err = (struct kg_error){0}; // it is at least what was seen
    int64_t freed = there.size.bytes - tally.overlaps;
    int64_t more = tally.grows - (freed > 0 ? freed : 0);
    int64_t room = (int64_t)(disk.f_bavail * disk.f_frsize);
    *ret = tally.size;
    if (more > room)
        return kg_error_set(err, KG_DISK_FULL, 0,
                            "the session's disk has no room for the files: %lld MiB more are "
                            "needed (setting disk-mb)",
                            (long long)((more - room + (1 << 20) - 1) >> 20));
    // gVisor does not count files.
    if (disk.f_files > 0 &&
        (uint64_t)tally.size.entries > disk.f_favail + (uint64_t)there.size.entries)
        return kg_error_set(err, KG_DISK_FULL, 0, "the session's disk has no room for %d files",
                            tally.size.entries);
    return 0;
}

// ---- Levels ---------------------------------------------------------------------------------

static void
close_level(struct mirror *mirror)
{
    const struct level *level = &mirror->levels[--mirror->n_levels];

    closedir(level->entries);
    close(level->from);
    close(level->to);
}

static void
set_times(int fd, const struct stat *st)
{
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};
    (void)!futimens(fd, times);
}

// What is below it is done.
static void
finish_level(struct mirror *mirror)
{
    const struct level *level = &mirror->levels[mirror->n_levels - 1];

    if (mirror->copies && mirror->n_levels > 1) {
        (void)!fchmod(level->to, level->st.st_mode & FILE_PERMISSIONS);
        set_times(level->to, &level->st);
    }
    close_level(mirror);
}

// Takes both descriptors.
static int
push_level(struct mirror *mirror, int from, int to, struct kg_error *err)
{
    struct level *level = &mirror->levels[mirror->n_levels];

    if (mirror->n_levels == MIRROR_LEVELS_MAX) {
        close(from);
        close(to);
        return kg_error_set(err, KG_INVALID, 0, "more than %d folders are in each other",
                            MIRROR_LEVELS_MAX);
    }
    *level = (struct level){.from = from, .to = to};
    if (fstat(from, &level->st) == 0)
        level->entries = list_folder(mirror->copies ? from : to);
    if (level->entries) {
        mirror->n_levels++;
        return 0;
    }
    int failure = errno;
    close(from);
    close(to);
    errno = failure;
    return mirror_failed("list", "a folder", err);
}

// Goes into a folder that is in both. `to` is made usable for its owner meanwhile.
static int
enter(struct mirror *mirror, const char *name, struct kg_error *err)
{
    const struct level *level = &mirror->levels[mirror->n_levels - 1];
    struct stat st;

    KG_AUTO_FD from = walk_open_at(level->from, name);
    if (from < 0)
        return errno == ENOENT ? 0 : mirror_failed("open the folder", name, err);
    if (fstatat(level->to, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
        (st.st_mode & S_IRWXU) != S_IRWXU)
        (void)!fchmodat(level->to, name, (st.st_mode & FILE_PERMISSIONS) | S_IRWXU, 0);
    int to = walk_open_at(level->to, name);
    return to >= 0 ? push_level(mirror, KG_STEAL_FD(from), to, err)
                   : mirror_failed("open the folder", name, err);
}

// ---- Removing -------------------------------------------------------------------------------

// Its owner may use the folder, and those below it.
static void
make_usable(int parent, const char *name, int depth)
{
    struct stat st;

    if (depth == MIRROR_LEVELS_MAX || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode) || fchmodat(parent, name, S_IRWXU, 0) != 0)
        return;
    KG_AUTO_FD fd = walk_open_at(parent, name);
    DIR *dir = fd >= 0 ? list_folder(fd) : NULL;
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            make_usable(fd, entry->d_name, depth + 1);
    }
    if (dir)
        closedir(dir);
}

static int
remove_entry(int folder, const char *name, struct kg_error *err)
{
    if (path_remove_at(folder, name) == 0)
        return 0;
    if (errno == EACCES)
        make_usable(folder, name, 0);
    return path_remove_at(folder, name) == 0 ? 0 : mirror_failed("remove", name, err);
}

static int
step_of_removal(struct mirror *mirror, const char *name, struct kg_error *err)
{
    const struct level *level = &mirror->levels[mirror->n_levels - 1];
    struct stat st, there;

    if (fstatat(level->to, name, &there, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : mirror_failed("look at", name, err);
    if (fstatat(level->from, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !is_of_kind(&st, &there))
        return remove_entry(level->to, name, err);
    return S_ISDIR(st.st_mode) ? enter(mirror, name, err) : 0;
}

// ---- Copying --------------------------------------------------------------------------------

static int
copy_link(const struct level *level, const char *name, struct kg_error *err)
{
    char target[PATH_MAX + 1], there[PATH_MAX + 1];

    ssize_t len = readlinkat(level->from, name, target, sizeof target - 1);
    if (len < 0)
        return errno == ENOENT ? 0 : mirror_failed("read the link", name, err);
    target[len] = '\0';
    ssize_t there_len = readlinkat(level->to, name, there, sizeof there - 1);
    if (there_len == len && memcmp(there, target, (size_t)len) == 0)
        return 0;
    if ((there_len >= 0 && unlinkat(level->to, name, 0) != 0) ||
        symlinkat(target, level->to, name) != 0)
        return mirror_failed("make the link", name, err);
    return 0;
}

static int
open_target(const struct level *level, const char *name)
{
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    struct stat st;

    int fd = openat(level->to, name, flags, S_IRUSR | S_IWUSR);
    if (fd < 0 && errno == EACCES && fstatat(level->to, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode) && fchmodat(level->to, name, S_IRUSR | S_IWUSR, 0) == 0)
        fd = openat(level->to, name, flags, S_IRUSR | S_IWUSR);
    return fd;
}

static int
copy_file(struct mirror *mirror, const char *name, struct kg_error *err)
{
    const struct level *level = &mirror->levels[mirror->n_levels - 1];
    struct stat there;

    KG_AUTO_FD in = file_open_at(level->from, name, name, O_RDONLY, &mirror->file_st, err);
    if (in < 0)
        return err->code == KG_NOT_FOUND ? 0 : -1;
    KG_AUTO_FD out = open_target(level, name);
    if (out < 0 || fstat(out, &there) != 0)
        return mirror_failed("write", name, err);
    if (file_check_regular(&there, name, err) != 0)
        return -1;
    file_parts_begin(&mirror->file, KG_STEAL_FD(in), KG_STEAL_FD(out), mirror->file_st.st_size,
                     there.st_size > 0);
    return 0;
}

static int
step_of_file(struct mirror *mirror, struct kg_error *err)
{
    int result = file_parts_step(&mirror->file, &mirror->left);
    if (result < 0)
        return mirror_failed("write", "a file", err);
    if (result > 0)
        return 0;
    (void)!fchmod(mirror->file.out, mirror->file_st.st_mode & FILE_PERMISSIONS);
    set_times(mirror->file.out, &mirror->file_st);
    file_parts_end(&mirror->file);
    return 0;
}

static int
step_of_copy(struct mirror *mirror, const char *name, struct kg_error *err)
{
    const struct level *level = &mirror->levels[mirror->n_levels - 1];
    struct stat st;

    if (fstatat(level->from, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : mirror_failed("look at", name, err);
    if (S_ISREG(st.st_mode))
        return copy_file(mirror, name, err);
    if (S_ISLNK(st.st_mode))
        return copy_link(level, name, err);
    if (S_ISDIR(st.st_mode)) {
        if (mkdirat(level->to, name, S_IRWXU) != 0 && errno != EEXIST)
            return mirror_failed("make the folder", name, err);
        return enter(mirror, name, err);
    }
    if (mknodat(level->to, name, st.st_mode & (S_IFMT | FILE_MODE_MAX), 0) != 0 && errno != EEXIST)
        return mirror_failed("make", name, err);
    return 0;
}

// ---- All of it ------------------------------------------------------------------------------

static int
begin_pass(struct mirror *mirror, int from, int to, struct kg_error *err)
{
    int own_from = fcntl(from, F_DUPFD_CLOEXEC, 0), own_to = fcntl(to, F_DUPFD_CLOEXEC, 0);
    return push_level(mirror, own_from, own_to, err);
}

struct mirror *
mirror_begin(int from, int to, struct kg_error *err)
{
    struct mirror *mirror = KG_NEW(struct mirror);
    mirror->file.in = mirror->file.out = -1;
    mirror->left = INT64_MAX;
    if (begin_pass(mirror, from, to, err) == 0)
        return mirror;
    mirror_free(mirror);
    return NULL;
}

// The first pass is over: the second one begins with the same two folders.
static int
turn_round(struct mirror *mirror, struct kg_error *err)
{
    struct level top = mirror->levels[0];

    mirror->copies = true;
    mirror->n_levels = 0;
    closedir(top.entries);
    return push_level(mirror, top.from, top.to, err) == 0 ? 1 : -1;
}

int
mirror_step(struct mirror *mirror, struct kg_error *err)
{
    if (mirror->file.in >= 0)
        return step_of_file(mirror, err) == 0 ? 1 : -1;
    if (mirror->n_levels == 0)
        return 0;
    errno = 0;
    const struct dirent *entry = readdir(mirror->levels[mirror->n_levels - 1].entries);
    if (!entry && errno != 0)
        return mirror_failed("list", "a folder", err);
    if (!entry && !mirror->copies && mirror->n_levels == 1)
        return turn_round(mirror, err);
    if (!entry)
        finish_level(mirror);
    else if (!is_left_out(entry->d_name) &&
             (mirror->copies ? step_of_copy : step_of_removal)(mirror, entry->d_name, err) != 0)
        return -1;
    return 1;
}

void
mirror_free(struct mirror *mirror)
{
    if (!mirror)
        return;
    file_parts_end(&mirror->file);
    while (mirror->n_levels > 0)
        close_level(mirror);
    free(mirror);
}
