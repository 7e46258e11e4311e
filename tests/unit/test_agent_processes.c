// SPDX-License-Identifier: Apache-2.0
// Commands with ids: who may read them, what they read, how they are signalled, how long they are
// known.
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

enum { KEPT = 64 * 1024, INPUT_MAX = 1024 * 1024 };

static int
exit_code(struct stream *stream)
{
    stream_finish(stream);
    int code = number_of(stream->end, "exit_code");
    stream_fini(stream);
    return code;
}

void
test_process_ids(void **state)
{
    struct fixture *f = *state;

    struct stream stream = stream_start(f, "echo $$; read x; exit 3",
                                        json_pack("{s:s, s:b}", "id", "a_1", "stdin", 1));
    assert_string_equal(text_of(stream.head, "id"), "a_1");
    assert_false(json_is_true(json_object_get(stream.head, "terminal")));
    stream_until(&stream, "\n");
    assert_int_equal(number_of(stream.head, "pid"), strtol(stream.out.data, NULL, 10));
    // While it runs, and after that.
    do_call(f, "commands.run", "{\"id\":\"a_1\",\"argv\":[\"true\"],\"timeout_ms\":1000}",
            KG_COMMAND_EXISTS);
    input(f, "a_1", "go\n");
    assert_int_equal(exit_code(&stream), 3);
    do_call(f, "commands.run", "{\"id\":\"a_1\",\"argv\":[\"true\"],\"timeout_ms\":1000}",
            KG_COMMAND_EXISTS);

    // Without an id it gets one, and is not known when it has ended.
    stream = stream_start(f, "echo up; read x", json_pack("{s:b}", "stdin", 1));
    KG_AUTO_FREE char *id = kg_strdup(text_of(stream.head, "id"));
    struct stream other = stream_join(f, id, false);
    stream_until(&other, "up\n");
    input(f, id, "go\n");
    assert_int_equal(exit_code(&other), 0);
    assert_int_equal(exit_code(&stream), 0);
    id_call(f, "commands.join", id, "", KG_NOT_FOUND);
}

void
test_process_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const runs[] = {
        "\"id\":\"\"",
        "\"id\":\"A\"",
        "\"id\":\"a-b\"",
        "\"id\":\"a\\u0000b\"",
        "\"id\":7",
        "\"id\":\"abcdefghijklmnopqrstuvwxyz0123456\"",
        "\"keep\":1",
        "\"keep\":true,\"timeout_ms\":-1",
        "\"timeout_ms\":0",
        "\"terminal\":true",
        "\"terminal\":{\"cols\":80}",
        "\"terminal\":{\"cols\":0,\"rows\":24}",
        "\"terminal\":{\"cols\":80,\"rows\":1001}",
        "\"terminal\":{\"cols\":80,\"rows\":24,\"more\":1}",
        "\"terminal\":{\"cols\":80,\"rows\":24},\"stdin\":true",
    };
    static const char *const methods[] = {"commands.join", "commands.input", "commands.close_input",
                                          "commands.resize", "commands.signal"};
    static const char *const more[] = {"", "", "", ",\"cols\":80,\"rows\":24",
                                       ",\"signal\":\"INT\""};

    for (size_t i = 0; i < KG_ARRAY_LEN(runs); i++) {
        KG_AUTO_FREE char *params =
            kg_asprintf("{\"argv\":[\"true\"],%s%s}", runs[i],
                        strstr(runs[i], "timeout") ? "" : ",\"timeout_ms\":9");
        do_call(f, "commands.run", params, KG_INVALID);
    }
    (void)detach(f, "known", "sleep 1000", NULL);
    for (size_t i = 0; i < KG_ARRAY_LEN(methods); i++) {
        KG_AUTO_FREE char *too_much = kg_asprintf("%s,\"other\":1", more[i]);
        id_call(f, methods[i], "none", more[i], KG_NOT_FOUND);
        id_call(f, methods[i], "known", too_much, KG_INVALID);
        do_call(f, methods[i], "{}", KG_INVALID);
        do_call(f, methods[i], "{\"id\":1}", KG_INVALID);
    }
    id_call(f, "commands.input", "known", "", KG_INVALID); // it has no stdin
    id_call(f, "commands.close_input", "known", "", KG_INVALID);
    id_call(f, "commands.resize", "known", more[3], KG_INVALID); // nor a terminal
    id_call(f, "commands.resize", "known", ",\"cols\":80,\"rows\":0", KG_INVALID);
    id_call(f, "commands.signal", "known", ",\"signal\":\"SEGV\"", KG_INVALID);
    id_call(f, "commands.join", "known", ",\"hold\":1", KG_INVALID);
    id_call(f, "commands.signal", "known", ",\"signal\":\"KILL\"", KG_OK);
    wait_until_ended(f, "known");
}

