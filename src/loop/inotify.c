// SPDX-License-Identifier: Apache-2.0
// Changes of files and folders, by inotify(7).
#include <errno.h>
#include <limits.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "loop.h"

struct loop_inotify {
    int fd; // -1: the system has given none
    struct loop_fd *readable;
    loop_inotify_fn on_event;
    loop_fn on_events;
    void *arg;
};

enum { READS_OF_A_TURN = 16 };

static void
inotify_read(struct loop_inotify *watch, int reads)
{
    _Alignas(struct inotify_event) char bytes[4096];
    ssize_t n;
    for (int i = 0; watch->fd >= 0 && i < reads && (n = read(watch->fd, bytes, sizeof bytes)) > 0;
         i++) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(bytes + at);
            watch->on_event(event->wd, event->mask, event->cookie,
                            event->len > 0 ? event->name : "", watch->arg);
            at += (ssize_t)(sizeof *event + event->len);
        }
    }
}

void
loop_inotify_take(struct loop_inotify *watch)
{
    inotify_read(watch, INT_MAX);
}

static void
inotify_on_readable(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    struct loop_inotify *watch = arg;
    inotify_read(watch, READS_OF_A_TURN);
    watch->on_events(watch->arg);
}

struct loop_inotify *
loop_inotify_new(struct loop *loop, loop_inotify_fn on_event, loop_fn on_events, void *arg)
{
    struct loop_inotify *watch = KG_NEW(struct loop_inotify);
    *watch = (struct loop_inotify){
        .fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC),
        .on_event = on_event,
        .on_events = on_events,
        .arg = arg,
    };
    if (watch->fd >= 0)
        watch->readable = loop_fd_new(loop, watch->fd, LOOP_READ, inotify_on_readable, watch);
    return watch;
}

int
loop_inotify_add(struct loop_inotify *watch, const char *path, uint32_t mask)
{
    if (watch->fd >= 0)
        return inotify_add_watch(watch->fd, path, mask);
    errno = EMFILE;
    return -1;
}

void
loop_inotify_remove(struct loop_inotify *watch, int wd)
{
    (void)inotify_rm_watch(watch->fd, wd);
}

void
loop_inotify_pause(struct loop_inotify *watch, bool paused)
{
    loop_fd_set(watch->readable, paused ? 0 : LOOP_READ);
}

void
loop_inotify_free(struct loop_inotify *watch)
{
    if (!watch)
        return;
    loop_fd_free(watch->readable);
    if (watch->fd >= 0)
        close(watch->fd);
    free(watch);
}
