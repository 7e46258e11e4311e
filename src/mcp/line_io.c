// SPDX-License-Identifier: Apache-2.0
// Lines over descriptors: see line_io.h.

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "line_io.h"

enum {
    READ_BYTES = 64 << 10,
    LINE_MAX_BYTES = 64 << 20,
    OUTPUT_MAX_BYTES = 256 << 20,
};

struct line_io {
    int in;
    int out;
    int in_flags; // as they were: the terminal may be a shell's
    int out_flags;
    struct buf input;
    struct buf output;
    size_t written; // of the output
    bool skipping;  // the rest of a line that is too long
    bool ended;
    struct loop_fd *readable;
    struct loop_fd *writable;
    struct loop_timer *again; // reads a file, which cannot be watched; and tells the end
    line_io_fn on_line;
    loop_fn on_end;
    void *arg;
};

// ---- Output ---------------------------------------------------------------------------------

// Tells the end from the loop, never from within a call of somebody else.
static void
end(struct line_io *io)
{
    if (io->ended)
        return;
    io->ended = true;
    loop_fd_free(KG_STEAL(io->readable));
    loop_timer_start(io->again, 0);
}

static void
flush_output(struct line_io *io)
{
    while (io->written < io->output.len) {
        ssize_t n = write(io->out, io->output.data + io->written, io->output.len - io->written);
        if (n > 0) {
            io->written += (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        } else if (n < 0 && errno != EINTR) {
            io->written = io->output.len; // nobody reads any more
            end(io);
        }
    }
    bool all = io->written == io->output.len;
    if (all) {
        buf_fini(&io->output);
        io->written = 0;
    }
    if (io->writable)
        loop_fd_set(io->writable, all ? 0 : LOOP_WRITE);
}

static void
on_writable(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    flush_output(arg);
}

size_t
line_io_backlog(const struct line_io *io)
{
    return io->output.len - io->written;
}

void
line_io_write(struct line_io *io, const char *line, size_t len)
{
    size_t waiting = line_io_backlog(io);
    if (waiting + len > OUTPUT_MAX_BYTES) {
        end(io);
        return;
    }
    buf_append(&io->output, line, len);
    buf_append(&io->output, "\n", 1);
    if (waiting == 0)
        flush_output(io);
}

// ---- Input ----------------------------------------------------------------------------------

static void
take_line(struct line_io *io, const char *line, size_t len)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (len > 0)
        io->on_line(line, len, io->arg);
}

static void
take_lines(struct line_io *io)
{
    size_t used = 0;
    struct buf *input = &io->input;
    char *newline;
    while (!io->ended && used < input->len &&
           (newline = memchr(input->data + used, '\n', input->len - used))) {
        size_t len = (size_t)(newline - input->data) - used;
        if (!io->skipping)
            take_line(io, input->data + used, len);
        io->skipping = false;
        used += len + 1;
    }
    buf_consume(input, used);
    if (input->len > LINE_MAX_BYTES) {
        if (!io->skipping)
            io->on_line(NULL, 0, io->arg);
        io->skipping = true;
        buf_fini(input);
    }
}

static void
take_input(struct line_io *io)
{
    char *at = buf_reserve(&io->input, READ_BYTES);
    ssize_t n = read(io->in, at, READ_BYTES);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n > 0) {
        io->input.len += (size_t)n;
        take_lines(io);
        return;
    }
    if (io->input.len > 0 && !io->skipping) // a last line without its end
        take_line(io, io->input.data, io->input.len);
    end(io);
}

static void
on_readable(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    take_input(arg);
}

static void
on_again(void *arg)
{
    struct line_io *io = arg;
    if (!io->ended) {
        take_input(io);
        loop_timer_start(io->again, 0);
        return;
    }
    io->on_end(io->arg);
}

// ---- Life -----------------------------------------------------------------------------------

// epoll refuses files and /dev/null.
static bool
can_be_watched(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || isatty(fd));
}

struct line_io *
line_io_new(struct loop *loop, int in, int out, line_io_fn on_line, loop_fn on_end, void *arg,
            struct kg_error *err)
{
    bool watch_in = can_be_watched(in);
    bool watch_out = can_be_watched(out);
    int in_flags = fcntl(in, F_GETFL);
    int out_flags = fcntl(out, F_GETFL);
    if ((watch_in && fd_set_nonblocking(in, err) < 0) ||
        (watch_out && fd_set_nonblocking(out, err) < 0))
        return NULL;
    struct line_io *io = KG_NEW(struct line_io);
    io->in = in;
    io->out = out;
    io->in_flags = in_flags;
    io->out_flags = out_flags;
    io->on_line = on_line;
    io->on_end = on_end;
    io->arg = arg;
    io->again = loop_timer_new(loop, on_again, io);
    if (watch_in)
        io->readable = loop_fd_new(loop, in, LOOP_READ, on_readable, io);
    else
        loop_timer_start(io->again, 0);
    if (watch_out)
        io->writable = loop_fd_new(loop, out, 0, on_writable, io);
    return io;
}

void
line_io_free(struct line_io *io)
{
    if (!io)
        return;
    flush_output(io);
    loop_fd_free(io->readable);
    loop_fd_free(io->writable);
    loop_timer_free(io->again);
    fcntl(io->in, F_SETFL, io->in_flags);
    fcntl(io->out, F_SETFL, io->out_flags);
    buf_fini(&io->input);
    buf_fini(&io->output);
    free(io);
}
