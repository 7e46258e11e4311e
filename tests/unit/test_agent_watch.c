// SPDX-License-Identifier: Apache-2.0
// The agent's reports of what changes in a folder, and its files by whole paths.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_agent.h"

enum { WATCHES_MAX = 8 };

static int
watch_start(struct fixture *f, const char *path, int folders)
{
    KG_AUTO_BUF text = {0};
    KG_AUTO_FREE char *params = kg_asprintf("{\"path\":\"%s\",\"recursive\":true}", path);
    int fd = send_request(f, "files.watch", params, 0);

    assert_int_equal(read_frame(fd, &text), FRAME_HEAD);
    json_auto_t *head = json_loads(text.data, 0, NULL);
    assert_int_equal(number_of(head, "folders"), folders);
    return fd;
}

// Reads reports until one of them has the text.
static void
watch_until(int fd, const char *expected)
{
    KG_AUTO_BUF all = {0};

    while (!all.data || !strstr(all.data, expected)) {
        KG_AUTO_BUF text = {0};
        assert_int_equal(read_frame(fd, &text), FRAME_DATA);
        buf_append(&all, text.data, text.len);
    }
}

void
test_watch(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *from = inside(&f->place, "new");
    KG_AUTO_FREE char *to = inside(&f->place, "newer");

    write_text(&f->place, "a/b", "1");
    KG_AUTO_FD fd = watch_start(f, "", 2);
    write_text(&f->place, "new/c", "1");
    watch_until(fd, "\"path\":\"new/c\"");
    assert_int_equal(rename(from, to), 0);
    watch_until(fd, "{\"event\":\"rename\",\"path\":\"newer\",\"from\":\"new\",\"folder\":true}\n");
    write_text(&f->place, "newer/d", "1");
    watch_until(fd, "{\"event\":\"create\",\"path\":\"newer/d\",\"folder\":false}\n");
    write_text(&f->place, "last", "1");
    watch_until(fd, "\"path\":\"last\"");
}

void
test_watch_ends(void **state)
{
    struct fixture *f = *state;

    write_text(&f->place, "a/b", "1");
    KG_AUTO_FD fd = watch_start(f, "a", 1);
    do_call(f, "files.delete", "{\"path\":\"a\"}", KG_OK);
    for (enum frame_kind kind = FRAME_DATA; kind != FRAME_RESULT;) {
        KG_AUTO_BUF text = {0};
        kind = read_frame(fd, &text);
        assert_true(kind == FRAME_DATA || kind == FRAME_RESULT);
    }
}

void
test_watch_bounds(void **state)
{
    struct fixture *f = *state;
    int fds[WATCHES_MAX];

    for (int i = 0; i < WATCHES_MAX; i++)
        fds[i] = watch_start(f, "", 1);
    do_call(f, "files.watch", "{\"path\":\"\",\"recursive\":false}", KG_SESSION_BUSY);
    for (int i = 0; i < WATCHES_MAX; i++)
        close(fds[i]);
    do_call(f, "files.watch", "{\"path\":\"none\",\"recursive\":false}", KG_NOT_FOUND);
    do_call(f, "files.watch", "{\"path\":\"/proc\",\"recursive\":true}", KG_INVALID_PATH);
    do_call(f, "files.watch", "{\"path\":\"\"}", KG_INVALID);
}

void
test_files_by_whole_paths(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *file = inside(&f->place, "a/b");
    KG_AUTO_FREE char *params = kg_asprintf("{\"path\":\"%s\"}", file);
    KG_AUTO_FREE char *mode = kg_asprintf("{\"path\":\"%s\",\"mode\":%d}", file, 0640);
    KG_AUTO_FREE char *move = kg_asprintf("{\"from\":\"%s\",\"to\":\"c\",\"keep\":true}", file);

    write_text(&f->place, "a/b", "1234");
    json_auto_t *entry = call(f, "files.stat", params, KG_OK);
    assert_int_equal(number_of(entry, "size"), 4);
    assert_int_equal(number_of(entry, "uid"), getuid());
    json_auto_t *changed = call(f, "files.chmod", mode, KG_OK);
    assert_int_equal(number_of(changed, "mode"), 0640);
    do_call(f, "files.chmod", "{\"path\":\"a/b\",\"mode\":2048}", KG_INVALID);
    do_call(f, "files.move", move, KG_OK);
    do_call(f, "files.stat", "{\"path\":\"c\"}", KG_OK);
    do_call(f, "files.stat", params, KG_NOT_FOUND);
    static const char *const own[] = {"/proc/self", "/sys", "/run/kg/door", "/run/kg-agent"};
    for (size_t i = 0; i < KG_ARRAY_LEN(own); i++) {
        KG_AUTO_FREE char *path = kg_asprintf("{\"path\":\"%s\"}", own[i]);
        do_call(f, "files.stat", path, KG_INVALID_PATH);
        do_call(f, "files.list", path, KG_INVALID_PATH);
        do_call(f, "files.delete", path, KG_INVALID_PATH);
    }
}