void
test_process_detached(void **state)
{
    struct fixture *f = *state;
    enum { LONG = 100000 };
    KG_AUTO_FREE char *word = kg_calloc(LONG + 1, 1);

    memset(word, 1, LONG); // each byte is six in JSON
    pid_t pid = detach(f, "d", "echo one; while ! [ -e go ]; do sleep 0.01; done; echo two; exit 4",
                       json_pack("{s:s}", "cwd", f->place.data));
    json_auto_t *command = listed(f, "d");
    assert_int_equal(number_of(command, "pid"), pid);
    assert_string_equal(text_of(command, "cwd"), f->place.data);
    assert_int_equal(json_array_size(json_object_get(command, "argv")), 3);
    assert_true(json_is_true(json_object_get(command, "running")));
    assert_true(json_is_true(json_object_get(command, "keep")));
    assert_false(json_is_true(json_object_get(command, "terminal")));
    assert_null(json_object_get(command, "exit_code"));
    assert_int_equal(number_of(command, "readers"), 0);
    assert_true(number_of(command, "started_ms_ago") >= 0);

    struct stream first = stream_join(f, "d", false);
    stream_until(&first, "one\n");
    json_auto_t *read = listed(f, "d");
    assert_int_equal(number_of(read, "readers"), 1);
    write_text(&f->place, "go", "");
    assert_int_equal(exit_code(&first), 4);
    for (int i = 0; i < 2; i++) {
        struct stream late = stream_join(f, "d", false);
        assert_false(json_is_true(json_object_get(late.head, "running")));
        stream_finish(&late);
        assert_string_equal(late.out.data, "one\ntwo\n");
        assert_int_equal(number_of(late.end, "exit_code"), 4);
        stream_fini(&late);
    }
    json_auto_t *ended = listed(f, "d");
    assert_false(json_is_true(json_object_get(ended, "running")));
    assert_int_equal(number_of(ended, "exit_code"), 4);
    assert_int_equal(number_of(ended, "signal"), 0);

    // A list is no longer than a result may be.
    (void)detach(f, "long", "true",
                 json_pack("{s:[s, s, s, s]}", "argv", "sh", "-c", "true", word));
    json_auto_t *shortened = listed(f, "long");
    KG_AUTO_FREE char *text = json_dumps(shortened, 0);
    assert_in_range(strlen(text), 4000, 10000);
}

void
test_process_keep(void **state)
{
    struct fixture *f = *state;
    static const char script[] = "echo up; while ! [ -e go ]; do sleep 0.01; done; echo went";

    struct stream kept = stream_start(f, script, json_pack("{s:s, s:b}", "id", "kept", "keep", 1));
    struct stream other = stream_start(f, script, json_pack("{s:s}", "id", "other"));
    struct stream joined = stream_join(f, "other", false);
    pid_t pid = number_of(kept.head, "pid");
    stream_until(&kept, "up\n");
    stream_until(&other, "up\n");
    stream_fini(&kept);
    stream_fini(&other);
    // The caller of the other one ended it: its reader is told.
    stream_finish(&joined);
    assert_int_equal(number_of(joined.end, "signal"), SIGTERM);
    assert_false(json_is_true(json_object_get(joined.end, "timed_out")));
    stream_fini(&joined);
    assert_int_equal(kill(pid, 0), 0);
    struct stream again = stream_join(f, "kept", false);
    write_text(&f->place, "go", "");
    stream_finish(&again);
    assert_string_equal(again.out.data, "up\nwent\n");
    stream_fini(&again);
}

