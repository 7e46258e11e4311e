// SPDX-License-Identifier: Apache-2.0
// Files of the machine that the gateway runs on.
#pragma once

#include "base.h"
#include "loop.h"

// Appends the content of a regular file of at most `max` bytes to `ret`. With all symlinks
// followed, the file must be below `root`. Reads a piece per turn of the loop, since a disk may be
// slow. `fn` is called once, with `err` NULL after success. Fails with KG_INVALID_PATH,
// KG_NOT_FOUND or KG_UPLOAD_TOO_LARGE.
struct local_read;
typedef void (*local_read_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK struct local_read *local_read_start(struct loop *loop, const char *root,
                                                  const char *path, size_t max, struct buf *ret,
                                                  local_read_fn fn, void *arg,
                                                  struct kg_error *err);
// Takes a struct local_read whose `fn` has not been called, and will not be called.
void local_read_cancel(void *read);
