// SPDX-License-Identifier: Apache-2.0
// The agent: its parts, and the real process behind a door that the test holds.
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent_process.h"
#include "base.h"
#include "cgroup.h"
#include "files.h"
#include "splice.h"
#include "target.h"

enum { PATIENCE_MS = 20 * 1000 };

// ---- Parts ----------------------------------------------------------------------------------

static void
test_target(void **state)
{
    struct target target;
    struct kg_error err;
    char longest[TARGET_LINE_MAX + 2];
    (void)state;

    assert_int_equal(target_parse("agent", 5, &target, &err), 0);
    assert_int_equal(target.channel, TARGET_AGENT);
    assert_int_equal(target_parse("python3.11/iopub", 16, &target, &err), 0);
    assert_int_equal(target.channel, TARGET_IOPUB);
    assert_string_equal(target.kernel, "python3.11");
    static const char *const bad[] = {"",
                                      "python",
                                      "/shell",
                                      "python/",
                                      "a/b/hb",
                                      "../shell",
                                      "py\nthon/hb",
                                      "python/agent",
                                      "agent ",
                                      "a b/hb",
                                      "123456789012345678901234567890123/hb"};
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

static const json_t *
find_file(const json_t *listing, const char *path)
{
    size_t i;
    const json_t *file;

    json_array_foreach(json_object_get(listing, "files"), i, file) {
        if (strcmp(json_string_value(json_object_get(file, "path")), path) == 0)
            return file;
    }
    return NULL;
}

static void
test_files(void **state)
{
    struct agent_place place;
    struct kg_error err;
    (void)state;

    agent_place_make(&place);
    make_folder(place.data, "sub");
    write_file(place.data, "sub/a.txt", "four");
    write_file(place.data, "not-utf8-\xff", "x");
    write_file(place.tmp, "secret", "x");
    KG_AUTO_FREE char *link = kg_asprintf("%s/out", place.data);
    assert_int_equal(symlink(place.tmp, link), 0);

    json_auto_t *all = files_list(place.data, "", &err);
    const json_t *file = find_file(all, "sub/a.txt");
    assert_int_equal(json_integer_value(json_object_get(file, "size")), 4);
    assert_string_equal(json_string_value(json_object_get(file, "type")), "file");
    assert_true(json_integer_value(json_object_get(file, "mtime_ms")) > clock_wall_ms() - 60000);
    assert_non_null(find_file(all, "sub"));
    assert_string_equal(json_string_value(json_object_get(find_file(all, "out"), "type")),
                        "symlink");
    assert_int_equal(json_array_size(json_object_get(all, "files")), 3);
    assert_false(json_is_true(json_object_get(all, "truncated")));

    json_auto_t *sub = files_list(place.data, "/sub", &err);
    assert_non_null(find_file(sub, "sub/a.txt"));
    assert_null(files_list(place.data, "out", &err));
    assert_null(files_list(place.data, "sub/../..", &err));
    assert_int_equal(err.code, KG_INVALID_PATH);
    assert_null(files_list(place.data, "missing", &err));
    assert_int_equal(err.code, KG_NOT_FOUND);

    for (int i = 0; i < 1100; i++) {
        KG_AUTO_FREE char *name = kg_asprintf("sub/%d", i);
        write_file(place.data, name, "");
    }
    json_auto_t *many = files_list(place.data, "", &err);
    assert_true(json_is_true(json_object_get(many, "truncated")));
    assert_in_range(json_array_size(json_object_get(many, "files")), 900, 1000);
    agent_place_remove(&place);
}

// ---- Splice ---------------------------------------------------------------------------------

struct splice_test {
    struct loop *loop;
    struct loop_timer *tick;
    int near[2], far[2];
    struct splice *splice;
    bool ended;
};

static void
on_tick(void *arg)
{
    loop_stop(arg);
}

static void
on_splice_end(void *arg)
{
    struct splice_test *test = arg;
    test->ended = true;
    splice_free(KG_STEAL(test->splice));
}

// Lets the loop work for a moment.
static void
turn(struct splice_test *test)
{
    loop_timer_start(test->tick, 1);
    loop_run(test->loop);
}

static void
splice_test_init(struct splice_test *test)
{
    *test = (struct splice_test){.loop = loop_new()};
    test->tick = loop_timer_new(test->loop, on_tick, test->loop);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, test->near), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, test->far), 0);
    test->splice = splice_new(test->loop, test->near[1], test->far[1], on_splice_end, test);
}

