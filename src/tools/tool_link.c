// SPDX-License-Identifier: Apache-2.0
// Reads a line at a time, for TURN_US of the loop's time in a turn, and sends what the code reads.
// While a link is paused, the code waits in its own write.

#include "tool_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"

enum {
    READ_BYTES = 64 << 10,
    KERNEL_NAME_MAX = 64,
    FIRST_LINE_MS = 10 * 1000,
    TURN_US = 2000,
    SMALL_BYTES = 4 << 10,    // of an answer: an error is one
    SMALL_ONES_MAX = 1 << 20, // bytes beyond TOOL_LINK_UNREAD_MAX: then the code is sent away
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
    struct buf in, out; // freed when they are empty
    size_t searched;    // bytes of `in` that have no newline
    size_t sent;        // of `out`
    char kernel[KERNEL_NAME_MAX + 1];
    bool has_kernel; // the first line has come
    bool paused;
    bool has_more; // lines for the next turn: nothing is read until then
    bool ended;
};

static void
link_count(struct tool_link *link)
{
    budget_hold_set(&link->hold, link->in.cap + link->out.cap);
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
        loop_fd_set(link->watch, (link->paused || link->has_more ? 0 : LOOP_READ) |
                                     (link->out.len > 0 ? LOOP_WRITE : 0));
}

// ---- Answers --------------------------------------------------------------------------------

static void
link_flush(struct tool_link *link)
{
    while (link->sent < link->out.len) {
        ssize_t n = send(link->fd, link->out.data + link->sent, link->out.len - link->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            link_end(link);
            return;
        }
        if (n <= 0)
            break;
        link->sent += (size_t)n;
    }
    if (link->sent == link->out.len) {
        buf_fini(&link->out);
        link->sent = 0;
    } else if (link->sent >
               link->out.len / 2) { // seldom, so that bytes are not moved again and again
        buf_consume(&link->out, link->sent);
        link->sent = 0;
    }
    link_count(link);
    link_watch(link);
}

// Code that does not read gets errors in place of large answers, and at last nothing.
static void
link_send(struct tool_link *link, int64_t id, const char *text, size_t len)
{
    static const char unread[] = "code does not read what tools answer";
    size_t waits = link->out.len - link->sent;
    KG_AUTO_FREE char *refusal = NULL;
    if (link->ended)
        return;
    if (len > SMALL_BYTES &&
        (waits + len > TOOL_LINK_UNREAD_MAX || !budget_hold_has_room(&link->hold, len))) {
        refusal =
            kg_asprintf("{\"id\":%lld,\"error\":\"%s: %zu MiB wait\",\"code\":\"%s\"}",
                        (long long)id, unread, waits >> 20, kg_code_info(KG_SESSION_BUSY)->name);
        text = refusal;
        len = strlen(refusal);
    }
    if (waits + len > TOOL_LINK_UNREAD_MAX + SMALL_ONES_MAX) {
        log_warning(unread, LOG_STR("kernel", link->kernel));
        link_end(link);
        return;
    }
    buf_append(&link->out, text, len);
    buf_append(&link->out, "\n", 1);
    link_flush(link);
}

void
tool_link_answer(struct tool_link *link, int64_t id, json_t *answer)
{
    json_object_set_new(answer, "id", json_integer(id));
    KG_AUTO_FREE char *text = json_dumps(answer, JSON_COMPACT);
    json_decref(answer);
    link_send(link, id, text, strlen(text));
}

void
tool_link_give(struct tool_link *link, int64_t id, const char *json, size_t len)
{
    KG_AUTO_BUF text = {0};
    buf_reserve(&text, len + 64);
    buf_printf(&text, "{\"id\":%lld,\"result\":", (long long)id);
    buf_append(&text, json, len);
    buf_append_str(&text, "}");
    link_send(link, id, text.data, text.len);
}

static json_t *
error_answer(const struct kg_error *err)
{
    return json_pack("{s:s, s:s}", "error", err->message, "code", kg_code_info(err->code)->name);
}

