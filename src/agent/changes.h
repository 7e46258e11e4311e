// SPDX-License-Identifier: Apache-2.0
// Which files were created or changed since a cursor was last asked about.
#pragma once

#include <jansson.h>
#include <sys/stat.h>

#include "base.h"

struct changes;

struct changes *changes_new(const char *root);
void changes_free(struct changes *changes);
KG_DEFINE_AUTO(changes, changes_free)

// Makes a cursor, to which all files that are there now are known. One that exists stays as it is.
void changes_begin(struct changes *changes, const char *cursor);
// Forgets a cursor, if there is one of that name.
void changes_end(struct changes *changes, const char *cursor);
// Makes a file that the agent itself has written known to every cursor.
void changes_own(struct changes *changes, const char *path, const struct stat *st);
// The same for all files in a folder.
void changes_own_folder(struct changes *changes, const char *path);
// `question` is {"cursor", "within_us", "after_look"?}; the last one says that what is asked about
// began after the last answer, which was to another cursor. The answer is {"files": [{"path",
// "size", "mtime_ms"}], "more"}.
KG_MUST_CHECK json_t *changes_since(struct changes *changes, json_t *question,
                                    struct kg_error *err);
