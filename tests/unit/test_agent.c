// SPDX-License-Identifier: Apache-2.0
// The agent: its parts, and the real process behind a door that the test holds.
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cgroup.h"
#include "splice.h"
#include "target.h"
#include "test_agent.h"
#include "virtual_clock.h"

// ---- Parts ----------------------------------------------------------------------------------

static void
test_target(void **state)
{
    struct target target;
    struct kg_error err;
    char longest[TARGET_LINE_MAX + 2];
    (void)state;

    assert_int_equal(target_parse("rpc/1", 5, &target, &err), 0);
    assert_int_equal(target.channel, TARGET_RPC);
    assert_int_equal(target_parse("sp_x/savepoint", 14, &target, &err), 0);
    assert_int_equal(target.channel, TARGET_SAVEPOINT);
    assert_int_equal(target_parse("python3.11/iopub", 16, &target, &err), 0);
    assert_int_equal(target.channel, TARGET_IOPUB);
    assert_string_equal(target.kernel, "python3.11");
    static const char *const bad[] = {
        "",       "python",   "/shell",      "python/",
        "a/b/hb", "../shell", "py\nthon/hb", "python/rpc/1",
        "agent", // of kernelgate 0.2
        "rpc/2",  "agent ",   "a b/hb",      "123456789012345678901234567890123/hb"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        assert_int_equal(target_parse(bad[i], strlen(bad[i]), &target, &err), -1);
    assert_int_equal(target_parse("python/hb\0x", 11, &target, &err), -1);
    memset(longest, 'a', sizeof longest);
    assert_int_equal(target_parse(longest, sizeof longest, &target, &err), -1);
}

static void
write_file(const char *dir, const char *name, const char *text)
{
    struct kg_error err;
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", dir, name);
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, &err), 0);
}

static void
make_folder(const char *dir, const char *name)
{
    struct kg_error err;
    KG_AUTO_FREE char *path = kg_asprintf("%s/%s", dir, name);
    assert_int_equal(dir_make(path, 0700, &err), 0);
}

static void
test_cgroup(void **state)
{
    struct agent_place place;
    struct cgroup_usage usage;
    (void)state;

    agent_place_make(&place);
    cgroup_usage(place.tmp, &usage);
    assert_int_equal(usage.memory_bytes, -1);
    assert_int_equal(cgroup_oom_kills(place.tmp), -1);

    write_file(place.tmp, "memory.current", "4096\n");
    write_file(place.tmp, "memory.events", "low 0\noom 9\noom_kill 2\noom_group_kill 0\n");
    write_file(place.tmp, "cpu.stat", "usage_usec 1500\nuser_usec 1\n");
    write_file(place.tmp, "pids.current", "3\n");
    cgroup_usage(place.tmp, &usage);
    assert_int_equal(usage.memory_bytes, 4096);
    assert_int_equal(usage.cpu_us, 1500);
    assert_int_equal(usage.pids, 3);
    assert_int_equal(cgroup_oom_kills(place.tmp), 2);

    make_folder(place.tmp, "memory");
    make_folder(place.tmp, "cpuacct");
    make_folder(place.tmp, "pids");
    write_file(place.tmp, "memory/memory.usage_in_bytes", "8192\n");
    write_file(place.tmp, "memory/memory.oom_control",
               "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
    write_file(place.tmp, "cpuacct/cpuacct.usage", "2000000\n");
    write_file(place.tmp, "pids/pids.current", "5\n");
    cgroup_usage(place.tmp, &usage);
    assert_int_equal(usage.memory_bytes, 8192);
    assert_int_equal(usage.cpu_us, 2000);
    assert_int_equal(usage.pids, 5);
    assert_int_equal(cgroup_oom_kills(place.tmp), 7);
    agent_place_remove(&place);
}

// ---- Splice ---------------------------------------------------------------------------------

struct splice_test {
    struct loop *loop;
    int near[2], far[2];
    struct splice *splice;
    bool ended;
};

static void
on_splice_end(void *arg)
{
    struct splice_test *test = arg;
    test->ended = true;
    splice_free(KG_STEAL(test->splice));
}

static void
turn(struct splice_test *test)
{
    loop_turn(test->loop);
    virtual_clock_move(1);
}

static void
splice_test_init(struct splice_test *test, int64_t half_closed_ms)
{
    *test = (struct splice_test){.loop = loop_new()};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, test->near), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, test->far), 0);
    test->splice =
        splice_new(test->loop, test->near[1], test->far[1], half_closed_ms, on_splice_end, test);
}

static void
splice_test_fini(struct splice_test *test)
{
    splice_free(test->splice);
    close(test->near[0]);
    close(test->far[0]);
    loop_free(test->loop);
}

static void
test_splice_half_close(void **state)
{
    struct splice_test test;
    char text[16] = {0};
    (void)state;

    splice_test_init(&test, SPLICE_HALF_CLOSED_MS);
    assert_int_equal(write(test.near[0], "ask", 3), 3);
    assert_int_equal(shutdown(test.near[0], SHUT_WR), 0);
    while (recv(test.far[0], text, 3, MSG_PEEK) != 3)
        turn(&test);
    assert_int_equal(read(test.far[0], text, sizeof text), 3);
    ssize_t n;
    while ((n = read(test.far[0], text, sizeof text)) < 0)
        turn(&test);
    assert_int_equal(n, 0); // the end came through, and the other way is still open
    assert_false(test.ended);
    assert_int_equal(write(test.far[0], "answer", 6), 6);
    while ((n = read(test.near[0], text, sizeof text)) < 0)
        turn(&test);
    assert_int_equal(n, 6);
    close(test.far[0]);
    while (!test.ended)
        turn(&test);
    assert_int_equal(read(test.near[0], text, sizeof text), 0);
    test.far[0] = dup(test.near[0]);
    splice_test_fini(&test);
}

