// SPDX-License-Identifier: Apache-2.0
// How full the cache of wheels is, and which wheel nobody has used for longest. The folder is read
// at the start only: it may have 10,000 files, for which the loop has no time later.
#pragma once

#include "base.h"

struct wheel_room;

// Of the files in the folders of `dir`, in at most `max_bytes` and `max_files`, and in what the
// disk has room for. This process alone writes there. Files are named by their path below `dir`.
struct wheel_room *wheel_room_new(const char *dir, int64_t max_bytes, size_t max_files);
void wheel_room_free(struct wheel_room *room);
KG_DEFINE_AUTO(wheel_room, wheel_room_free)
// Makes room for one more file: those that nobody has used for longest leave.
void wheel_room_make(struct wheel_room *room, int64_t bytes);
// A file has come, perhaps in place of an older one.
void wheel_room_add(struct wheel_room *room, const char *name, int64_t bytes);
// A file is used: it becomes the youngest, also for a later gateway.
void wheel_room_use(struct wheel_room *room, const char *name);