static void
splice_test_fini(struct splice_test *test)
{
    splice_free(test->splice);
    close(test->near[0]);
    close(test->far[0]);
    loop_timer_free(test->tick);
    loop_free(test->loop);
}

static void
test_splice_half_close(void **state)
{
    struct splice_test test;
    char text[16] = {0};
    (void)state;

    splice_test_init(&test);
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

static void
test_splice_is_bounded(void **state)
{
    struct splice_test test;
    static char chunk[65536];
    size_t in = 0, out = 0;
    ssize_t n;
    (void)state;

    splice_test_init(&test);
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

// ---- The process ----------------------------------------------------------------------------

struct fixture {
    struct agent_place place;
    char door[108];
    int listener;
    pid_t agent;
};

static void
wait_readable(int fd)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&item, 1, PATIENCE_MS), 1);
}

static int
setup(void **state)
{
    struct fixture *f = KG_NEW(struct fixture);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    agent_place_make(&f->place);
    snprintf(f->door, sizeof f->door, "%s/door", f->place.dir);
    memcpy(addr.sun_path, f->door, sizeof f->door);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(f->listener, (const struct sockaddr *)&addr, sizeof addr) != 0 ||
        listen(f->listener, 16) != 0)
        return -1;
    f->agent = agent_process_start(&f->place, f->door, 60);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    int status = f->agent ? agent_process_end(f->agent, SIGTERM) : 0;

    close(f->listener);
    agent_place_remove(&f->place);
    free(f);
    return status; // nonzero also where the agent leaks
}

static int
accept_link(struct fixture *f)
{
    char hello[16] = {0};

    wait_readable(f->listener);
    int fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(recv(fd, hello, 9, MSG_WAITALL), 9);
    assert_string_equal(hello, "KGLINK 1\n");
    return fd;
}

static void
read_line(int fd, char *ret, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        wait_readable(fd);
        assert_int_equal(read(fd, ret + i, 1), 1);
        if (ret[i] == '\n') {
            ret[i] = '\0';
            return;
        }
    }
    fail_msg("no line");
}

// Returns the link where the answer is OK, else -1 with the answer.
static int
open_target(struct fixture *f, const char *target, char answer[128])
{
    int fd = accept_link(f);

    assert_true(dprintf(fd, "%s\n", target) > 0);
    read_line(fd, answer, 128);
    if (strcmp(answer, "OK") == 0)
        return fd;
    close(fd);
    return -1;
}

static void
read_all(int fd, struct buf *ret)
{
    ssize_t n;

    do {
        wait_readable(fd);
        n = read(fd, buf_reserve(ret, 4096), 4096);
        assert_true(n >= 0);
        ret->len += (size_t)n;
        ret->data[ret->len] = '\0';
    } while (n > 0);
}

static int
send_request(struct fixture *f, const char *method, const char *path, const char *body)
{
    char answer[128];
    int fd = open_target(f, "agent", answer);

    assert_true(fd >= 0);
    dprintf(fd, "%s %s HTTP/1.0\r\nContent-Length: %zu\r\n\r\n%s", method, path,
            body ? strlen(body) : 0, body ? body : "");
    return fd;
}

static json_t *
call(struct fixture *f, const char *method, const char *path, const char *body, int expected)
{
    KG_AUTO_FD fd = send_request(f, method, path, body);
    KG_AUTO_BUF reply = {0};
    int status = 0;

    read_all(fd, &reply);
    assert_int_equal(sscanf(reply.data, "HTTP/1.%*d %d", &status), 1);
    if (status != expected)
        fail_msg("%s %s: %s", method, path, reply.data);
    const char *json = strstr(reply.data, "\r\n\r\n");
    assert_non_null(json);
    json_t *value = json_loads(json + 4, 0, NULL);
    assert_non_null(value);
    return value;
}

static void
do_call(struct fixture *f, const char *method, const char *path, const char *body, int expected)
{
    json_decref(call(f, method, path, body, expected));
}