// A client that has said all may wait for long, as long as the answer flows.
static void
test_splice_half_closed_for_long(void **state)
{
    enum { HALF_CLOSED_MS = 1000 };
    struct splice_test test;
    char byte;
    (void)state;

    splice_test_init(&test, HALF_CLOSED_MS);
    assert_int_equal(shutdown(test.near[0], SHUT_WR), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(write(test.far[0], "a", 1), 1);
        virtual_clock_advance(test.loop, HALF_CLOSED_MS - 1);
        assert_int_equal(read(test.near[0], &byte, 1), 1);
        assert_false(test.ended);
    }
    virtual_clock_advance(test.loop, 1);
    assert_true(test.ended);
    splice_test_fini(&test);
}

static void
test_splice_is_bounded(void **state)
{
    struct splice_test test;
    static char chunk[65536];
    size_t in = 0, out = 0;
    ssize_t n;
    (void)state;

    splice_test_init(&test, SPLICE_HALF_CLOSED_MS);
    // Nobody reads at the far end: the near one must come to a stand.
    for (int idle = 0; idle < 20;) {
        n = write(test.near[0], chunk, sizeof chunk);
        in += n > 0 ? (size_t)n : 0;
        idle = n > 0 ? 0 : idle + 1;
        turn(&test);
        assert_true(in < 4u << 20);
    }
    while (out < in) {
        n = read(test.far[0], chunk, sizeof chunk);
        out += n > 0 ? (size_t)n : 0;
        turn(&test);
    }
    assert_int_equal(out, in);
    splice_test_fini(&test);
}

static bool
is_busy(const char *data, size_t len)
{
    return len == 4 && memcmp(data, "busy", 4) == 0;
}

static void
splice_expect(struct splice_test *test, const char *text)
{
    char got[32] = {0};
    while (recv(test->near[0], got, sizeof got, MSG_PEEK) != (ssize_t)strlen(text))
        turn(test);
    assert_int_equal(read(test->near[0], got, sizeof got), strlen(text));
    assert_string_equal(got, text);
}

// A piece that may linger goes out with the next one, in its order; or after a while; or before the
// end. The other way nothing lingers.
static void
test_splice_lingers(void **state)
{
    struct splice_test test;
    char text[8];
    ssize_t n;
    (void)state;

    splice_test_init(&test, SPLICE_HALF_CLOSED_MS);
    splice_set_linger(test.splice, is_busy);
    assert_int_equal(write(test.far[0], "busy", 4), 4);
    int unread = 1;
    while (unread > 0) { // until the splice has it
        turn(&test);
        assert_int_equal(ioctl(test.far[0], TIOCOUTQ, &unread), 0);
    }
    assert_int_equal(write(test.far[0], "next", 4), 4);
    splice_expect(&test, "busynext");
    assert_int_equal(write(test.far[0], "busy", 4), 4);
    splice_expect(&test, "busy");
    assert_int_equal(write(test.near[0], "busy", 4), 4);
    while (recv(test.far[0], text, sizeof text, MSG_PEEK) != 4)
        turn(&test);
    assert_int_equal(write(test.far[0], "busy", 4), 4);
    assert_int_equal(shutdown(test.far[0], SHUT_WR), 0);
    splice_expect(&test, "busy");
    while ((n = read(test.near[0], text, sizeof text)) < 0)
        turn(&test);
    assert_int_equal(n, 0);
    splice_test_fini(&test);
}

// A side that takes no more does not cost what it has said.
static void
test_splice_to_a_closed_side(void **state)
{
    struct splice_test test;
    (void)state;

    splice_test_init(&test, SPLICE_HALF_CLOSED_MS);
    assert_int_equal(write(test.far[0], "said", 4), 4);
    assert_int_equal(write(test.near[0], "unheard", 7), 7);
    close(test.far[0]);
    splice_expect(&test, "said");
    while (!test.ended)
        turn(&test);
    test.far[0] = dup(test.near[0]);
    splice_test_fini(&test);
}

// All that the socket holds comes through, and then the end, though the socket stays open.
static void
test_splice_finishes(void **state)
{
    struct splice_test test;
    static char chunk[32 * 1024];
    size_t in = 0, out = 0;
    ssize_t n = 0;
    (void)state;

    splice_test_init(&test, SPLICE_HALF_CLOSED_MS);
    for (int idle = 0; idle < 20; turn(&test)) {
        n = write(test.far[0], chunk, sizeof chunk);
        in += n > 0 ? (size_t)n : 0;
        idle = n > 0 ? 0 : idle + 1;
    }
    splice_finish(test.splice);
    while ((n = read(test.near[0], chunk, sizeof chunk)) != 0) {
        out += n > 0 ? (size_t)n : 0;
        turn(&test);
    }
    assert_int_equal(out, in);
    assert_false(test.ended);
    assert_int_equal(shutdown(test.near[0], SHUT_WR), 0);
    while (!test.ended)
        turn(&test);
    splice_test_fini(&test);
}

