// SPDX-License-Identifier: Apache-2.0
// Folders with many files in the package cache, which the loop's thread does not walk.
#pragma once

#include "base.h"

struct loop;

// Removes a folder: it has left its place when this returns, and a worker removes what was in it.
// `incoming` is on the same file system, and is emptied when a gateway starts.
void package_folder_remove(struct loop *loop, const char *path, const char *incoming);
// Makes in `to` hard links to all files of `from`, and the folders that they are in. What is there
// already stays. For a worker.
KG_MUST_CHECK int package_folder_link(const char *from, const char *to, struct kg_error *err);
