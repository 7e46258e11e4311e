// SPDX-License-Identifier: Apache-2.0
// The agent's commands: their output, their end, what they leave behind.
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "commands.h"
#include "test_agent.h"

// What came of a command: its texts, and its result.
struct outcome {
    struct buf out, err;
    json_t *end;
};

static void
outcome_fini(struct outcome *outcome)
{
    buf_fini(&outcome->out);
    buf_fini(&outcome->err);
    json_decref(outcome->end);
}

static int
start(struct fixture *f, const char *script, json_t *more)
{
    json_auto_t *body =
        json_pack("{s:[s, s, s], s:i}", "argv", "sh", "-c", script, "timeout_ms", (int)PATIENCE_MS);
    if (more)
        json_object_update(body, more);
    json_decref(more);
    KG_AUTO_FREE char *text = json_dumps(body, 0);
    return send_request(f, "commands.run", text, 0);
}

static void
finish(int fd, struct outcome *ret)
{
    KG_AUTO_BUF frame = {0};
    enum frame_kind kind;

    *ret = (struct outcome){0};
    while ((kind = read_frame(fd, &frame)) != FRAME_RESULT) {
        if (kind == FRAME_HEAD)
            continue;
        assert_int_equal(kind, FRAME_DATA);
        assert_in_range(frame.data[0], 1, 2);
        buf_append(frame.data[0] == 1 ? &ret->out : &ret->err, frame.data + 1, frame.len - 1);
    }
    ret->end = json_loadb(frame.data, frame.len, 0, NULL);
    assert_non_null(ret->end);
    close(fd);
}

static void
run(struct fixture *f, const char *script, json_t *more, struct outcome *ret)
{
    finish(start(f, script, more), ret);
}

static bool
flag_of(const struct outcome *outcome, const char *name)
{
    return json_is_true(json_object_get(outcome->end, name));
}

void
wait_until_gone(pid_t pid)
{
    int64_t give_up = wait_now_ms() + PATIENCE_MS;

    assert_true(pid > 1);
    while (kill(pid, 0) == 0)
        assert_true(wait_now_ms() < give_up);
    assert_int_equal(errno, ESRCH);
}

pid_t
read_pid(struct fixture *f, const char *name)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", f->place.data, name);
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    KG_AUTO_BUF text = {0};

    while (text.len == 0 || text.data[text.len - 1] != '\n') {
        text.len = 0;
        (void)!file_read(path, 64, &text, NULL);
        assert_true(wait_now_ms() < give_up);
    }
    return (pid_t)strtol(text.data, NULL, 10);
}

void
test_command(void **state)
{
    struct fixture *f = *state;
    struct outcome outcome;
    struct kg_error err;
    KG_AUTO_FREE char *folder = kg_asprintf("%s/sub", f->place.data);

    assert_int_equal(dir_make(folder, 0700, &err), 0);
    run(f, "echo \"$GIVEN $(basename $PWD)\"; echo oops >&2; read x || exit 3",
        json_pack("{s:s, s:{s:s}}", "cwd", "sub", "env", "GIVEN", "a b"), &outcome);
    assert_string_equal(outcome.out.data, "a b sub\n");
    assert_string_equal(outcome.err.data, "oops\n");
    assert_int_equal(number_of(outcome.end, "exit_code"), 3);
    assert_int_equal(number_of(outcome.end, "signal"), 0);
    assert_int_equal(number_of(outcome.end, "dropped_bytes"), 0);
    assert_false(flag_of(&outcome, "timed_out"));
    outcome_fini(&outcome);

    run(f, "kill -SEGV $$", json_pack("{s:s}", "cwd", "/"), &outcome);
    assert_int_equal(number_of(outcome.end, "exit_code"), 128 + SIGSEGV);
    assert_int_equal(number_of(outcome.end, "signal"), SIGSEGV);
    outcome_fini(&outcome);

    // It may close what it was given, and go on.
    run(f, "exec >&- 2>&-; sleep 0.3; exit 5", NULL, &outcome);
    assert_int_equal(number_of(outcome.end, "exit_code"), 5);
    outcome_fini(&outcome);
}

