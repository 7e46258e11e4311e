// SPDX-License-Identifier: Apache-2.0
// The size of the cache of wheels, and its wheels in order of last use. The folder is read at the
// start only: it may have 10,000 files, which would hold up the loop later.
#pragma once

#include "base.h"

struct wheel_room;

// Manages the files in the folders of `dir`: at most `max_bytes` and `max_files`, and what fits on
// the disk. Only this process may write there. Files are named by their path below `dir`.
struct wheel_room *wheel_room_new(const char *dir, int64_t max_bytes, size_t max_files);
void wheel_room_free(struct wheel_room *room);
KG_DEFINE_AUTO(wheel_room, wheel_room_free)
// Makes room for one more file by removing the least recently used ones.
void wheel_room_make(struct wheel_room *room, int64_t bytes);
// A file was added, or replaced.
void wheel_room_add(struct wheel_room *room, const char *name, int64_t bytes);
// Removes a file, if it is there.
void wheel_room_drop(struct wheel_room *room, const char *name);
// A file was used: it is the most recent now, for later gateways as well.
void wheel_room_use(struct wheel_room *room, const char *name);