void
test_process_replay(void **state)
{
    struct fixture *f = *state;

    // 100 000 characters of two bytes behind one of one byte.
    (void)detach(f, "much",
                 "printf x; head -c 200000 /dev/zero | sed 's/\\x00/\xc3\xa4/g' | head -c 200000",
                 NULL);
    wait_until_ended(f, "much");
    struct stream stream = stream_join(f, "much", false);
    stream_finish(&stream);
    assert_int_equal(stream.out.len, KEPT);
    assert_int_equal(number_of(stream.head, "dropped_bytes"), 200001 - KEPT);
    assert_int_equal(number_of(stream.head, "kept_bytes"), KEPT);
    assert_int_equal(number_of(stream.end, "dropped_bytes"), 0);
    assert_int_equal(stream.dropped, 0);
    assert_memory_equal(stream.out.data, "\xc3\xa4\xc3\xa4", 4);
    stream_fini(&stream);

    // An odd number of bytes does not fit: the kept part begins with a character.
    (void)detach(f, "odd",
                 "head -c 200000 /dev/zero | sed 's/\\x00/\xc3\xa4/g' | head -c 200000; printf x",
                 NULL);
    wait_until_ended(f, "odd");
    stream = stream_join(f, "odd", false);
    stream_finish(&stream);
    assert_int_equal(stream.out.len, KEPT - 1);
    assert_int_equal(number_of(stream.head, "dropped_bytes"), 200001 - (KEPT - 1));
    assert_memory_equal(stream.out.data, "\xc3\xa4", 2);
    stream_fini(&stream);

    // Both streams in their order.
    (void)detach(f, "both", "echo 1; sleep 0.1; echo 2 >&2; sleep 0.1; echo 3", NULL);
    wait_until_ended(f, "both");
    stream = stream_join(f, "both", false);
    assert_true(stream_read(&stream));
    assert_string_equal(stream.out.data, "1\n");
    assert_true(stream_read(&stream));
    assert_string_equal(stream.err.data, "2\n");
    stream_finish(&stream);
    assert_string_equal(stream.out.data, "1\n3\n");
    stream_fini(&stream);
}

// A reader that holds the command back gets all; one that reads nothing meanwhile holds nobody.
void
test_process_readers(void **state)
{
    struct fixture *f = *state;
    enum { BYTES = 8 << 20 };

    (void)detach(f, "flood", "read x; seq -w 9999999 | head -c 8388608",
                 json_pack("{s:b}", "stdin", 1));
    struct stream slow = stream_join(f, "flood", false);
    struct stream holds = stream_join(f, "flood", true);
    struct stream third = stream_join(f, "flood", false);
    input(f, "flood", "go\n");
    stream_finish(&holds);
    assert_int_equal(holds.out.len, BYTES);
    stream_finish(&slow);
    stream_finish(&third);
    assert_true(slow.dropped > 0);
    assert_int_equal(slow.dropped + (int64_t)slow.out.len, BYTES);
    assert_int_equal(third.dropped + (int64_t)third.out.len, BYTES);
    // What it got is less than its bound and what the socket takes; its end is that of the output.
    assert_in_range(slow.out.len, KEPT, 2 << 20);
    assert_memory_equal(slow.out.data + slow.out.len - 1000, holds.out.data + BYTES - 1000, 1000);
    assert_memory_equal(slow.out.data, holds.out.data, KEPT);
    assert_int_equal(number_of(slow.end, "exit_code"), 0);
    stream_fini(&slow);
    stream_fini(&holds);
    stream_fini(&third);
}

