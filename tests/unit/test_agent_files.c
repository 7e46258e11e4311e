// SPDX-License-Identifier: Apache-2.0
// The agent's files, in a temporary folder: pages, reading, writing, deleting, what has changed.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "changes.h"
#include "files.h"
#include "loop.h"
#include "test_agent.h"
#include "virtual_clock.h"
#include "walk.h"

// ---- A folder to work in --------------------------------------------------------------------

void
write_text(const struct agent_place *place, const char *name, const char *text)
{
    struct kg_error err = {0};
    struct stat st;
    bool created;

    KG_AUTO(file_write) write = file_write_begin(place->data, name, 0, 0, &err);
    assert_non_null(write);
    assert_int_equal(file_write_add(write, text, strlen(text), &err), 0);
    assert_int_equal(file_write_commit(write, &st, &created, &err), 0);
    assert_int_equal(st.st_size, strlen(text));
}

char *
inside(const struct agent_place *place, const char *name)
{
    return kg_asprintf("%s/%s", place->data, name);
}

static const char *
path_at(const json_t *listing, size_t i)
{
    return text_of(json_array_get(json_object_get(listing, "files"), i), "path");
}

static size_t
count(const json_t *listing)
{
    return json_array_size(json_object_get(listing, "files"));
}

static enum kg_code
open_code(const struct agent_place *place, const char *path)
{
    struct kg_error err = {0};
    struct stat st;
    KG_AUTO_FD fd = file_open(place->data, path, &st, &err);

    assert_true((fd >= 0) == (err.code == KG_OK));
    return err.code;
}

// ---- Listing --------------------------------------------------------------------------------

static json_t *
list(const char *root, const char *path, const char *after, int limit, struct kg_error *err)
{
    const struct walk_query query = {.path = path, .after = after};
    return files_list(root, &query, limit, false, err);
}

void
test_files_pages(void **state)
{
    struct agent_place place;
    struct kg_error err = {0};
    // In the order of names: a folder's content comes before a name that only begins like it.
    static const char *const names[] = {"a", "a/0", "a/b", "a/b/c", "a-", "z"};
    (void)state;

    agent_place_make(&place);
    write_text(&place, "a/b/c", "1");
    write_text(&place, "a/0", "12");
    write_text(&place, "a-", "123");
    write_text(&place, "z", "");
    write_text(&place, "not-utf8-\xff", "x");
    for (int limit = 1; limit <= 7; limit++) {
        KG_AUTO_FREE char *after = NULL;
        size_t seen = 0;
        do {
            json_auto_t *page = list(place.data, "", after, limit, &err);
            assert_non_null(page);
            assert_in_range(count(page), 1, limit);
            for (size_t i = 0; i < count(page); i++)
                assert_string_equal(path_at(page, i), names[seen++]);
            free(after);
            const json_t *next = json_object_get(page, "next");
            after = next ? kg_strdup(json_string_value(next)) : NULL;
        } while (after);
        assert_int_equal(seen, KG_ARRAY_LEN(names));
    }
    json_auto_t *sub = list(place.data, "a/b", NULL, 10, &err);
    assert_string_equal(path_at(sub, 0), "a/b/c");
    json_auto_t *rest = list(place.data, "a", "a/0", 10, &err);
    assert_string_equal(path_at(rest, 0), "a/b");
    // What was there at the last page may be gone.
    json_auto_t *gone = list(place.data, "", "a/aa/x", 10, &err);
    assert_string_equal(path_at(gone, 0), "a/b");
    agent_place_remove(&place);
}