// ---- The process ----------------------------------------------------------------------------

static void
test_links(void **state)
{
    struct fixture *f = *state;
    struct pollfd item = {.fd = f->listener, .events = POLLIN};
    char answer[128];
    int idle[4];

    for (int i = 0; i < 4; i++)
        idle[i] = accept_link(f);
    assert_int_equal(poll(&item, 1, 100), 0); // four, no more
    assert_true(dprintf(idle[0], "python/shell\n") > 0);
    read_line(idle[0], answer, sizeof answer);
    assert_string_equal(answer, "ERR not found: no kernel python");
    close(idle[0]);
    close(idle[1]); // the taken one, and one that we drop: both are dialled again
    idle[0] = accept_link(f);
    idle[1] = accept_link(f);
    static const char *const bad[] = {"nonsense\n", "a/b/c\n", "\n", "../shell\n"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        (void)!write(idle[2], bad[i], strlen(bad[i]));
        read_line(idle[2], answer, sizeof answer);
        assert_string_equal(answer, "ERR bad target");
        close(idle[2]);
        idle[2] = accept_link(f);
    }
    char flood[4096];
    memset(flood, 'a', sizeof flood);
    (void)!send(idle[3], flood, sizeof flood, MSG_NOSIGNAL);
    wait_readable(idle[3]);
    assert_true(read(idle[3], answer, sizeof answer) <= 0);
    for (int i = 0; i < 4; i++)
        close(idle[i]);
    json_auto_t *info = call(f, "info", "{}", KG_OK);
    assert_string_equal(text_of(info, "version"), KG_VERSION);
    assert_int_equal(number_of(info, "pid"), f->agent);
}

static void
test_kernel_ipc_and_tcp(void **state)
{
    struct fixture *f = *state;

    start_kernel(f, "python", "echo", "ipc");
    start_kernel(f, "deno", "echo", "tcp");
    check_channels(f, "python");
    check_channels(f, "deno");
    json_auto_t *python = call(f, "kernels.describe", "{\"name\":\"python\"}", KG_OK);
    assert_string_equal(text_of(python, "transport"), "ipc");
    assert_string_equal(text_of(python, "key"), "abcd");
    assert_string_equal(text_of(python, "log_tail"), "hello from the kernel, TEST_VALUE=7\n");
    json_auto_t *list = call(f, "kernels.list", "{}", KG_OK);
    assert_int_equal(json_array_size(json_object_get(list, "kernels")), 2);
    // One ends; the other one's processes are spared.
    do_call(f, "kernels.stop", "{\"name\":\"python\"}", KG_OK);
    check_channels(f, "deno");
    KG_AUTO_FREE char *spec = kernel_spec(f, "deno", "echo", "ipc");
    do_call(f, "kernels.start", spec, KG_FILE_EXISTS);
}

// A removed kernel counts no more, neither among the kernels nor among those who ask for changes.
static void
test_remove(void **state)
{
    enum { MORE_THAN_THERE_MAY_BE = 20 };
    struct fixture *f = *state;

    start_kernel(f, "stays", "echo", "ipc");
    for (int i = 0; i < MORE_THAN_THERE_MAY_BE; i++) {
        KG_AUTO_FREE char *name = kg_asprintf("k%d", i);
        KG_AUTO_FREE char *params = kg_asprintf("{\"name\":\"%s\"}", name);
        KG_AUTO_FREE char *question = kg_asprintf("{\"cursor\":\"%s\",\"within_us\":1}", name);
        start_kernel(f, name, "echo", "ipc");
        do_call(f, "changes", question, KG_OK);
        do_call(f, "kernels.remove", params, KG_OK);
        do_call(f, "kernels.describe", params, KG_NOT_FOUND);
        do_call(f, "kernels.remove", params, KG_NOT_FOUND);
    }
    check_channels(f, "stays");
    json_auto_t *list = call(f, "kernels.list", "{}", KG_OK);
    assert_int_equal(json_array_size(json_object_get(list, "kernels")), 1);
    do_call(f, "kernels.remove", "{}", KG_INVALID);
    do_call(f, "kernels.end", "{}", KG_INVALID);
    do_call(f, "kernels.end", "{\"name\":\"stays\"}", KG_OK);
    do_call(f, "kernels.describe", "{\"name\":\"stays\"}", KG_NOT_FOUND);
}

// How long the kernel's answer takes: a message of iopub that may linger.
static int64_t
echo_error_ms(int fd)
{
    static const char message[] = {'\0', 7, 'k', '.', 'e', 'r', 'r', 'o', 'r'};
    char answer[sizeof message];
    int64_t began_ms = wait_now_ms();

    assert_int_equal(write(fd, message, sizeof message), sizeof message);
    wait_readable(fd);
    assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_memory_equal(answer, message, sizeof message);
    return wait_now_ms() - began_ms;
}