// A slow reader goes on while the command does, at whole characters.
void
test_process_slow_reader(void **state)
{
    struct fixture *f = *state;

    (void)detach(
        f, "slow",
        "read x; head -c 3000000 /dev/zero | sed 's/\\x00/\xe2\x82\xac/g' | head -c 9000000;"
        "touch wrote; read x; echo; echo end; read x",
        json_pack("{s:b}", "stdin", 1));
    struct stream stream = stream_join(f, "slow", false);
    input(f, "slow", "\n");
    KG_AUTO_FREE char *wrote = inside(&f->place, "wrote");
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    while (access(wrote, F_OK) != 0) {
        assert_true(wait_now_ms() < give_up);
        poll(NULL, 0, 10);
    }
    while (stream.dropped == 0)
        assert_true(stream_read(&stream));
    input(f, "slow", "\n");
    stream_until(&stream, "\nend\n");
    assert_int_equal(stream.dropped + (int64_t)stream.out.len, 9000000 + 5);
    assert_memory_equal(stream.out.data + stream.after_drop, "\xe2\x82\xac\xe2\x82\xac", 6);
    assert_int_equal(utf8_valid_prefix(stream.out.data, stream.out.len), stream.out.len);
    input(f, "slow", "\n");
    assert_int_equal(exit_code(&stream), 0);
}

static long
count_when_still(struct fixture *f)
{
    KG_AUTO_FREE char *path = inside(&f->place, "count");
    long last = 0;

    for (int still = 0; still < 30; poll(NULL, 0, 10)) {
        KG_AUTO_BUF text = {0};
        long now = file_read(path, 64, &text, NULL) == 0 && text.len ? atol(text.data) : 0;
        still = now > 0 && now == last ? still + 1 : 0;
        last = now;
    }
    return last;
}

void
test_process_hold(void **state)
{
    struct fixture *f = *state;

    (void)detach(f, "h",
                 "read x; for i in $(seq 200); do head -c 65536 /dev/zero | tr '\\0' x; "
                 "echo $i >count; done",
                 json_pack("{s:b}", "stdin", 1));
    struct stream holds = stream_join(f, "h", true);
    struct stream joined = stream_join(f, "h", false);
    input(f, "h", "go\n");
    assert_in_range(count_when_still(f), 1, 128);
    stream_fini(&holds); // nobody holds it from now on
    stream_finish(&joined);
    assert_int_equal(joined.dropped + (int64_t)joined.out.len, 200 * 65536);
    stream_fini(&joined);
    assert_int_equal(count_when_still(f), 200);
}

void
test_process_input(void **state)
{
    struct fixture *f = *state;
    enum { LEN = 700001 };
    KG_AUTO_FREE char *bytes = kg_calloc(LEN, 1);

    struct stream stream =
        stream_start(f, "cat; echo end; exit 6", json_pack("{s:s, s:b}", "id", "cat", "stdin", 1));
    input(f, "cat", "");
    input(f, "cat", "one\n");
    stream_until(&stream, "one\n");
    input(f, "cat", "two");
    stream_until(&stream, "two");
    // What of a body has come is not written before the rest.
    int left = send_request(f, "commands.input", "{\"id\":\"cat\"}", 10);
    send_frame(left, FRAME_DATA, "part", 4);
    close(left);
    for (int i = 0; i < LEN; i++)
        bytes[i] = (char)('a' + i * 7 % 26);
    input_bytes(f, "cat", bytes, LEN, KG_OK);
    id_call(f, "commands.close_input", "cat", "", KG_OK);
    id_call(f, "commands.close_input", "cat", "", KG_INVALID);
    id_call(f, "commands.input", "cat", "", KG_INVALID);
    stream_finish(&stream);
    assert_int_equal(number_of(stream.end, "exit_code"), 6);
    assert_int_equal(stream.out.len, 7 + LEN + 4);
    assert_memory_equal(stream.out.data + 7, bytes, LEN);
    stream_fini(&stream);
    id_call(f, "commands.input", "cat", "", KG_INVALID);
    id_call(f, "commands.close_input", "cat", "", KG_INVALID);
}

