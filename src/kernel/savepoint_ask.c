// SPDX-License-Identifier: Apache-2.0

#include "savepoint_ask_priv.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "sandbox.h"

enum { RETRY_MS = 3, MAX_RETRY_MS = 200, LINK_TIMEOUT_MS = 5 * 1000, MAX_ANSWER = 16 << 10 };

struct savepoint_ask {
    struct loop *loop;
    struct sandbox *sandbox;
    char *target;
    char *request; // with its newline
    struct buf answer;
    struct sandbox_call *link;
    int fd; // -1: not linked
    struct loop_fd *watch;
    struct loop_timer *retry;
    int64_t retry_ms;
    struct loop_timer *deadline;
    savepoint_ask_fn fn;
    void *arg;
};

void
savepoint_ask_cancel(struct savepoint_ask *ask)
{
    if (!ask)
        return;
    sandbox_call_cancel(ask->link);
    loop_fd_free(ask->watch);
    if (ask->fd >= 0)
        close(ask->fd);
    loop_timer_free(ask->retry);
    loop_timer_free(ask->deadline);
    buf_fini(&ask->answer);
    free(ask->target);
    free(ask->request);
    free(ask);
}

static void
ask_end(struct savepoint_ask *ask, const json_t *answer, const struct kg_error *err)
{
    savepoint_ask_fn fn = ask->fn;
    void *arg = ask->arg;
    savepoint_ask_cancel(ask);
    fn(answer, err, arg);
}

static void
ask_fail(struct savepoint_ask *ask, const char *why)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_SAVEPOINT_FAILED, 0, "%s", why);
    ask_end(ask, NULL, &err);
}

static void
ask_again(struct savepoint_ask *ask)
{
    loop_timer_start(ask->retry, ask->retry_ms);
    ask->retry_ms = ask->retry_ms * 2 < MAX_RETRY_MS ? ask->retry_ms * 2 : MAX_RETRY_MS;
}

static void
ask_on_deadline(void *arg)
{
    struct savepoint_ask *ask = arg;
    ask_fail(ask, ask->fd >= 0 ? "the savepoint did not answer in time"
                               : "the savepoint could not be reached in time");
}

static void
ask_on_answer(int fd, int events, void *arg)
{
    struct savepoint_ask *ask = arg;
    char piece[4096];
    (void)events;
    ssize_t n = read(fd, piece, sizeof piece);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        ask_fail(ask, "the savepoint ended without an answer");
        return;
    }
    buf_append(&ask->answer, piece, (size_t)n);
    const char *end = memchr(ask->answer.data, '\n', ask->answer.len);
    if (!end && ask->answer.len <= MAX_ANSWER)
        return;
    json_auto_t *answer =
        end ? json_loadb(ask->answer.data, (size_t)(end - ask->answer.data), 0, NULL) : NULL;
    if (json_is_object(answer))
        ask_end(ask, answer, NULL);
    else
        ask_fail(ask, "the savepoint's answer is malformed");
}

static void
ask_on_link(int fd, const struct kg_error *err, void *arg)
{
    struct savepoint_ask *ask = arg;
    (void)err; // it may not listen yet
    ask->link = NULL;
    if (fd < 0) {
        ask_again(ask);
        return;
    }
    ask->fd = fd;
    ask->watch = loop_fd_new(ask->loop, fd, LOOP_READ, ask_on_answer, ask);
    size_t len = strlen(ask->request);
    if (write(fd, ask->request, len) != (ssize_t)len) // a new link takes so little at once
        ask_fail(ask, "the savepoint could not be asked");
}

static void
ask_link(void *arg)
{
    struct savepoint_ask *ask = arg;
    ask->link =
        sandbox_open_link(ask->sandbox, ask->target, LINK_TIMEOUT_MS, ask_on_link, ask, NULL);
    if (!ask->link)
        ask_again(ask);
}

struct savepoint_ask *
savepoint_ask_new(struct loop *loop, struct sandbox *sandbox, const char *savepoint,
                  const json_t *request, int64_t timeout_ms, savepoint_ask_fn fn, void *arg)
{
    struct savepoint_ask *ask = KG_NEW(struct savepoint_ask);
    KG_AUTO_FREE char *text = json_dumps(request, JSON_COMPACT);
    ask->loop = loop;
    ask->sandbox = sandbox;
    ask->target = kg_asprintf("%s/savepoint", savepoint);
    ask->request = kg_asprintf("%s\n", text);
    ask->fd = -1;
    ask->retry_ms = RETRY_MS;
    ask->fn = fn;
    ask->arg = arg;
    ask->retry = loop_timer_new(loop, ask_link, ask);
    ask->deadline = loop_timer_new(loop, ask_on_deadline, ask);
    loop_timer_start(ask->retry, 0);
    loop_timer_start(ask->deadline, timeout_ms);
    return ask;
}

int
savepoint_answer_pid(const json_t *answer)
{
    json_int_t pid = json_integer_value(json_object_get(answer, "pid"));
    return pid > 1 && pid <= INT_MAX ? (int)pid : 0;
}
