// SPDX-License-Identifier: Apache-2.0
// A path is followed component by component. The folders that hold a symlink of the way, and the
// one that holds the file, are watched for these names, and the file is watched itself, as it may
// be a mount that its folder does not report. After each change the way is followed again.

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_watch.h"

enum {
    SETTLE_MS = 50, // between the first event and the call
    LINKS_MAX = 40, // as the kernel's own bound
    NAMES_MAX = 64,
    FILE_MASK = IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF,
    FOLDER_MASK = IN_CLOSE_WRITE | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                  IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR,
};

// A name in a folder that is watched.
struct watched_name {
    int wd;
    char *name;
    char *path;
};

struct loop_file_watch {
    struct loop *loop;
    char *path; // absolute
    loop_fn on_change;
    void *arg;
    struct loop_inotify *changes; // NULL while it is being made anew
    bool changed;
    struct loop_timer *settle;
    struct watched_name names[NAMES_MAX];
    size_t n_names;
};

// ---- The way --------------------------------------------------------------------------------

static int
watch_name(struct loop_file_watch *watch, const char *folder, const char *name)
{
    int wd = loop_inotify_add(watch->changes, *folder ? folder : "/", FOLDER_MASK);
    if (wd >= 0 && watch->n_names == NAMES_MAX)
        errno = ENOSPC;
    if (wd < 0 || watch->n_names == NAMES_MAX)
        return -1;
    watch->names[watch->n_names++] = (struct watched_name){
        .wd = wd, .name = kg_strdup(name), .path = kg_asprintf("%s/%s", folder, name)};
    return 0;
}

// Takes the first component off `rest`; NULL: there is none. To be freed.
static char *
take_component(char **rest)
{
    char *at = *rest + strspn(*rest, "/");
    size_t len = strcspn(at, "/");
    char *component = len > 0 ? kg_strndup(at, len) : NULL;
    char *left = kg_strdup(at + len);
    free(*rest);
    *rest = left;
    return component;
}

static void
drop_last(struct buf *folder)
{
    while (folder->len > 0 && folder->data[folder->len - 1] != '/')
        folder->len--;
    folder->len -= folder->len > 0;
    buf_append_str(folder, "");
    folder->data[folder->len] = '\0';
}

static int
too_many_links(void)
{
    errno = ELOOP;
    return -1;
}

// Goes on at a symlink's target.
static int
follow_link(const char *link, struct buf *folder, char **rest)
{
    char target[PATH_MAX];
    ssize_t len = readlink(link, target, sizeof target - 1);
    if (len < 0)
        return -1;
    target[len] = '\0';
    if (target[0] == '/')
        buf_consume(folder, folder->len);
    char *left = kg_asprintf("%s/%s", target, *rest);
    free(*rest);
    *rest = left;
    return 0;
}

// Watches all of the way that there is.
static int
watch_way(struct loop_file_watch *watch)
{
    KG_AUTO_BUF folder = {0}; // without symlinks and a slash at its end
    char *rest = kg_strdup(watch->path);
    int result = 0, n_links = 0;
    buf_append_str(&folder, "");
    for (char *name; result == 0 && (name = take_component(&rest)); free(name)) {
        struct stat st;
        KG_AUTO_FREE char *path = kg_asprintf("%s/%s", folder.data, name);
        bool last = rest[strspn(rest, "/")] == '\0';
        if (strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            drop_last(&folder);
            continue;
        }
        bool there = lstat(path, &st) == 0;
        bool link = there && S_ISLNK(st.st_mode);
        if (last || link || !there)
            result = watch_name(watch, folder.data, name);
        if (!there)
            rest[0] = '\0';
        else if (link)
            result |= ++n_links > LINKS_MAX ? too_many_links() : follow_link(path, &folder, &rest);
        else if (last && loop_inotify_add(watch->changes, path, FILE_MASK) < 0)
            result |= errno == ENOENT ? 0 : -1; // its folder reports what becomes of it
        else
            buf_printf(&folder, "/%s", name);
    }
    free(rest);
    return result;
}

static void
file_watch_stop(struct loop_file_watch *watch)
{
    loop_inotify_free(KG_STEAL(watch->changes));
    while (watch->n_names > 0) {
        watch->n_names--;
        free(watch->names[watch->n_names].name);
        free(watch->names[watch->n_names].path);
    }
}

// ---- Events ---------------------------------------------------------------------------------

// A new regular file is complete when it is closed, unless it is another name of an old one.
static bool
is_only_begun(uint32_t mask, const char *path)
{
    struct stat st;
    return (mask & IN_CREATE) && lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1;
}

static bool
concerns(const struct loop_file_watch *watch, int wd, uint32_t mask, const char *name)
{
    if (!name[0])
        return true; // the file, a folder itself, or events were lost
    for (size_t i = 0; i < watch->n_names; i++) {
        if (watch->names[i].wd == wd && strcmp(watch->names[i].name, name) == 0)
            return !is_only_begun(mask, watch->names[i].path);
    }
    return false;
}

static void
watch_on_event(int wd, uint32_t mask, uint32_t cookie, const char *name, void *arg)
{
    (void)cookie;
    struct loop_file_watch *watch = arg;
    watch->changed |= concerns(watch, wd, mask, name);
}

static void
watch_on_events(void *arg)
{
    struct loop_file_watch *watch = arg;
    if (watch->changed && !loop_timer_active(watch->settle))
        loop_timer_start(watch->settle, SETTLE_MS);
    watch->changed = false;
}

// The watches are in place before anybody reads the file, so no change in between is missed.
static void
file_watch_start(struct loop_file_watch *watch)
{
    file_watch_stop(watch);
    watch->changes = loop_inotify_new(watch->loop, watch_on_event, watch_on_events, watch);
    if (watch_way(watch) < 0)
        log_error("changes of a file may not be noticed", LOG_STR("path", watch->path),
                  LOG_STR("error", strerrordesc_np(errno)));
}

static void
watch_on_settled(void *arg)
{
    struct loop_file_watch *watch = arg;
    file_watch_start(watch);
    watch->on_change(watch->arg);
}

static char *
absolute(const char *path)
{
    char *folder = path[0] == '/' ? NULL : getcwd(NULL, 0);
    char *result = folder ? kg_asprintf("%s/%s", folder, path) : kg_strdup(path);
    free(folder);
    return result;
}

struct loop_file_watch *
loop_file_watch_new(struct loop *loop, const char *path, loop_fn on_change, void *arg)
{
    struct loop_file_watch *watch = KG_NEW(struct loop_file_watch);
    *watch = (struct loop_file_watch){
        .loop = loop, .path = absolute(path), .on_change = on_change, .arg = arg};
    watch->settle = loop_timer_new(loop, watch_on_settled, watch);
    file_watch_start(watch);
    return watch;
}

void
loop_file_watch_free(struct loop_file_watch *watch)
{
    if (!watch)
        return;
    file_watch_stop(watch);
    loop_timer_free(watch->settle);
    free(watch->path);
    free(watch);
}
