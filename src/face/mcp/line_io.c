// SPDX-License-Identifier: Apache-2.0
// Reads and writes lines without blocking.

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "line_io.h"

enum {
    READ_BYTES = 64 << 10,
    LINE_MAX_BYTES = 64 << 20,
    OUTPUT_MAX_BYTES = 256 << 20,
    WRITE_BYTES = 1 << 20, // at most, in one turn of the loop
};

// A line that waits to be written.
struct line_out {
    STAILQ_ENTRY(line_out) link;
    char *text; // with its newline
    size_t len;
};
STAILQ_HEAD(lines_out, line_out);

struct line_io {
    int in;
    int out;
    int in_flags; // restored at the end: a shell may use the same terminal
    int out_flags;
    struct buf input;
    struct lines_out output;
    size_t backlog; // unwritten bytes of the output
    size_t written; // of the first line
    bool skipping;  // until the end of a line that is too long
    bool paused;
    bool input_ended; // while paused: the end is reported on resume
    bool ended;
    struct loop_fd *readable;
    struct loop_fd *writable;
    struct loop_timer *again; // reads a file, which cannot be watched; reports the end
    line_io_fn on_line;
    loop_fn on_end;
    void *arg;
};

// ---- Output ---------------------------------------------------------------------------------

// The end is reported by a timer, never within a call of the user.
static void
line_io_end(struct line_io *io)
{
    if (io->ended)
        return;
    io->ended = true;
    loop_fd_free(KG_STEAL(io->readable));
    loop_timer_start(io->again, 0);
}

static void
drop_first(struct line_io *io)
{
    struct line_out *line = STAILQ_FIRST(&io->output);
    STAILQ_REMOVE_HEAD(&io->output, link);
    io->backlog -= line->len - io->written;
    io->written = 0;
    free(line->text);
    free(line);
}

static void
drop_output(struct line_io *io)
{
    while (!STAILQ_EMPTY(&io->output))
        drop_first(io);
}

// Writes as much as the reader accepts, at most `max` bytes.
static void
flush_output(struct line_io *io, size_t max)
{
    for (struct line_out *line; max > 0 && (line = STAILQ_FIRST(&io->output));) {
        size_t left = line->len - io->written;
        ssize_t n = write(io->out, line->text + io->written, left < max ? left : max);
        if (n > 0) {
            io->written += (size_t)n;
            io->backlog -= (size_t)n;
            max -= (size_t)n;
            if (io->written == line->len)
                drop_first(io);
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        } else if (n < 0 && errno != EINTR) {
            drop_output(io); // the reader is gone
            line_io_end(io);
        }
    }
    if (io->writable)
        loop_fd_set(io->writable, STAILQ_EMPTY(&io->output) ? 0 : LOOP_WRITE);
}

// Only what can be watched is written in several turns.
static void
flush_turn(struct line_io *io)
{
    flush_output(io, io->writable ? WRITE_BYTES : SIZE_MAX);
}

static void
on_writable(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    flush_turn(arg);
}

size_t
line_io_backlog(const struct line_io *io)
{
    return io->backlog;
}

void
line_io_write(struct line_io *io, const char *line, size_t len)
{
    line_io_write_take(io, kg_memdup0(line, len), len);
}

void
line_io_write_take(struct line_io *io, char *line, size_t len)
{
    size_t waiting = io->backlog;
    if (waiting + len > OUTPUT_MAX_BYTES) {
        free(line);
        line_io_end(io);
        return;
    }
    struct line_out *out = KG_NEW(struct line_out);
    line[len] = '\n';
    out->text = line;
    out->len = len + 1;
    STAILQ_INSERT_TAIL(&io->output, out, link);
    io->backlog += out->len;
    if (waiting == 0)
        flush_turn(io);
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
    while (!io->ended && !io->paused && used < input->len &&
           (newline = memchr(input->data + used, '\n', input->len - used))) {
        size_t len = (size_t)(newline - input->data) - used;
        if (!io->skipping)
            take_line(io, input->data + used, len);
        io->skipping = false;
        used += len + 1;
    }
    buf_consume(input, used);
    if (input->len > LINE_MAX_BYTES && !io->paused) {
        if (!io->skipping)
            io->on_line(NULL, 0, io->arg);
        io->skipping = true;
        buf_fini(input);
    }
}

// At the end of the input: the last line may lack its newline.
static void
take_rest(struct line_io *io)
{
    io->input_ended = true;
    struct buf rest = io->input;
    io->input = (struct buf){0};
    if (rest.len > 0 && !io->skipping)
        take_line(io, rest.data, rest.len);
    buf_fini(&rest);
    if (!io->paused)
        line_io_end(io);
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
    take_rest(io);
}

static void
on_readable(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    take_input(arg);
}

static void
line_io_on_again(void *arg)
{
    struct line_io *io = arg;
    if (!io->ended) {
        take_input(io);
        if (!io->paused || io->ended)
            loop_timer_start(io->again, 0);
        return;
    }
    io->on_end(io->arg);
}

void
line_io_pause(struct line_io *io)
{
    io->paused = true;
    if (io->readable)
        loop_fd_set(io->readable, 0);
}

void
line_io_resume(struct line_io *io)
{
    io->paused = false;
    if (io->ended)
        return;
    take_lines(io);
    if (io->paused || io->ended)
        return;
    if (io->input_ended)
        take_rest(io);
    else if (io->readable)
        loop_fd_set(io->readable, LOOP_READ);
    else
        loop_timer_start(io->again, 0);
}

// ---- Life -----------------------------------------------------------------------------------

// epoll does not accept files and /dev/null.
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
    STAILQ_INIT(&io->output);
    io->on_line = on_line;
    io->on_end = on_end;
    io->arg = arg;
    io->again = loop_timer_new(loop, line_io_on_again, io);
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
    flush_output(io, SIZE_MAX);
    loop_fd_free(io->readable);
    loop_fd_free(io->writable);
    loop_timer_free(io->again);
    fcntl(io->in, F_SETFL, io->in_flags);
    fcntl(io->out, F_SETFL, io->out_flags);
    buf_fini(&io->input);
    drop_output(io);
    free(io);
}
