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

void
send_frame(int fd, enum frame_kind kind, const void *data, size_t len)
{
    unsigned char header[FRAME_HEADER_LEN];
    KG_AUTO_BUF bytes = {0};

    frame_header(kind, len, header);
    buf_append(&bytes, header, sizeof header);
    buf_append(&bytes, data, len);
    assert_int_equal(send(fd, bytes.data, bytes.len, MSG_NOSIGNAL), bytes.len);
}

static bool
read_exactly(int fd, char *ret, size_t len)
{
    ssize_t n;

    for (size_t at = 0; at < len; at += (size_t)n) {
        wait_readable(fd);
        n = read(fd, ret + at, len - at);
        if (n <= 0)
            return false;
    }
    return true;
}

enum frame_kind
read_frame(int fd, struct buf *ret)
{
    unsigned char header[FRAME_HEADER_LEN];
    struct frame frame;

    ret->len = 0;
    if (!read_exactly(fd, (char *)header, sizeof header))
        return FRAME_N_KINDS;
    size_t len = (size_t)header[1] << 16 | (size_t)header[2] << 8 | header[3];
    buf_append(ret, header, sizeof header);
    assert_true(read_exactly(fd, buf_reserve(ret, len + 1), len));
    ret->len += len;
    assert_int_equal(frame_read(RPC_GATEWAY, ret->data, ret->len, &frame), ret->len);
    buf_consume(ret, sizeof header);
    ret->data[ret->len] = '\0';
    return frame.kind;
}

int
send_request(struct fixture *f, const char *method, const char *params, size_t body_len)
{
    char answer[128];
    int fd = open_target(f, RPC_TARGET, answer);
    KG_AUTO_FREE char *text =
        kg_asprintf("{\"method\":\"%s\",\"params\":%s,\"body\":%zu}", method, params, body_len);

    assert_true(fd >= 0);
    send_frame(fd, FRAME_REQUEST, text, strlen(text));
    return fd;
}

json_t *
read_result(int fd, enum kg_code expected)
{
    KG_AUTO_BUF text = {0};

    enum frame_kind kind = read_frame(fd, &text);
    json_t *value = json_loadb(text.data ? text.data : "", text.len, 0, NULL);
    assert_non_null(value);
    enum kg_code code = KG_OK;
    if (kind == FRAME_ERROR)
        code = kg_code_find(text_of(value, "code"));
    else
        assert_int_equal(kind, FRAME_RESULT);
    if (code != expected)
        fail_msg("%s", text.data);
    return value;
}

json_t *
call(struct fixture *f, const char *method, const char *params, enum kg_code expected)
{
    KG_AUTO_FD fd = send_request(f, method, params, 0);
    return read_result(fd, expected);
}

void
do_call(struct fixture *f, const char *method, const char *params, enum kg_code expected)
{
    json_decref(call(f, method, params, expected));
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
    json_auto_t *reply = call(f, "kernels.start", spec, KG_OK);

    assert_string_equal(text_of(reply, "name"), name);
    assert_string_equal(text_of(reply, "state"), "running");
    assert_true(number_of(reply, "pid") > 1);
}

// The kernel is slower than the link: not ready, until it is.
int
open_kernel(struct fixture *f, const char *target)
{
    char answer[128];
    int64_t give_up = wait_now_ms() + PATIENCE_MS;
    int fd;

    while ((fd = open_target(f, target, answer)) < 0) {
        assert_int_equal(strncmp(answer, "ERR not ready", 13), 0);
        assert_true(wait_now_ms() < give_up);
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

struct stat
look(const struct agent_place *place, const char *name)
{
    KG_AUTO_FREE char *path = inside(place, name);
    struct stat st = {0};

    (void)lstat(path, &st); // st_mode is 0 where there is nothing
    return st;
}

void
assert_content(const struct agent_place *place, const char *name, const char *text)
{
    KG_AUTO_FREE char *path = inside(place, name);
    KG_AUTO_FD fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    KG_AUTO_BUF data = {0};

    assert_true(fd >= 0);
    read_all(fd, &data);
    assert_string_equal(data.data, text);
}
