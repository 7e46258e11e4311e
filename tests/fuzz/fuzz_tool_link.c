// SPDX-License-Identifier: Apache-2.0
// What code says on a connection that calls tools, and what the gateway makes of it. First byte:
// how large the pieces are in which it comes, whether each request pauses the connection, and
// whether the code reads its answers. The rest is bytes of the agent and the code.
#include <assert.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"
#include "tool_link.h"
#include "tool_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUDGET_BYTES = 1 << 20, PAUSES = 64, READS = 128, LARGE_BYTES = 200 * 1000 };

struct session {
    struct loop *loop;
    struct budget budget;
    struct tool_link *link; // NULL: it has ended
    struct tool_list *tools;
    char *large; // a result as JSON
    bool pauses, reads;
    int code;
    size_t n_requests, n_answers;
    struct buf got;
};

static void
on_request(struct tool_link *link, int64_t id, const char *name, const json_t *arguments, void *arg)
{
    struct session *session = arg;
    struct kg_error err;
    session->n_requests++;
    assert(link == session->link && strlen(tool_link_kernel(link)) <= 64);
    if (!name)
        tool_link_answer(link, id, json_pack("{s:O}", "tools", tool_list_describe(session->tools)));
    else if (tool_list_check(session->tools, name, arguments, &err) < 0)
        tool_link_refuse(link, id, &err);
    else if (strcmp(name, "large") == 0)
        tool_link_give(link, id, session->large, LARGE_BYTES);
    else
        tool_link_give(link, id, "[1]", 3);
    if (session->pauses)
        tool_link_pause(link, true);
}

static void
on_list(struct tool_link *link, int64_t id, const char *server, void *arg)
{
    assert(!server || strlen(server) <= TOOL_LINE_MAX);
    on_request(link, id, NULL, NULL, arg);
}

static void
on_cancel(struct tool_link *link, int64_t id, void *arg)
{
    const struct session *session = arg;
    (void)id;
    assert(link == session->link);
}

static void
on_work(struct tool_link *link, int64_t us, void *arg)
{
    const struct session *session = arg;
    assert(link == session->link && us >= 0);
}

static void
on_end(struct tool_link *link, void *arg)
{
    struct session *session = arg;
    assert(link == session->link);
    session->link = NULL;
}

// Each answer is one line of JSON, with an id or an error.
static void
check_answers(struct session *session)
{
    size_t at = 0;
    for (const char *end; session->got.len > at &&
                          (end = memchr(session->got.data + at, '\n', session->got.len - at));) {
        size_t len = (size_t)(end - session->got.data) - at;
        json_auto_t *line = json_loadb(session->got.data + at, len, 0, NULL);
        assert(json_is_integer(json_object_get(line, "id")) ||
               json_is_string(json_object_get(line, "error")));
        session->n_answers++;
        at += len + 1;
    }
    if (at > 0)
        buf_consume(&session->got, at);
}

static void
read_answers(struct session *session)
{
    for (ssize_t n = 1; n > 0;) {
        n = recv(session->code, buf_reserve(&session->got, 1 << 16), 1 << 16, MSG_DONTWAIT);
        session->got.len += n > 0 ? (size_t)n : 0;
        check_answers(session);
    }
}

static void
turn(struct session *session)
{
    struct event_base *base = loop_event_base(session->loop);
    event_base_loop(base, EVLOOP_NONBLOCK);
    if (session->pauses && session->link)
        tool_link_pause(session->link, false);
    event_base_loop(base, EVLOOP_NONBLOCK);
    if (session->reads)
        read_answers(session);
}

static void
say(struct session *session, const uint8_t *data, size_t size, size_t piece)
{
    for (size_t at = 0; at < size && session->link;) {
        size_t len = size - at < piece ? size - at : piece;
        ssize_t n = send(session->code, data + at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        at += n > 0 ? (size_t)n : 0;
        turn(session);
    }
    for (size_t i = 0; i < session->n_requests + 4 && session->link; i++)
        turn(session);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tool_link_events events = {on_list, on_request, on_cancel, on_work, on_end};
    struct session session = {0};
    struct kg_error err;
    int fds[2];
    if (size == 0)
        return 0;
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_CONSOLE);
    json_auto_t *described = json_pack("[{s:s}, {s:s, s:{s:[s]}}]", "name", "large", "name",
                                       "small", "input_schema", "required", "a");
    session.tools = tool_list_new(described, &err);
    session.large = kg_calloc(1, LARGE_BYTES);
    memset(session.large, 'x', LARGE_BYTES);
    session.large[0] = session.large[LARGE_BYTES - 1] = '"';
    session.loop = loop_new();
    session.pauses = (data[0] & PAUSES) != 0;
    session.reads = (data[0] & READS) != 0;
    budget_init(&session.budget, "fuzz", BUDGET_BYTES, BUDGET_BYTES);
    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    session.code = fds[1];
    session.link = tool_link_new(session.loop, fds[0], &session.budget, "owner", &events, &session);
    size_t piece = data[0] % PAUSES;
    say(&session, data + 1, size - 1, piece ? piece * piece * piece : SIZE_MAX);
    session.reads = true;
    for (int i = 0; i < 32 && session.link; i++)
        turn(&session);
    read_answers(&session);
    // All requests were answered, unless the code was sent away.
    assert(session.n_answers >= session.n_requests || !session.link);
    tool_link_free(session.link);
    assert(session.budget.held == 0);
    close(session.code);
    budget_fini(&session.budget);
    loop_free(session.loop);
    tool_list_unref(session.tools);
    buf_fini(&session.got);
    free(session.large);
    return 0;
}