// What iopub says lingers until the first client of the protocol comes, which links stdin.
static void
test_iopub_lingers_without_stdin(void **state)
{
    enum { HALF_LINGER_MS = 5 };
    struct fixture *f = *state;
    char line[128];

    start_kernel(f, "python", "echo", "ipc");
    KG_AUTO_FD iopub = open_kernel(f, "python/iopub");
    read_line(iopub, line, sizeof line);
    for (int i = 0; i < 10; i++)
        assert_true(echo_error_ms(iopub) > HALF_LINGER_MS);
    KG_AUTO_FD stdin_fd = open_kernel(f, "python/stdin");
    int64_t give_up_ms = wait_now_ms() + PATIENCE_MS;
    while (echo_error_ms(iopub) > HALF_LINGER_MS)
        assert_true(wait_now_ms() < give_up_ms);
}

static void
test_splice_throughput(void **state)
{
    enum { TOTAL = 8 << 20, CHUNK = 64 << 10 };
    struct fixture *f = *state;
    static char out[CHUNK], in[CHUNK];
    size_t sent = 0, got = 0;
    char line[128];

    start_kernel(f, "python", "echo", "ipc");
    KG_AUTO_FD fd = open_kernel(f, "python/shell");
    read_line(fd, line, sizeof line);
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 7 + i / 251);
    while (got < TOTAL) {
        struct pollfd item = {.fd = fd, .events = (short)(POLLIN | (sent < TOTAL ? POLLOUT : 0))};
        assert_int_equal(poll(&item, 1, PATIENCE_MS), 1);
        if (item.revents & POLLOUT) {
            ssize_t n = send(fd, out + sent % CHUNK, CHUNK - sent % CHUNK, MSG_DONTWAIT);
            sent += n > 0 ? (size_t)n : 0;
        }
        ssize_t n = recv(fd, in, CHUNK - got % CHUNK, MSG_DONTWAIT);
        if (n > 0) {
            assert_memory_equal(in, out + got % CHUNK, (size_t)n);
            got += (size_t)n;
        }
    }
}

static json_t *
next_event(int fd)
{
    KG_AUTO_BUF text = {0};

    assert_int_equal(read_frame(fd, &text), FRAME_DATA);
    json_t *event = json_loadb(text.data, text.len, 0, NULL);
    assert_non_null(event);
    return event;
}

static int
open_events(struct fixture *f, const char *params)
{
    KG_AUTO_BUF text = {0};
    int fd = send_request(f, "events", params, 0);

    assert_int_equal(read_frame(fd, &text), FRAME_HEAD);
    return fd;
}

static void
test_exits(void **state)
{
    struct fixture *f = *state;

    start_kernel(f, "early", "exit", "ipc");
    for (;;) {
        json_auto_t *kernel = call(f, "kernels.describe", "{\"name\":\"early\"}", KG_OK);
        if (strcmp(text_of(kernel, "state"), "exited") == 0)
            break;
    }
    // It happened before anybody listened.
    KG_AUTO_FD events = open_events(f, "{}");
    json_auto_t *early = next_event(events);
    assert_string_equal(text_of(early, "type"), "kernel_exit");
    assert_string_equal(text_of(early, "name"), "early");
    assert_int_equal(number_of(early, "exit_code"), 3);
    assert_int_equal(number_of(early, "signal"), 0);

    start_kernel(f, "python", "echo", "ipc");
    close(open_kernel(f, "python/shell"));
    do_call(f, "kernels.signal", "{\"name\":\"python\",\"signal\":\"INT\"}", KG_OK);
    json_auto_t *interrupted = next_event(events);
    assert_int_equal(number_of(interrupted, "exit_code"), 42);

    write_file(f->place.tmp, "memory.events", "oom_kill 1\n");
    start_kernel(f, "python", "echo", "ipc");
    do_call(f, "kernels.signal", "{\"name\":\"python\",\"signal\":\"KILL\"}", KG_OK);
    json_auto_t *killed = next_event(events);
    assert_int_equal(number_of(killed, "exit_code"), -1);
    assert_int_equal(number_of(killed, "signal"), SIGKILL);
    assert_true(json_is_false(json_object_get(killed, "oom")));

    start_kernel(f, "python", "echo", "ipc");
    write_file(f->place.tmp, "memory.events", "oom_kill 2\n");
    do_call(f, "kernels.signal", "{\"name\":\"python\",\"signal\":\"KILL\"}", KG_OK);
    json_auto_t *starved = next_event(events);
    assert_true(json_is_true(json_object_get(starved, "oom")));
    do_call(f, "kernels.signal", "{\"name\":\"python\",\"signal\":\"KILL\"}", KG_NOT_FOUND);
}

static void
assert_memory(int events, int bytes)
{
    json_auto_t *event = next_event(events);

    assert_string_equal(text_of(event, "type"), "memory");
    assert_int_equal(number_of(event, "bytes"), bytes);
}

static void
test_memory(void **state)
{
    struct fixture *f = *state;
    const char *tmp = f->place.tmp;

    write_file(tmp, "memory.current", "5000000\n");
    KG_AUTO_FD events = open_events(f, "{\"memory\":true}");
    assert_memory(events, 5000000);
    write_file(tmp, "memory.current", "9000000\n");
    agent_clock_advance(&f->place, 5000);
    assert_memory(events, 9000000);

    // Another listener gets a report at once, and one that has not asked for it gets none.
    KG_AUTO_FD again = open_events(f, "{\"memory\":true}");
    assert_memory(again, 9000000);
    KG_AUTO_FD older = open_events(f, "{}");
    start_kernel(f, "python", "exit", "ipc");
    json_auto_t *first = next_event(older);
    assert_string_equal(text_of(first, "type"), "kernel_exit");
}

