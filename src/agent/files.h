// SPDX-License-Identifier: Apache-2.0
// What lies in the working folder.
#pragma once

#include <jansson.h>

#include "base.h"

// Lists what is below `path`, a relative one ("" is `root` itself), with its folders: an object
// {"files": [{"path", "size", "mtime_ms", "type"}], "truncated"}. Follows no symlink.
KG_MUST_CHECK json_t *files_list(const char *root, const char *path, struct kg_error *err);
