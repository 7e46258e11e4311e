// SPDX-License-Identifier: Apache-2.0
// The agent's files and folders as entries, in a temporary folder: looking, making, moving, unused
// names, appending; hostile paths, links, permissions.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"
#include "test_agent.h"
#include "walk.h"

// ---- A folder to work in --------------------------------------------------------------------

// `folder/file`, `fifo`, `link` to the folder, `out` to a folder outside, and `dangling`.
static void
make_tree(struct agent_place *place)
{
    agent_place_make(place);
    write_text(place, "folder/file", "1234");
    KG_AUTO_FREE char *fifo = inside(place, "fifo");
    KG_AUTO_FREE char *link = inside(place, "link");
    KG_AUTO_FREE char *out = inside(place, "out");
    KG_AUTO_FREE char *dangling = inside(place, "dangling");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink("folder", link), 0);
    assert_int_equal(symlink(place->tmp, out), 0);
    assert_int_equal(symlink("nothing", dangling), 0);
}

// "" where there is nothing.
static const char *
type_at(const struct agent_place *place, const char *name)
{
    KG_AUTO_FREE char *path = inside(place, name);
    struct stat st;

    if (lstat(path, &st) != 0)
        return "";
    return S_ISREG(st.st_mode) ? "file" : S_ISDIR(st.st_mode) ? "dir" : "other";
}

static void
assert_text(const struct agent_place *place, const char *name, const char *text)
{
    KG_AUTO_FREE char *path = inside(place, name);
    KG_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    KG_AUTO_BUF data = {0};

    assert_true(fd >= 0);
    read_all(fd, &data);
    assert_string_equal(data.data, text);
}

static enum kg_code
stat_code(const struct agent_place *place, const char *path, struct stat *ret_st)
{
    struct kg_error err = {0};

    int result = file_stat(place->data, path, ret_st, &err);
    assert_true((result == 0) == (err.code == KG_OK));
    return err.code;
}

static enum kg_code
make_code(const struct agent_place *place, const char *path, unsigned flags, bool created)
{
    struct kg_error err = {0};
    struct stat st;
    bool was_created = created;

    if (file_make_folder(place->data, path, flags, &st, &was_created, &err) == 0)
        assert_true(S_ISDIR(st.st_mode) && was_created == created);
    return err.code;
}

static enum kg_code
move_code(const struct agent_place *place, const char *from, const char *to, unsigned flags)
{
    struct kg_error err = {0};
    struct stat st;
    bool created, elsewhere;

    int result = file_move(place->data, from, to, flags, &st, &created, &elsewhere, &err);
    assert_true((result == 0) == (err.code == KG_OK) && !elsewhere);
    return err.code;
}

// ---- The second name of a folder ---------------------------------------------------------------

static bool
add_name(const char *path, const struct stat *st, void *arg)
{
    struct buf *names = arg;
    (void)st;
    buf_printf(names, "%s ", path);
    return true;
}