static pid_t
wait_for_orphan(struct fixture *f)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/left.pid", f->place.data);
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    KG_AUTO_BUF text = {0};

    while (file_read(path, 64, &text, NULL) != 0)
        assert_true(wait_now_ms() < give_up);
    (void)!unlink(path);
    return (pid_t)strtol(text.data, NULL, 10);
}

// No zombie keeps the pid.
static void
wait_until_reaped(pid_t pid)
{
    int64_t give_up = wait_now_ms() + PATIENCE_MS;

    while (kill(pid, 0) == 0)
        assert_true(wait_now_ms() < give_up);
    assert_int_equal(errno, ESRCH);
}

static void
test_stop_leaves_nothing(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 2; i++) {
        start_kernel(f, "python", "leave", "ipc");
        pid_t orphan = wait_for_orphan(f);
        assert_int_equal(kill(orphan, 0), 0);
        KG_AUTO_FD link = open_kernel(f, "python/shell");
        do_call(f, "kernels.stop", "{\"name\":\"python\"}", KG_OK);
        wait_until_reaped(orphan);
        KG_AUTO_BUF rest = {0};
        read_all(link, &rest);
        assert_int_equal(count_entries(f->place.tmp), 0);
        json_auto_t *kernel = call(f, "kernels.describe", "{\"name\":\"python\"}", KG_OK);
        assert_string_equal(text_of(kernel, "state"), "exited");
        assert_int_equal(number_of(kernel, "signal"), SIGKILL);
    }
    // What was asked for is no event.
    start_kernel(f, "other", "exit", "ipc");
    KG_AUTO_FD events = open_events(f, "{}");
    json_auto_t *event = next_event(events);
    assert_string_equal(text_of(event, "name"), "other");
}

// A kernel by fork: what is made for it, and what is refused until it has come in.
static void
test_expected(void **state)
{
    struct fixture *f = *state;
    static const char expected[] =
        "{\"name\":\"a\",\"id\":\"abcd2345\",\"key\":\"k\",\"transport\":\"ipc\"}";
    static const char *const bad[] = {
        "{\"name\":\"a\",\"id\":\"abcd2345\",\"key\":\"k\"}",
        "{\"name\":\"a\",\"id\":\"../../ab\",\"key\":\"k\",\"transport\":\"ipc\"}",
        "{\"name\":\"a\",\"id\":\"abcd\",\"key\":\"k\",\"transport\":\"ipc\"}",
        "{\"name\":\"a\",\"id\":\"abcd2345\",\"key\":\"k\",\"transport\":\"udp\"}",
        "{\"name\":\"../a\",\"id\":\"abcd2345\",\"key\":\"k\",\"transport\":\"ipc\"}",
        "{\"name\":\"a\",\"id\":\"abcd2345\",\"key\":\"k\",\"transport\":\"ipc\",\"stem\":\"../"
        "a\"}",
    };
    KG_AUTO_FREE char *folder = kg_asprintf("%s/.kg-a-abcd2345", f->place.tmp);
    KG_AUTO_FREE char *output = kg_asprintf("%s/output", folder);
    KG_AUTO_FREE char *file = kg_asprintf("%s/connection.json", folder);
    struct stat st;

    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        do_call(f, "kernels.expect", bad[i], KG_INVALID);
    do_call(f, "kernels.admit", "{\"name\":\"a\",\"pid\":2}", KG_NOT_FOUND);
    do_call(f, "kernels.expect", expected, KG_OK);
    assert_int_equal(stat(output, &st), 0);
    assert_true(S_ISFIFO(st.st_mode) && (st.st_mode & 0777) == 0600);
    assert_int_equal(access(file, R_OK), 0);
    // Process 1 is no child of the agent's, and 0 and negative ids are none at all.
    do_call(f, "kernels.admit", "{\"name\":\"a\",\"pid\":1}", KG_INVALID);
    do_call(f, "kernels.admit", "{\"name\":\"a\",\"pid\":-1}", KG_INVALID);
    KG_AUTO_FREE char *own = kg_asprintf("{\"name\":\"a\",\"pid\":%d}", (int)getpid());
    do_call(f, "kernels.admit", own, KG_NOT_FOUND);
    do_call(f, "kernels.signal", "{\"name\":\"a\",\"signal\":\"INT\"}", KG_NOT_FOUND);
    // It is given up, and one by exec takes its place.
    start_kernel(f, "a", "echo", "ipc");
    assert_int_equal(access(folder, F_OK), -1);
    do_call(f, "kernels.expect", expected, KG_FILE_EXISTS);
    do_call(f, "kernels.stop", "{\"name\":\"a\"}", KG_OK);
    do_call(f, "kernels.expect", expected, KG_OK);
    do_call(f, "kernels.stop", "{\"name\":\"a\"}", KG_OK);
    assert_int_equal(count_entries(f->place.tmp), 0);
    // The folder of another kernel of that kernelspec is named after the kernelspec.
    do_call(
        f, "kernels.expect",
        "{\"name\":\"b\",\"id\":\"abcd2345\",\"key\":\"k\",\"transport\":\"ipc\",\"stem\":\"a\"}",
        KG_OK);
    assert_int_equal(access(folder, F_OK), 0);
    do_call(f, "kernels.remove", "{\"name\":\"b\"}", KG_OK);
    assert_int_equal(count_entries(f->place.tmp), 0);
}

