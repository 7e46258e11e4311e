// SPDX-License-Identifier: Apache-2.0
// A timer whose lateness is measured. By a timerfd: libevent's own timers go by a clock that ticks
// every 4 ms, which would drown what is looked for.

#include "loop_lag.h"

#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "metrics.h"

enum { PERIOD_MS = 100 };

struct loop_lag {
    int fd;
    struct loop_fd *watch;
};

static void
on_tick(int fd, int events, void *arg)
{
    (void)events;
    (void)arg;
    uint64_t n_ticks;
    struct itimerspec next;
    if (read(fd, &n_ticks, sizeof n_ticks) != sizeof n_ticks || timerfd_gettime(fd, &next) != 0)
        return;
    double left = (double)next.it_value.tv_sec + (double)next.it_value.tv_nsec / 1e9;
    double late = (double)n_ticks * PERIOD_MS / 1000 - left;
    metric_observe(METRIC_LOOP_LAG_SECONDS, late > 0 ? late : 0);
}

struct loop_lag *
loop_lag_new(struct loop *loop)
{
    static const struct timespec period = {.tv_nsec = PERIOD_MS * 1000000};
    const struct itimerspec spec = {.it_value = period, .it_interval = period};
    struct loop_lag *lag = KG_NEW(struct loop_lag);
    lag->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (lag->fd < 0 || timerfd_settime(lag->fd, 0, &spec, NULL) != 0)
        abort();
    lag->watch = loop_fd_new(loop, lag->fd, LOOP_READ, on_tick, NULL);
    return lag;
}

void
loop_lag_free(struct loop_lag *lag)
{
    if (!lag)
        return;
    loop_fd_free(lag->watch);
    close(lag->fd);
    free(lag);
}