void
test_process_input_bound(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *bytes = kg_calloc(INPUT_MAX + 1, 1);
    static const char params[] = "{\"id\":\"in\"}";

    memset(bytes, 'x', INPUT_MAX);
    struct stream stream = stream_start(f, "while ! [ -e go ]; do sleep 0.01; done; wc -c",
                                        json_pack("{s:s, s:b}", "id", "in", "stdin", 1));
    input_bytes(f, "in", bytes, INPUT_MAX + 1, KG_INVALID);
    input_bytes(f, "in", bytes, INPUT_MAX, KG_OK); // 64 KiB of it are in the pipe
    input_bytes(f, "in", bytes, 100000, KG_SESSION_BUSY);
    input_bytes(f, "in", bytes, 10000, KG_OK);
    // What is on its way counts, until its caller leaves.
    int part = send_request(f, "commands.input", params, 50000);
    send_frame(part, FRAME_DATA, "x", 1);
    input_bytes(f, "in", bytes, 20000, KG_SESSION_BUSY);
    close(part);
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    for (bool taken = false; !taken; assert_true(wait_now_ms() < give_up)) {
        KG_AUTO_BUF frame = {0};
        KG_AUTO_FD fd = send_request(f, "commands.input", params, 20000);
        send_frame(fd, FRAME_DATA, bytes, 20000);
        taken = read_frame(fd, &frame) == FRAME_RESULT;
    }
    id_call(f, "commands.close_input", "in", "", KG_OK);
    write_text(&f->place, "go", "");
    stream_finish(&stream);
    assert_int_equal(strtol(stream.out.data, NULL, 10), INPUT_MAX + 30000);
    stream_fini(&stream);
}

void
test_process_input_ends(void **state)
{
    struct fixture *f = *state;
    KG_AUTO_FREE char *bytes = kg_calloc(500000, 1);

    // It closes its stdin, and runs on.
    struct stream stream =
        stream_start(f, "exec <&-; echo closed; while ! [ -e go ]; do sleep 0.01; done",
                     json_pack("{s:s, s:b}", "id", "c", "stdin", 1));
    stream_until(&stream, "closed\n");
    id_call(f, "commands.input", "c", "", KG_INVALID);
    write_text(&f->place, "go", "");
    assert_int_equal(exit_code(&stream), 0);
    // It ends while some waits, and while some is on its way.
    stream = stream_start(f, "read x; exit 2", json_pack("{s:s, s:b}", "id", "e", "stdin", 1));
    int part = send_request(f, "commands.input", "{\"id\":\"e\"}", 10);
    send_frame(part, FRAME_DATA, "x", 1);
    bytes[0] = '\n';
    input_bytes(f, "e", bytes, 500000, KG_OK);
    assert_int_equal(exit_code(&stream), 2);
    json_decref(read_result(part, KG_INVALID));
    close(part);
}