// A kernel by fork that came in, and of which no gateway has said so, ends before another start of
// its name; the agent answers other calls meanwhile.
static void
test_unannounced(void **state)
{
    struct fixture *f = *state;
    static const char expected[] =
        "{\"name\":\"a\",\"id\":\"%s\",\"key\":\"k\",\"transport\":\"ipc\"}";
    static const char *const ids[] = {"abcd2345", "efgh2345"};
    KG_AUTO_FREE char *first = kg_asprintf(expected, ids[0]);
    KG_AUTO_FREE char *second = kg_asprintf(expected, ids[1]);
    KG_AUTO_FREE char *by_exec = kernel_spec(f, "a", "echo", "ipc");
    const char *const starts[][2] = {{"kernels.expect", second}, {"kernels.start", by_exec}};

    for (size_t i = 0; i < KG_ARRAY_LEN(starts); i++) {
        do_call(f, "kernels.expect", first, KG_OK);
        // What another kernel leaves behind is a child of the agent, as a kernel by fork is.
        start_kernel(f, "other", "leave", "ipc");
        pid_t stranger = wait_for_orphan(f);
        KG_AUTO_FD start = send_request(f, starts[i][0], starts[i][1], 0);
        json_decref(call(f, "info", "{}", KG_OK));
        json_decref(read_result(start, KG_OK));
        wait_until_reaped(stranger);
        check_channels(f, "other");
        if (i == 0) {
            KG_AUTO_FREE char *admit = kg_asprintf("{\"name\":\"a\",\"pid\":%d}", (int)stranger);
            do_call(f, "kernels.admit", admit, KG_NOT_FOUND);
        } else {
            check_channels(f, "a");
        }
        do_call(f, "kernels.stop", "{\"name\":\"a\"}", KG_OK);
        do_call(f, "kernels.stop", "{\"name\":\"other\"}", KG_OK);
        assert_int_equal(count_entries(f->place.tmp), 0);
    }
}

// A stop spares a kernel by fork that comes in meanwhile, but does not wait for ever for one that
// never does.
static void
test_stop_beside_expected(void **state)
{
    struct fixture *f = *state;
    static const char expected[] =
        "{\"name\":\"a\",\"id\":\"abcd2345\",\"key\":\"k\",\"transport\":\"ipc\"}";
    static const char stop_other[] = "{\"name\":\"other\"}";

    do_call(f, "kernels.expect", expected, KG_OK);
    // As above, what another kernel leaves behind stands for the kernel by fork.
    start_kernel(f, "other", "leave", "ipc");
    pid_t comes_in = wait_for_orphan(f);
    KG_AUTO_FD stop = send_request(f, "kernels.stop", stop_other, 0);
    json_decref(call(f, "info", "{}", KG_OK));
    KG_AUTO_FREE char *admit = kg_asprintf("{\"name\":\"a\",\"pid\":%d}", (int)comes_in);
    do_call(f, "kernels.admit", admit, KG_OK);
    json_decref(read_result(stop, KG_OK));
    json_auto_t *kernel = call(f, "kernels.describe", "{\"name\":\"a\"}", KG_OK);
    assert_string_equal(text_of(kernel, "state"), "running");
    assert_int_equal(kill(comes_in, 0), 0);
    do_call(f, "kernels.stop", "{\"name\":\"a\"}", KG_OK);
    wait_until_reaped(comes_in);

    do_call(f, "kernels.expect", expected, KG_OK);
    start_kernel(f, "other", "leave", "ipc");
    pid_t orphan = wait_for_orphan(f);
    KG_AUTO_FD late_stop = send_request(f, "kernels.stop", stop_other, 0);
    json_decref(call(f, "info", "{}", KG_OK));
    agent_clock_advance(&f->place, 5000); // nothing comes in
    json_decref(read_result(late_stop, KG_OK));
    wait_until_reaped(orphan);
    do_call(f, "kernels.stop", "{\"name\":\"a\"}", KG_OK);
    assert_int_equal(count_entries(f->place.tmp), 0);
}