// A link here; a second mount needs privileges.
void
test_entries_second_name(void **state)
{
    struct agent_place place;
    struct kg_error err = {0};
    struct stat st;
    bool created, elsewhere;
    KG_AUTO_BUF names = {0};
    const struct walk_query query = {.path = "home/user"};
    (void)state;

    make_tree(&place);
    KG_AUTO_FREE char *home = kg_asprintf("%s/home", place.tmp);
    KG_AUTO_FREE char *name = kg_asprintf("%s/user", home);
    assert_int_equal(mkdir(home, 0755), 0);
    assert_int_equal(symlink(place.data, name), 0);
    assert_int_equal(file_stat(place.tmp, "home/user/folder", &st, &err), -1);
    assert_int_equal(err.code, KG_INVALID_PATH);

    walk_use_second_name(place.tmp, "home/user", place.data);
    assert_int_equal(file_stat(place.tmp, "home/user/folder/file", &st, &err), 0);
    assert_int_equal(st.st_size, 4);
    assert_int_equal(file_move(place.tmp, "home/user/folder/file", "home/user/new/file", 0, &st,
                               &created, &elsewhere, &err),
                     0);
    assert_text(&place, "new/file", "1234");
    assert_int_equal(walk_files(place.tmp, &query, add_name, &names, &err), 0);
    assert_string_equal(names.data, "home/user/dangling home/user/fifo home/user/folder "
                                    "home/user/link home/user/new home/user/new/file "
                                    "home/user/out ");
    // Only this link, this root, and whole names.
    assert_int_equal(file_stat(place.tmp, "home/user/link/file", &st, &err), -1);
    assert_int_equal(err.code, KG_INVALID_PATH);
    assert_string_equal(walk_in_second_name(place.tmp, "home/user/a"), "a");
    assert_string_equal(walk_in_second_name(place.tmp, "home/user"), "");
    assert_null(walk_in_second_name(place.tmp, "home/users"));
    assert_null(walk_in_second_name(place.tmp, "home"));
    assert_null(walk_in_second_name(place.data, "home/user/a"));

    // Another folder of that name stays what it is.
    assert_int_equal(unlink(name), 0);
    assert_int_equal(mkdir(name, 0755), 0);
    walk_use_second_name(place.tmp, "home/user", place.data);
    assert_null(walk_in_second_name(place.tmp, "home/user"));
    agent_place_remove(&place);
}

// ---- Looking, making ------------------------------------------------------------------------

void
test_entries_stat(void **state)
{
    struct agent_place place;
    struct stat st;
    (void)state;

    make_tree(&place);
    assert_int_equal(stat_code(&place, "", &st), KG_OK);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(stat_code(&place, "folder", &st), KG_OK);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(stat_code(&place, "folder/file", &st), KG_OK);
    assert_int_equal(st.st_size, 4);
    json_auto_t *file = file_entry(&st);
    assert_string_equal(text_of(file, "type"), "file");
    assert_int_equal(number_of(file, "size"), 4);
    assert_int_equal(number_of(file, "mode"), st.st_mode & 0777);
    assert_int_equal(json_integer_value(json_object_get(file, "mtime_ms")), file_mtime_ms(&st));
    static const char *const links[] = {"link", "out", "dangling"};
    for (size_t i = 0; i < KG_ARRAY_LEN(links); i++) {
        assert_int_equal(stat_code(&place, links[i], &st), KG_OK);
        assert_true(S_ISLNK(st.st_mode));
        json_auto_t *link = file_details(place.data, links[i], &st);
        assert_string_equal(text_of(link, "type"), "symlink");
        if (strcmp(links[i], "dangling") == 0)
            assert_null(json_object_get(link, "target_type"));
        else
            assert_string_equal(text_of(link, "target_type"), "dir");
    }
    assert_int_equal(stat_code(&place, "fifo", &st), KG_OK);
    json_auto_t *fifo = file_entry(&st);
    assert_string_equal(text_of(fifo, "type"), "other");
    static const char *const missing[] = {"none", "none/x", "folder/none", "folder/file/x",
                                          "fifo/x"};
    for (size_t i = 0; i < KG_ARRAY_LEN(missing); i++)
        assert_int_equal(stat_code(&place, missing[i], &st), KG_NOT_FOUND);
    static const char *const through[] = {"link/file", "out/x", "dangling/x"};
    for (size_t i = 0; i < KG_ARRAY_LEN(through); i++)
        assert_int_equal(stat_code(&place, through[i], &st), KG_INVALID_PATH);
    agent_place_remove(&place);
}

