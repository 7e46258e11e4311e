// SPDX-License-Identifier: Apache-2.0
// The loop, descriptors and signals on libevent.

#include "loop_priv.h"

#include <assert.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include <errno.h>

static void later_free(struct later *later);

struct loop *
loop_new(void)
{
    struct loop *loop = KG_NEW(struct loop);
    loop->base = event_base_new();
    if (!loop->base)
        abort();
    return loop;
}

void
loop_free(struct loop *loop)
{
    if (!loop)
        return;
    work_pool_free(loop->pool);
    while (!LIST_EMPTY(&loop->later))
        later_free(LIST_FIRST(&loop->later));
    event_base_free(loop->base);
    free(loop);
}

void
loop_run(struct loop *loop)
{
    loop->stopped = false;
    while (!loop->stopped) {
        event_base_loop(loop->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
        if (loop->turn_fn)
            loop->turn_fn(loop->turn_arg);
    }
}

void
loop_stop(struct loop *loop)
{
    loop->stopped = true;
    event_base_loopbreak(loop->base);
}

void
loop_set_turn(struct loop *loop, loop_fn fn, void *arg)
{
    loop->turn_fn = fn;
    loop->turn_arg = arg;
}

struct event_base *
loop_event_base(struct loop *loop)
{
    return loop->base;
}

static struct event *
new_event(struct loop *loop, int fd, short what, event_callback_fn fn, void *arg)
{
    struct event *event = event_new(loop->base, fd, what, fn, arg);
    if (!event)
        abort();
    return event;
}

// ---- Later ----------------------------------------------------------------------------------

struct later {
    LIST_ENTRY(later) entry;
    struct loop_timer *timer;
    loop_fn fn;
    void *arg;
};

static void
later_free(struct later *later)
{
    LIST_REMOVE(later, entry);
    loop_timer_free(later->timer);
    free(later);
}

static void
on_later(void *arg)
{
    struct later *later = arg;
    loop_fn fn = later->fn;
    void *fn_arg = later->arg;
    later_free(later);
    fn(fn_arg);
}

void
loop_later(struct loop *loop, int64_t delay_ms, loop_fn fn, void *arg)
{
    struct later *later = KG_NEW(struct later);
    later->fn = fn;
    later->arg = arg;
    later->timer = loop_timer_new(loop, on_later, later);
    LIST_INSERT_HEAD(&loop->later, later, entry);
    loop_timer_start(later->timer, delay_ms);
}

// ---- Descriptors ----------------------------------------------------------------------------

struct loop_fd {
    struct event *event;
    struct loop *loop;
    int fd;
    loop_fd_fn fn;
    void *arg;
};

static void
on_fd(evutil_socket_t fd, short what, void *arg)
{
    struct loop_fd *watch = arg;
    int events = (what & EV_READ ? LOOP_READ : 0) | (what & EV_WRITE ? LOOP_WRITE : 0);
    watch->fn(fd, events, watch->arg);
}

struct loop_fd *
loop_fd_new(struct loop *loop, int fd, int events, loop_fd_fn fn, void *arg)
{
    struct loop_fd *watch = KG_NEW(struct loop_fd);
    watch->loop = loop;
    watch->fd = fd;
    watch->fn = fn;
    watch->arg = arg;
    watch->event = new_event(loop, fd, EV_PERSIST, on_fd, watch);
    loop_fd_set(watch, events);
    return watch;
}

void
loop_fd_set(struct loop_fd *watch, int events)
{
    event_del(watch->event);
    short what = (short)((events & LOOP_READ ? EV_READ : 0) | (events & LOOP_WRITE ? EV_WRITE : 0));
    if (what == 0)
        return;
    if (events & LOOP_EDGE)
        what |= EV_ET;
    event_assign(watch->event, watch->loop->base, watch->fd, (short)(what | EV_PERSIST), on_fd,
                 watch);
    event_add(watch->event, NULL);
}

void
loop_fd_free(struct loop_fd *watch)
{
    if (!watch)
        return;
    event_free(watch->event);
    free(watch);
}

// ---- Signals --------------------------------------------------------------------------------

struct loop_signal {
    struct event *event;
    loop_signal_fn fn;
    void *arg;
};

static void
on_signal(evutil_socket_t signum, short what, void *arg)
{
    (void)what;
    struct loop_signal *signal = arg;
    signal->fn((int)signum, signal->arg);
}

struct loop_signal *
loop_signal_new(struct loop *loop, int signum, loop_signal_fn fn, void *arg)
{
    struct loop_signal *signal = KG_NEW(struct loop_signal);
    signal->fn = fn;
    signal->arg = arg;
    signal->event = new_event(loop, signum, EV_SIGNAL | EV_PERSIST, on_signal, signal);
    event_add(signal->event, NULL);
    return signal;
}

void
loop_signal_free(struct loop_signal *signal)
{
    if (!signal)
        return;
    event_free(signal->event);
    free(signal);
}

void
loop_hold_termination(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

// ---- Other processes ------------------------------------------------------------------------

struct loop_pid_watch {
    struct loop_fd *watch;
    int pidfd;
    loop_fn fn;
    void *arg;
};

static void
on_pid_ended(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    struct loop_pid_watch *pid_watch = arg;
    loop_fd_set(pid_watch->watch, 0);
    pid_watch->fn(pid_watch->arg);
}

struct loop_pid_watch *
loop_pid_watch_new(struct loop *loop, int pid, loop_fn fn, void *arg, struct kg_error *err)
{
    int pidfd = pidfd_open(pid, 0);
    if (pidfd < 0) {
        kg_error_set(err, KG_NOT_FOUND, errno, "cannot watch process %d", pid);
        return NULL;
    }
    struct loop_pid_watch *pid_watch = KG_NEW(struct loop_pid_watch);
    pid_watch->pidfd = pidfd;
    pid_watch->fn = fn;
    pid_watch->arg = arg;
    pid_watch->watch = loop_fd_new(loop, pidfd, LOOP_READ, on_pid_ended, pid_watch);
    return pid_watch;
}

void
loop_pid_watch_free(struct loop_pid_watch *watch)
{
    if (!watch)
        return;
    loop_fd_free(watch->watch);
    close(watch->pidfd);
    free(watch);
}