static void
test_api_refuses(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"name\":\"a\",\"argv\":[],\"key\":\"k\"}",
        "{\"name\":\"../a\",\"argv\":[\"true\"],\"key\":\"k\"}",
        "{\"name\":\"a\",\"argv\":[1],\"key\":\"k\"}",
        "{\"name\":\"a\",\"argv\":[\"a\\u0000b\"],\"key\":\"k\"}",
        "{\"name\":\"a\",\"argv\":[\"true\"],\"key\":\"k\",\"cwd\":\"relative\"}",
        "{\"name\":\"a\",\"argv\":[\"true\"],\"key\":\"k\",\"transport\":\"udp\"}",
        "{\"name\":\"a\",\"argv\":[\"true\"],\"key\":\"k\",\"env\":{\"a=b\":\"c\"}}",
        "{\"name\":\"a\",\"argv\":[\"true\"],\"key\":\"k\",\"more\":1}",
        "{\"name\":\"a\",\"argv\":[\"/no/such/program\"],\"key\":\"k\",\"cwd\":\"/\"}",
        "{\"name\":\"a\",\"argv\":[\"true\"],\"key\":\"k\",\"cwd\":\"/no/such/folder\"}",
    };

    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++)
        do_call(f, "kernels.start", bad[i], KG_INVALID);
    do_call(f, "kernels.stop", "{\"name\":\"none\"}", KG_NOT_FOUND);
    do_call(f, "kernels.signal", "{\"name\":\"none\",\"signal\":\"INT\"}", KG_NOT_FOUND);
    do_call(f, "kernels.signal", "{\"name\":\"none\",\"signal\":\"HUP\"}", KG_INVALID);
    do_call(f, "kernels.describe", "{\"name\":\"none\"}", KG_NOT_FOUND);
    do_call(f, "files.list", "{\"path\":\"../tmp\"}", KG_INVALID_PATH);
    json_auto_t *list = call(f, "kernels.list", "{}", KG_OK);
    assert_int_equal(json_array_size(json_object_get(list, "kernels")), 0);
    json_auto_t *stats = call(f, "stats", "{}", KG_OK);
    assert_true(json_is_integer(json_object_get(stats, "disk_bytes")));
    assert_true(json_is_null(json_object_get(stats, "memory_bytes")));
    // Nothing of the API can be dialled from inside.
    assert_int_equal(count_entries(f->place.tmp), 0);
}

// A link takes one call after the other, also after a request that makes no sense; frames that do
// not end it.
static void
test_calls_on_one_link(void **state)
{
    static const char info[] = "{\"method\":\"info\",\"params\":{}}";
    static const char *const bad[] = {"",
                                      "null",
                                      "{\"method\":\"info\"}",
                                      "{\"method\":\"info\",\"params\":[]}",
                                      "{\"method\":\"info\",\"params\":{},\"body\":-1}",
                                      "{\"method\":\"info\",\"params\":{},\"more\":1}",
                                      "{\"method\":\"none\",\"params\":{}}"};
    struct fixture *f = *state;
    KG_AUTO_BUF rest = {0};
    struct {
        enum frame_kind kind;
        const char *text;
        bool doubled;
    } cut[] = {
        {FRAME_DATA, "x", false}, // there is no body
        {FRAME_RESULT, "{}", false},
        {FRAME_REQUEST, "{\"method\":\"events\",\"params\":{}}", true}, // one call at a time
    };

    KG_AUTO_FD fd = send_request(f, "info", "{}", 0);
    json_decref(read_result(fd, KG_OK));
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        send_frame(fd, FRAME_REQUEST, bad[i], strlen(bad[i]));
        json_decref(read_result(fd, KG_INVALID));
        send_frame(fd, FRAME_REQUEST, info, strlen(info));
        json_decref(read_result(fd, KG_OK));
    }
    // Nor does a body that nobody takes.
    static const char with_body[] = "{\"method\":\"info\",\"params\":{},\"body\":4}";
    send_frame(fd, FRAME_REQUEST, with_body, strlen(with_body));
    json_decref(read_result(fd, KG_INVALID));
    send_frame(fd, FRAME_DATA, "ab", 2);
    send_frame(fd, FRAME_DATA, "cd", 2);
    send_frame(fd, FRAME_REQUEST, info, strlen(info));
    json_decref(read_result(fd, KG_OK));

    for (size_t i = 0; i < KG_ARRAY_LEN(cut); i++) {
        KG_AUTO_FD link = send_request(f, "info", "{}", 0);
        json_decref(read_result(link, KG_OK));
        for (int n = cut[i].doubled ? 2 : 1; n > 0; n--)
            send_frame(link, cut[i].kind, cut[i].text, strlen(cut[i].text));
        while (read_frame(link, &rest) != FRAME_N_KINDS)
            ;
    }
    do_call(f, "info", "{}", KG_OK);
}

static void
test_calls_are_bounded(void **state)
{
    enum { MOST = 192 };
    struct fixture *f = *state;
    char answer[128];
    int fds[MOST];

    for (int i = 0; i < MOST; i++)
        fds[i] = open_target(f, RPC_TARGET, answer);
    KG_AUTO_FD more = open_target(f, RPC_TARGET, answer);
    json_decref(read_result(more, KG_SESSION_BUSY));
    for (int i = 0; i < MOST; i++)
        close(fds[i]);
    do_call(f, "info", "{}", KG_OK);
}

static void
test_idle_timeout(void **state)
{
    struct agent_place place;
    (void)state;

    agent_place_make(&place);
    pid_t agent = agent_process_start(&place, "/nonexistent/door", 1);
    assert_int_equal(agent_process_wait(agent), 0);
    agent_place_remove(&place);
}

// ---- What it reaches ------------------------------------------------------------------------

// Takes the options, which are freed.
static void
assert_reach(char *options, int expected_status, const char *expected_text)
{
    char text[200] = "";
    KG_AUTO_FREE char *given = options;
    KG_AUTO_FREE char *command = kg_asprintf(AGENT_PATH " %s 2>/dev/null", given);
    FILE *agent = popen(command, "r");
    assert_non_null(agent);
    size_t len = fread(text, 1, sizeof text - 1, agent);
    int status = pclose(agent);
    text[len] = '\0';
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), expected_status);
    assert_string_equal(text, expected_text);
}

