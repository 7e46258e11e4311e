// SPDX-License-Identifier: Apache-2.0
// The agent's copies of files and folders, in a temporary folder: what is copied, bounds, what is
// swapped meanwhile, callers that leave.
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

#include "changes.h"
#include "files.h"
#include "test_agent.h"
#include "virtual_clock.h"

static const struct file_copy_limits limits = {.bytes = 1 << 20, .entries = 100, .ms = 30000};

static enum kg_code
finish(struct file_copy *copy, bool *ret_created)
{
    struct kg_error err = {0};
    struct stat st;
    int more;

    while ((more = file_copy_step(copy, &err)) > 0)
        ;
    if (more == 0)
        more = file_copy_commit(copy, &st, ret_created, &err);
    assert_true((more == 0) == (err.code == KG_OK));
    return err.code;
}

static enum kg_code
copy_within(const struct agent_place *place, const char *from, const char *to, unsigned flags,
            const struct file_copy_limits *within)
{
    struct kg_error err = {0};
    bool created;
    KG_AUTO(file_copy) copy = file_copy_begin(place->data, from, to, flags, within, &err);

    assert_true((copy != NULL) == (err.code == KG_OK));
    return copy ? finish(copy, &created) : err.code;
}

static enum kg_code
copy_code(const struct agent_place *place, const char *from, const char *to, unsigned flags)
{
    return copy_within(place, from, to, flags, &limits);
}

static void
make_link(const struct agent_place *place, const char *target, const char *name)
{
    KG_AUTO_FREE char *path = inside(place, name);
    assert_int_equal(symlink(target, path), 0);
}

// ---- What is copied -------------------------------------------------------------------------

void
test_copy_file(void **state)
{
    struct agent_place place;
    (void)state;

    agent_place_make(&place);
    write_text(&place, "a", "text");
    KG_AUTO_FREE char *a = inside(&place, "a");
    assert_int_equal(chmod(a, 04750), 0);
    assert_int_equal(copy_code(&place, "a", "b", FILE_KEEP | FILE_NO_FOLDERS), KG_OK);
    assert_content(&place, "b", "text");
    assert_int_equal(look(&place, "b").st_mode & 07777, 0750);
    assert_int_equal(copy_code(&place, "a", "b", FILE_KEEP), KG_FILE_EXISTS);
    write_text(&place, "a", "more text");
    bool created = true;
    struct kg_error err = {0};
    KG_AUTO(file_copy) again = file_copy_begin(place.data, "a", "b", 0, &limits, &err);
    assert_non_null(again);
    assert_content(&place, "b", "text"); // until it is complete
    assert_int_equal(finish(again, &created), KG_OK);
    assert_false(created);
    assert_content(&place, "b", "more text");
    assert_int_equal(copy_code(&place, "a", "c/d/e", FILE_NO_FOLDERS), KG_INVALID_PATH);
    assert_int_equal(copy_code(&place, "a", "c/d/e", 0), KG_OK);
    assert_content(&place, "c/d/e", "more text");
    write_text(&place, "empty", "");
    assert_int_equal(copy_code(&place, "empty", "empty2", 0), KG_OK);
    assert_content(&place, "empty2", "");
    assert_int_equal(count_entries(place.data), 5);
    agent_place_remove(&place);
}

// Data before, between and behind holes.
static void
check_holes(const struct agent_place *place)
{
    enum { SIZE = 64 << 20 };
    KG_AUTO_FREE char *path = inside(place, "tree/holes");
    KG_AUTO_FREE char *copy_path = inside(place, "copy/holes");
    char end[4];
    KG_AUTO_FD copy = open(copy_path, O_RDONLY | O_CLOEXEC);
    struct stat original, copied;

    assert_int_equal(stat(path, &original), 0);
    assert_int_equal(fstat(copy, &copied), 0);
    assert_int_equal(copied.st_size, SIZE);
    assert_true(copied.st_blocks <= original.st_blocks + 8);
    assert_int_equal(pread(copy, end, 4, SIZE / 2), 4);
    assert_memory_equal(end, "data", 4);
    assert_int_equal(pread(copy, end, 4, SIZE - 4), 4);
    assert_memory_equal(end, "\0\0\0\0", 4);
}

static void
make_tree(struct agent_place *place)
{
    agent_place_make(place);
    write_text(place, "tree/sub/deep/file", "deep");
    write_text(place, "tree/.hidden", "hidden");
    make_link(place, place->tmp, "tree/out");
    make_link(place, "../sub/deep/file", "tree/sub/link");
    KG_AUTO_FREE char *own = inside(place, "tree/.kg-upload-1");
    KG_AUTO_FREE char *fifo = inside(place, "tree/fifo");
    KG_AUTO_FREE char *deep = inside(place, "tree/sub/deep");
    KG_AUTO_FREE char *holes = inside(place, "tree/holes");
    assert_int_equal(mkdir(own, 0700), 0);
    assert_int_equal(mkfifo(fifo, 0640), 0);
    assert_int_equal(chmod(deep, 0550), 0);
    KG_AUTO_FD fd = open(holes, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, 64 << 20), 0);
    assert_int_equal(pwrite(fd, "data", 4, 32 << 20), 4);
}

