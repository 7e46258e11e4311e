// SPDX-License-Identifier: Apache-2.0
// Copying the content of a file, in parts, so that the agent does other things between them. Holes
// stay holes.
#pragma once

#include "base.h"

struct file_parts {
    int in; // -1: no file is under way
    int out;
    int64_t at; // bytes up to here are done
    int64_t size;
    bool compares; // what is there already is not written again; `out` must be readable
};

// Takes both descriptors. `out` is empty unless `compares`.
void file_parts_begin(struct file_parts *parts, int in, int out, int64_t size, bool compares);
// Copies at most 128 KiB. Returns 1 as long as there is more to do, 0 when the file is complete and
// `in` may be closed by file_parts_end(); -1 with errno, which is EOVERFLOW if there are more than
// *left bytes.
KG_MUST_CHECK int file_parts_step(struct file_parts *parts, int64_t *left);
void file_parts_end(struct file_parts *parts);
