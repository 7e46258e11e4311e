// SPDX-License-Identifier: Apache-2.0
// What savepoints keep of the working folder: equal folders, what stays the same file, bounds,
// callers that leave.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "mirror.h"
#include "test_agent.h"

static int
open_folder(const struct agent_place *place, const char *name)
{
    KG_AUTO_FREE char *path = inside(place, name);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static enum kg_code
mirror_names(const struct agent_place *place, const char *from_name, const char *to_name)
{
    struct kg_error err = {0};
    KG_AUTO_FD from = open_folder(place, from_name);
    KG_AUTO_FD to = open_folder(place, to_name);
    struct mirror *mirror = mirror_begin(from, to, &err);
    int more = mirror ? 1 : -1;

    while (more > 0)
        more = mirror_step(mirror, &err);
    mirror_free(mirror);
    assert_true((more == 0) == (err.code == KG_OK));
    return err.code;
}

static enum kg_code
check_names(const struct agent_place *place, const char *from_name, const char *to_name,
            struct mirror_size *ret)
{
    struct kg_error err = {0};
    KG_AUTO_FD from = open_folder(place, from_name);
    KG_AUTO_FD to = open_folder(place, to_name);
    int result = mirror_check(from, to, ret, &err);

    assert_true((result == 0) == (err.code == KG_OK));
    return err.code;
}

// Which write_text() refuses.
static void
write_own(const struct agent_place *place, const char *name)
{
    KG_AUTO_FREE char *path = inside(place, name);
    KG_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "own", 3), 3);
}

static void
make_mirrored(struct agent_place *place)
{
    KG_AUTO_FREE char *link = NULL, *pipe = NULL;

    agent_place_make(place);
    write_text(place, "a/file", "first text");
    write_text(place, "a/below/file", "below");
    write_own(place, "a/below/.kg-own");
    link = inside(place, "a/link");
    pipe = inside(place, "a/pipe");
    assert_int_equal(symlink("target", link), 0);
    assert_int_equal(mkfifo(pipe, 0620), 0);
    write_text(place, "b/gone", "removed");
    write_own(place, "b/.kg-own");
}

void
test_mirror_makes_equal(void **state)
{
    struct agent_place place;
    struct mirror_size size;
    (void)state;

    make_mirrored(&place);
    KG_AUTO_FREE char *file = inside(&place, "a/file"), *below = inside(&place, "a/below");
    const struct timespec times[] = {{.tv_sec = 5}, {.tv_sec = 1000, .tv_nsec = 7}};
    assert_int_equal(utimensat(AT_FDCWD, file, times, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, below, times, 0), 0);
    assert_int_equal(chmod(file, 04640), 0);
    assert_int_equal(chmod(below, 0550), 0);
    for (int i = 0; i < 2; i++) { // the second time there is nothing to do
        assert_int_equal(check_names(&place, "a", "b", &size), KG_OK);
        assert_int_equal(size.entries, 5);
        assert_int_equal(mirror_names(&place, "a", "b"), KG_OK);
        assert_content(&place, "b/file", "first text");
        assert_content(&place, "b/below/file", "below");
        assert_int_equal(look(&place, "b/file").st_mode, S_IFREG | 04640);
        assert_int_equal(look(&place, "b/file").st_mtim.tv_nsec, 7);
        assert_int_equal(look(&place, "b/below").st_mode, S_IFDIR | 0550);
        assert_int_equal(look(&place, "b/below").st_mtim.tv_sec, 1000);
        assert_true(S_ISLNK(look(&place, "b/link").st_mode));
        assert_int_equal(look(&place, "b/pipe").st_mode & S_IFMT, S_IFIFO);
        assert_int_equal(look(&place, "b/below/.kg-own").st_mode, 0);
        assert_int_equal(look(&place, "b/gone").st_mode, 0);
        assert_content(&place, "b/.kg-own", "own");
    }
    agent_place_remove(&place);
}

// Files and folders that are there stay the same ones; what is of another kind is replaced.
void
test_mirror_changes_in_place(void **state)
{
    struct agent_place place;
    (void)state;

    make_mirrored(&place);
    write_text(&place, "b/file", "something longer than that");
    write_text(&place, "b/below/file", "x");
    write_text(&place, "b/below/more/and/more", "gone");
    write_text(&place, "b/link/folder", "gone");
    write_text(&place, "b/pipe", "a file");
    struct stat file = look(&place, "b/file"), below = look(&place, "b/below");
    KG_AUTO_FREE char *locked = inside(&place, "b/below/more"), *path = inside(&place, "b/file");
    assert_int_equal(chmod(locked, 0), 0);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(mirror_names(&place, "a", "b"), KG_OK);
    assert_int_equal(look(&place, "b/file").st_ino, file.st_ino);
    assert_int_equal(look(&place, "b/below").st_ino, below.st_ino);
    assert_content(&place, "b/file", "first text");
    assert_content(&place, "b/below/file", "below");
    assert_int_equal(look(&place, "b/below/more").st_mode, 0);
    assert_true(S_ISLNK(look(&place, "b/link").st_mode));
    assert_true(S_ISFIFO(look(&place, "b/pipe").st_mode));
    agent_place_remove(&place);
}

