// SPDX-License-Identifier: Apache-2.0
// Changes of the database by other programs. Once one has committed, its event is there to be
// taken, so SQLite need not be asked for each request.

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/inotify.h>

#include "accounts_priv.h"

enum {
    MASK = IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
           IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR,
};

struct account_watch {
    struct loop_inotify *changes;
    char *names[2]; // the file's, and that of its write-ahead log
    loop_fn on_change;
    void *arg;
    bool changed;
};

static bool
concerns(const struct account_watch *watch, uint32_t mask, const char *name)
{
    if (!name[0])
        return true; // the folder itself, or events were lost
    for (size_t i = 0; i < KG_ARRAY_LEN(watch->names); i++) {
        if (strcmp(name, watch->names[i]) == 0)
            return i == 0 || mask != IN_ATTRIB; // SQLite sets the log's owner when it opens it
    }
    return false;
}

static void
watch_on_event(int wd, uint32_t mask, uint32_t cookie, const char *name, void *arg)
{
    (void)wd;
    (void)cookie;
    struct account_watch *watch = arg;
    watch->changed |= concerns(watch, mask, name);
}

static void
watch_on_events(void *arg)
{
    struct account_watch *watch = arg;
    if (watch->changed)
        watch->on_change(watch->arg);
}

bool
account_watch_changed(struct account_watch *watch)
{
    loop_inotify_take(watch->changes);
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
        .names = {kg_strdup(name), kg_asprintf("%s-wal", name)},
        .on_change = on_change,
        .arg = arg,
    };
    watch->changes = loop_inotify_new(loop, watch_on_event, watch_on_events, watch);
    if (loop_inotify_add(watch->changes, dirname(of_folder), MASK) < 0)
        log_error("changes of the accounts may not be noticed", LOG_STR("path", path),
                  LOG_STR("error", strerrordesc_np(errno)));
    return watch;
}

void
account_watch_free(struct account_watch *watch)
{
    if (!watch)
        return;
    loop_inotify_free(watch->changes);
    for (size_t i = 0; i < KG_ARRAY_LEN(watch->names); i++)
        free(watch->names[i]);
    free(watch);
}