static void
test_reach(void **state)
{
    (void)state;
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6}; // of both families
    socklen_t len = sizeof addr;
    KG_AUTO_FD fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(fd, 20), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    int open_port = ntohs(addr.sin6_port), closed_port = agent_free_port();
    assert_reach(
        kg_asprintf("--reach closed=127.0.0.1:%d --reach v6=::1:%d", closed_port, closed_port), 0,
        "");
    assert_reach(kg_asprintf("--reach 'the one=127.0.0.1:%d' --limit NOFILE=100 "
                             "--reach closed=127.0.0.1:%d --reach 'the other=::1:%d'",
                             open_port, closed_port, open_port),
                 1, "the one, the other");
    assert_reach(kg_strdup("--reach 'x=$(HOST):1'"), 2, "not NAME=ADDRESS:PORT: x=$(HOST):1\n");
    assert_reach(kg_strdup("--reach x=127.0.0.1:0"), 2, "not NAME=ADDRESS:PORT: x=127.0.0.1:0\n");
    assert_reach(kg_strdup("--reach x=10.0.0.0/8:1"), 2, "not NAME=ADDRESS:PORT: x=10.0.0.0/8:1\n");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target),
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_cgroup),
        cmocka_unit_test(test_splice_half_close),
        cmocka_unit_test(test_splice_half_closed_for_long),
        cmocka_unit_test(test_splice_is_bounded),
        cmocka_unit_test(test_splice_lingers),
        cmocka_unit_test(test_splice_to_a_closed_side),
        cmocka_unit_test(test_splice_finishes),
        cmocka_unit_test_setup_teardown(test_links, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_kernel_ipc_and_tcp, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_remove, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_iopub_lingers_without_stdin, agent_setup,
                                        agent_teardown),
        cmocka_unit_test_setup_teardown(test_splice_throughput, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_exits, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_memory, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_stop_leaves_nothing, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_expected, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_unannounced, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_stop_beside_expected, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_api_refuses, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command_note, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command_text, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command_timeout, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command_caller_gone, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command_background, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command_and_kernels, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command_output_bound, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command_held_back, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_command_refused, agent_setup, agent_teardown),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_replay_bounds),
        cmocka_unit_test_setup_teardown(test_process_ids, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_refused, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_detached, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_keep, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_replay, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_readers, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_slow_reader, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_hold, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_input, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_input_bound, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_input_ends, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_signals, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_times, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_known, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_limits, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_process_descriptors, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal_resize, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal_keys, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal_jobs, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal_raw, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal_background, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal_closed, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal_input, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal_limits, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_terminal_refused, agent_setup, agent_teardown),
        cmocka_unit_test(test_port_targets),
        cmocka_unit_test(test_port_list),
        cmocka_unit_test_setup_teardown(test_port_links, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_port_refused, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_port_silent, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_port_call, agent_setup, agent_teardown),
        cmocka_unit_test(test_files_pages),
        cmocka_unit_test(test_files_list_refuses),
        cmocka_unit_test(test_files_open),
        cmocka_unit_test(test_files_write),
        cmocka_unit_test(test_files_etag),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_changes_are_bounded_in_time_and_number),
        cmocka_unit_test_setup_teardown(test_changes_call, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_files_calls, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_files_own, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_files_read, agent_setup, agent_teardown),
        cmocka_unit_test(test_entries_stat),
        cmocka_unit_test(test_entries_second_name),
        cmocka_unit_test(test_entries_mkdir),
        cmocka_unit_test(test_entries_move),
        cmocka_unit_test(test_entries_move_replaces),
        cmocka_unit_test(test_entries_rename_where_the_system_cannot),
        cmocka_unit_test(test_entries_unused),
        cmocka_unit_test(test_entries_append),
        cmocka_unit_test(test_entries_append_to_a_full_disk),
        cmocka_unit_test(test_entries_hostile_paths),
        cmocka_unit_test(test_entries_permissions),
        cmocka_unit_test_setup_teardown(test_entries_calls, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_entries_calls_refuse, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_append_call, agent_setup, agent_teardown),
        cmocka_unit_test(test_copy_file),
        cmocka_unit_test(test_copy_folder),
        cmocka_unit_test(test_copy_refuses),
        cmocka_unit_test(test_copy_is_bounded),
        cmocka_unit_test(test_copy_of_what_changes),
        cmocka_unit_test(test_mirror_makes_equal),
        cmocka_unit_test(test_mirror_changes_in_place),
        cmocka_unit_test(test_mirror_holes),
        cmocka_unit_test(test_mirror_is_bounded),
        cmocka_unit_test_setup_teardown(test_watch, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_watch_ends, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_watch_bounds, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_files_by_whole_paths, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_copy_call, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_copies_whose_callers_leave, agent_setup,
                                        agent_teardown),
        cmocka_unit_test_setup_teardown(test_data_kept_and_put_back, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_data_whose_callers_leave, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_tenant_request, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_tenant_refuses, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_tenant_is_bounded, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_tenant_ended_requests_count, agent_setup,
                                        agent_teardown),
        cmocka_unit_test_setup_teardown(test_tenant_slow_reader, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_tenant_tools, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_tenant_many_callers, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_tenant_gateway_lost, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_calls_on_one_link, agent_setup, agent_teardown),
        cmocka_unit_test_setup_teardown(test_calls_are_bounded, agent_setup, agent_teardown),
        cmocka_unit_test(test_idle_timeout),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
