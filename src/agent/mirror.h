// SPDX-License-Identifier: Apache-2.0
// Makes a folder equal to another one, with all below it: what savepoints do with /mnt/data. In
// parts, so that the agent does other things between them.
//
// What is equal already stays as it is, and what is there of the same kind is changed in its place,
// so that open files and working folders stay what they are; what the other one does not have is
// removed first. Permissions and times of modification are set, holes stay holes, symbolic links,
// FIFOs and sockets are made anew. What has a name of kernelgate's own is neither copied nor
// removed. No symbolic link is followed. Others may write meanwhile: then what they write is in the
// copy or not.
#pragma once

#include "base.h"

enum {
    MIRROR_ENTRIES_MAX = 100000,
    MIRROR_LEVELS_MAX = 32, // of folders in each other
};

// What a mirror has to do.
struct mirror_size {
    int64_t bytes; // that the folder takes
    int entries;
};

// Looks at all of `from` and `to`, descriptors of folders, which stay the caller's. Errors:
// KG_DISK_FULL (the file system of `to` has no room for it), KG_INVALID (there are too many
// entries, or too many folders in each other), KG_INVALID_PATH (something cannot be read).
KG_MUST_CHECK int mirror_check(int from, int to, struct mirror_size *ret, struct kg_error *err);

struct mirror;
KG_MUST_CHECK struct mirror *mirror_begin(int from, int to, struct kg_error *err);
// One entry of a folder, or at most 128 KiB of a file. Returns 1 as long as there is more to do,
// then 0; -1: `to` is something in between.
KG_MUST_CHECK int mirror_step(struct mirror *mirror, struct kg_error *err);
void mirror_free(struct mirror *mirror);
