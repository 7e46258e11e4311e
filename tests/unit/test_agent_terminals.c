// SPDX-License-Identifier: Apache-2.0
// Commands that have a terminal.
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

#include "test_agent.h"

static struct stream
start(struct fixture *f, const char *id, const char *script)
{
    struct stream stream = stream_start(
        f, script, json_pack("{s:s, s:{s:i, s:i}}", "id", id, "terminal", "cols", 91, "rows", 33));
    assert_true(json_is_true(json_object_get(stream.head, "terminal")));
    return stream;
}

static void
expect_end(struct stream *stream, int code)
{
    stream_finish(stream);
    if (number_of(stream->end, "exit_code") != code)
        fail_msg("%d: %s", number_of(stream->end, "exit_code"), stream->out.data);
    stream_fini(stream);
}

void
test_terminal(void **state)
{
    struct fixture *f = *state;

    struct stream stream =
        start(f, "t",
              "stty size; echo \"$TERM\"; tty -s && echo a tty >&2; echo over >/dev/tty; "
              "[ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && echo leads; stty -a | grep -c iutf8; "
              "printf '\\377'");
    stream_finish(&stream);
    assert_string_equal(stream.out.data,
                        "33 91\r\nxterm-256color\r\na tty\r\nover\r\nleads\r\n1\r\n\xff");
    assert_int_equal(stream.streams, 1 << 3);
    assert_int_equal(number_of(stream.end, "exit_code"), 0);
    stream_fini(&stream);
    // The same later.
    stream = stream_join(f, "t", false);
    stream_finish(&stream);
    assert_int_equal(stream.out.data[stream.out.len - 1], '\xff');
    assert_int_equal(stream.streams, 1 << 3);
    stream_fini(&stream);
    json_auto_t *command = listed(f, "t");
    assert_true(json_is_true(json_object_get(command, "terminal")));

    stream = stream_start(f, "echo $TERM",
                          json_pack("{s:{s:i, s:i}, s:{s:s}}", "terminal", "cols", 80, "rows", 24,
                                    "env", "TERM", "dumb"));
    stream_finish(&stream);
    assert_string_equal(stream.out.data, "dumb\r\n");
    stream_fini(&stream);
}

void
test_terminal_resize(void **state)
{
    struct fixture *f = *state;

    struct stream stream = start(f, "r",
                                 "trap 'stty size' WINCH; echo up; "
                                 "while ! [ -e go ]; do sleep 0.01; done");
    stream_until(&stream, "up\r\n");
    id_call(f, "commands.resize", "r", ",\"cols\":1000,\"rows\":1", KG_OK);
    stream_until(&stream, "1 1000\r\n");
    write_text(&f->place, "go", "");
    expect_end(&stream, 0);
    id_call(f, "commands.resize", "r", ",\"cols\":80,\"rows\":24", KG_INVALID);
}

void
test_terminal_keys(void **state)
{
    struct fixture *f = *state;

    struct stream stream = start(f, "c", "echo up; exec sleep 1000");
    stream_until(&stream, "up\r\n");
    input(f, "c", "\x03");
    expect_end(&stream, 128 + SIGINT);
    // The end of the input: behind a line, and within one.
    stream = start(f, "d", "cat; echo end");
    input(f, "d", "line\n");
    id_call(f, "commands.close_input", "d", "", KG_OK);
    stream_until(&stream, "end\r\n");
    expect_end(&stream, 0);
    stream = start(f, "e", "stty -echo; echo up; cat; echo end");
    stream_until(&stream, "up\r\n");
    input(f, "e", "part");
    id_call(f, "commands.close_input", "e", "", KG_OK);
    stream_until(&stream, "partend\r\n");
    expect_end(&stream, 0);
    // It may go on after that.
    stream = start(f, "g", "cat; echo first; cat; echo second");
    id_call(f, "commands.close_input", "g", "", KG_OK);
    stream_until(&stream, "first\r\n");
    id_call(f, "commands.close_input", "g", "", KG_OK);
    stream_until(&stream, "second\r\n");
    expect_end(&stream, 0);
}

void
test_terminal_jobs(void **state)
{
    struct fixture *f = *state;

    struct stream stream = start(f, "j", "PS1='> ' exec bash --norc --noprofile -i");
    stream_until(&stream, "> ");
    input(f, "j", "set -o | grep monitor\n");
    stream_until(&stream, "\ton");
    input(f, "j", "sleep 1000\n");
    stream_until(&stream, "sleep 1000\r\n");
    poll(NULL, 0, 200); // until it is in the foreground
    input(f, "j", "\x1a");
    stream_until(&stream, "Stopped");
    input(f, "j", "jobs -l; echo $((6*7))\n");
    stream_until(&stream, "42\r\n");
    stream.out.len = 0;
    input(f, "j", "fg\n");
    stream_until(&stream, "sleep 1000\r\n");
    poll(NULL, 0, 200);
    // To the foreground, not to the shell.
    id_call(f, "commands.signal", "j", ",\"signal\":\"INT\"", KG_OK);
    stream_until(&stream, "> ");
    input(f, "j", "echo code $?\n");
    stream_until(&stream, "code 130\r\n");
    input(f, "j", "exit 9\n");
    expect_end(&stream, 9);
}

