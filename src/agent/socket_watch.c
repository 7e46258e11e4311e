// SPDX-License-Identifier: Apache-2.0
// A timer that looks at /proc/net, which shows the network namespace of the agent.
#include "socket_watch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "cgroup.h"

// Idle sandboxes are looked at less often, as there may be many.
enum { BUSY_INTERVAL_MS = 100, IDLE_INTERVAL_MS = 1000, BUSY_US = 2000, STAT_MAX = 4096 };

struct socket_watch {
    const char *cgroup_root;
    struct loop_timer *timer;
    int64_t cpu_us; // when it looked last
};

// Of a line `TCP: inuse 5 orphan 0 ...`, or TCP6; without TIME_WAIT, which has its own limit.
static long
in_use(const char *path, const char *key)
{
    KG_AUTO_BUF text = {0};
    long n = 0;
    const char *line =
        file_read(path, STAT_MAX, &text, NULL) == 0 && text.len ? strstr(text.data, key) : NULL;
    return line && sscanf(line + strlen(key), " inuse %ld", &n) == 1 ? n : 0;
}

static void
look(void *arg)
{
    struct socket_watch *watch = arg;
    struct cgroup_usage usage;
    long n = in_use("/proc/net/sockstat", "TCP:") + in_use("/proc/net/sockstat6", "TCP6:");

    if (n > SOCKETS_MAX) {
        log_warning("too many TCP sockets: all processes are killed", LOG_INT("sockets", n));
        kill(-1, SIGKILL);
    }
    cgroup_usage(watch->cgroup_root, &usage);
    bool busy = n > SOCKETS_MAX / 2 || usage.cpu_us - watch->cpu_us > BUSY_US;
    watch->cpu_us = usage.cpu_us;
    loop_timer_start(watch->timer, busy ? BUSY_INTERVAL_MS : IDLE_INTERVAL_MS);
}

struct socket_watch *
socket_watch_new(struct loop *loop, const char *cgroup_root)
{
    if (getpid() != 1)
        return NULL;
    struct socket_watch *watch = KG_NEW(struct socket_watch);
    watch->cgroup_root = cgroup_root;
    watch->timer = loop_timer_new(loop, look, watch);
    loop_timer_start(watch->timer, IDLE_INTERVAL_MS);
    return watch;
}

void
socket_watch_free(struct socket_watch *watch)
{
    if (!watch)
        return;
    loop_timer_free(watch->timer);
    free(watch);
}
