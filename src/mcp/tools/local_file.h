// SPDX-License-Identifier: Apache-2.0
// A file of the machine that the gateway runs on.
#pragma once

#include "base.h"

// Appends a regular file's content, at most `max` bytes, where it lies below `root` once every
// symlink is followed. KG_INVALID_PATH, KG_NOT_FOUND, KG_UPLOAD_TOO_LARGE.
KG_MUST_CHECK int local_file_read(const char *root, const char *path, size_t max, struct buf *ret,
                                  struct kg_error *err);
