// SPDX-License-Identifier: Apache-2.0
// inotify queues the event of a write before the writer's call returns. So once another program has
// committed, a read of the descriptor finds the event, and SQLite need not be asked for each
// request.

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "accounts_priv.h"

enum {
    MASK = IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
           IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR,
};

struct account_watch {
    int fd; // of inotify; -1: there is none
    struct loop_fd *readable;
    char *names[2]; // the file's, and that of its write-ahead log
    loop_fn on_change;
    void *arg;
    bool changed;
};

static bool
concerns(const struct account_watch *watch, const struct inotify_event *event)
{
    if (event->len == 0)
        return true; // the folder itself, or events were lost
    for (size_t i = 0; i < KG_ARRAY_LEN(watch->names); i++) {
        if (strcmp(event->name, watch->names[i]) == 0)
            return i == 0 ||
                   event->mask != IN_ATTRIB; // SQLite sets the log's owner when it opens it
    }
    return false;
}

static void
take_events(struct account_watch *watch)
{
    _Alignas(struct inotify_event) char bytes[4096];
    for (ssize_t n; watch->fd >= 0 && (n = read(watch->fd, bytes, sizeof bytes)) > 0;) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(bytes + at);
            watch->changed |= concerns(watch, event);
            at += (ssize_t)(sizeof *event + event->len);
        }
    }
}

static void
on_readable(int fd, int events, void *arg)
{
    (void)fd;
    (void)events;
    struct account_watch *watch = arg;
    take_events(watch);
    if (watch->changed)
        watch->on_change(watch->arg);
}

bool
account_watch_changed(struct account_watch *watch)
{
    take_events(watch);
    bool changed = watch->changed;
    watch->changed = false;
    return changed;
}

struct account_watch *
account_watch_new(struct loop *loop, const char *path, loop_fn on_change, void *arg)
{
    struct account_watch *watch = KG_NEW(struct account_watch);
    char *resolved = realpath(path, NULL); // of the file itself, where it is a symlink
    KG_AUTO_FREE char *of_folder = kg_strdup(resolved ? resolved : path);
    KG_AUTO_FREE char *of_name = kg_strdup(of_folder);
    free(resolved);
    const char *name = basename(of_name);
    *watch = (struct account_watch){
        .fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC),
        .names = {kg_strdup(name), kg_asprintf("%s-wal", name)},
        .on_change = on_change,
        .arg = arg,
    };
    if (watch->fd < 0 || inotify_add_watch(watch->fd, dirname(of_folder), MASK) < 0)
        log_error("changes of the accounts may not be noticed", LOG_STR("path", path),
                  LOG_STR("error", strerrordesc_np(errno)));
    if (watch->fd >= 0)
        watch->readable = loop_fd_new(loop, watch->fd, LOOP_READ, on_readable, watch);
    return watch;
}

void
account_watch_free(struct account_watch *watch)
{
    if (!watch)
        return;
    loop_fd_free(watch->readable);
    if (watch->fd >= 0)
        close(watch->fd);
    for (size_t i = 0; i < KG_ARRAY_LEN(watch->names); i++)
        free(watch->names[i]);
    free(watch);
}
