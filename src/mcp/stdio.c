// SPDX-License-Identifier: Apache-2.0
// The transport stdio: a message a line, both ways.

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mcp_priv.h"

enum {
    READ_BYTES = 64 << 10,
    LINE_MAX_BYTES = 64 << 20,
    // A client that does not read has gone, for all that can be known.
    OUTPUT_MAX_BYTES = 256 << 20,
};

struct mcp_stdio {
    struct outlet base;
    struct mcp *mcp;
    struct mcp_session *session;
    int in;
    int out;
    struct buf input;
    struct buf output;
    size_t written; // of the output
    bool skipping;  // the rest of a line that is too long
    bool ended;
    struct loop_fd *readable;
    struct loop_fd *writable;
    struct loop_timer *again; // reads a file, which cannot be watched; and tells the end
    loop_fn on_end;
    void *on_end_arg;
};

// ---- Output ---------------------------------------------------------------------------------

// Tells the end from the loop, never from within a call of somebody else.
static void
end(struct mcp_stdio *stdio)
{
    if (stdio->ended)
        return;
    stdio->ended = true;
    loop_fd_free(KG_STEAL(stdio->readable));
    loop_timer_start(stdio->again, 0);
}

static void
flush_output(struct mcp_stdio *stdio)
{
    while (stdio->written < stdio->output.len) {
        ssize_t n = write(stdio->out, stdio->output.data + stdio->written,
                          stdio->output.len - stdio->written);
        if (n > 0) {
            stdio->written += (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            break;
        } else if (n < 0 && errno != EINTR) {
            stdio->written = stdio->output.len; // nobody reads any more
            end(stdio);
        }
    }
    bool all = stdio->written == stdio->output.len;
    if (all) {
        buf_fini(&stdio->output);
        stdio->written = 0;
    }
    if (stdio->writable)
        loop_fd_set(stdio->writable, all ? 0 : LOOP_WRITE);
}

static void
on_writable(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    flush_output(arg);
}

static void
stdio_send(struct outlet *outlet, json_t *message, bool minor)
{
    struct mcp_stdio *stdio = (struct mcp_stdio *)outlet;
    size_t waiting = stdio->output.len - stdio->written;
    size_t len = 0;
    KG_AUTO_FREE char *text = minor && waiting > MCP_BACKLOG_MAX ? NULL : rpc_dump(message, &len);
    json_decref(message);
    if (!text)
        return;
    if (waiting + len > OUTPUT_MAX_BYTES) {
        end(stdio);
        return;
    }
    buf_append(&stdio->output, text, len);
    buf_append(&stdio->output, "\n", 1);
    if (waiting == 0)
        flush_output(stdio);
}

static void
stdio_answer(struct outlet *outlet, json_t *message, int http_status)
{
    (void)http_status;
    if (message)
        stdio_send(outlet, message, false);
}

static bool
stdio_can_send(const struct outlet *outlet)
{
    const struct mcp_stdio *stdio = (const struct mcp_stdio *)outlet;
    return !stdio->ended;
}

static const struct outlet_ops stdio_ops = {
    .send = stdio_send,
    .answer = stdio_answer,
    .can_send = stdio_can_send,
};

// ---- Input ----------------------------------------------------------------------------------

static void
refuse_line(struct mcp_stdio *stdio, const json_t *id, int code, const char *why)
{
    stdio_send(&stdio->base, rpc_error(id, code, why, NULL), false);
}

static void
take_line(struct mcp_stdio *stdio, const char *line, size_t len)
{
    struct kg_error err;
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (len == 0)
        return;
    json_t *message = http_json_parse(line, len, &err);
    if (!message) {
        refuse_line(stdio, NULL, MCP_PARSE_ERROR, err.message);
        return;
    }
    const char *why = mcp_receive_check(stdio->session, message);
    if (!why) {
        mcp_receive(stdio->session, &stdio->base, message);
        return;
    }
    const json_t *id = json_object_get(message, "id");
    refuse_line(stdio, json_is_string(id) || json_is_integer(id) ? id : NULL, MCP_INVALID_REQUEST,
                why);
    json_decref(message);
}

static void
take_lines(struct mcp_stdio *stdio)
{
    size_t used = 0;
    struct buf *input = &stdio->input;
    char *newline;
    while (!stdio->ended && used < input->len &&
           (newline = memchr(input->data + used, '\n', input->len - used))) {
        size_t len = (size_t)(newline - input->data) - used;
        if (!stdio->skipping)
            take_line(stdio, input->data + used, len);
        stdio->skipping = false;
        used += len + 1;
    }
    buf_consume(input, used);
    if (input->len > LINE_MAX_BYTES) {
        if (!stdio->skipping)
            refuse_line(stdio, NULL, MCP_INVALID_REQUEST, "the line is too long");
        stdio->skipping = true;
        buf_fini(input);
    }
}

static void
take_input(struct mcp_stdio *stdio)
{
    char *at = buf_reserve(&stdio->input, READ_BYTES);
    ssize_t n = read(stdio->in, at, READ_BYTES);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n > 0) {
        stdio->input.len += (size_t)n;
        take_lines(stdio);
        return;
    }
    if (stdio->input.len > 0 && !stdio->skipping) // a last line without its end
        take_line(stdio, stdio->input.data, stdio->input.len);
    end(stdio);
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
    struct mcp_stdio *stdio = arg;
    if (!stdio->ended) {
        take_input(stdio);
        loop_timer_start(stdio->again, 0);
        return;
    }
    mcp_session_close(KG_STEAL(stdio->session));
    flush_output(stdio);
    stdio->on_end(stdio->on_end_arg);
}

// ---- Life -----------------------------------------------------------------------------------

// epoll refuses files and /dev/null.
static bool
can_be_watched(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || isatty(fd));
}

struct mcp_stdio *
mcp_stdio_new(struct mcp *mcp, int in, int out, const char *owner, const char *profile,
              loop_fn on_end, void *arg, struct kg_error *err)
{
    bool watch_in = can_be_watched(in);
    bool watch_out = can_be_watched(out);
    if ((watch_in && fd_set_nonblocking(in, err) < 0) ||
        (watch_out && fd_set_nonblocking(out, err) < 0))
        return NULL;
    struct mcp_stdio *stdio = KG_NEW(struct mcp_stdio);
    stdio->base.ops = &stdio_ops;
    stdio->mcp = mcp;
    stdio->in = in;
    stdio->out = out;
    stdio->on_end = on_end;
    stdio->on_end_arg = arg;
    stdio->session = mcp_session_new(mcp, owner, profile);
    stdio->session->news = &stdio->base;
    stdio->again = loop_timer_new(mcp->loop, on_again, stdio);
    if (watch_in)
        stdio->readable = loop_fd_new(mcp->loop, in, LOOP_READ, on_readable, stdio);
    else
        loop_timer_start(stdio->again, 0);
    if (watch_out)
        stdio->writable = loop_fd_new(mcp->loop, out, 0, on_writable, stdio);
    return stdio;
}

void
mcp_stdio_free(struct mcp_stdio *stdio)
{
    if (!stdio)
        return;
    stdio->ended = true;
    if (stdio->session)
        mcp_session_close(stdio->session);
    loop_fd_free(stdio->readable);
    loop_fd_free(stdio->writable);
    loop_timer_free(stdio->again);
    buf_fini(&stdio->input);
    buf_fini(&stdio->output);
    free(stdio);
}