void
test_entries_mkdir(void **state)
{
    struct agent_place place;
    (void)state;

    make_tree(&place);
    assert_int_equal(make_code(&place, "new", FILE_NO_FOLDERS, true), KG_OK);
    assert_int_equal(make_code(&place, "new", FILE_NO_FOLDERS, false), KG_OK);
    assert_int_equal(make_code(&place, "new", FILE_KEEP, false), KG_FILE_EXISTS);
    assert_int_equal(make_code(&place, "a/b/c", FILE_NO_FOLDERS, true), KG_INVALID_PATH);
    assert_string_equal(type_at(&place, "a"), "");
    assert_int_equal(make_code(&place, "a/b/c", 0, true), KG_OK);
    assert_int_equal(make_code(&place, "a/b/c", 0, false), KG_OK);
    // Anything else is not a folder, not even a link to one.
    static const char *const taken[] = {"folder/file", "fifo", "link", "out", "dangling"};
    for (size_t i = 0; i < KG_ARRAY_LEN(taken); i++)
        assert_int_equal(make_code(&place, taken[i], 0, true), KG_FILE_EXISTS);
    static const char *const below[] = {"folder/file/x", "fifo/x", "link/x", "out/x", "dangling/x"};
    for (size_t i = 0; i < KG_ARRAY_LEN(below); i++) {
        assert_int_equal(make_code(&place, below[i], 0, true), KG_INVALID_PATH);
        assert_int_equal(make_code(&place, below[i], FILE_NO_FOLDERS, true), KG_INVALID_PATH);
    }
    assert_string_equal(type_at(&place, "folder/x"), "");
    assert_int_equal(count_entries(place.tmp), 0);
    agent_place_remove(&place);
}

// ---- Moving ---------------------------------------------------------------------------------

void
test_entries_move(void **state)
{
    struct agent_place place;
    (void)state;

    make_tree(&place);
    assert_int_equal(move_code(&place, "folder", "other", FILE_KEEP | FILE_NO_FOLDERS), KG_OK);
    assert_text(&place, "other/file", "1234");
    assert_string_equal(type_at(&place, "folder"), "");
    assert_int_equal(move_code(&place, "other/file", "file", FILE_KEEP), KG_OK);
    assert_int_equal(move_code(&place, "file", "a/b/file", FILE_KEEP | FILE_NO_FOLDERS),
                     KG_INVALID_PATH);
    assert_string_equal(type_at(&place, "a"), "");
    assert_int_equal(move_code(&place, "file", "a/b/file", FILE_KEEP), KG_OK);
    assert_text(&place, "a/b/file", "1234");
    // A link is moved, and what it leads to is not.
    assert_int_equal(move_code(&place, "out", "a/out", FILE_KEEP), KG_OK);
    assert_string_equal(type_at(&place, "a/out"), "other");
    assert_int_equal(move_code(&place, "fifo", "a/fifo", FILE_KEEP), KG_OK);
    static const char *const missing[] = {"none", "none/x", "a/b/file/x", "a/none"};
    for (size_t i = 0; i < KG_ARRAY_LEN(missing); i++)
        assert_int_equal(move_code(&place, missing[i], "x", FILE_KEEP), KG_NOT_FOUND);
    // What is to get something is not what is missing.
    assert_int_equal(move_code(&place, "other", "none/x", FILE_NO_FOLDERS), KG_INVALID_PATH);
    assert_int_equal(move_code(&place, "other", "a/b/file/x", 0), KG_INVALID_PATH);
    assert_int_equal(move_code(&place, "other", "a/out/x", 0), KG_INVALID_PATH);
    assert_int_equal(move_code(&place, "a/out/x", "x", 0), KG_INVALID_PATH);
    assert_int_equal(move_code(&place, "a", "a/b/c/d", 0), KG_INVALID_PATH);
    assert_string_equal(type_at(&place, "a/b/c"), "");
    assert_int_equal(move_code(&place, "a", "a-", FILE_KEEP), KG_OK);
    assert_int_equal(count_entries(place.tmp), 0);
    agent_place_remove(&place);
}

