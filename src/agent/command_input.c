// SPDX-License-Identifier: Apache-2.0
// A queue in front of a pipe or a terminal.
#include "command_input.h"

#include <errno.h>
#include <poll.h>
#include <sys/queue.h>
#include <unistd.h>

#include "terminal.h"

enum { WRITE_BYTES = 64 * 1024 };

// A body that comes.
struct input_call {
    LIST_ENTRY(input_call) entry;
    struct command_input *input;
    struct request *request;
    struct buf body;
};

struct command_input {
    bool terminal;
    int fd; // -1: ended, or the command reads no more
    struct loop_fd *watch;
    struct buf queue;
    size_t n_written; // at the start of `queue`
    size_t n_reserved;
    bool line_has_begun;
    bool ending; // after what waits
    LIST_HEAD(, input_call) calls;
};

static void
command_input_close(struct command_input *input)
{
    loop_fd_free(KG_STEAL(input->watch));
    if (input->fd >= 0)
        close(KG_STEAL_FD(input->fd));
    buf_fini(&input->queue);
    input->n_written = 0;
}

static size_t
n_waiting(const struct command_input *input)
{
    return input->queue.len - input->n_written;
}

static void
write_some(struct command_input *input)
{
    size_t len = n_waiting(input) < WRITE_BYTES ? n_waiting(input) : WRITE_BYTES;

    ssize_t n = len > 0 ? write(input->fd, input->queue.data + input->n_written, len) : 0;
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        command_input_close(input);
        return;
    }
    input->n_written += n > 0 ? (size_t)n : 0;
    // The bytes that wait are moved no more often than they are halved.
    if (input->n_written * 2 >= input->queue.len) {
        buf_consume(&input->queue, input->n_written);
        input->n_written = 0;
    }
    if (input->queue.len == 0)
        buf_fini(&input->queue);
    if (input->ending && n_waiting(input) == 0)
        command_input_close(input);
    else
        loop_fd_set(input->watch, n_waiting(input) > 0 ? LOOP_WRITE : 0);
}

static void
on_writable(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;

    write_some(arg);
}

struct command_input *
command_input_new(struct loop *loop, int fd, bool terminal)
{
    struct command_input *input = KG_NEW(struct command_input);

    input->terminal = terminal;
    input->fd = fd;
    input->watch = loop_fd_new(loop, fd, 0, on_writable, input);
    return input;
}

int
command_input_fd(const struct command_input *input)
{
    return input->fd;
}

// A pipe that nobody reads any more shows it before the first write.
static int
check_open(struct command_input *input, struct kg_error *err)
{
    struct pollfd item = {.fd = input->fd, .events = POLLOUT};

    if (input->ending)
        return kg_error_set(err, KG_INVALID, 0, "the command's input was closed");
    if (input->fd >= 0 && !input->terminal && poll(&item, 1, 0) == 1 && (item.revents & POLLERR))
        command_input_close(input);
    if (input->fd < 0)
        return kg_error_set(err, KG_INVALID, 0, "the command reads no more input");
    return 0;
}

static int
check_room(struct command_input *input, int64_t len, struct kg_error *err)
{
    size_t used = input->n_reserved + n_waiting(input);

    if (check_open(input, err) != 0)
        return -1;
    if (len > COMMAND_INPUT_MAX)
        return kg_error_set(err, KG_INVALID, 0, "more than %d bytes of input", COMMAND_INPUT_MAX);
    if (used + (size_t)len > COMMAND_INPUT_MAX)
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "the command reads too slowly: %zu bytes of input wait; try later",
                            used);
    return 0;
}

static void
command_input_add(struct command_input *input, const char *data, size_t len)
{
    if (len == 0)
        return;
    buf_append(&input->queue, data, len);
    // Control characters end or drop a line.
    input->line_has_begun = (unsigned char)data[len - 1] >= ' ' || data[len - 1] == '\t';
    write_some(input);
}

// ---- Calls ----------------------------------------------------------------------------------

// Returns the request, which is to be ended.
static struct request *
input_call_free(struct input_call *call)
{
    struct request *request = call->request;

    call->input->n_reserved -= (size_t)request_body_len(request);
    LIST_REMOVE(call, entry);
    buf_fini(&call->body);
    free(call);
    return request;
}

static void
input_call_commit(struct input_call *call)
{
    struct command_input *input = call->input;
    struct kg_error err = {0};
    KG_AUTO_BUF body = call->body;

    call->body = (struct buf){0};
    struct request *request = input_call_free(call);
    if (check_open(input, &err) != 0) {
        request_fail(request, &err);
        return;
    }
    command_input_add(input, body.data, body.len);
    request_reply(request, json_object());
}

static void
on_input_body(struct request *request, const void *data, size_t len, void *arg)
{
    struct input_call *call = arg;

    buf_append(&call->body, data, len);
    if ((int64_t)call->body.len == request_body_len(request))
        input_call_commit(call);
}

static void
on_input_gone(void *arg)
{
    request_reply(input_call_free(arg), NULL);
}

void
command_input_take(struct command_input *input, struct request *request)
{
    struct kg_error err = {0};

    if (check_room(input, request_body_len(request), &err) != 0) {
        request_fail(request, &err);
        return;
    }
    struct input_call *call = KG_NEW(struct input_call);
    call->input = input;
    call->request = request;
    input->n_reserved += (size_t)request_body_len(request);
    LIST_INSERT_HEAD(&input->calls, call, entry);
    request_on_gone(request, on_input_gone, call);
    request_on_body(request, on_input_body, call);
    if (request_body_len(request) == 0)
        input_call_commit(call);
}

int
command_input_end(struct command_input *input, struct kg_error *err)
{
    char keys[2];

    if (check_open(input, err) != 0)
        return -1;
    if (!input->terminal) {
        input->ending = true;
        write_some(input);
        return 0;
    }
    size_t n = terminal_end_of_input(input->fd, input->line_has_begun, keys);
    if (check_room(input, (int64_t)n, err) != 0)
        return -1;
    command_input_add(input, keys, n);
    input->line_has_begun = false;
    return 0;
}

void
command_input_free(struct command_input *input)
{
    struct input_call *call;
    struct kg_error err;

    if (!input)
        return;
    (void)kg_error_set(&err, KG_INVALID, 0, "the command has ended");
    while ((call = LIST_FIRST(&input->calls)))
        request_fail(input_call_free(call), &err);
    command_input_close(input);
    free(input);
}
