// SPDX-License-Identifier: Apache-2.0
// Watching a folder of a session: what changes in it, until the folder or the session ends, or the
// gateway drains. It is activity of the session only when something has changed.
#pragma once

#include "base.h"

struct session;
struct sessions;

// Strings are borrowed for the time of the callback.
struct session_watch_event {
    const char *event; // "create", "write", "remove", "rename", "chmod", or "overflow": events were
                       // lost, or there are folders that are not watched; it has nothing else
    const char *path;  // as session_files.h has it
    const char *from;  // of "rename"
    bool is_folder;
};

// Each callback may cancel the watch.
struct session_watch_events {
    // It watches so many folders. Fires at most once, before any event.
    void (*on_started)(int folders, void *arg);
    void (*on_event)(const struct session_watch_event *event, void *arg);
    // Fires exactly once, last; the handle is then invalid. NULL: the folder was removed or
    // renamed. KG_SESSION_NOT_FOUND: the session has ended. KG_DRAINING: the gateway is shutting
    // down. Without on_started: KG_NOT_FOUND, KG_INVALID_PATH, KG_INVALID (too many folders),
    // KG_SESSION_BUSY (the sandbox has no more watches), …
    void (*on_end)(const struct kg_error *err, void *arg);
};

struct session_watch;
// `folder`: NULL or "" is the working folder. `recursive`: with all folders in it, at most 1,000,
// also those that are made later. KG_RATE_LIMITED: there are too many.
KG_MUST_CHECK struct session_watch *session_watch_start(struct session *session, const char *folder,
                                                        bool recursive,
                                                        const struct session_watch_events *events,
                                                        void *arg, struct kg_error *err);
// Pauses or resumes it, for a reader that cannot take more: events are lost beyond a bound.
void session_watch_pause(struct session_watch *watch, bool paused);
void session_watch_cancel(struct session_watch *watch);
// Ends all of all sessions with KG_DRAINING.
void sessions_drain_watches(struct sessions *sessions);
