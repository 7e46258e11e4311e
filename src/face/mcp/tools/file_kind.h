// SPDX-License-Identifier: Apache-2.0
// Kinds of files that are not text, by their first bytes and names, and what a model can do with
// each in its sandbox. The bytes are untrusted.
#pragma once

#include "base.h"

enum { FILE_KIND_HEAD = 512 }; // bytes that are enough to know a kind

struct file_kind {
    const char *said; // "a PDF"
    const char *how;  // Python code; {} is the path as a string
    const char *also; // a sentence, or NULL
};

// The kind of a file that begins with `data`. NULL: none that is known, so it may be text.
const struct file_kind *file_kind_find(const char *path, const char *data, size_t len);
// What to do with a file of that kind (NULL: not known); to be freed.
char *file_kind_advice(const struct file_kind *kind, const char *path, int64_t size);
