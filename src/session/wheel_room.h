// SPDX-License-Identifier: Apache-2.0
// How full the cache of wheels is: a sum that is kept, so that the folder is read only at the start
// and where something has to go.
#pragma once

#include "base.h"

struct wheel_room;

// Of the files in `dir` and in its folders, in at most `max_bytes` and `max_files`. This process
// alone writes there.
struct wheel_room *wheel_room_new(const char *dir, int64_t max_bytes, size_t max_files);
void wheel_room_free(struct wheel_room *room);
KG_DEFINE_AUTO(wheel_room, wheel_room_free)
// Makes room for one more file: the oldest go, and an eighth more than needed.
void wheel_room_make(struct wheel_room *room, int64_t bytes);
// A file has come, in place of one of `old_bytes` (0: of none).
void wheel_room_add(struct wheel_room *room, int64_t bytes, int64_t old_bytes);