void
tool_link_refuse(struct tool_link *link, int64_t id, const struct kg_error *err)
{
    tool_link_answer(link, id, error_answer(err));
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

// -1: this is not the protocol.
static int
link_take_request(struct tool_link *link, const json_t *line, struct kg_error *err)
{
    const json_t *id = json_object_get(line, "id");
    const char *method = json_string_value(json_object_get(line, "method"));
    const char *name = json_string_value(json_object_get(line, "name"));
    int64_t number = json_integer_value(id);
    const char *server = json_string_value(json_object_get(line, "server"));
    if (json_is_integer(id) && method && strcmp(method, "list") == 0)
        link->events->on_list(link, number, server, link->arg);
    else if (json_is_integer(id) && method && strcmp(method, "call") == 0 && name)
        link->events->on_call(link, number, name, json_object_get(line, "arguments"), link->arg);
    else if (json_is_integer(id) && method && strcmp(method, "cancel") == 0)
        link->events->on_cancel(link, number, link->arg);
    else
        return kg_error_set(err, KG_INVALID, 0,
                            "a request is {\"id\": an integer, \"method\": \"list\"}, {\"id\", "
                            "\"method\": \"call\", \"name\", \"arguments\"} or {\"id\", "
                            "\"method\": \"cancel\"}");
    return 0;
}

static json_t *
line_parse(const char *text, size_t len, struct kg_error *err)
{
    json_error_t error;
    struct json_weight weight = json_weigh(text, len);
    if (len > TOOL_LINE_MAX) {
        (void)kg_error_set(err, KG_INVALID, 0, "a call has at most %d KiB of JSON",
                           TOOL_LINE_MAX >> 10);
        return NULL;
    }
    if (weight.depth > TOOL_DEPTH_MAX || weight.bytes > TOOL_VALUES_MAX) {
        (void)kg_error_set(
            err, KG_INVALID, 0, "the arguments %s: write them to a file, and pass its name",
            weight.depth > TOOL_DEPTH_MAX ? "nest too deeply" : "have too many values");
        return NULL;
    }
    // jansson takes a NUL for the end of a text only in C strings: lengths are given here.
    json_t *line = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!line)
        (void)kg_error_set(err, KG_INVALID, 0, "the call is not valid JSON: %s", error.text);
    return line;
}

// The id of a line that was refused, so that the code learns which one it was.
static bool
line_find_id(const char *text, size_t len, int64_t *ret)
{
    size_t id_len;
    const char *id = json_member(text, len, "id", &id_len);
    char digits[24] = "", *end = NULL;
    if (!id || id_len == 0 || id_len >= sizeof digits ||
        (*id != '-' && !(*id >= '0' && *id <= '9')))
        return false;
    memcpy(digits, id, id_len);
    errno = 0;
    *ret = strtoll(digits, &end, 10);
    return !*end && errno == 0;
}

// Says why. Without an id nothing that follows can be told apart.
static void
link_refuse_line(struct tool_link *link, const char *text, size_t len, const struct kg_error *err)
{
    int64_t id;
    if (line_find_id(text, len, &id)) {
        tool_link_refuse(link, id, err);
        return;
    }
    json_auto_t *answer = error_answer(err);
    KG_AUTO_FREE char *last = json_dumps(answer, JSON_COMPACT);
    link_send(link, 0, last, strlen(last));
    link_end(link);
}

static void
link_take_line(struct tool_link *link, const char *text, size_t len)
{
    struct kg_error err = {0};
    json_auto_t *line = line_parse(text, len, &err);
    if (!link->has_kernel) {
        if (!link_take_kernel(link, line))
            link_end(link);
    } else if (!line || link_take_request(link, line, &err) < 0) {
        link_refuse_line(link, text, len, &err);
    }
}

// A line that is too long, or what is kept of one when memory is short.
static void
link_check_rest(struct tool_link *link)
{
    struct kg_error err = {0};
    link_count(link);
    if (link->ended || link->paused || link->has_more || link->in.len == 0)
        return;
    if (link->in.len > TOOL_LINE_MAX)
        (void)kg_error_set(&err, KG_INVALID, 0, "a call has at most %d KiB of JSON",
                           TOOL_LINE_MAX >> 10);
    else if (!budget_hold_has_room(&link->hold, 0))
        (void)kg_error_set(&err, KG_SESSION_BUSY, 0,
                           "calls of tools take too much memory already; try again later");
    if (!err.code)
        return;
    link_refuse_line(link, link->in.data, link->in.len, &err);
    if (!link->ended)
        link_end(link);
}

// Leaves the rest for the next turn of the loop, so that others have theirs.
static void
link_set_more(struct tool_link *link, bool has_more)
{
    if (has_more)
        loop_timer_start(link->turn, 0);
    if (link->has_more == has_more)
        return;
    link->has_more = has_more;
    link_watch(link);
}

// Takes lines that have come. The link is still there afterwards.
static void
link_take_lines(struct tool_link *link)
{
    int64_t began_us = clock_mono_us();
    bool has_time = true;
    size_t taken = 0;
    while (!link->paused && !link->ended && has_time && link->in.len > taken) {
        const char *at = link->in.data + taken;
        size_t from = link->searched > taken ? link->searched : taken;
        const char *end = memchr(link->in.data + from, '\n', link->in.len - from);
        if (!end) {
            link->searched = link->in.len;
            break;
        }
        taken += (size_t)(end - at) + 1;
        link_take_line(link, at, (size_t)(end - at));
        has_time = clock_mono_us() - began_us < TURN_US;
    }
    link_set_more(link, !has_time && !link->paused && !link->ended && link->in.len > taken);
    buf_consume(&link->in, taken);
    link->searched -= link->searched > taken ? taken : link->searched;
    if (link->in.len == 0)
        buf_fini(&link->in);
    link_check_rest(link);
    link->events->on_work(link, clock_mono_us() - began_us, link->arg);
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
    if ((events & LOOP_READ) && !link->ended && !link->paused && !link->has_more)
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
