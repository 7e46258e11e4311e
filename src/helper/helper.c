// SPDX-License-Identifier: Apache-2.0
// Calls to the helper, and its replacement by another one.
#include "helper.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

struct helper_call {
    TAILQ_ENTRY(helper_call) link;
    struct helper *helper;
    struct helper_request request;
    bool sent;
    helper_reply_fn fn; // NULL: cancelled
    void *arg;
};

enum { LISTENERS_MAX = 8, END_MS = 1500 };

struct helper_listener {
    enum helper_event event;
    helper_reply_fn fn; // NULL: a free place
    void *arg;
};

struct helper {
    struct loop *loop;
    int fd; // -1: lost
    int starter;
    struct loop_fd *watch;
    struct loop_fd *starter_watch;
    TAILQ_HEAD(helper_calls, helper_call) calls; // in the order in which they are sent
    uint32_t serial;
    struct helper_reply started;
    struct helper_listener listeners[LISTENERS_MAX];
};

// ---- Answers --------------------------------------------------------------------------------

// The first listener gets `fd`.
static void
helper_tell(const struct helper *helper, const struct helper_reply *reply, int fd)
{
    for (size_t i = 0; i < LISTENERS_MAX; i++) {
        const struct helper_listener *listener = &helper->listeners[i];
        if (listener->fn && listener->event == reply->event)
            listener->fn(reply, KG_STEAL_FD(fd), listener->arg);
    }
    if (fd >= 0)
        close(fd);
}

static struct helper_call *
helper_find(const struct helper *helper, uint32_t serial)
{
    struct helper_call *call;
    TAILQ_FOREACH(call, &helper->calls, link) {
        if (call->sent && call->request.serial == serial)
            return call;
    }
    return NULL;
}

static void
helper_answer(struct helper *helper, const struct helper_reply *reply, int fd)
{
    struct helper_call *call = helper_find(helper, reply->serial);
    if (!call) {
        helper_tell(helper, reply, fd);
        return;
    }
    helper_reply_fn fn = call->fn;
    void *arg = call->arg;
    if (reply->event == HELPER_DONE) {
        TAILQ_REMOVE(&helper->calls, call, link);
        free(call);
    }
    if (fn)
        fn(reply, fd, arg);
    else if (fd >= 0)
        close(fd);
}

// ---- The connection -------------------------------------------------------------------------

static void
set_lost(const struct helper *helper, struct helper_reply *reply)
{
    struct kg_error err;
    (void)kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                       "the process that makes sandboxes has ended%s",
                       helper_can_come_back(helper) ? " and is being started again"
                                                    : ": the gateway must be started again");
    helper_reply_set_error(reply, &err);
}

// What its callbacks ask fails at once, since there is no helper.
static void
helper_fail_calls(struct helper *helper)
{
    struct helper_reply reply = {.event = HELPER_DONE};
    set_lost(helper, &reply);
    for (struct helper_call *call; (call = TAILQ_FIRST(&helper->calls));) {
        call->sent = true;
        reply.serial = call->request.serial;
        helper_answer(helper, &reply, -1);
    }
}

static void
helper_lose(struct helper *helper)
{
    struct helper_reply reply = {.event = HELPER_LOST};
    log_error("the helper has ended: sessions go on, and new ones wait for the next helper");
    loop_fd_free(KG_STEAL(helper->watch));
    close(KG_STEAL_FD(helper->fd));
    helper_fail_calls(helper);
    set_lost(helper, &reply);
    helper_tell(helper, &reply, -1);
}

// Sends as many as the socket takes.
static void
helper_send_calls(struct helper *helper)
{
    struct helper_call *call;
    bool all = true;
    TAILQ_FOREACH(call, &helper->calls, link) {
        if (call->sent)
            continue;
        call->sent =
            helper_send(helper->fd, &call->request, sizeof call->request, -1, MSG_DONTWAIT) == 0;
        all = call->sent;
        if (!all)
            break; // it is full, or has ended, which its watch reports
    }
    loop_fd_set(helper->watch, all ? LOOP_READ : LOOP_READ | LOOP_WRITE);
}

static void
helper_on_socket(int fd, int events, void *arg)
{
    struct helper *helper = arg;
    struct helper_reply reply;
    int received;
    if (events & LOOP_WRITE)
        helper_send_calls(helper);
    if (!(events & LOOP_READ))
        return;
    ssize_t n = helper_receive(fd, &reply, sizeof reply, MSG_DONTWAIT, &received);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0 && helper_reply_is_valid(&reply, (size_t)n)) {
        helper_answer(helper, &reply, received);
        return;
    }
    if (received >= 0)
        close(received);
    helper_lose(helper);
}

