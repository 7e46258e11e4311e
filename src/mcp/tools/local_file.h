// SPDX-License-Identifier: Apache-2.0
// A file of the machine that the gateway runs on.
#pragma once

#include "base.h"
#include "loop.h"

// Appends a regular file's content to `ret`, at most `max` bytes, where it lies below `root` once
// every symlink is followed; a piece in each turn of the loop, since a disk may be slow. `fn` fires
// once; `err` NULL: all of it is there. NULL: KG_INVALID_PATH, KG_NOT_FOUND, KG_UPLOAD_TOO_LARGE.
struct local_read;
typedef void (*local_read_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK struct local_read *local_read_start(struct loop *loop, const char *root,
                                                  const char *path, size_t max, struct buf *ret,
                                                  local_read_fn fn, void *arg,
                                                  struct kg_error *err);
// Takes a struct local_read, whose `fn` has not fired; it will not then.
void local_read_cancel(void *read);
