// SPDX-License-Identifier: Apache-2.0
// The agent as a real process behind a door that the test holds.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "test_agent.h"

void
wait_readable(int fd)
{
    struct pollfd item = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&item, 1, PATIENCE_MS), 1);
}
int
count_entries(const char *dir)
{
    int n = 0;
    DIR *entries = opendir(dir);

    assert_non_null(entries);
    for (const struct dirent *entry; (entry = readdir(entries));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(entries);
    return n;
}

int
agent_setup(void **state)
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

int
agent_teardown(void **state)
{
    struct fixture *f = *state;
    int status = f->agent ? agent_process_end(f->agent, SIGTERM) : 0;

    close(f->listener);
    agent_place_remove(&f->place);
    free(f);
    return status; // nonzero also where the agent leaks
}

int
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

void
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
int
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

void
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

int
send_request(struct fixture *f, const char *method, const char *path, const char *body)
{
    char answer[128];
    int fd = open_target(f, "agent", answer);

    assert_true(fd >= 0);
    dprintf(fd, "%s %s HTTP/1.0\r\nContent-Length: %zu\r\n\r\n%s", method, path,
            body ? strlen(body) : 0, body ? body : "");
    return fd;
}

json_t *
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

void
do_call(struct fixture *f, const char *method, const char *path, const char *body, int expected)
{
    json_decref(call(f, method, path, body, expected));
}

const char *
text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

int
number_of(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

char *
kernel_spec(struct fixture *f, const char *name, const char *mode, const char *transport)
{
    json_auto_t *spec =
        json_pack("{s:s, s:[s, s, s], s:{s:s}, s:s, s:s, s:s}", "name", name, "argv", KERNEL_PATH,
                  mode, "{connection_file}", "env", "TEST_VALUE", "7", "cwd", f->place.data, "key",
                  "abcd", "transport", transport);
    return json_dumps(spec, 0);
}

void
start_kernel(struct fixture *f, const char *name, const char *mode, const char *transport)
{
    KG_AUTO_FREE char *spec = kernel_spec(f, name, mode, transport);
    json_auto_t *reply = call(f, "POST", "/kernels", spec, 201);

    assert_string_equal(text_of(reply, "name"), name);
    assert_string_equal(text_of(reply, "state"), "running");
    assert_true(number_of(reply, "pid") > 1);
}

// The kernel is slower than the link: not ready, until it is.
int
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

void
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