static void
helper_watch(struct helper *helper)
{
    helper->watch = loop_fd_new(helper->loop, helper->fd, LOOP_READ, helper_on_socket, helper);
}

// The starter passes the socket of a new helper when that has started.
static void
on_starter(int fd, int events, void *arg)
{
    struct helper *helper = arg;
    struct helper_reply started;
    int received;
    (void)events;
    ssize_t n = helper_receive(fd, &started, sizeof started, MSG_DONTWAIT, &received);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        log_error("the starter of the helper has ended: this gateway must be started again to make "
                  "sandboxes");
        loop_fd_free(KG_STEAL(helper->starter_watch));
        return;
    }
    if (received < 0)
        return;
    if (!helper_reply_is_valid(&started, (size_t)n)) {
        close(received);
        return;
    }
    if (helper->fd >= 0)
        helper_lose(helper); // it has ended, although this process has not seen that yet
    helper->fd = received;
    helper->started = started;
    helper_watch(helper);
    started.event = HELPER_BACK;
    helper_tell(helper, &started, -1);
}

struct helper *
helper_new(struct loop *loop, const struct helper_link *link)
{
    struct helper *helper = KG_NEW(struct helper);
    helper->loop = loop;
    helper->fd = link->helper;
    helper->starter = link->starter;
    helper->started = link->started;
    TAILQ_INIT(&helper->calls);
    helper_watch(helper);
    helper->starter_watch = loop_fd_new(loop, helper->starter, LOOP_READ, on_starter, helper);
    return helper;
}

// The starter ends after the helper, and the state folder is then free.
static void
helper_await_end(int starter)
{
    struct pollfd end = {.fd = starter, .events = POLLIN};
    int64_t until_ms = clock_mono_ms() + END_MS;
    struct helper_reply stray;
    int fd = -1;
    shutdown(starter, SHUT_WR);
    for (int64_t left; (left = until_ms - clock_mono_ms()) > 0;) {
        if (poll(&end, 1, (int)left) < 0 && errno != EINTR)
            return;
        ssize_t n = helper_receive(starter, &stray, sizeof stray, MSG_DONTWAIT, &fd);
        if (fd >= 0)
            close(fd);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return;
    }
}

void
helper_free(struct helper *helper)
{
    if (!helper)
        return;
    loop_fd_free(helper->watch);
    loop_fd_free(helper->starter_watch);
    if (helper->fd >= 0)
        close(KG_STEAL_FD(helper->fd));
    helper_fail_calls(helper);
    helper_await_end(helper->starter);
    close(helper->starter);
    free(helper);
}

const struct helper_reply *
helper_started(const struct helper *helper)
{
    return &helper->started;
}

bool
helper_can_come_back(const struct helper *helper)
{
    return helper->fd >= 0 || helper->starter_watch;
}

int
helper_check(const struct helper *helper, struct kg_error *err)
{
    struct helper_reply lost = {0};
    if (helper->fd >= 0)
        return 0;
    set_lost(helper, &lost);
    (void)helper_reply_error(&lost, err);
    return -1;
}

// ---- Calls ----------------------------------------------------------------------------------

struct helper_call *
helper_ask(struct helper *helper, const struct helper_request *request, helper_reply_fn fn,
           void *arg, struct kg_error *err)
{
    if (helper_check(helper, err) < 0)
        return NULL;
    struct helper_call *call = KG_NEW(struct helper_call);
    call->helper = helper;
    call->request = *request;
    helper->serial += helper->serial == UINT32_MAX ? 2 : 1; // 0: answers no call
    call->request.serial = helper->serial;
    call->fn = fn;
    call->arg = arg;
    assert(helper_request_is_valid(&call->request, sizeof call->request));
    TAILQ_INSERT_TAIL(&helper->calls, call, link);
    helper_send_calls(helper);
    return call;
}

void
helper_call_cancel(struct helper_call *call)
{
    if (call)
        call->fn = NULL;
}

void
helper_on(struct helper *helper, enum helper_event event, helper_reply_fn fn, void *arg)
{
    size_t i = 0;
    while (helper->listeners[i].fn)
        i++;
    assert(i < LISTENERS_MAX);
    helper->listeners[i] = (struct helper_listener){event, fn, arg};
}

void
helper_off(struct helper *helper, const void *arg)
{
    for (size_t i = 0; i < LISTENERS_MAX; i++) {
        if (helper->listeners[i].arg == arg)
            helper->listeners[i].fn = NULL;
    }
}