void
test_files_list_refuses(void **state)
{
    struct agent_place place;
    struct kg_error err = {0};
    (void)state;

    agent_place_make(&place);
    KG_AUTO_FREE char *link = inside(&place, "out");
    assert_int_equal(symlink(place.tmp, link), 0);
    write_text(&place, "file", "");
    assert_null(list(place.data, "out", NULL, 10, &err));
    assert_int_equal(err.code, KG_INVALID_PATH);
    assert_null(list(place.data, "file", NULL, 10, &err));
    assert_null(list(place.data, "sub/../..", NULL, 10, &err));
    assert_int_equal(err.code, KG_INVALID_PATH);
    assert_null(list(place.data, "missing", NULL, 10, &err));
    assert_int_equal(err.code, KG_NOT_FOUND);
    agent_place_remove(&place);
}

// ---- One file -------------------------------------------------------------------------------

void
test_files_open(void **state)
{
    struct agent_place place;
    (void)state;

    agent_place_make(&place);
    write_text(&place, "sub/file", "x");
    KG_AUTO_FREE char *link = inside(&place, "link");
    KG_AUTO_FREE char *out = inside(&place, "out");
    KG_AUTO_FREE char *fifo = inside(&place, "fifo");
    assert_int_equal(symlink("sub/file", link), 0);
    assert_int_equal(symlink(place.tmp, out), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(open_code(&place, "sub/file"), KG_OK);
    assert_int_equal(open_code(&place, "missing"), KG_NOT_FOUND);
    assert_int_equal(open_code(&place, "missing/file"), KG_NOT_FOUND);
    static const char *const bad[] = {"",           "sub", "link", "out/x",     "fifo",
                                      "sub/file/x", "..",  "/x",   "sub//file", "sub/../sub/file"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_int_equal(open_code(&place, bad[i]), KG_INVALID_PATH);
    agent_place_remove(&place);
}

void
test_files_write(void **state)
{
    struct agent_place place;
    struct kg_error err = {0};
    struct stat st;
    bool created;
    (void)state;

    agent_place_make(&place);
    struct file_write *first = file_write_begin(place.data, "a/file", 0, FILE_KEEP, &err);
    struct file_write *second = file_write_begin(place.data, "a/file", 10, FILE_KEEP, &err);
    assert_non_null(first);
    assert_non_null(second);
    assert_int_equal(file_write_add(first, "first", 5, &err), 0);
    json_auto_t *before = list(place.data, "a", NULL, 10, &err);
    assert_int_equal(count(before), 0);
    assert_int_equal(file_write_commit(first, &st, &created, &err), 0);
    assert_true(created);
    assert_int_equal(st.st_size, 5);
    assert_int_equal(file_write_commit(second, &st, &created, &err), -1);
    assert_int_equal(err.code, KG_FILE_EXISTS);
    file_write_free(first);
    file_write_free(second);
    assert_null(file_write_begin(place.data, "a/file", 0, FILE_KEEP, &err));
    assert_int_equal(err.code, KG_FILE_EXISTS);
    assert_null(file_write_begin(place.data, "a", 0, 0, &err));
    assert_int_equal(err.code, KG_INVALID_PATH);
    assert_null(file_write_begin(place.data, "a/file/below", 0, 0, &err));
    assert_int_equal(err.code, KG_INVALID_PATH);
    assert_null(file_write_begin(place.data, "new\nline", 0, 0, &err));
    assert_int_equal(err.code, KG_INVALID_PATH);
    // Nothing of what came to nothing is left, hidden or not.
    KG_AUTO_FREE char *folder = inside(&place, "a");
    assert_int_equal(count_entries(folder), 1);
    assert_int_equal(file_delete(place.data, "a", false, &err), 0);
    assert_int_equal(count_entries(place.data), 0);
    assert_int_equal(file_delete(place.data, "a", false, &err), -1);
    assert_int_equal(err.code, KG_NOT_FOUND);
    agent_place_remove(&place);
}

void
test_files_etag(void **state)
{
    struct agent_place place;
    struct kg_error err = {0};
    char etags[3][FILE_ETAG_MAX + 1];
    struct stat st;
    (void)state;

    agent_place_make(&place);
    for (int i = 0; i < 2; i++) {
        write_text(&place, "file", "same");
        KG_AUTO_FD fd = file_open(place.data, "file", &st, &err);
        assert_true(fd >= 0);
        file_etag(&st, etags[i]);
    }
    assert_string_not_equal(etags[0], etags[1]);
    file_etag(&st, etags[2]);
    assert_string_equal(etags[1], etags[2]);
    agent_place_remove(&place);
}

// ---- Changes --------------------------------------------------------------------------------

static json_t *
ask(struct changes *changes, const char *question)
{
    struct kg_error err = {0};
    json_auto_t *params = json_loads(question, 0, NULL);
    json_t *answer = changes_since(changes, params, &err);

    assert_true(answer ? err.code == KG_OK : err.code == KG_INVALID);
    return answer;
}

static const char within_a_minute[] = "{\"cursor\":\"python\",\"within_us\":60000000}";

static void
assert_changed(struct changes *changes, const char *const *names, size_t n)
{
    json_auto_t *answer = ask(changes, within_a_minute);

    assert_int_equal(count(answer), n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(path_at(answer, i), names[i]);
}

#define ASSERT_CHANGED(...)                                                                        \
    assert_changed(changes, (const char *const[]){__VA_ARGS__},                                    \
                   KG_ARRAY_LEN(((const char *const[]){__VA_ARGS__})))

void
test_changes(void **state)
{
    struct agent_place place;
    struct kg_error err = {0};
    struct stat st;
    (void)state;

    agent_place_make(&place);
    KG_AUTO(changes) changes = changes_new(place.data);
    write_text(&place, "old", "1");
    changes_begin(changes, "python");
    assert_changed(changes, NULL, 0);
    write_text(&place, "new", "1");
    write_text(&place, "sub/deep", "1");
    ASSERT_CHANGED("new", "sub/deep");
    assert_changed(changes, NULL, 0);
    write_text(&place, "old", "12");
    ASSERT_CHANGED("old");
    // What is taken away, and what the agent itself writes, is no news.
    assert_int_equal(file_delete(place.data, "new", false, &err), 0);
    write_text(&place, "own", "1");
    KG_AUTO_FREE char *own = inside(&place, "own");
    assert_int_equal(stat(own, &st), 0);
    changes_own(changes, "own", &st);
    assert_changed(changes, NULL, 0);
    write_text(&place, "own", "12");
    ASSERT_CHANGED("own");
    agent_place_remove(&place);
}

// Moves the time to `ms` after the last change of a file.
static void
set_age(const struct agent_place *place, const char *name, int64_t ms)
{
    KG_AUTO_FREE char *path = inside(place, name);
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    int64_t changed_ms = st.st_ctim.tv_sec * INT64_C(1000) + st.st_ctim.tv_nsec / 1000000;
    virtual_clock_move(changed_ms + ms - clock_wall_ms());
}

void
test_changes_are_bounded_in_time_and_number(void **state)
{
    struct agent_place place;
    (void)state;

    agent_place_make(&place);
    KG_AUTO(changes) changes = changes_new(place.data);
    for (int i = 0; i < 150; i++) {
        KG_AUTO_FREE char *name = kg_asprintf("f%03d", i);
        write_text(&place, name, "x");
    }
    set_age(&place, "f149", 300);
    // Another cursor, and an execution that began after all that.
    json_auto_t *late = ask(changes, "{\"cursor\":\"deno\",\"within_us\":1000}");
    assert_int_equal(count(late), 0);
    json_auto_t *all = ask(changes, within_a_minute);
    assert_int_equal(count(all), 100);
    assert_int_equal(number_of(all, "more"), 50);
    // A third one, whose execution began after that answer.
    json_auto_t *seen =
        ask(changes, "{\"cursor\":\"r\",\"within_us\":60000000,\"after_look\":true}");
    assert_int_equal(count(seen), 0);
    static const char *const bad[] = {"{}", "{\"cursor\":\"../x\",\"within_us\":1}",
                                      "{\"cursor\":\"a\",\"within_us\":-1}",
                                      "{\"cursor\":\"a\",\"within_us\":1,\"more\":1}"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_null(ask(changes, bad[i]));
    agent_place_remove(&place);
}

void
test_changes_call(void **state)
{
    static const char question[] =
        "{\"method\":\"changes\",\"params\":{\"cursor\":\"python\",\"within_us\":60000000}}";
    struct fixture *f = *state;
    char answer[128];

    start_kernel(f, "python", "echo", "ipc");
    KG_AUTO_FD link = open_target(f, RPC_TARGET, answer);
    write_text(&f->place, "made", "1");
    for (int i = 0; i < 2; i++) {
        send_frame(link, FRAME_REQUEST, question, strlen(question));
        json_auto_t *body = read_result(link, KG_OK);
        assert_int_equal(count(body), i == 0 ? 1 : 0);
    }
}

// ---- As calls -------------------------------------------------------------------------------

static void
put(struct fixture *f, const char *path, bool keep, const char *text, enum kg_code expected)
{
    KG_AUTO_FREE char *params =
        kg_asprintf("{\"path\":\"%s\",\"keep\":%s}", path, keep ? "true" : "false");
    KG_AUTO_FD fd = send_request(f, "files.write", params, strlen(text));

    // In two parts, which the agent may have refused by then.
    size_t half = strlen(text) / 2;
    if (half > 0)
        send_frame(fd, FRAME_DATA, text, half);
    if (*text)
        send_frame(fd, FRAME_DATA, text + half, strlen(text) - half);
    json_auto_t *result = read_result(fd, expected);
    if (expected == KG_OK)
        assert_int_equal(number_of(result, "size"), strlen(text));
    // Whatever came of it, the link takes the next call.
    static const char info[] = "{\"method\":\"info\",\"params\":{}}";
    send_frame(fd, FRAME_REQUEST, info, strlen(info));
    json_decref(read_result(fd, KG_OK));
}

void
test_files_calls(void **state)
{
    struct fixture *f = *state;

    put(f, "a/b", true, "hello", KG_OK);
    put(f, "a/b", true, "hello", KG_FILE_EXISTS);
    put(f, "a/b", false, "", KG_OK);
    put(f, "../c", false, "hello", KG_INVALID_PATH);
    json_auto_t *about = call(f, "files.describe", "{\"path\":\"a/b\"}", KG_OK);
    assert_int_equal(number_of(about, "size"), 0);
    // A body that is not completed leaves nothing.
    int fd = send_request(f, "files.write", "{\"path\":\"d\",\"keep\":false}", 4);
    send_frame(fd, FRAME_DATA, "ab", 2);
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    while (count_entries(f->place.data) != 2)
        assert_true(wait_now_ms() < give_up);
    close(fd);
    while (count_entries(f->place.data) != 1)
        assert_true(wait_now_ms() < give_up);
    // Nor does one that is longer than was said: it ends the link.
    KG_AUTO_BUF rest = {0};
    fd = send_request(f, "files.write", "{\"path\":\"d\",\"keep\":false}", 4);
    send_frame(fd, FRAME_DATA, "abcde", 5);
    assert_int_equal(read_frame(fd, &rest), FRAME_N_KINDS);
    close(fd);
    assert_int_equal(count_entries(f->place.data), 1);
    do_call(f, "files.delete", "{\"path\":\"a\"}", KG_OK);
    do_call(f, "files.delete", "{\"path\":\"a\"}", KG_NOT_FOUND);
    do_call(f, "files.describe", "{\"path\":\"../x\"}", KG_INVALID_PATH);
    do_call(f, "files.describe", "{}", KG_INVALID);
    do_call(f, "files.read", "{\"path\":\"a\"}", KG_NOT_FOUND);
}

static void
put_own(struct fixture *f, const char *path, bool own, enum kg_code expected)
{
    KG_AUTO_FREE char *params =
        kg_asprintf("{\"path\":\"%s\",\"keep\":false,\"own\":%s}", path, own ? "true" : "false");
    KG_AUTO_FD fd = send_request(f, "files.write", params, 2);

    send_frame(fd, FRAME_DATA, "ab", 2);
    json_decref(read_result(fd, expected));
}

// Names that clients' paths cannot have are the gateway's, where it says so.
void
test_files_own(void **state)
{
    struct fixture *f = *state;

    put_own(f, ".kg-x/sub/file", true, KG_OK);
    put_own(f, ".kg-x/file", false, KG_INVALID_PATH);
    static const char *const bad[] = {
        "x", "", ".kg", ".kg-", ".kg-/x", ".kg-x/../y", ".kg-x/.kg-y", "a/.kg-x", "/.kg-x"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        put_own(f, bad[i], true, KG_INVALID_PATH);
    assert_int_equal(count_entries(f->place.data), 1);
    json_auto_t *listing = call(f, "files.list", "{}", KG_OK);
    assert_int_equal(count(listing), 0);
    do_call(f, "files.delete", "{\"path\":\".kg-x\"}", KG_INVALID_PATH);
    do_call(f, "files.delete", "{\"path\":\"a\",\"own\":true}", KG_INVALID_PATH);
    do_call(f, "files.delete", "{\"path\":\".kg-x\",\"own\":true}", KG_OK);
    assert_int_equal(count_entries(f->place.data), 0);
    do_call(f, "files.delete", "{\"path\":\".kg-x\",\"own\":true}", KG_NOT_FOUND);
}

static void
assert_read(struct fixture *f, const char *more, const char *expected, bool is_part)
{
    KG_AUTO_FREE char *params = kg_asprintf("{\"path\":\"file\"%s}", more);
    KG_AUTO_FD fd = send_request(f, "files.read", params, 0);
    KG_AUTO_BUF frame = {0};
    KG_AUTO_BUF text = {0};

    assert_int_equal(read_frame(fd, &frame), FRAME_HEAD);
    json_auto_t *head = json_loadb(frame.data, frame.len, 0, NULL);
    assert_int_equal(number_of(head, "size"), 10);
    assert_int_equal(number_of(head, "length"), strlen(expected));
    assert_int_equal(json_is_true(json_object_get(head, "part")), is_part);
    enum frame_kind kind;
    while ((kind = read_frame(fd, &frame)) == FRAME_DATA)
        buf_append(&text, frame.data, frame.len);
    assert_int_equal(kind, FRAME_RESULT);
    assert_string_equal(text.data ? text.data : "", expected);
}

void
test_files_read(void **state)
{
    enum { LARGE = 4 << 20 };
    struct fixture *f = *state;
    KG_AUTO_BUF frame = {0};

    write_text(&f->place, "file", "0123456789");
    assert_read(f, "", "0123456789", false);
    assert_read(f, ",\"first\":2,\"last\":4", "234", true);
    assert_read(f, ",\"first\":8,\"last\":-1", "89", true);
    assert_read(f, ",\"first\":-1,\"last\":3", "789", true);
    assert_read(f, ",\"first\":10,\"last\":-1", "", true);
    assert_read(f, ",\"first\":2,\"last\":4,\"if_etag\":\"other\"", "0123456789", false);
    // One that shrinks under its reader is an error, in the middle of the answer.
    KG_AUTO_FREE char *large = inside(&f->place, "large");
    int file = open(large, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(file, LARGE), 0);
    KG_AUTO_FD fd = send_request(f, "files.read", "{\"path\":\"large\"}", 0);
    assert_int_equal(read_frame(fd, &frame), FRAME_HEAD);
    assert_int_equal(ftruncate(file, 0), 0);
    close(file);
    enum frame_kind kind;
    while ((kind = read_frame(fd, &frame)) == FRAME_DATA)
        ;
    assert_int_equal(kind, FRAME_ERROR);
}