void
test_entries_move_replaces(void **state)
{
    struct agent_place place;
    struct kg_error err = {0};
    struct stat st;
    bool created, elsewhere;
    (void)state;

    make_tree(&place);
    write_text(&place, "new", "new");
    static const char *const taken[] = {"folder", "folder/file", "link", "dangling", "fifo", "new"};
    for (size_t i = 0; i < KG_ARRAY_LEN(taken); i++)
        assert_int_equal(move_code(&place, "new", taken[i], FILE_KEEP), KG_FILE_EXISTS);
    assert_int_equal(move_code(&place, "folder", "link", FILE_KEEP), KG_FILE_EXISTS);
    assert_int_equal(move_code(&place, "new", "folder", 0), KG_INVALID_PATH);
    assert_int_equal(move_code(&place, "folder", "new", 0), KG_INVALID_PATH);
    assert_int_equal(
        file_move(place.data, "new", "folder/file", 0, &st, &created, &elsewhere, &err), 0);
    assert_false(created);
    assert_text(&place, "folder/file", "new");
    // A link is replaced, and what it leads to is not.
    write_text(&place, "more", "more");
    assert_int_equal(move_code(&place, "more", "link", 0), KG_OK);
    assert_string_equal(type_at(&place, "link"), "file");
    assert_string_equal(type_at(&place, "folder"), "dir");
    // A folder replaces an empty one.
    assert_int_equal(make_code(&place, "empty", 0, true), KG_OK);
    assert_int_equal(move_code(&place, "empty", "folder", 0), KG_INVALID_PATH);
    assert_int_equal(file_move(place.data, "folder", "empty", 0, &st, &created, &elsewhere, &err),
                     0);
    assert_false(created);
    assert_text(&place, "empty/file", "new");
    agent_place_remove(&place);
}