void
test_copy_folder(void **state)
{
    struct agent_place place;
    char target[128] = "";
    (void)state;

    make_tree(&place);
    assert_int_equal(copy_code(&place, "tree", "copy", FILE_KEEP), KG_OK);
    assert_content(&place, "copy/sub/deep/file", "deep");
    assert_content(&place, "copy/.hidden", "hidden");
    // Links are copied, and not what they lead to.
    KG_AUTO_FREE char *link = inside(&place, "copy/out");
    assert_true(readlink(link, target, sizeof target - 1) > 0);
    assert_string_equal(target, place.tmp);
    assert_true(S_ISLNK(look(&place, "copy/sub/link").st_mode));
    assert_int_equal(look(&place, "copy/fifo").st_mode, S_IFIFO | 0640);
    assert_int_equal(look(&place, "copy/sub/deep").st_mode, S_IFDIR | 0750);
    assert_int_equal(look(&place, "copy/.kg-upload-1").st_mode, 0);
    check_holes(&place);
    KG_AUTO_FREE char *copy = inside(&place, "copy");
    assert_int_equal(count_entries(copy), 5);
    assert_int_equal(count_entries(place.data), 2);
    agent_place_remove(&place);
}

static const struct {
    const char *from;
    const char *to;
    unsigned flags;
    enum kg_code code;
} refused[] = {
    {"none", "x", 0, KG_NOT_FOUND},
    {"none/x", "x", 0, KG_NOT_FOUND},
    {"file/x", "x", 0, KG_NOT_FOUND},
    {"link", "x", 0, KG_INVALID_PATH},
    {"tree/out", "x", 0, KG_INVALID_PATH},
    {"tree/out/x", "x", 0, KG_INVALID_PATH},
    {"tree/fifo", "x", 0, KG_INVALID_PATH},
    {"file", "tree/out/x", 0, KG_INVALID_PATH},
    {"file", "none/x", FILE_NO_FOLDERS, KG_INVALID_PATH},
    {"file", "link/x", 0, KG_INVALID_PATH},
    {"file", "link", FILE_KEEP, KG_FILE_EXISTS},
    {"file", "link", 0, KG_INVALID_PATH},
    {"file", "tree/fifo", 0, KG_INVALID_PATH},
    {"file", "tree", 0, KG_INVALID_PATH},
    {"file", "empty", 0, KG_INVALID_PATH},
    {"tree", "empty", 0, KG_INVALID_PATH},
    {"tree", "file", 0, KG_INVALID_PATH},
    {"tree", "file", FILE_KEEP, KG_FILE_EXISTS},
    {"tree", "tree/sub/x", 0, KG_INVALID_PATH},
    {"tree", "tree/new/x", 0, KG_INVALID_PATH},
    {"tree", "tree", FILE_KEEP, KG_FILE_EXISTS},
    {"..", "x", 0, KG_INVALID_PATH},
    {"", "x", 0, KG_INVALID_PATH},
    {"/etc/passwd", "x", 0, KG_INVALID_PATH},
    {"file", "../x", 0, KG_INVALID_PATH},
    {"file", "/tmp/x", 0, KG_INVALID_PATH},
    {"file", "tree/.kg-x", 0, KG_INVALID_PATH},
    {"tree/.kg-upload-1", "x", 0, KG_INVALID_PATH},
    {"file", "a\nb", 0, KG_INVALID_PATH},
};

void
test_copy_refuses(void **state)
{
    struct agent_place place;
    (void)state;

    make_tree(&place);
    write_text(&place, "file", "1");
    make_link(&place, "file", "link");
    KG_AUTO_FREE char *empty = inside(&place, "empty");
    assert_int_equal(mkdir(empty, 0700), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(refused); i++) {
        enum kg_code code = copy_code(&place, refused[i].from, refused[i].to, refused[i].flags);
        if (code != refused[i].code)
            fail_msg("%s to %s", refused[i].from, refused[i].to);
    }
    assert_int_equal(look(&place, "tree/new").st_mode, 0);
    assert_int_equal(count_entries(place.data), 4);
    assert_int_equal(count_entries(place.tmp), 0);
    agent_place_remove(&place);
}

// ---- Bounds ---------------------------------------------------------------------------------

