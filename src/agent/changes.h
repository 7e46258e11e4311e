// SPDX-License-Identifier: Apache-2.0
// Which files were created or changed: asked over a link of its own, one line of JSON each way.
//
//   gateway  {"cursor":"python","within_us":2900}
//   agent    {"files":[{"path","size","mtime_ms"}],"more":0}     or {"error":"…"}
#pragma once

#include <sys/stat.h>

#include "base.h"
#include "loop.h"

struct changes;

struct changes *changes_new(struct loop *loop, const char *root);
void changes_free(struct changes *changes);
KG_DEFINE_AUTO(changes, changes_free)

// A descriptor, non-blocking, at whose other end questions are answered.
KG_MUST_CHECK int changes_connect(struct changes *changes, struct kg_error *err);
// A cursor begins to look: what is there now is no news to it. One that does so already goes on.
void changes_begin(struct changes *changes, const char *cursor);
// The agent itself has written this file: no news to any cursor.
void changes_own(struct changes *changes, const char *path, const struct stat *st);
// One line's answer, to be freed.
char *changes_answer(struct changes *changes, const char *line, size_t len);
