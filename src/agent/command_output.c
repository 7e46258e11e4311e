// SPDX-License-Identifier: Apache-2.0
// Pipes to text: cleaned to UTF-8, bounded, held back by the log's readers. A terminal is a pipe
// whose bytes stay as they are.
#include "command_output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 32 * 1024,
    N_PIPES = 2,
    LOOK_AGAIN_MS = 100, // at a terminal that nobody had open
};

struct pipe {
    struct command_output *output;
    char stream; // COMMAND_STDOUT, COMMAND_STDERR or COMMAND_TERMINAL
    int fd;      // -1: at its end
    bool idle;   // a terminal that nobody has open
    struct loop_fd *watch;
    char cut[4]; // the start of a character whose rest has not come
    size_t cut_len;
};

struct command_output {
    struct command_output_settings settings;
    struct pipe pipes[N_PIPES];
    size_t n_taken;
    int64_t n_dropped;
    struct loop_timer *look_again; // NULL: pipes
};

int
command_pipes_open(int reads[N_PIPES], int writes[N_PIPES], struct kg_error *err)
{
    int fds[2];

    for (int i = 0; i < N_PIPES; i++) {
        if (pipe2(fds, O_CLOEXEC) != 0)
            return kg_error_set(err, KG_INTERNAL, errno, "cannot make a pipe");
        reads[i] = fds[0];
        writes[i] = fds[1];
        if (fd_set_nonblocking(fds[0], err) != 0)
            return -1;
    }
    return 0;
}

void
command_pipes_close(int fds[N_PIPES])
{
    for (int i = 0; i < N_PIPES; i++) {
        if (fds[i] >= 0)
            close(KG_STEAL_FD(fds[i]));
    }
}

static void
write_text(struct pipe *pipe, const struct buf *text)
{
    if (text->len > 0)
        command_log_add(pipe->output->settings.log, pipe->stream, text->data, text->len);
}

static void
command_output_take(struct pipe *pipe, const char *data, size_t len)
{
    struct command_output *output = pipe->output;
    size_t room = output->settings.max_bytes ? output->settings.max_bytes - output->n_taken : len;
    size_t used = len < room ? len : room;
    KG_AUTO_BUF bytes = {0};
    KG_AUTO_BUF text = {0};

    output->n_taken += used;
    output->n_dropped += (int64_t)(len - used);
    if (used == 0)
        return;
    if (output->settings.terminal) {
        command_log_add(output->settings.log, pipe->stream, data, used);
        return;
    }
    buf_append(&bytes, pipe->cut, pipe->cut_len);
    buf_append(&bytes, data, used);
    pipe->cut_len = utf8_append(&text, bytes.data, bytes.len, false);
    memcpy(pipe->cut, bytes.data + bytes.len - pipe->cut_len, pipe->cut_len);
    write_text(pipe, &text);
}

// Drops a character that the bound has cut in two.
static void
end_pipe(struct pipe *pipe)
{
    KG_AUTO_BUF text = {0};

    loop_fd_free(KG_STEAL(pipe->watch));
    if (pipe->fd >= 0)
        close(KG_STEAL_FD(pipe->fd));
    if (pipe->output->n_dropped == 0)
        (void)utf8_append(&text, pipe->cut, pipe->cut_len, true);
    pipe->cut_len = 0;
    write_text(pipe, &text);
}

// A terminal gives little at a time.
static ssize_t
read_chunk(struct pipe *pipe, char *chunk)
{
    size_t len = 0;
    ssize_t n;

    do {
        n = read(pipe->fd, chunk + len, CHUNK_BYTES - len);
        len += n > 0 ? (size_t)n : 0;
    } while (pipe->output->settings.terminal && n > 0 && len < CHUNK_BYTES);
    return len > 0 ? (ssize_t)len : n;
}

// Nobody has the terminal open, but the command may open it again.
static void
rest(struct pipe *pipe)
{
    pipe->idle = true;
    loop_fd_set(pipe->watch, 0);
    loop_timer_start(pipe->output->look_again, LOOK_AGAIN_MS);
}

// Returns whether there may be more.
static bool
read_pipe(struct pipe *pipe)
{
    static char chunk[CHUNK_BYTES];

    ssize_t n = read_chunk(pipe, chunk);
    pipe->idle = false;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0)
        command_output_take(pipe, chunk, (size_t)n);
    else if (pipe->output->settings.terminal)
        rest(pipe);
    else
        end_pipe(pipe);
    return n > 0;
}

static void
watch_pipes(struct command_output *output, int events)
{
    for (int i = 0; i < N_PIPES; i++) {
        if (output->pipes[i].watch && !output->pipes[i].idle)
            loop_fd_set(output->pipes[i].watch, events);
    }
}

void
command_output_resume(struct command_output *output)
{
    watch_pipes(output, LOOP_READ);
}

static void
read_and_tell(struct pipe *pipe)
{
    struct command_output *output = pipe->output;

    (void)read_pipe(pipe);
    if (command_log_is_held(output->settings.log))
        watch_pipes(output, 0);
    if (command_output_is_closed(output))
        output->settings.on_closed(output->settings.arg);
}

static void
on_readable(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;

    read_and_tell(arg);
}

static void
on_look_again(void *arg)
{
    struct command_output *output = arg;
    struct pipe *pipe = &output->pipes[0];

    pipe->idle = false;
    if (!command_log_is_held(output->settings.log)) {
        loop_fd_set(pipe->watch, LOOP_READ);
        read_and_tell(pipe);
    }
}

struct command_output *
command_output_new(const struct command_output_settings *settings)
{
    struct command_output *output = KG_NEW(struct command_output);

    output->settings = *settings;
    for (int i = 0; i < N_PIPES; i++) {
        struct pipe *pipe = &output->pipes[i];
        pipe->output = output;
        pipe->stream = i == 0 ? COMMAND_STDOUT : COMMAND_STDERR;
        pipe->fd = settings->fds[i];
        if (pipe->fd >= 0)
            pipe->watch = loop_fd_new(settings->loop, pipe->fd, LOOP_READ, on_readable, pipe);
    }
    if (settings->terminal) {
        output->pipes[0].stream = COMMAND_TERMINAL;
        output->look_again = loop_timer_new(settings->loop, on_look_again, output);
    }
    return output;
}

void
command_output_free(struct command_output *output)
{
    if (!output)
        return;
    for (int i = 0; i < N_PIPES; i++) {
        loop_fd_free(output->pipes[i].watch);
        if (output->pipes[i].fd >= 0)
            close(output->pipes[i].fd);
    }
    loop_timer_free(output->look_again);
    free(output);
}

bool
command_output_is_closed(const struct command_output *output)
{
    return output->pipes[0].idle || (output->pipes[0].fd < 0 && output->pipes[1].fd < 0);
}

// A process that still writes would be read without end: what a pipe holds is two chunks.
void
command_output_finish(struct command_output *output)
{
    for (int i = 0; i < N_PIPES; i++) {
        struct pipe *pipe = &output->pipes[i];
        for (int n = 0; n < 2 && pipe->fd >= 0 && read_pipe(pipe); n++)
            ;
        if (pipe->fd >= 0)
            end_pipe(pipe);
    }
}

int64_t
command_output_dropped(const struct command_output *output)
{
    return output->n_dropped;
}