void
test_process_signals(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"INT", "HUP", "QUIT", "USR1", "USR2", "TSTP", "WINCH"};

    struct stream stream = stream_start(
        f,
        "for s in INT HUP QUIT USR1 USR2 TSTP WINCH; do trap \"echo got $s\" $s; done; echo up; "
        "while :; do sleep 0.01; done",
        json_pack("{s:s}", "id", "t"));
    stream_until(&stream, "up\n");
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        KG_AUTO_FREE char *more = kg_asprintf(",\"signal\":\"%s\"", names[i]);
        KG_AUTO_FREE char *got = kg_asprintf("got %s\n", names[i]);
        id_call(f, "commands.signal", "t", more, KG_OK);
        // The sleep ends of INT, QUIT and the like, but shells that wait for it hear of it.
        stream_until(&stream, got);
        if (strcmp(names[i], "TSTP") == 0) // its sleep has stopped
            id_call(f, "commands.signal", "t", ",\"signal\":\"CONT\"", KG_OK);
    }
    id_call(f, "commands.signal", "t", ",\"signal\":\"STOP\"", KG_OK);
    id_call(f, "commands.signal", "t", ",\"signal\":\"CONT\"", KG_OK);
    id_call(f, "commands.signal", "t", ",\"signal\":\"STOP\"", KG_OK);
    id_call(f, "commands.signal", "t", ",\"signal\":\"TERM\"", KG_OK); // also what is stopped
    stream_finish(&stream);
    assert_int_equal(number_of(stream.end, "signal"), SIGTERM);
    stream_fini(&stream);
    id_call(f, "commands.signal", "t", ",\"signal\":\"INT\"", KG_INVALID);

    // TERM: the grace, then all of it; KILL: at once, also within the grace.
    static const char stubborn[] =
        "(setsid sh -c 'trap \"\" TERM; echo $$ >left.pid; while :; do sleep 60; done') & "
        "while ! [ -s left.pid ]; do :; done; trap '' TERM; echo up; while :; do sleep 0.05; done";
    for (int i = 0; i < 3; i++) {
        KG_AUTO_FREE char *id = kg_asprintf("s%d", i);
        KG_AUTO_FREE char *left = inside(&f->place, "left.pid");
        stream = stream_start(f, stubborn, json_pack("{s:s}", "id", id));
        stream_until(&stream, "up\n");
        pid_t pid = read_pid(f, "left.pid");
        if (i < 2)
            id_call(f, "commands.signal", id, ",\"signal\":\"TERM\"", KG_OK);
        if (i == 0)
            agent_clock_advance(&f->place, 1500);
        else
            id_call(f, "commands.signal", id, ",\"signal\":\"KILL\"", KG_OK);
        stream_finish(&stream);
        assert_int_equal(number_of(stream.end, "signal"), SIGKILL);
        assert_false(json_is_true(json_object_get(stream.end, "oom")));
        assert_int_equal(kill(pid, 0), -1);
        stream_fini(&stream);
        assert_int_equal(unlink(left), 0);
    }
    // What it has left is reached after its end.
    stream =
        stream_start(f, "sleep 1000 >/dev/null 2>&1 & echo $!", json_pack("{s:s}", "id", "left"));
    stream_finish(&stream);
    pid_t pid = (pid_t)strtol(stream.out.data, NULL, 10);
    stream_fini(&stream);
    assert_int_equal(kill(pid, 0), 0);
    id_call(f, "commands.signal", "left", ",\"signal\":\"USR1\"", KG_INVALID);
    id_call(f, "commands.signal", "left", ",\"signal\":\"KILL\"", KG_OK);
    wait_until_gone(pid);
}

void
test_process_times(void **state)
{
    struct fixture *f = *state;
    enum { HOUR_MS = 3600 * 1000 };

    pid_t pid =
        detach(f, "endless", "echo up; exec sleep 1000", json_pack("{s:i}", "timeout_ms", 0));
    (void)detach(f, "timed", "echo up; exec sleep 1000",
                 json_pack("{s:i}", "timeout_ms", HOUR_MS / 2));
    (void)detach(f, "quick", "true", NULL);
    wait_until_ended(f, "quick");
    struct stream timed = stream_join(f, "timed", false);
    stream_until(&timed, "up\n");
    agent_clock_advance(&f->place, HOUR_MS / 2);
    stream_finish(&timed);
    assert_true(json_is_true(json_object_get(timed.end, "timed_out")));
    stream_fini(&timed);
    json_decref(call(f, "commands.join", "{\"id\":\"none\"}", KG_NOT_FOUND));
    // An hour after its end each is forgotten; one that runs is not.
    wait_until_ended(f, "quick");
    agent_clock_advance(&f->place, HOUR_MS / 2);
    json_t *quick;
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    while ((quick = listed(f, "quick"))) {
        json_decref(quick);
        assert_true(wait_now_ms() < give_up);
    }
    wait_until_ended(f, "timed");
    agent_clock_advance(&f->place, 24 * HOUR_MS);
    assert_int_equal(kill(pid, 0), 0);
    json_auto_t *endless = listed(f, "endless");
    assert_true(json_is_true(json_object_get(endless, "running")));
    id_call(f, "commands.signal", "endless", ",\"signal\":\"KILL\"", KG_OK);
    wait_until_ended(f, "endless");
}