static const char *
text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static int
number_of(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

static char *
kernel_spec(struct fixture *f, const char *name, const char *mode, const char *transport)
{
    json_auto_t *spec =
        json_pack("{s:s, s:[s, s, s], s:{s:s}, s:s, s:s, s:s}", "name", name, "argv", KERNEL_PATH,
                  mode, "{connection_file}", "env", "TEST_VALUE", "7", "cwd", f->place.data, "key",
                  "abcd", "transport", transport);
    return json_dumps(spec, 0);
}

static void
start_kernel(struct fixture *f, const char *name, const char *mode, const char *transport)
{
    KG_AUTO_FREE char *spec = kernel_spec(f, name, mode, transport);
    json_auto_t *reply = call(f, "POST", "/kernels", spec, 201);

    assert_string_equal(text_of(reply, "name"), name);
    assert_string_equal(text_of(reply, "state"), "running");
    assert_true(number_of(reply, "pid") > 1);
}

// The kernel is slower than the link: not ready, until it is.
static int
open_kernel(struct fixture *f, const char *target)
{
    char answer[128];
    int64_t give_up = clock_mono_ms() + PATIENCE_MS;
    int fd;

    while ((fd = open_target(f, target, answer)) < 0) {
        assert_int_equal(strncmp(answer, "ERR not ready", 13), 0);
        assert_true(clock_mono_ms() < give_up);
    }
    return fd;
}

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
    json_auto_t *info = call(f, "GET", "/info", NULL, 200);
    assert_string_equal(text_of(info, "version"), KG_VERSION);
    assert_int_equal(number_of(info, "pid"), f->agent);
}

static void
check_channels(struct fixture *f, const char *kernel)
{
    static const char *const channels[] = {"shell", "iopub", "stdin", "control", "hb"};

    for (size_t i = 0; i < KG_ARRAY_LEN(channels); i++) {
        char line[128];
        KG_AUTO_FREE char *target = kg_asprintf("%s/%s", kernel, channels[i]);
        KG_AUTO_FD fd = open_kernel(f, target);
        read_line(fd, line, sizeof line);
        assert_string_equal(line, channels[i]);
        assert_int_equal(write(fd, "ping\n", 5), 5);
        read_line(fd, line, sizeof line);
        assert_string_equal(line, "ping");
    }
}

static void
test_kernel_ipc_and_tcp(void **state)
{
    struct fixture *f = *state;

    start_kernel(f, "python", "echo", "ipc");
    start_kernel(f, "deno", "echo", "tcp");
    check_channels(f, "python");
    check_channels(f, "deno");
    json_auto_t *python = call(f, "GET", "/kernels/python", NULL, 200);
    assert_string_equal(text_of(python, "transport"), "ipc");
    assert_string_equal(text_of(python, "key"), "abcd");
    assert_string_equal(text_of(python, "log_tail"), "hello from the kernel, TEST_VALUE=7\n");
    json_auto_t *list = call(f, "GET", "/kernels", NULL, 200);
    assert_int_equal(json_array_size(json_object_get(list, "kernels")), 2);
    // One ends; the other one's processes are spared.
    do_call(f, "POST", "/kernels/python/stop", NULL, 200);
    check_channels(f, "deno");
    KG_AUTO_FREE char *spec = kernel_spec(f, "deno", "echo", "ipc");
    do_call(f, "POST", "/kernels", spec, 409);
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
    char line[4096];

    read_line(fd, line, sizeof line);
    json_t *event = json_loads(line, 0, NULL);
    assert_non_null(event);
    return event;
}

static int
open_events(struct fixture *f)
{
    char line[4096];
    int fd = send_request(f, "GET", "/events", NULL);

    do
        read_line(fd, line, sizeof line);
    while (strcmp(line, "\r") != 0);
    return fd;
}