void
test_copy_is_bounded(void **state)
{
    struct agent_place place;
    struct kg_error err = {0};
    (void)state;

    make_tree(&place); // of 8 entries
    struct file_copy_limits within = limits;
    within.entries = 8;
    assert_int_equal(copy_within(&place, "tree", "a", 0, &within), KG_OK);
    within.entries = 7;
    assert_int_equal(copy_within(&place, "tree", "b", 0, &within), KG_INVALID);
    within = limits;
    write_text(&place, "two/1", "1234");
    write_text(&place, "two/2", "567");
    within.bytes = 7;
    assert_int_equal(copy_within(&place, "two", "c", 0, &within), KG_OK);
    within.bytes = 6;
    assert_int_equal(copy_within(&place, "two", "b", 0, &within), KG_INVALID);
    KG_AUTO_BUF path = {0};
    buf_append_str(&path, "levels");
    for (int i = 1; i < FILE_COPY_LEVELS_MAX; i++)
        buf_append_str(&path, "/x");
    bool created;
    struct stat st;
    assert_int_equal(file_make_folder(place.data, path.data, 0, &st, &created, &err), 0);
    assert_int_equal(copy_code(&place, "levels", "d", 0), KG_OK);
    buf_append_str(&path, "/x");
    assert_int_equal(file_make_folder(place.data, path.data, 0, &st, &created, &err), 0);
    assert_int_equal(copy_code(&place, "levels", "b", 0), KG_INVALID_PATH);
    KG_AUTO(file_copy) slow = file_copy_begin(place.data, "tree", "b", 0, &limits, &err);
    assert_non_null(slow);
    virtual_clock_move(limits.ms);
    assert_int_equal(file_copy_step(slow, &err), 1);
    virtual_clock_move(1);
    assert_int_equal(file_copy_step(slow, &err), -1);
    assert_int_equal(err.code, KG_INTERNAL);
    assert_string_equal(err.message, "it took longer than 30 s");
    file_copy_free(KG_STEAL(slow));
    // Nothing of what failed is left.
    assert_int_equal(count_entries(place.data), 6);
    agent_place_remove(&place);
}

// ---- Races ----------------------------------------------------------------------------------

static void
rename_inside(const struct agent_place *place, const char *from, const char *to)
{
    KG_AUTO_FREE char *from_path = inside(place, from);
    KG_AUTO_FREE char *to_path = inside(place, to);
    assert_int_equal(rename(from_path, to_path), 0);
}

// The only name below the working folder that is of the agent's own.
static char *
temporary(const struct agent_place *place)
{
    KG_AUTO_FREE char *command = kg_asprintf("cd %s && ls -d .kg-copy-*", place->data);
    FILE *list = popen(command, "re");
    char name[64] = "";

    assert_non_null(list);
    assert_non_null(fgets(name, sizeof name, list));
    assert_int_equal(pclose(list), 0);
    name[strcspn(name, "\n")] = '\0';
    return kg_strdup(name);
}

// Swaps folders for links before each step of a copy in turn: whenever it is, nothing that the link
// leads to is read or written.
static void
swap_before_step(int n, bool swap_copy)
{
    struct agent_place place;
    struct kg_error err = {0};
    bool created;

    agent_place_make(&place);
    write_text(&place, "tree/sub/file", "inside");
    write_text(&place, "tree/sub/more/file", "inside");
    KG_AUTO_FREE char *secret = kg_asprintf("%s/file", place.tmp);
    KG_AUTO_FD fd = open(secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "secret", 6), 6);
    KG_AUTO(file_copy) copy = file_copy_begin(place.data, "tree", "copy", 0, &limits, &err);
    assert_non_null(copy);
    int more = 1;
    for (int i = 0; i < n && more > 0; i++)
        more = file_copy_step(copy, &err);
    if (swap_copy) {
        KG_AUTO_FREE char *name = temporary(&place);
        rename_inside(&place, name, "swapped");
        make_link(&place, place.tmp, name);
    } else {
        rename_inside(&place, "tree/sub", "swapped");
        make_link(&place, place.tmp, "tree/sub");
    }
    enum kg_code code = finish(copy, &created);
    assert_true(code == KG_OK || code == KG_INVALID_PATH);
    file_copy_free(KG_STEAL(copy));
    assert_int_equal(count_entries(place.tmp), 1);
    KG_AUTO_FREE char *find =
        kg_asprintf("cd %s && ! grep -rs secret . && ! ls -a | grep -q kg-copy", place.data);
    assert_int_equal(system(find), 0);
    agent_place_remove(&place);
}

