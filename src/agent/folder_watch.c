// SPDX-License-Identifier: Apache-2.0
// Watching a folder: a list of the folders that are watched, each with its path, which follows
// their renames. A folder is watched before it is read, so nothing in it is missed; what is found
// in a new one may be reported twice.
#include "folder_watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "files.h"
#include "loop.h"
#include "walk.h"

enum {
    MASK = IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |
           IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK,
    ENDS = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED,
    PAIR_MS = 20,     // between the two events of a rename
    FOUND_MAX = 4096, // files that are reported of a new folder
};

struct watched_folder {
    int wd;
    char *path; // relative to the folder that is watched; "": that one
};

struct folder_watch {
    struct folder_watch_settings settings;
    char *path;
    struct loop_inotify *changes;
    struct watched_folder *folders;
    int n;
    bool over;
    bool lost; // events: all folders are to be looked for again
    // The first event of a rename, until the second one comes.
    char *moved; // the path; or NULL
    uint32_t cookie;
    bool moved_folder;
    struct loop_timer *pair;
    json_t *last; // what was reported last in this turn; or NULL
};

// ---- Reports --------------------------------------------------------------------------------

static void
watch_report(struct folder_watch *watch, json_t *event)
{
    // NULL where a name is not UTF-8: nobody could ask for such a file.
    if (!event || (watch->last && json_equal(event, watch->last))) {
        json_decref(event);
        return;
    }
    json_decref(watch->last);
    watch->last = event;
    watch->settings.on_event(event, watch->settings.arg);
}

static void
watch_report_path(struct folder_watch *watch, const char *event, const char *path, bool is_folder)
{
    watch_report(watch, json_pack("{s:s, s:s, s:b}", "event", event, "path", path, "folder",
                                  (int)is_folder));
}

static void
watch_report_loss(struct folder_watch *watch)
{
    watch_report(watch, json_pack("{s:s}", "event", "overflow"));
}

// ---- Folders --------------------------------------------------------------------------------

static struct watched_folder *
folder_by_wd(struct folder_watch *watch, int wd)
{
    for (int i = 0; i < watch->n; i++) {
        if (watch->folders[i].wd == wd)
            return &watch->folders[i];
    }
    return NULL;
}

static void
folder_forget(struct folder_watch *watch, struct watched_folder *folder)
{
    free(folder->path);
    *folder = watch->folders[--watch->n];
}

// Below the root, to be freed.
static char *
whole_path(const struct folder_watch *watch, const char *path)
{
    return kg_asprintf("%s%s%s", watch->path, *watch->path && *path ? "/" : "", path);
}

static int
no_room(int failure, struct kg_error *err)
{
    return kg_error_set(err, KG_SESSION_BUSY, 0,
                        failure == ENOSPC ? "the sandbox watches as many folders as it may"
                                          : "the sandbox has no instance of inotify left");
}

// Watches the folder at the path. Fails with KG_NOT_FOUND or KG_INVALID_PATH if there is no folder
// any more.
static int
folder_add(struct folder_watch *watch, const char *path, struct kg_error *err)
{
    char name[32]; // inotify takes a path: that of the open folder
    KG_AUTO_FREE char *whole = whole_path(watch, path);

    KG_AUTO_FD fd = walk_open_folder(watch->settings.root, whole, err);
    if (fd < 0)
        return -1;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int wd = loop_inotify_add(watch->changes, name, MASK);
    if (wd < 0)
        return no_room(errno, err);
    struct watched_folder *known = folder_by_wd(watch, wd);
    if (known) {
        free(known->path);
        known->path = kg_strdup(path);
        return 0;
    }
    if (watch->n == WATCH_FOLDERS_MAX) {
        loop_inotify_remove(watch->changes, wd);
        return kg_error_set(err, KG_INVALID, 0,
                            "there are more than %d folders: watch a smaller one",
                            WATCH_FOLDERS_MAX);
    }
    watch->folders[watch->n++] = (struct watched_folder){wd, kg_strdup(path)};
    return 0;
}

