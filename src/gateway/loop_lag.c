// SPDX-License-Identifier: Apache-2.0
// A timer whose lateness is measured. It is a timerfd, since libevent's own timers use a clock that
// ticks every 4 ms, which is more than what is measured. It stops when the loop has had nothing
// else to do for a period, so that an idle gateway does not wake up.

#include "loop_lag.h"

#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "metrics.h"

enum { PERIOD_MS = 100 };

struct loop_lag {
    struct loop *loop;
    int fd;
    struct loop_fd *watch;
    bool ticks;
    size_t turns; // of the loop, since the last tick
};

static void
set_ticking(struct loop_lag *lag, bool ticks)
{
    const struct timespec period = {.tv_nsec = ticks ? PERIOD_MS * 1000000 : 0};
    const struct itimerspec spec = {.it_value = period, .it_interval = period};
    lag->ticks = ticks;
    if (timerfd_settime(lag->fd, 0, &spec, NULL) != 0)
        abort();
}

static void
on_turn(void *arg)
{
    struct loop_lag *lag = arg;
    lag->turns++;
    if (!lag->ticks && lag->turns > 1)
        set_ticking(lag, true);
}

static void
on_tick(int fd, int events, void *arg)
{
    (void)events;
    struct loop_lag *lag = arg;
    uint64_t n_ticks;
    struct itimerspec next;
    if (read(fd, &n_ticks, sizeof n_ticks) != sizeof n_ticks || timerfd_gettime(fd, &next) != 0)
        return;
    double left = (double)next.it_value.tv_sec + (double)next.it_value.tv_nsec / 1e9;
    double late = (double)n_ticks * PERIOD_MS / 1000 - left;
    metric_observe(METRIC_LOOP_LAG_SECONDS, late > 0 ? late : 0);
    if (lag->turns <= 1) // that of the last tick
        set_ticking(lag, false);
    lag->turns = 0;
}

struct loop_lag *
loop_lag_new(struct loop *loop)
{
    struct loop_lag *lag = KG_NEW(struct loop_lag);
    lag->loop = loop;
    lag->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (lag->fd < 0)
        abort();
    lag->watch = loop_fd_new(loop, lag->fd, LOOP_READ, on_tick, lag);
    set_ticking(lag, true);
    loop_set_turn(loop, on_turn, lag);
    return lag;
}

void
loop_lag_free(struct loop_lag *lag)
{
    if (!lag)
        return;
    loop_set_turn(lag->loop, NULL, NULL);
    loop_fd_free(lag->watch);
    close(lag->fd);
    free(lag);
}
