// SPDX-License-Identifier: Apache-2.0
// Clocks and timers in which time is what the test says.

#include "virtual_clock.h"

#include <event2/event.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

// ---- Clocks ---------------------------------------------------------------------------------

// They begin with the machine's, since some times are compared with those of files and other
// processes. Threads read them.
static atomic_int_least64_t mono_us, wall_us;

static int64_t
machine_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

__attribute__((constructor)) static void
clocks_init(void)
{
    mono_us = machine_us(CLOCK_MONOTONIC) / 1000 * 1000;
    wall_us = machine_us(CLOCK_REALTIME);
}

int64_t
clock_mono_us(void)
{
    return mono_us;
}

int64_t
clock_mono_ms(void)
{
    return mono_us / 1000;
}

int64_t
clock_wall_ms(void)
{
    return wall_us / 1000;
}

// ---- Timers ---------------------------------------------------------------------------------

struct loop_timer {
    LIST_ENTRY(loop_timer) entry; // if it is started, in its loop's list
    bool started;
    int64_t due_us;
    struct timers *timers;
    struct event *event; // made active when it is due
    loop_fn fn;
    void *arg;
};

// The timers of one loop, while it has any.
struct timers {
    LIST_ENTRY(timers) link;
    struct loop *loop;
    int n;
    LIST_HEAD(, loop_timer) started; // in the order in which they fire
    struct event *turn;              // in the next turn: makes active what is due
};
static LIST_HEAD(, timers) all = LIST_HEAD_INITIALIZER(all);

static void
on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct timers *timers = arg;
    struct loop_timer *timer;
    while ((timer = LIST_FIRST(&timers->started)) && timer->due_us <= mono_us)
        loop_timer_fire(timer);
}

// What is due fires in the next turn, after the descriptors, as with real timers.
static void
timers_look(struct timers *timers)
{
    static const struct timeval at_once = {0};
    struct loop_timer *first = LIST_FIRST(&timers->started);
    if (first && first->due_us <= mono_us)
        event_add(timers->turn, &at_once);
}

static struct event *
new_event(struct loop *loop, event_callback_fn fn, void *arg)
{
    struct event *event = event_new(loop_event_base(loop), -1, 0, fn, arg);
    if (!event)
        abort();
    return event;
}

static struct timers *
timers_of(struct loop *loop)
{
    struct timers *timers;
    LIST_FOREACH(timers, &all, link) {
        if (timers->loop == loop)
            return timers;
    }
    return NULL;
}

static struct timers *
timers_new(struct loop *loop)
{
    struct timers *timers = KG_NEW(struct timers);
    timers->loop = loop;
    timers->turn = new_event(loop, on_turn, timers);
    LIST_INSERT_HEAD(&all, timers, link);
    return timers;
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct loop_timer *timer = arg;
    timer->fn(timer->arg);
}

struct loop_timer *
loop_timer_new(struct loop *loop, loop_fn fn, void *arg)
{
    struct loop_timer *timer = KG_NEW(struct loop_timer);
    timer->fn = fn;
    timer->arg = arg;
    timer->event = new_event(loop, on_timer, timer);
    timer->timers = timers_of(loop);
    if (!timer->timers)
        timer->timers = timers_new(loop);
    timer->timers->n++;
    return timer;
}

void
loop_timer_free(struct loop_timer *timer)
{
    if (!timer)
        return;
    loop_timer_stop(timer);
    event_free(timer->event);
    if (--timer->timers->n == 0) {
        LIST_REMOVE(timer->timers, link);
        event_free(timer->timers->turn);
        free(timer->timers);
    }
    free(timer);
}

void
loop_timer_start(struct loop_timer *timer, int64_t delay_ms)
{
    loop_timer_stop(timer);
    timer->due_us = mono_us + (delay_ms > 0 ? delay_ms * 1000 : 0);
    timer->started = true;
    struct loop_timer *before = NULL, *each;
    LIST_FOREACH(each, &timer->timers->started, entry) {
        if (each->due_us > timer->due_us)
            break;
        before = each;
    }
    if (before)
        LIST_INSERT_AFTER(before, timer, entry);
    else
        LIST_INSERT_HEAD(&timer->timers->started, timer, entry);
    timers_look(timer->timers);
}