void
test_process_known(void **state)
{
    struct fixture *f = *state;
    enum { MOST = 32, N = MOST + 5 };
    char id[16];

    for (int i = 0; i < N; i++) {
        snprintf(id, sizeof id, "n%d", i);
        (void)detach(f, id, "head -c 70000 /dev/zero", NULL);
        wait_until_ended(f, id);
    }
    json_auto_t *list = call(f, "commands.list", "{}", KG_OK);
    assert_int_equal(json_array_size(json_object_get(list, "commands")), MOST);
    for (int i = 0; i < N - MOST; i++) {
        snprintf(id, sizeof id, "n%d", i);
        id_call(f, "commands.join", id, "", KG_NOT_FOUND);
    }
    (void)detach(f, "n0", "true", NULL); // which is free again
}

void
test_process_limits(void **state)
{
    struct fixture *f = *state;
    enum { RUNNING = 16, LEFT = 64, READERS = 128 };
    struct stream readers[READERS];
    char id[16];

    for (int i = 0; i < RUNNING; i++) {
        snprintf(id, sizeof id, "r%d", i);
        (void)detach(f, id, "sleep 1000", NULL);
    }
    do_call(f, "commands.run", "{\"argv\":[\"true\"],\"timeout_ms\":1000}", KG_SESSION_BUSY);
    for (int i = 0; i < READERS; i++)
        readers[i] = stream_join(f, i % 2 ? "r1" : "r2", false);
    id_call(f, "commands.join", "r0", "", KG_SESSION_BUSY);
    for (int i = 0; i < READERS; i++)
        stream_fini(&readers[i]);
    for (int i = 0; i < RUNNING; i++) {
        snprintf(id, sizeof id, "r%d", i);
        id_call(f, "commands.signal", id, ",\"signal\":\"KILL\"", KG_OK);
        wait_until_ended(f, id);
    }
    // Those that have left something, as much output as is kept, and are known or not any more.
    for (int i = 0; i < LEFT; i++) {
        snprintf(id, sizeof id, "l%d", i);
        (void)detach(f, id, "head -c 70000 /dev/zero; sleep 1000 >/dev/null 2>&1 &", NULL);
        wait_until_ended(f, id);
    }
    do_call(f, "commands.run", "{\"argv\":[\"true\"],\"timeout_ms\":1000}", KG_SESSION_BUSY);
    json_auto_t *list = call(f, "commands.list", "{}", KG_OK);
    assert_int_equal(json_array_size(json_object_get(list, "commands")), 32);
    id_call(f, "commands.signal", "l63", ",\"signal\":\"KILL\"", KG_OK);
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    for (bool started = false; !started; assert_true(wait_now_ms() < give_up)) {
        KG_AUTO_BUF frame = {0};
        KG_AUTO_FD fd =
            send_request(f, "commands.run", "{\"argv\":[\"true\"],\"timeout_ms\":1000}", 0);
        started = read_frame(fd, &frame) == FRAME_HEAD;
    }
}

static int
count_descriptors(struct fixture *f)
{
    KG_AUTO_FREE char *path = kg_asprintf("/proc/%d/fd", f->agent);
    return count_entries(path);
}

// Of the agent in its commands, or of its commands in the agent.
void
test_process_descriptors(void **state)
{
    struct fixture *f = *state;
    static const char *const kinds[] = {"{}", "{\"stdin\":true}",
                                        "{\"terminal\":{\"cols\":80,\"rows\":24}}"};
    static const char script[] = "for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do "
                                 "[ -e /proc/$$/fd/$fd ] && printf '%d ' $fd; done; echo end";
    bool may_look = geteuid() == 0; // the agent is not dumpable
    char id[16];
    int before = 0;

    for (int i = 0; i < 30; i++) {
        snprintf(id, sizeof id, "f%d", i);
        if (may_look && i == 3)
            before = count_descriptors(f);
        (void)detach(f, id, script, json_loads(kinds[i % 3], 0, NULL));
        struct stream stream = stream_join(f, id, true);
        stream_finish(&stream);
        assert_non_null(strstr(stream.out.data, "0 1 2 end"));
        stream_fini(&stream);
        int64_t give_up = wait_now_ms() + PATIENCE_MS;
        while (may_look && i == 29 && count_descriptors(f) > before)
            assert_true(wait_now_ms() < give_up);
    }
}