// A walk through what is below a folder.
struct search {
    struct folder_watch *watch;
    bool reports; // what it finds
    int found;
    struct kg_error err; // that it has ended with; or none
};

static bool
search_on_entry(const char *whole, const struct stat *st, void *arg)
{
    struct search *search = arg;
    struct folder_watch *watch = search->watch;
    struct kg_error err = {0};
    size_t len = strlen(watch->path);
    const char *path = whole + len + (len > 0);
    bool is_folder = S_ISDIR(st->st_mode);

    if (search->reports && ++search->found <= FOUND_MAX)
        watch_report_path(watch, "create", path, is_folder);
    if (!is_folder || folder_add(watch, path, &err) == 0 || err.code == KG_NOT_FOUND ||
        err.code == KG_INVALID_PATH)
        return true;
    search->err = err;
    return false;
}

// Watches all that is below a folder, which is watched.
static int
folder_search(struct folder_watch *watch, const char *path, bool reports, struct kg_error *err)
{
    struct search search = {.watch = watch, .reports = reports};
    KG_AUTO_FREE char *whole = whole_path(watch, path);
    const struct walk_query query = {.path = whole, .whole = watch->settings.whole};

    if (walk_files(watch->settings.root, &query, search_on_entry, &search, err) != 0)
        return -1;
    if (search.found > FOUND_MAX)
        watch_report_loss(watch);
    if (!search.err.code)
        return 0;
    *err = search.err;
    return -1;
}

// A folder that has appeared.
static void
folder_enter(struct folder_watch *watch, const char *path)
{
    struct kg_error err = {0};

    if (!watch->settings.recursive)
        return;
    if ((folder_add(watch, path, &err) != 0 || folder_search(watch, path, true, &err) != 0) &&
        err.code != KG_NOT_FOUND && err.code != KG_INVALID_PATH)
        watch_report_loss(watch);
}

// A folder that is elsewhere now.
static void
folder_leave(struct folder_watch *watch, const char *path)
{
    for (int i = watch->n - 1; i >= 0; i--) {
        struct watched_folder *folder = &watch->folders[i];
        if (strcmp(folder->path, path) != 0 && !file_path_is_below(folder->path, path))
            continue;
        loop_inotify_remove(watch->changes, folder->wd);
        folder_forget(watch, folder);
    }
}

static void
folder_rename(struct folder_watch *watch, const char *from, const char *to)
{
    for (int i = 0; i < watch->n; i++) {
        struct watched_folder *folder = &watch->folders[i];
        if (strcmp(folder->path, from) != 0 && !file_path_is_below(folder->path, from))
            continue;
        char *path = kg_asprintf("%s%s", to, folder->path + strlen(from));
        free(folder->path);
        folder->path = path;
    }
}

// ---- Events ---------------------------------------------------------------------------------

// What has been moved has not come back below the folder.
static void
moved_away(struct folder_watch *watch)
{
    KG_AUTO_FREE char *path = KG_STEAL(watch->moved);

    if (!path)
        return;
    loop_timer_stop(watch->pair);
    watch_report_path(watch, "remove", path, watch->moved_folder);
    if (watch->moved_folder)
        folder_leave(watch, path);
}

static void
moved_to(struct folder_watch *watch, uint32_t cookie, const char *path, bool is_folder)
{
    if (!watch->moved || watch->cookie != cookie) {
        moved_away(watch);
        watch_report_path(watch, "create", path, is_folder);
        if (is_folder)
            folder_enter(watch, path);
        else // it comes with its content, and may have replaced another one
            watch_report_path(watch, "write", path, false);
        return;
    }
    KG_AUTO_FREE char *from = KG_STEAL(watch->moved);
    loop_timer_stop(watch->pair);
    if (is_folder)
        folder_rename(watch, from, path);
    watch_report(watch, json_pack("{s:s, s:s, s:s, s:b}", "event", "rename", "path", path, "from",
                                  from, "folder", (int)is_folder));
}