// Where renameat2() cannot keep what is there: EINVAL, which a folder in itself is, too.
void
test_entries_rename_where_the_system_cannot(void **state)
{
    struct agent_place place;
    (void)state;

    make_tree(&place);
    KG_AUTO_FREE char *folder = inside(&place, "folder");
    KG_AUTO_FD fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    KG_AUTO_FD parent = open(place.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0 && parent >= 0);
    assert_int_equal(file_rename(parent, "folder", fd, "inner", true), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(file_rename(parent, "folder", fd, "file", true), -1);
    assert_int_equal(count_entries(folder), 1);
    agent_place_remove(&place);
}

// ---- Names ----------------------------------------------------------------------------------

static int
unused(const struct agent_place *place, const char *folder, const char *start, const char *end,
       enum kg_code expected)
{
    const struct file_names names = {.start = start, .insert = "-", .end = end};
    struct kg_error err = {0};
    int number = -1;

    int result = file_find_unused(place->data, folder, &names, &number, &err);
    assert_int_equal(err.code, expected);
    assert_int_equal(result, expected == KG_OK ? 0 : -1);
    return number;
}

void
test_entries_unused(void **state)
{
    struct agent_place place;
    (void)state;

    make_tree(&place);
    assert_int_equal(unused(&place, "folder", "a", ".x", KG_OK), 0);
    write_text(&place, "folder/a.x", "");
    assert_int_equal(unused(&place, "folder", "a", ".x", KG_OK), 1);
    assert_int_equal(unused(&place, "", "a", ".x", KG_OK), 0);
    write_text(&place, "folder/a-2.x", "");
    assert_int_equal(unused(&place, "folder", "a", ".x", KG_OK), 1);
    // A link has a name, wherever it leads.
    KG_AUTO_FREE char *link = inside(&place, "folder/a-1.x");
    assert_int_equal(symlink("nothing", link), 0);
    assert_int_equal(unused(&place, "folder", "a", ".x", KG_OK), 3);
    for (int i = 3; i < FILE_NUMBERS - 1; i++) {
        KG_AUTO_FREE char *path = kg_asprintf("%s/folder/a-%d.x", place.data, i);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(unused(&place, "folder", "a", ".x", KG_OK), FILE_NUMBERS - 1);
    write_text(&place, "folder/a-9999.x", "");
    (void)unused(&place, "folder", "a", ".x", KG_FILE_EXISTS);
    char longest[256];
    memset(longest, 'n', sizeof longest);
    longest[250] = '\0';
    assert_int_equal(unused(&place, "", longest, "", KG_OK), 0);
    (void)unused(&place, "", longest, "x", KG_INVALID_PATH);
    (void)unused(&place, "", "../a", "", KG_INVALID_PATH);
    (void)unused(&place, "", "a", "/b", KG_INVALID_PATH);
    (void)unused(&place, "", ".kg-a", "", KG_INVALID_PATH);
    (void)unused(&place, "", "a\n", "", KG_INVALID_PATH);
    (void)unused(&place, "out", "a", "", KG_INVALID_PATH);
    (void)unused(&place, "..", "a", "", KG_INVALID_PATH);
    (void)unused(&place, "folder/a.x", "a", "", KG_INVALID_PATH);
    (void)unused(&place, "none", "a", "", KG_NOT_FOUND);
    agent_place_remove(&place);
}

// ---- Appending ------------------------------------------------------------------------------

// Returns what file_write_append() does; -1 also where it cannot begin.
static int
append(const struct agent_place *place, const char *path, const char *text, int64_t max,
       enum kg_code expected)
{
    struct kg_error err = {0};
    struct stat st;
    bool created;
    int result = -1;

    KG_AUTO(file_write)
    write = file_write_begin(place->data, path, (int64_t)strlen(text), FILE_NO_FOLDERS, &err);
    if (write && file_write_add(write, text, strlen(text), &err) == 0)
        result = file_write_append(write, max, &st, &created, &err);
    assert_int_equal(err.code, expected);
    return result;
}

void
test_entries_append(void **state)
{
    struct agent_place place;
    (void)state;

    make_tree(&place);
    assert_int_equal(append(&place, "folder/file", "56", 100, KG_OK), 1);
    assert_text(&place, "folder/file", "123456");
    assert_int_equal(append(&place, "folder/file", "789", 8, KG_OK), 0);
    assert_int_equal(append(&place, "folder/file", "78", 8, KG_OK), 1);
    assert_text(&place, "folder/file", "12345678");
    assert_int_equal(append(&place, "folder/file", "", 4, KG_OK), 0);
    assert_int_equal(append(&place, "folder/new", "abc", 2, KG_OK), 0);
    assert_string_equal(type_at(&place, "folder/new"), "");
    assert_int_equal(append(&place, "folder/new", "abc", INT64_MAX, KG_OK), 1);
    assert_text(&place, "folder/new", "abc");
    static const char *const bad[] = {"folder", "link",  "out",    "dangling",
                                      "fifo",   "out/x", "none/x", "folder/file/x"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_int_equal(append(&place, bad[i], "x", 100, KG_INVALID_PATH), -1);
    KG_AUTO_FREE char *folder = inside(&place, "folder");
    assert_int_equal(count_entries(folder), 2); // no temporary one either
    assert_int_equal(count_entries(place.tmp), 0);
    agent_place_remove(&place);
}

// A limit of the process stands for the disk's.
void
test_entries_append_to_a_full_disk(void **state)
{
    struct agent_place place;
    struct rlimit before;
    char many[81];
    (void)state;

    make_tree(&place);
    memset(many, 'x', sizeof many);
    many[80] = '\0';
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = 80, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int result = append(&place, "folder/file", many, 1000, KG_DISK_FULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(result, -1);
    assert_text(&place, "folder/file", "1234");
    agent_place_remove(&place);
}

// ---- Hostile paths, permissions -------------------------------------------------------------

void
test_entries_hostile_paths(void **state)
{
    struct agent_place place;
    struct stat st;
    char name[300], deep[1200];
    (void)state;

    make_tree(&place);
    memset(name, 'a', 256);
    name[256] = '\0';
    for (size_t i = 0; i < 1100; i++)
        deep[i] = i % 2 == 0 ? 'a' : '/';
    deep[1101] = deep[1100] = '\0';
    const char *const hostile[] = {"..",      "../data/folder", "/etc/passwd", "a/../../b", ".",
                                   "folder/", "folder//file",   "./folder",    "folder/.",  name,
                                   ".kg-x",   "folder/.kg-x",   deep};
    for (size_t i = 0; i < KG_ARRAY_LEN(hostile); i++) {
        assert_int_equal(stat_code(&place, hostile[i], &st), KG_INVALID_PATH);
        assert_int_equal(make_code(&place, hostile[i], 0, true), KG_INVALID_PATH);
        assert_int_equal(move_code(&place, hostile[i], "x", 0), KG_INVALID_PATH);
        assert_int_equal(move_code(&place, "folder", hostile[i], 0), KG_INVALID_PATH);
        assert_int_equal(append(&place, hostile[i], "x", 9, KG_INVALID_PATH), -1);
    }
    static const char *const empty_or_new[] = {"", "a\nb", "a\x1b[2J", "a\xc2\x85"};
    for (size_t i = 0; i < KG_ARRAY_LEN(empty_or_new); i++) {
        assert_int_equal(make_code(&place, empty_or_new[i], 0, true), KG_INVALID_PATH);
        assert_int_equal(move_code(&place, "folder", empty_or_new[i], 0), KG_INVALID_PATH);
    }
    assert_int_equal(count_entries(place.data), 5);
    assert_int_equal(count_entries(place.tmp), 0);
    agent_place_remove(&place);
}

// What a user can do who owns the working folder, and not what is in `foreign`.
static int
act_as_nobody(const struct agent_place *place)
{
    enum { NOBODY = 65534 };
    struct kg_error err = {0};
    struct stat st;
    bool created;

    if (geteuid() == 0 &&
        (setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0))
        return 1;
    if (file_make_folder(place->data, "own", 0, &st, &created, &err) != 0 ||
        st.st_uid != geteuid() || st.st_gid != getegid())
        return 2;
    if (make_code(place, "foreign/x", 0, true) != KG_INVALID_PATH)
        return 3;
    if (move_code(place, "own", "foreign/x", 0) != KG_INVALID_PATH)
        return 4;
    if (move_code(place, "foreign/file", "x", 0) != KG_INVALID_PATH)
        return 5;
    if (append(place, "foreign/file", "x", 100, KG_INVALID_PATH) != -1)
        return 6;
    if (stat_code(place, "closed/file", &st) != KG_INVALID_PATH)
        return 7;
    return move_code(place, "closed/file", "x", 0) == KG_INVALID_PATH ? 0 : 8;
}

// Keeps nothing allocated over the fork: the child would be said to leak it.
static void
set_mode(const struct agent_place *place, const char *name, mode_t mode)
{
    KG_AUTO_FREE char *path = inside(place, name);
    assert_int_equal(chmod(path, mode), 0);
}

void
test_entries_permissions(void **state)
{
    struct agent_place place;
    int status;
    (void)state;

    make_tree(&place);
    write_text(&place, "foreign/file", "1");
    write_text(&place, "closed/file", "1");
    set_mode(&place, "foreign", 0555);
    set_mode(&place, "closed", 0);
    assert_int_equal(chmod(place.dir, 0711), 0);
    if (geteuid() == 0)
        assert_int_equal(chown(place.data, 65534, 65534), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(act_as_nobody(&place));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    set_mode(&place, "foreign", 0755);
    set_mode(&place, "closed", 0755);
    agent_place_remove(&place);
}

// ---- As calls -------------------------------------------------------------------------------

void
test_entries_calls(void **state)
{
    struct fixture *f = *state;

    json_auto_t *made =
        call(f, "files.mkdir", "{\"path\":\"a/b\",\"keep\":true,\"parents\":true}", KG_OK);
    assert_string_equal(text_of(made, "type"), "dir");
    assert_true(json_is_true(json_object_get(made, "created")));
    json_auto_t *again = call(f, "files.mkdir", "{\"path\":\"a/b\",\"keep\":false}", KG_OK);
    assert_true(json_is_false(json_object_get(again, "created")));
    do_call(f, "files.mkdir", "{\"path\":\"a/b\",\"keep\":true}", KG_FILE_EXISTS);
    do_call(f, "files.mkdir", "{\"path\":\"c/d\",\"keep\":true}", KG_INVALID_PATH);
    write_text(&f->place, "a/file", "12345");
    do_call(f, "files.mkdir", "{\"path\":\"a/file\",\"keep\":false}", KG_FILE_EXISTS);
    json_auto_t *file = call(f, "files.stat", "{\"path\":\"a/file\"}", KG_OK);
    assert_string_equal(text_of(file, "type"), "file");
    assert_int_equal(number_of(file, "size"), 5);
    json_auto_t *root = call(f, "files.stat", "{\"path\":\"\"}", KG_OK);
    assert_string_equal(text_of(root, "type"), "dir");
    assert_int_equal(number_of(root, "mode"), 0700);
    do_call(f, "files.stat", "{\"path\":\"none\"}", KG_NOT_FOUND);
    json_auto_t *moved =
        call(f, "files.move", "{\"from\":\"a/file\",\"to\":\"a/b/file\",\"keep\":true}", KG_OK);
    assert_int_equal(number_of(moved, "size"), 5);
    assert_true(json_is_true(json_object_get(moved, "created")));
    do_call(f, "files.move", "{\"from\":\"a/file\",\"to\":\"x\",\"keep\":true}", KG_NOT_FOUND);
    do_call(f, "files.move", "{\"from\":\"a\",\"to\":\"a/b/file\",\"keep\":true}", KG_INVALID_PATH);
    json_auto_t *name =
        call(f, "files.unused",
             "{\"folder\":\"a/b\",\"start\":\"fi\",\"insert\":\"\",\"end\":\"le\"}", KG_OK);
    assert_int_equal(number_of(name, "number"), 1);
}

void
test_entries_calls_refuse(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *method;
        const char *params;
    } bad[] = {
        {"files.stat", "{}"},
        {"files.stat", "{\"path\":1}"},
        {"files.stat", "{\"path\":\"a\",\"more\":1}"},
        {"files.mkdir", "{\"path\":\"a\"}"},
        {"files.mkdir", "{\"path\":\"a\",\"keep\":true,\"parents\":1}"},
        {"files.move", "{\"from\":\"a\",\"to\":\"b\"}"},
        {"files.copy", "{\"from\":\"a\",\"to\":\"b\",\"keep\":\"x\"}"},
        {"files.unused", "{\"folder\":\"\",\"start\":\"a\"}"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        do_call(f, bad[i].method, bad[i].params, KG_INVALID);
}

static json_t *
append_call(struct fixture *f, const char *params, const char *text, enum kg_code expected)
{
    KG_AUTO_FD fd = send_request(f, "files.append", params, strlen(text));

    send_frame(fd, FRAME_DATA, text, strlen(text));
    return read_result(fd, expected);
}

void
test_append_call(void **state)
{
    struct fixture *f = *state;

    json_auto_t *first = append_call(f, "{\"path\":\"a\",\"max\":5}", "123", KG_OK);
    assert_true(json_is_true(json_object_get(first, "appended")));
    assert_true(json_is_true(json_object_get(first, "created")));
    json_auto_t *second = append_call(f, "{\"path\":\"a\",\"max\":5}", "45", KG_OK);
    assert_true(json_is_false(json_object_get(second, "created")));
    assert_int_equal(number_of(second, "size"), 5);
    assert_true(text_of(second, "etag")[0] == '"');
    json_auto_t *third = append_call(f, "{\"path\":\"a\",\"max\":5}", "6", KG_OK);
    assert_true(json_is_false(json_object_get(third, "appended")));
    assert_text(&f->place, "a", "12345");
    json_decref(append_call(f, "{\"path\":\"b/a\",\"max\":5}", "6", KG_INVALID_PATH));
    json_decref(append_call(f, "{\"path\":\"a\",\"max\":-1}", "6", KG_INVALID));
    json_decref(append_call(f, "{\"path\":\"a\"}", "6", KG_INVALID));
    // One turn of the loop must be enough.
    KG_AUTO_FD fd =
        send_request(f, "files.append", "{\"path\":\"a\",\"max\":99999999}", (16 << 20) + 1);
    json_decref(read_result(fd, KG_INVALID));
    // What is not complete is not appended.
    int left = send_request(f, "files.append", "{\"path\":\"a\",\"max\":99}", 4);
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    send_frame(left, FRAME_DATA, "67", 2);
    while (count_entries(f->place.data) != 2)
        assert_true(wait_now_ms() < give_up);
    close(left);
    while (count_entries(f->place.data) != 1)
        assert_true(wait_now_ms() < give_up);
    assert_text(&f->place, "a", "12345");
}