void
test_command_note(void **state)
{
    struct fixture *f = *state;
    char note[COMMAND_NOTE_MAX + 2] = "";
    memset(note, 'n', COMMAND_NOTE_MAX);
    KG_AUTO_BUF frame = {0};
    int fd = start(f, "read x", json_pack("{s:b, s:s}", "stdin", 1, "note", note));
    assert_int_equal(read_frame(fd, &frame), FRAME_HEAD);
    KG_AUTO_FD list = send_request(f, "commands.list", "{}", 0);
    json_auto_t *result = read_result(list, KG_OK);
    const json_t *info = json_array_get(json_object_get(result, "commands"), 0);
    assert_string_equal(json_string_value(json_object_get(info, "note")), note);
    close(fd);
    note[COMMAND_NOTE_MAX] = 'n';
    KG_AUTO_FD refused = start(f, "true", json_pack("{s:s}", "note", note));
    json_decref(read_result(refused, KG_INVALID));
}

void
test_command_text(void **state)
{
    struct fixture *f = *state;
    struct outcome outcome;

    // A character in two writes, bytes that are none, a NUL, the start of one at the end.
    run(f, "printf '\\303'; sleep 0.1; printf '\\244\\377z\\000'; printf '\\342\\202'", NULL,
        &outcome);
    assert_int_equal(outcome.out.len, 2 + 3 + 1 + 1 + 3);
    assert_memory_equal(outcome.out.data, "\xc3\xa4\xef\xbf\xbdz\0\xef\xbf\xbd", outcome.out.len);
    outcome_fini(&outcome);
    run(f, "head -c 1048576 /dev/zero | tr '\\0' x", NULL, &outcome);
    assert_int_equal(outcome.out.len, 1 << 20);
    outcome_fini(&outcome);
}

// Reads frames up to one of standard output, which must be this.
static void
expect_output(int fd, const char *text)
{
    KG_AUTO_BUF frame = {0};
    enum frame_kind kind;

    do
        kind = read_frame(fd, &frame);
    while (kind == FRAME_HEAD || (kind == FRAME_DATA && frame.data[0] == 2));
    assert_int_equal(kind, FRAME_DATA);
    assert_string_equal(frame.data + 1, text);
}

// Runs a script until it has said `ready`, and on until its time is over.
static int
start_and_time_out(struct fixture *f, const char *script)
{
    enum { TIMEOUT_MS = 30 * 1000 };
    int fd = start(f, script, json_pack("{s:i}", "timeout_ms", TIMEOUT_MS));

    expect_output(fd, "ready\n");
    agent_clock_advance(&f->place, TIMEOUT_MS);
    return fd;
}

void
test_command_timeout(void **state)
{
    struct fixture *f = *state;
    struct outcome outcome;

    // One that ignores SIGTERM, in a session of its own, whose parent is gone.
    int fd = start_and_time_out(
        f, "setsid sh -c 'trap \"\" TERM; echo $$ >left.pid; while :; do sleep 60; done' & "
           "while ! [ -s left.pid ]; do :; done; trap 'echo bye; exit 7' TERM; echo ready; "
           "while :; do sleep 0.05; done");
    expect_output(fd, "bye\n");
    agent_clock_advance(&f->place, 1500); // the grace of the one that ignores it
    finish(fd, &outcome);
    assert_true(flag_of(&outcome, "timed_out"));
    assert_int_equal(number_of(outcome.end, "exit_code"), 7);
    assert_int_equal(kill(read_pid(f, "left.pid"), 0), -1); // before the answer's end
    outcome_fini(&outcome);

    finish(start_and_time_out(f, "trap '' TERM; echo ready; while :; do sleep 0.05; done"),
           &outcome);
    assert_true(flag_of(&outcome, "timed_out"));
    assert_int_equal(number_of(outcome.end, "signal"), SIGKILL);
    assert_false(flag_of(&outcome, "oom"));
    outcome_fini(&outcome);
}

