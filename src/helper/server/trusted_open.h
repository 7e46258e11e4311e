// SPDX-License-Identifier: Apache-2.0
// Opens files that settings name, for a gateway that may not open them.
#pragma once

#include <sys/types.h>

#include "base.h"

// Opens a regular file for reading with the rights of this process, which is root, if nobody with
// these ids can have chosen what the path leads to: neither is a folder or a symlink on the way,
// nor the file, theirs, nor may they change such a folder. Otherwise with their rights, as they
// could do it themselves. Returns a descriptor, the caller's. For a process of one thread.
KG_MUST_CHECK int trusted_open(const char *path, uid_t user, gid_t group, struct kg_error *err);