static void
test_exits(void **state)
{
    struct fixture *f = *state;

    start_kernel(f, "early", "exit", "ipc");
    for (;;) {
        json_auto_t *kernel = call(f, "GET", "/kernels/early", NULL, 200);
        if (strcmp(text_of(kernel, "state"), "exited") == 0)
            break;
    }
    // It happened before anybody listened.
    KG_AUTO_FD events = open_events(f);
    json_auto_t *early = next_event(events);
    assert_string_equal(text_of(early, "type"), "kernel_exit");
    assert_string_equal(text_of(early, "name"), "early");
    assert_int_equal(number_of(early, "exit_code"), 3);
    assert_int_equal(number_of(early, "signal"), 0);

    start_kernel(f, "python", "echo", "ipc");
    close(open_kernel(f, "python/shell"));
    do_call(f, "POST", "/kernels/python/signal", "{\"signal\":\"INT\"}", 200);
    json_auto_t *interrupted = next_event(events);
    assert_int_equal(number_of(interrupted, "exit_code"), 42);

    write_file(f->place.tmp, "memory.events", "oom_kill 1\n");
    start_kernel(f, "python", "echo", "ipc");
    do_call(f, "POST", "/kernels/python/signal", "{\"signal\":\"KILL\"}", 200);
    json_auto_t *killed = next_event(events);
    assert_int_equal(number_of(killed, "exit_code"), -1);
    assert_int_equal(number_of(killed, "signal"), SIGKILL);
    assert_true(json_is_false(json_object_get(killed, "oom")));

    start_kernel(f, "python", "echo", "ipc");
    write_file(f->place.tmp, "memory.events", "oom_kill 2\n");
    do_call(f, "POST", "/kernels/python/signal", "{\"signal\":\"KILL\"}", 200);
    json_auto_t *starved = next_event(events);
    assert_true(json_is_true(json_object_get(starved, "oom")));
    do_call(f, "POST", "/kernels/python/signal", "{\"signal\":\"KILL\"}", 404);
}

static pid_t
wait_for_orphan(struct fixture *f)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/left.pid", f->place.data);
    int64_t give_up = clock_mono_ms() + PATIENCE_MS;
    KG_AUTO_BUF text = {0};

    while (file_read(path, 64, &text, NULL) != 0)
        assert_true(clock_mono_ms() < give_up);
    (void)!unlink(path);
    return (pid_t)strtol(text.data, NULL, 10);
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
        do_call(f, "POST", "/kernels/python/stop", NULL, 200);
        // Reaped, too: no zombie keeps the pid.
        int64_t give_up = clock_mono_ms() + PATIENCE_MS;
        while (kill(orphan, 0) == 0)
            assert_true(clock_mono_ms() < give_up);
        assert_int_equal(errno, ESRCH);
        KG_AUTO_BUF rest = {0};
        read_all(link, &rest);
        json_auto_t *listing = files_list(f->place.tmp, "", NULL);
        assert_int_equal(json_array_size(json_object_get(listing, "files")), 0);
        json_auto_t *kernel = call(f, "GET", "/kernels/python", NULL, 200);
        assert_string_equal(text_of(kernel, "state"), "exited");
        assert_int_equal(number_of(kernel, "signal"), SIGKILL);
    }
    // What was asked for is no event.
    start_kernel(f, "other", "exit", "ipc");
    KG_AUTO_FD events = open_events(f);
    json_auto_t *event = next_event(events);
    assert_string_equal(text_of(event, "name"), "other");
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
        do_call(f, "POST", "/kernels", bad[i], 400);
    do_call(f, "POST", "/kernels/none/stop", NULL, 404);
    do_call(f, "POST", "/kernels/none/signal", "{\"signal\":\"INT\"}", 404);
    do_call(f, "POST", "/kernels/none/signal", "{\"signal\":\"HUP\"}", 400);
    do_call(f, "GET", "/kernels/none", NULL, 404);
    do_call(f, "GET", "/files?path=../tmp", NULL, 400);
    json_auto_t *list = call(f, "GET", "/kernels", NULL, 200);
    assert_int_equal(json_array_size(json_object_get(list, "kernels")), 0);
    json_auto_t *stats = call(f, "GET", "/stats", NULL, 200);
    assert_true(json_is_integer(json_object_get(stats, "disk_bytes")));
    assert_true(json_is_null(json_object_get(stats, "memory_bytes")));
    // Nothing of the API can be dialled from inside.
    json_auto_t *listing = files_list(f->place.tmp, "", NULL);
    assert_int_equal(json_array_size(json_object_get(listing, "files")), 0);
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target),
        cmocka_unit_test(test_cgroup),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_splice_half_close),
        cmocka_unit_test(test_splice_is_bounded),
        cmocka_unit_test_setup_teardown(test_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kernel_ipc_and_tcp, setup, teardown),
        cmocka_unit_test_setup_teardown(test_splice_throughput, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_api_refuses, setup, teardown),
        cmocka_unit_test(test_idle_timeout),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