void
loop_timer_fire(struct loop_timer *timer)
{
    loop_timer_stop(timer);
    event_active(timer->event, EV_TIMEOUT, 0);
}

void
loop_timer_stop(struct loop_timer *timer)
{
    if (timer->started)
        LIST_REMOVE(timer, entry);
    timer->started = false;
    event_del(timer->event);
}

bool
loop_timer_active(const struct loop_timer *timer)
{
    return timer->started || event_pending(timer->event, EV_TIMEOUT, NULL) != 0;
}

// ---- The test's side ------------------------------------------------------------------------

void
virtual_clock_move(int64_t ms)
{
    mono_us += ms * 1000;
    wall_us += ms * 1000;
    struct timers *timers;
    LIST_FOREACH(timers, &all, link) {
        timers_look(timers);
    }
}

int64_t
virtual_clock_next_ms(struct loop *loop)
{
    struct timers *timers = timers_of(loop);
    struct loop_timer *first = timers ? LIST_FIRST(&timers->started) : NULL;
    if (!first)
        return -1;
    return first->due_us > mono_us ? (first->due_us - mono_us) / 1000 : 0;
}

// Whether something was ready. A callback that stops the loop ends a turn early; what it has left
// is active in the next one.
static bool
work(struct loop *loop)
{
    struct event_base *base = loop_event_base(loop);
    event_base_get_max_events(base, EVENT_BASE_COUNT_ACTIVE, 1);
    event_base_loop(base, EVLOOP_NONBLOCK);
    return event_base_get_max_events(base, EVENT_BASE_COUNT_ACTIVE, 0) > 0;
}

static void
work_until_nothing_is_ready(struct loop *loop)
{
    while (work(loop))
        ;
}

bool
virtual_clock_step(struct loop *loop, int64_t max_ms)
{
    work_until_nothing_is_ready(loop);
    int64_t next_ms = virtual_clock_next_ms(loop);
    if (next_ms < 0 || next_ms > max_ms)
        return false;
    virtual_clock_move(next_ms);
    work_until_nothing_is_ready(loop);
    return true;
}

void
virtual_clock_advance(struct loop *loop, int64_t ms)
{
    int64_t until_ms = clock_mono_ms() + ms;
    while (virtual_clock_step(loop, until_ms - clock_mono_ms()))
        ;
    virtual_clock_move(until_ms - clock_mono_ms());
    work_until_nothing_is_ready(loop);
}

// What another connection of this process has sent may arrive a moment later.
void
virtual_clock_pass(struct loop *loop)
{
    enum { TURNS = 3 };
    for (int i = 0; i < TURNS; i++) {
        if (work(loop))
            return;
        if (i < TURNS - 1)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    int64_t next_ms = virtual_clock_next_ms(loop);
    if (next_ms >= 0)
        virtual_clock_move(next_ms);
}

static void
on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

void
virtual_clock_turn(struct loop *loop)
{
    enum { LONGEST_MS = 20 };
    int64_t next_ms = virtual_clock_next_ms(loop);
    int64_t wait_ms = next_ms >= 0 && next_ms < LONGEST_MS ? next_ms : LONGEST_MS;
    const struct timeval wait = {.tv_usec = (suseconds_t)wait_ms * 1000};
    struct event *tick = new_event(loop, on_tick, NULL);
    event_add(tick, &wait);
    int64_t began_ms = wait_now_ms();
    event_base_loop(loop_event_base(loop), EVLOOP_ONCE);
    event_free(tick);
    int64_t passed_ms = wait_now_ms() - began_ms;
    virtual_clock_move(passed_ms < wait_ms ? passed_ms : wait_ms);
}
