// SPDX-License-Identifier: Apache-2.0
// Reads a line at a time, and sends what the code reads. While one is paused, the code waits in its
// own write.

#include "tool_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"

enum {
    READ_BYTES = 64 << 10,
    KERNEL_NAME_MAX = 64,
    FIRST_LINE_MS = 10 * 1000,
    FREE_BYTES = 4096, // of a line: they do not count
};

struct tool_link {
    struct loop *loop;
    int fd;
    struct loop_fd *watch;
    struct loop_timer *turn; // goes on with what was read, or ends it
    struct loop_timer *first;
    const struct tool_link_events *events;
    void *arg;
    struct budget_hold hold;
    struct buf in, out;
    char kernel[KERNEL_NAME_MAX + 1];
    bool has_kernel; // the first line has come
    bool paused;
    bool ended;
};

static void
link_count(struct tool_link *link)
{
    size_t held = link->in.len + link->out.len;
    budget_hold_set(&link->hold, held > FREE_BYTES ? held : 0);
}

// on_end follows in a later turn: the caller may still use the link.
static void
link_end(struct tool_link *link)
{
    link->ended = true;
    loop_fd_set(link->watch, 0);
    loop_timer_start(link->turn, 0);
}

static void
link_watch(struct tool_link *link)
{
    if (!link->ended)
        loop_fd_set(link->watch,
                    (link->paused ? 0 : LOOP_READ) | (link->out.len > 0 ? LOOP_WRITE : 0));
}

// ---- Answers --------------------------------------------------------------------------------

static void
link_flush(struct tool_link *link)
{
    size_t sent = 0;
    while (sent < link->out.len) {
        ssize_t n = send(link->fd, link->out.data + sent, link->out.len - sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            link_end(link);
            return;
        }
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    buf_consume(&link->out, sent);
    link_count(link);
    link_watch(link);
}

void
tool_link_answer(struct tool_link *link, int64_t id, json_t *answer)
{
    json_object_set_new(answer, "id", json_integer(id));
    char *text = link->ended ? NULL : json_dumps(answer, JSON_COMPACT);
    size_t len = text ? strlen(text) : 0;
    json_decref(answer);
    if (!text)
        return;
    if (link->out.len + len > TOOL_LINK_UNREAD_MAX || !budget_hold_has_room(&link->hold, len)) {
        log_warning("code does not read what tools answer: its connection is closed",
                    LOG_STR("kernel", link->kernel));
        link_end(link);
    } else {
        buf_append(&link->out, text, len);
        buf_append_str(&link->out, "\n");
        link_flush(link);
    }
    free(text);
}

void
tool_link_refuse(struct tool_link *link, int64_t id, const struct kg_error *err)
{
    tool_link_answer(
        link, id,
        json_pack("{s:s, s:s}", "error", err->message, "code", kg_code_info(err->code)->name));
}

// ---- Requests -------------------------------------------------------------------------------

// What the agent says; false: it is not that.
static bool
link_take_kernel(struct tool_link *link, const json_t *line)
{
    const json_t *kernel = json_object_get(line, "kernel");
    if (!json_is_object(line) || json_string_length(kernel) > KERNEL_NAME_MAX)
        return false;
    const char *name = json_string_value(kernel);
    memcpy(link->kernel, name ? name : "", name ? strlen(name) + 1 : 1);
    link->has_kernel = true;
    loop_timer_stop(link->first);
    return true;
}

// False: this is not the protocol.
static bool
link_take_request(struct tool_link *link, const json_t *line)
{
    const json_t *id = json_object_get(line, "id");
    const char *method = json_string_value(json_object_get(line, "method"));
    const char *name = json_string_value(json_object_get(line, "name"));
    if (!json_is_integer(id) || !method)
        return false;
    int64_t number = json_integer_value(id);
    if (strcmp(method, "list") == 0)
        link->events->on_list(link, number, json_string_value(json_object_get(line, "server")),
                              link->arg);
    else if (strcmp(method, "call") == 0 && name)
        link->events->on_call(link, number, name, json_object_get(line, "arguments"), link->arg);
    else if (strcmp(method, "cancel") == 0)
        link->events->on_cancel(link, number, link->arg);
    else
        return false;
    return true;
}

static bool
link_take_line(struct tool_link *link, const char *text, size_t len)
{
    // jansson takes a NUL for the end of a text only in C strings: lengths are given here.
    json_auto_t *line = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    return link->has_kernel ? link_take_request(link, line) : link_take_kernel(link, line);
}

// Takes the lines that have come. The link is still there afterwards.
static void
link_take_lines(struct tool_link *link)
{
    size_t taken = 0;
    while (!link->paused && !link->ended) {
        const char *at = link->in.data ? link->in.data + taken : "";
        const char *end = memchr(at, '\n', link->in.len - taken);
        if (!end)
            break;
        size_t len = (size_t)(end - at);
        if (len > TOOL_LINE_MAX || !link_take_line(link, at, len)) {
            link_end(link);
            break;
        }
        taken += len + 1;
    }
    buf_consume(&link->in, taken);
    if (link->in.len > TOOL_LINE_MAX + READ_BYTES ||
        (link->in.len > FREE_BYTES && !budget_hold_has_room(&link->hold, READ_BYTES)))
        link_end(link);
    link_count(link);
}

static void
link_read(struct tool_link *link)
{
    ssize_t n = recv(link->fd, buf_reserve(&link->in, READ_BYTES), READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        link_end(link);
        return;
    }
    link->in.len += (size_t)n;
    link_take_lines(link);
}

static void
link_on_ready(int fd, int events, void *arg)
{
    struct tool_link *link = arg;
    (void)fd;
    if (events & LOOP_WRITE)
        link_flush(link);
    if ((events & LOOP_READ) && !link->ended && !link->paused)
        link_read(link);
}

static void
link_on_turn(void *arg)
{
    struct tool_link *link = arg;
    if (!link->ended)
        link_take_lines(link);
    if (!link->ended)
        return;
    link->events->on_end(link, link->arg);
    tool_link_free(link);
}

static void
link_on_silence(void *arg)
{
    link_end(arg);
}

void
tool_link_pause(struct tool_link *link, bool paused)
{
    if (link->paused == paused || link->ended)
        return;
    link->paused = paused;
    link_watch(link);
    if (!paused) // there may be lines already
        loop_timer_start(link->turn, 0);
}

// ---- Life -----------------------------------------------------------------------------------

const char *
tool_link_kernel(const struct tool_link *link)
{
    return link->kernel;
}

struct tool_link *
tool_link_new(struct loop *loop, int fd, struct budget *budget, const char *owner,
              const struct tool_link_events *events, void *arg)
{
    struct tool_link *link = KG_NEW(struct tool_link);
    link->loop = loop;
    link->fd = fd;
    link->events = events;
    link->arg = arg;
    budget_hold_start(&link->hold, budget, owner);
    link->watch = loop_fd_new(loop, fd, LOOP_READ, link_on_ready, link);
    link->turn = loop_timer_new(loop, link_on_turn, link);
    link->first = loop_timer_new(loop, link_on_silence, link);
    loop_timer_start(link->first, FIRST_LINE_MS);
    return link;
}

void
tool_link_free(struct tool_link *link)
{
    if (!link)
        return;
    loop_fd_free(link->watch);
    loop_timer_free(link->turn);
    loop_timer_free(link->first);
    close(link->fd);
    budget_hold_end(&link->hold);
    buf_fini(&link->in);
    buf_fini(&link->out);
    free(link);
}
