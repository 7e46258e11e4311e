// SPDX-License-Identifier: Apache-2.0
// What changes in a folder, by inotify(7), also in the folders below it, and in those that are made
// later. No symbolic link is followed. Each watch takes one of the few instances of inotify that a
// sandbox has, and one of its watches for each folder.
#pragma once

#include <jansson.h>

#include "base.h"

struct loop;

enum { WATCH_FOLDERS_MAX = 1000 }; // of one watch

struct folder_watch_settings {
    struct loop *loop;
    const char *root; // as in files.h; borrowed
    const char *path; // below it; "": `root` itself
    bool whole;       // see struct walk_query
    bool recursive;
    // What has happened, borrowed: {"event", "path", "folder"}, where event is "create", "write",
    // "remove", "chmod" or "rename", which has "from", too. The paths are relative to the folder
    // that is watched. {"event": "overflow"}: events were lost, or there are folders that are not
    // watched. It must not free the watch.
    void (*on_event)(const json_t *event, void *arg);
    // After some events. May free the watch.
    void (*on_events)(void *arg);
    void *arg;
};

struct folder_watch;
// KG_NOT_FOUND, KG_INVALID_PATH: as walk_open_folder(); KG_INVALID: there are too many folders;
// KG_SESSION_BUSY: the sandbox has no more instances or watches.
KG_MUST_CHECK struct folder_watch *folder_watch_new(const struct folder_watch_settings *settings,
                                                    struct kg_error *err);
void folder_watch_free(struct folder_watch *watch);
// How many folders are watched.
int folder_watch_count(const struct folder_watch *watch);
// The folder has been removed, or has got another path: no more events come.
bool folder_watch_is_over(const struct folder_watch *watch);
// While paused, events wait in the system, and are lost beyond its bound.
void folder_watch_pause(struct folder_watch *watch, bool paused);