static void
entry_changed(struct folder_watch *watch, uint32_t mask, uint32_t cookie, const char *path)
{
    bool is_folder = mask & IN_ISDIR;

    if (mask & IN_MOVED_TO) {
        moved_to(watch, cookie, path, is_folder);
        return;
    }
    moved_away(watch);
    if (mask & IN_MOVED_FROM) {
        watch->moved = kg_strdup(path);
        watch->moved_folder = is_folder;
        watch->cookie = cookie;
        loop_timer_start(watch->pair, PAIR_MS);
    } else if (mask & IN_CREATE) {
        watch_report_path(watch, "create", path, is_folder);
        if (is_folder)
            folder_enter(watch, path);
    } else if (mask & IN_DELETE) {
        watch_report_path(watch, "remove", path, is_folder);
    } else if (mask & IN_MODIFY) {
        watch_report_path(watch, "write", path, is_folder);
    } else if (mask & IN_ATTRIB) {
        watch_report_path(watch, "chmod", path, is_folder);
    }
}

static void
watch_on_event(int wd, uint32_t mask, uint32_t cookie, const char *name, void *arg)
{
    struct folder_watch *watch = arg;
    struct watched_folder *folder = folder_by_wd(watch, wd);

    if (mask & IN_Q_OVERFLOW) {
        watch->lost = true;
        return;
    }
    if (!folder || watch->over)
        return;
    if (mask & ENDS && !*folder->path) {
        watch->over = true;
        return;
    }
    if (mask & IN_IGNORED)
        folder_forget(watch, folder);
    if (mask & ENDS || !*name || file_name_is_own(name))
        return;
    KG_AUTO_FREE char *path = kg_asprintf("%s%s%s", folder->path, *folder->path ? "/" : "", name);
    KG_AUTO_FREE char *whole = whole_path(watch, path);
    if (strlen(whole) <= FILE_PATH_MAX && !(watch->settings.whole && file_is_reserved(whole)))
        entry_changed(watch, mask, cookie, path);
}

// Events may have been of new folders.
static void
look_again(struct folder_watch *watch)
{
    struct kg_error err;

    moved_away(watch);
    if (watch->settings.recursive)
        (void)!folder_search(watch, "", false, &err);
    watch_report_loss(watch);
    watch->lost = false;
}

static void
watch_on_events(void *arg)
{
    struct folder_watch *watch = arg;

    if (watch->lost && !watch->over)
        look_again(watch);
    json_decref(KG_STEAL(watch->last));
    watch->settings.on_events(watch->settings.arg);
}

static void
watch_on_pair_late(void *arg)
{
    struct folder_watch *watch = arg;

    moved_away(watch);
    watch_on_events(watch);
}

// ---- Start and end --------------------------------------------------------------------------

void
folder_watch_free(struct folder_watch *watch)
{
    if (!watch)
        return;
    loop_inotify_free(watch->changes);
    loop_timer_free(watch->pair);
    while (watch->n > 0)
        free(watch->folders[--watch->n].path);
    free(watch->folders);
    json_decref(watch->last);
    free(watch->moved);
    free(watch->path);
    free(watch);
}

KG_DEFINE_AUTO(folder_watch, folder_watch_free)

struct folder_watch *
folder_watch_new(const struct folder_watch_settings *settings, struct kg_error *err)
{
    KG_AUTO(folder_watch) watch = KG_NEW(struct folder_watch);

    watch->settings = *settings;
    watch->path = kg_strdup(settings->path);
    watch->settings.path = watch->path;
    watch->folders = kg_calloc(WATCH_FOLDERS_MAX, sizeof *watch->folders);
    watch->pair = loop_timer_new(settings->loop, watch_on_pair_late, watch);
    watch->changes = loop_inotify_new(settings->loop, watch_on_event, watch_on_events, watch);
    if (folder_add(watch, "", err) != 0 ||
        (settings->recursive && folder_search(watch, "", false, err) != 0))
        return NULL;
    return KG_STEAL(watch);
}

int
folder_watch_count(const struct folder_watch *watch)
{
    return watch->n;
}

bool
folder_watch_is_over(const struct folder_watch *watch)
{
    return watch->over;
}

void
folder_watch_pause(struct folder_watch *watch, bool paused)
{
    loop_inotify_pause(watch->changes, paused);
}