// A hole is one again where something was written into it, and bytes that are equal stay.
void
test_mirror_holes(void **state)
{
    enum { SIZE = 16 << 20 };
    struct agent_place place;
    char byte = 1;
    (void)state;

    make_mirrored(&place);
    KG_AUTO_FREE char *path = inside(&place, "a/holes"), *copy_path = inside(&place, "b/holes");
    KG_AUTO_FD holes = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(pwrite(holes, "middle", 6, SIZE / 2), 6);
    assert_int_equal(ftruncate(holes, SIZE), 0);
    assert_int_equal(mirror_names(&place, "a", "b"), KG_OK);
    KG_AUTO_FD copy = open(copy_path, O_RDWR | O_CLOEXEC);
    assert_int_equal(look(&place, "b/holes").st_size, SIZE);
    assert_true(look(&place, "b/holes").st_blocks < 100);
    static const off_t places[] = {0, 123456, SIZE / 2 + 3, SIZE - 1};
    for (size_t i = 0; i < KG_ARRAY_LEN(places); i++)
        assert_int_equal(pwrite(copy, "x", 1, places[i]), 1);
    assert_int_equal(mirror_names(&place, "a", "b"), KG_OK);
    for (size_t i = 0; i < KG_ARRAY_LEN(places); i++) {
        assert_int_equal(pread(copy, &byte, 1, places[i]), 1);
        assert_int_equal(byte, i == 2 ? 'd' : 0);
    }
    agent_place_remove(&place);
}

void
test_mirror_is_bounded(void **state)
{
    struct agent_place place;
    struct mirror_size size;
    (void)state;

    make_mirrored(&place);
    KG_AUTO_FREE char *deep = kg_strdup("a");
    for (int i = 0; i < MIRROR_LEVELS_MAX - 1; i++) {
        char *deeper = kg_asprintf("%s/d", deep);
        free(deep);
        deep = deeper;
    }
    KG_AUTO_FREE char *last = kg_asprintf("%s/file", deep);
    KG_AUTO_FREE char *too_deep = kg_asprintf("%s/d/file", deep);
    KG_AUTO_FREE char *copy = kg_asprintf("b%s", last + 1);
    write_text(&place, last, "deep");
    assert_int_equal(check_names(&place, "a", "b", &size), KG_OK);
    assert_int_equal(mirror_names(&place, "a", "b"), KG_OK);
    assert_content(&place, copy, "deep");
    write_text(&place, too_deep, "too deep");
    assert_int_equal(check_names(&place, "a", "b", &size), KG_INVALID);
    assert_int_equal(mirror_names(&place, "a", "b"), KG_INVALID);
    agent_place_remove(&place);
}

// ---- The agent's calls ----------------------------------------------------------------------

void
test_data_kept_and_put_back(void **state)
{
    struct fixture *f = *state;

    write_text(&f->place, "a/file", "12345");
    json_auto_t *kept = call(f, "data.keep", "{\"name\":\"sp_a\"}", KG_OK);
    assert_int_equal(number_of(kept, "entries"), 2);
    do_call(f, "data.keep", "{\"name\":\"sp_b\"}", KG_OK);
    write_text(&f->place, "a/file", "6");
    write_text(&f->place, "b", "new");
    do_call(f, "data.check", "{\"name\":\"sp_a\"}", KG_OK);
    assert_content(&f->place, "a/file", "6");
    do_call(f, "data.restore", "{\"name\":\"sp_a\"}", KG_OK);
    assert_content(&f->place, "a/file", "12345");
    assert_int_equal(look(&f->place, "b").st_mode, 0);
    do_call(f, "data.drop", "{\"except\":[\"sp_b\"]}", KG_OK);
    static const char *const methods[] = {"data.check", "data.restore"};
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++) {
        do_call(f, methods[i], "{\"name\":\"sp_a\"}", KG_NOT_FOUND);
        do_call(f, methods[i], "{\"name\":\"sp_b\"}", KG_OK);
        do_call(f, methods[i], "{\"name\":\"..\"}", KG_INVALID);
        do_call(f, methods[i], "{\"name\":\"a/b\"}", KG_INVALID);
        do_call(f, methods[i], "{}", KG_INVALID);
    }
    do_call(f, "data.keep", "{\"name\":\".x\"}", KG_INVALID);
    do_call(f, "data.drop", "{\"except\":[]}", KG_OK);
    assert_int_equal(count_entries(f->place.data), 1);
    do_call(f, "data.drop", "{\"except\":[]}", KG_OK); // there is none any more
    do_call(f, "data.drop", "{}", KG_INVALID);
}

// What is kept for a caller that leaves is dropped; what is put back is put back all the same.
void
test_data_whose_callers_leave(void **state)
{
    enum { FILES = 20000 };
    struct fixture *f = *state;
    int64_t give_up = wait_now_ms() + PATIENCE_MS;

    KG_AUTO_FREE char *folder = inside(&f->place, "many");
    KG_AUTO_FREE char *own = inside(&f->place, ".kg-savepoints");
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int i = 0; i < FILES; i++) {
        KG_AUTO_FREE char *path = kg_asprintf("%s/%d", folder, i);
        KG_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
    }
    int link = send_request(f, "data.keep", "{\"name\":\"sp_a\"}", 0);
    do_call(f, "data.keep", "{\"name\":\"sp_b\"}", KG_SESSION_BUSY);
    do_call(f, "data.drop", "{\"except\":[]}", KG_OK); // but not what is being kept
    assert_int_equal(count_entries(own), 1);
    close(link);
    while (count_entries(own) != 0)
        assert_true(wait_now_ms() < give_up);
    do_call(f, "data.keep", "{\"name\":\"sp_a\"}", KG_OK);
    assert_int_equal(path_remove_tree(folder, &(struct kg_error){0}), 0);
    link = send_request(f, "data.restore", "{\"name\":\"sp_a\"}", 0);
    while (look(&f->place, "many").st_mode == 0)
        assert_true(wait_now_ms() < give_up);
    close(link);
    while (count_entries(folder) != FILES)
        assert_true(wait_now_ms() < give_up);
}