void
test_command_caller_gone(void **state)
{
    struct fixture *f = *state;

    // With output and without: the end of the connection is seen either way.
    static const char *const scripts[] = {
        "echo $$ >one.pid; (setsid sleep 1000 & echo $! >two.pid); sleep 1000",
        "echo $$ >one.pid; (setsid sleep 1000 & echo $! >two.pid); yes",
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(scripts); i++) {
        KG_AUTO_FREE char *two = kg_asprintf("%s/two.pid", f->place.data);
        int fd = start(f, scripts[i], NULL);
        pid_t first = read_pid(f, "one.pid");
        pid_t second = read_pid(f, "two.pid");
        assert_int_equal(kill(second, 0), 0);
        close(fd);
        wait_until_gone(first);
        wait_until_gone(second);
        assert_int_equal(unlink(two), 0);
    }
}

void
test_command_background(void **state)
{
    struct fixture *f = *state;
    struct outcome outcome;
    enum { MAX_TRIES = 20 };
    int tries = 0;
    pid_t left;

    // What comes soon after the command's end belongs to it; a busy machine may be too late.
    for (bool complete = false; !complete;) {
        run(f, "sleep 1000 & echo $! >left.pid; (sleep 0.05; echo late) & echo soon", NULL,
            &outcome);
        assert_false(flag_of(&outcome, "timed_out")); // it did not wait for the sleep
        left = read_pid(f, "left.pid");
        complete = strcmp(outcome.out.data, "soon\nlate\n") == 0;
        if (!complete) {
            assert_string_equal(outcome.out.data, "soon\n");
            assert_int_equal(kill(left, SIGKILL), 0);
            assert_true(++tries < MAX_TRIES);
        }
        assert_int_equal(number_of(outcome.end, "exit_code"), 0);
        outcome_fini(&outcome);
    }
    // It lives on, and the kernels' coming and going does not touch it.
    start_kernel(f, "python", "echo", "ipc");
    do_call(f, "kernels.stop", "{\"name\":\"python\"}", KG_OK);
    assert_int_equal(kill(left, 0), 0);
    KG_AUTO_FREE char *script = kg_asprintf("kill %d", left);
    run(f, script, NULL, &outcome);
    wait_until_gone(left);
    outcome_fini(&outcome);
}

void
test_command_and_kernels(void **state)
{
    struct fixture *f = *state;
    struct outcome outcome;

    start_kernel(f, "python", "echo", "ipc");
    int fd = start(f, "echo $$ >one.pid; while ! [ -e go ]; do sleep 0.01; done; echo went", NULL);
    (void)read_pid(f, "one.pid");
    start_kernel(f, "other", "leave", "ipc");
    close(open_kernel(f, "other/shell"));
    do_call(f, "kernels.stop", "{\"name\":\"other\"}", KG_OK);
    run(f, "sleep 1000", json_pack("{s:i}", "timeout_ms", 50), &outcome);
    outcome_fini(&outcome);
    run(f, "touch go", NULL, &outcome);
    outcome_fini(&outcome);
    finish(fd, &outcome);
    assert_string_equal(outcome.out.data, "went\n");
    outcome_fini(&outcome);
    check_channels(f, "python");
}

void
test_command_output_bound(void **state)
{
    struct fixture *f = *state;
    struct outcome outcome;

    run(f, "head -c 300000 /dev/zero | tr '\\0' '\\303'; echo more >&2",
        json_pack("{s:i}", "max_output_bytes", 100001), &outcome);
    assert_int_equal(number_of(outcome.end, "exit_code"), 0);
    assert_int_equal(number_of(outcome.end, "dropped_bytes"), 300005 - 100001);
    // Each byte became one U+FFFD, but for the last, whose character the bound has cut.
    assert_int_equal(outcome.out.len, 100000 * 3);
    assert_int_equal(outcome.err.len, 0);
    outcome_fini(&outcome);
}