// As an editor has it: keys come as they are, one by one.
void
test_terminal_raw(void **state)
{
    struct fixture *f = *state;

    struct stream stream = start(f, "raw",
                                 "stty raw -echo; printf 'up'; "
                                 "dd bs=1 count=5 2>/dev/null | od -An -tx1; stty sane; echo end");
    stream_until(&stream, "up");
    input(f, "raw", "\x03\x04");
    input(f, "raw", "\x1a\x1b");
    id_call(f, "commands.close_input", "raw", "", KG_OK);
    stream_until(&stream, "03 04 1a 1b 04");
    stream_until(&stream, "end\r\n");
    expect_end(&stream, 0);
}

void
test_terminal_background(void **state)
{
    struct fixture *f = *state;

    // One in the foreground's group gets HUP, one that ignores it lives on without the terminal.
    struct stream stream =
        start(f, "b",
              "sleep 1000 & echo $! >one.pid; (trap '' HUP; exec sleep 1000) & echo $! >two.pid; "
              "sleep 0.1; exit 5");
    stream_finish(&stream);
    assert_int_equal(number_of(stream.end, "exit_code"), 5);
    assert_false(json_is_true(json_object_get(stream.end, "timed_out")));
    stream_fini(&stream);
    wait_until_gone(read_pid(f, "one.pid"));
    pid_t two = read_pid(f, "two.pid");
    assert_int_equal(kill(two, 0), 0);
    id_call(f, "commands.signal", "b", ",\"signal\":\"KILL\"", KG_OK);
    wait_until_gone(two);
    // What the session's leader leaves ends with its caller, as that of other commands.
    stream =
        start(f, "k", "trap '' HUP; setsid sleep 1000 & echo $! >three.pid; echo up; sleep 1000");
    stream_until(&stream, "up\r\n");
    pid_t three = read_pid(f, "three.pid");
    stream_fini(&stream);
    wait_until_gone(three);
}

// A command may close its terminal, and open it again.
void
test_terminal_closed(void **state)
{
    struct fixture *f = *state;

    struct stream stream =
        start(f, "x", "exec <&- >&- 2>&-; sleep 0.3; echo again >/dev/tty; exit 5");
    stream_until(&stream, "again\r\n");
    expect_end(&stream, 5);
    stream = start(f, "y", "exec <&- >&- 2>&-; sleep 0.3; exit 5");
    expect_end(&stream, 5);
}

void
test_terminal_input(void **state)
{
    struct fixture *f = *state;
    enum { LEN = 600000 };
    KG_AUTO_FREE char *bytes = kg_calloc(LEN, 1);

    for (int i = 0; i < LEN; i++)
        bytes[i] = (char)(i % 61 == 60 ? '\n' : 'a' + i % 7);
    // Nobody reads it for a while.
    struct stream stream = start(f, "l",
                                 "stty raw -echo; echo up; while ! [ -e go ]; do sleep 0.01; done; "
                                 "head -c 600000 | md5sum; stty sane; echo end");
    stream_until(&stream, "up");
    input_bytes(f, "l", bytes, LEN, KG_OK);
    input_bytes(f, "l", bytes, LEN, KG_SESSION_BUSY);
    write_text(&f->place, "go", "");
    stream_until(&stream, "end\r\n");
    KG_AUTO_FREE char *copy = inside(&f->place, "copy");
    FILE *file = fopen(copy, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, LEN, file), LEN);
    fclose(file);
    struct stream sum = stream_start(f, "md5sum <copy", NULL);
    stream_finish(&sum);
    assert_int_equal(sum.out.len, 36);
    assert_non_null(strstr(stream.out.data, "  -"));
    assert_non_null(memmem(stream.out.data, stream.out.len, sum.out.data, 32));
    stream_fini(&sum);
    expect_end(&stream, 0);
}

// Each is closed with its command, so that there is always one more.
void
test_terminal_limits(void **state)
{
    struct fixture *f = *state;
    enum { MOST = 64 };
    struct stream streams[MOST];
    char id[32];

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MOST; i++) {
            snprintf(id, sizeof id, "l%d_%d", round, i);
            streams[i] = start(f, id, "read x; exit 4");
        }
        do_call(f, "commands.run",
                "{\"argv\":[\"true\"],\"timeout_ms\":1000,\"terminal\":{\"cols\":80,\"rows\":24}}",
                KG_SESSION_BUSY);
        for (int i = 0; i < MOST; i++) {
            snprintf(id, sizeof id, "l%d_%d", round, i);
            input(f, id, "\n");
            expect_end(&streams[i], 4);
        }
    }
}

void
test_terminal_refused(void **state)
{
    struct fixture *f = *state;

    do_call(f, "commands.run",
            "{\"argv\":[\"/no/such/program\"],\"timeout_ms\":1000,\"id\":\"a\","
            "\"terminal\":{\"cols\":80,\"rows\":24}}",
            KG_INVALID);
    id_call(f, "commands.join", "a", "", KG_NOT_FOUND); // nothing of it is left
    struct stream stream = start(f, "a", "exit 3");
    expect_end(&stream, 3);
    id_call(f, "commands.input", "a", "", KG_INVALID);
    id_call(f, "commands.close_input", "a", "", KG_INVALID);
}