void
test_copy_of_what_changes(void **state)
{
    enum { STEPS = 20 };
    struct agent_place place;
    struct kg_error err = {0};
    bool created;
    (void)state;

    for (int i = 0; i < STEPS; i++) {
        swap_before_step(i, false);
        swap_before_step(i, true);
    }
    // What vanishes is left out; a file that shrinks has what is left of it.
    agent_place_make(&place);
    write_text(&place, "tree/sub/file", "1");
    KG_AUTO(file_copy) copy = file_copy_begin(place.data, "tree", "copy", 0, &limits, &err);
    assert_non_null(copy);
    assert_int_equal(file_delete(place.data, "tree/sub", false, &err), 0);
    assert_int_equal(finish(copy, &created), KG_OK);
    KG_AUTO_FREE char *path = inside(&place, "copy");
    assert_int_equal(count_entries(path), 0);
    write_text(&place, "file", "12345");
    KG_AUTO(file_copy) small = file_copy_begin(place.data, "file", "less", 0, &limits, &err);
    assert_non_null(small);
    KG_AUTO_FREE char *file = inside(&place, "file");
    assert_int_equal(truncate(file, 2), 0);
    assert_int_equal(finish(small, &created), KG_OK);
    assert_content(&place, "less", "12");
    // What comes to the place of the copy meanwhile stays there.
    KG_AUTO(file_copy)
    late = file_copy_begin(place.data, "file", "taken", FILE_KEEP, &limits, &err);
    assert_non_null(late);
    write_text(&place, "taken", "other");
    assert_int_equal(finish(late, &created), KG_FILE_EXISTS);
    file_copy_free(KG_STEAL(late));
    assert_content(&place, "taken", "other");
    assert_int_equal(count_entries(place.data), 5);
    agent_place_remove(&place);
}

// ---- As calls -------------------------------------------------------------------------------

void
test_copy_call(void **state)
{
    struct fixture *f = *state;

    write_text(&f->place, "a/file", "12345");
    start_kernel(f, "python", "echo", "ipc");
    json_auto_t *file =
        call(f, "files.copy", "{\"from\":\"a/file\",\"to\":\"b/c\",\"keep\":true,\"parents\":true}",
             KG_OK);
    assert_string_equal(text_of(file, "type"), "file");
    assert_int_equal(number_of(file, "size"), 5);
    assert_true(json_is_true(json_object_get(file, "created")));
    json_auto_t *folder =
        call(f, "files.copy", "{\"from\":\"a\",\"to\":\"c\",\"keep\":true}", KG_OK);
    assert_string_equal(text_of(folder, "type"), "dir");
    do_call(f, "files.copy", "{\"from\":\"a\",\"to\":\"c\",\"keep\":true}", KG_FILE_EXISTS);
    do_call(f, "files.copy", "{\"from\":\"a\",\"to\":\"d/e\",\"keep\":true}", KG_INVALID_PATH);
    do_call(f, "files.copy", "{\"from\":\"none\",\"to\":\"d\",\"keep\":true}", KG_NOT_FOUND);
    json_auto_t *moved =
        call(f, "files.move", "{\"from\":\"b/c\",\"to\":\"d\",\"keep\":true}", KG_OK);
    assert_int_equal(number_of(moved, "size"), 5);
    // What the agent itself makes is no news, as what it writes.
    json_auto_t *changes =
        call(f, "changes", "{\"cursor\":\"python\",\"within_us\":60000000}", KG_OK);
    assert_int_equal(json_array_size(json_object_get(changes, "files")), 0);
    write_text(&f->place, "c/file", "6");
    json_auto_t *news = call(f, "changes", "{\"cursor\":\"python\",\"within_us\":60000000}", KG_OK);
    const json_t *changed = json_array_get(json_object_get(news, "files"), 0);
    assert_string_equal(text_of(changed, "path"), "c/file");
}

// Few are made at a time, and those whose callers leave are neither completed nor left behind.
void
test_copies_whose_callers_leave(void **state)
{
    enum { FILES = 20000, COPIES = 8 };
    struct fixture *f = *state;
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    int links[COPIES];

    KG_AUTO_FREE char *folder = inside(&f->place, "many");
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int i = 0; i < FILES; i++) {
        KG_AUTO_FREE char *path = kg_asprintf("%s/%d", folder, i);
        KG_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
    }
    for (int i = 0; i < COPIES; i++) {
        KG_AUTO_FREE char *params =
            kg_asprintf("{\"from\":\"many\",\"to\":\"copy%d\",\"keep\":true}", i);
        links[i] = send_request(f, "files.copy", params, 0);
    }
    do_call(f, "files.copy", "{\"from\":\"many\",\"to\":\"more\",\"keep\":true}", KG_SESSION_BUSY);
    while (count_entries(f->place.data) != 1 + COPIES)
        assert_true(wait_now_ms() < give_up);
    for (int i = 0; i < COPIES; i++)
        close(links[i]);
    while (count_entries(f->place.data) != 1)
        assert_true(wait_now_ms() < give_up);
    do_call(f, "files.copy", "{\"from\":\"many/1\",\"to\":\"one\",\"keep\":true}", KG_OK);
    assert_int_equal(count_entries(f->place.data), 2);
}