void
test_command_held_back(void **state)
{
    struct fixture *f = *state;
    struct outcome outcome;
    struct kg_error err;
    KG_AUTO_FREE char *count = kg_asprintf("%s/count", f->place.data);

    // 16 MiB that nobody reads: the command must come to a stand.
    int fd = start(f,
                   "for i in $(seq 256); do head -c 65536 /dev/zero | tr '\\0' x; "
                   "echo $i >count; done",
                   NULL);
    long last = 0;
    for (int still = 0; still < 30; poll(NULL, 0, 10)) {
        KG_AUTO_BUF text = {0};
        long now = file_read(count, 64, &text, &err) == 0 && text.len ? atol(text.data) : 0;
        still = now > 0 && now == last ? still + 1 : 0;
        last = now;
    }
    assert_in_range(last, 1, 128);
    finish(fd, &outcome);
    assert_int_equal(outcome.out.len, 16 << 20);
    assert_int_equal(number_of(outcome.end, "dropped_bytes"), 0);
    outcome_fini(&outcome);
    // What floods on in the background does not keep the answer open, whoever reads it or not.
    fd = start(f, "yes & echo $! >left.pid", NULL);
    pid_t left = read_pid(f, "left.pid");
    poll(NULL, 0, 500);
    finish(fd, &outcome);
    assert_int_equal(number_of(outcome.end, "exit_code"), 0);
    outcome_fini(&outcome);
    wait_until_gone(left); // by SIGPIPE
}

void
test_command_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "",
        "{}",
        "{\"argv\":[\"true\"]}",
        "{\"argv\":[],\"timeout_ms\":1000}",
        "{\"argv\":[1],\"timeout_ms\":1000}",
        "{\"argv\":[\"a\\u0000\"],\"timeout_ms\":1000}",
        "{\"argv\":[\"true\"],\"timeout_ms\":0}",
        "{\"argv\":[\"true\"],\"timeout_ms\":1000,\"max_output_bytes\":-1}",
        "{\"argv\":[\"true\"],\"timeout_ms\":1000,\"env\":{\"\":\"\"}}",
        "{\"argv\":[\"true\"],\"timeout_ms\":1000,\"more\":1}",
        "{\"argv\":[\"true\"],\"timeout_ms\":1000,\"cwd\":\"no/such/folder\"}",
        "{\"argv\":[\"true\"],\"timeout_ms\":1000,\"cwd\":\"/dev/null\"}",
        "{\"argv\":[\"/no/such/program\"],\"timeout_ms\":1000}",
        "{\"argv\":[\"true\"],\"timeout_ms\":1000,\"env\":{\"PATH\":\"/no/such/folder\"}}",
    };
    enum { MOST = 16 };
    int fds[MOST];

    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        bool bad_folder = strstr(bad[i], "\"cwd\"");
        do_call(f, "commands.run", bad[i], bad_folder ? KG_INVALID_PATH : KG_INVALID);
    }
    // What was refused has left nothing behind.
    KG_AUTO_BUF frame = {0};
    for (int i = 0; i < MOST; i++)
        fds[i] = start(f, "echo up; while ! [ -e go ]; do sleep 0.05; done", NULL);
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(read_frame(fds[i], &frame), FRAME_HEAD);
        assert_int_equal(read_frame(fds[i], &frame), FRAME_DATA);
        assert_string_equal(frame.data + 1, "up\n");
    }
    do_call(f, "commands.run", "{\"argv\":[\"true\"],\"timeout_ms\":1000}", KG_SESSION_BUSY);
    for (int i = 1; i < MOST; i++)
        close(fds[i]);
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    enum frame_kind kind;
    do {
        KG_AUTO_FD fd = start(f, "touch go", NULL);
        kind = read_frame(fd, &frame);
        while (kind == FRAME_HEAD && read_frame(fd, &frame) != FRAME_RESULT)
            ;
        assert_true(wait_now_ms() < give_up);
    } while (kind != FRAME_HEAD);
    json_auto_t *result = read_result(fds[0], KG_OK);
    assert_int_equal(number_of(result, "exit_code"), 0);
    close(fds[0]);
}
