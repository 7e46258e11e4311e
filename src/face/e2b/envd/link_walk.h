// SPDX-License-Identifier: Apache-2.0
// Follows the symbolic links in a path, which session_files.h does not. Each name is looked at in
// turn, so what is found is again a path without links, and is checked like any other.
#pragma once

#include "envd_path.h"

struct link_walk;
struct session;

// `found` is as session_files.h takes a path, borrowed; NULL with `err`: KG_NOT_FOUND,
// KG_INVALID_PATH (too many links; or they lead to what is not a file of the session's), …
typedef void (*link_walk_fn)(const char *found, const struct kg_error *err, void *arg);
// `fn` fires once, later. `whole`: also where the last name is a link. NULL: there is nothing that
// could be a link.
KG_MUST_CHECK struct link_walk *link_walk_start(struct session *session,
                                                const struct envd_path *path, bool whole,
                                                link_walk_fn fn, void *arg);
// NULL is fine.
void link_walk_cancel(struct link_walk *walk);
