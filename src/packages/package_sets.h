// SPDX-License-Identifier: Apache-2.0
// Sets of packages on disk: folders that Python imports from, each with the files of all wheels
// that requirements were resolved to, as hard links to their trees (wheel_trees.h). Every sandbox
// sees them read-only. Their names cannot be guessed, and the folder that they are in cannot be
// listed, so that nobody learns what others have installed. On the loop's thread.
//
// Wheels are those of a resolution: [{"name", "version", "sha256", …}], checked.
#pragma once

#include <jansson.h>

#include "base.h"
#include "wheel_trees.h"

struct loop;
struct package_sets;

// Where several owners share the sets, one has half of each, with what is being made for its
// sandboxes.
struct package_set_limits {
    struct wheel_tree_limits trees;
    size_t max_sets;
    size_t max_links; // files and folders of all sets: each is a link, or takes an inode
};
extern const struct package_set_limits package_set_limits_default;

// Keeps them in `dir`/shared/sets, which it makes, and what it knows of them beside `dir`/shared,
// which exists, as `dir`/incoming does.
KG_MUST_CHECK struct package_sets *package_sets_new(struct loop *loop, const char *dir,
                                                    const struct package_set_limits *limits,
                                                    struct kg_error *err);
void package_sets_free(struct package_sets *sets);
KG_DEFINE_AUTO(package_sets, package_sets_free)
// The unpacked wheels that sets are made of. Borrowed.
struct wheel_trees *package_sets_trees(struct package_sets *sets);
// Whether all wheels are unpacked for interpreters with that tag ("cpython-311"). Marks them as
// used.
bool package_sets_can_make(struct package_sets *sets, const json_t *wheels, const char *tag);

// Makes the set of wheels that are all unpacked, unless it is there; where two wheels have the same
// file, that of the first one is taken. `fn` fires once: at once (before this returns NULL) if the
// set is there or cannot be made, else in a later turn of the loop. `name` is borrowed, and NULL if
// `err` is set (KG_DISK_FULL: there is no room). A set leaves when nobody uses it and others need
// the room, so use it in the callback.
struct package_set_request {
    const json_t *wheels;
    const char *tag;
    const char *owner;
    bool is_shared; // among several owners: one takes half of the cache at most
};
struct package_set_making;
typedef void (*package_set_fn)(const char *name, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct package_set_making *
package_sets_make(struct package_sets *sets, const struct package_set_request *request,
                  package_set_fn fn, void *arg);
// `fn` does not fire. NULL is fine.
void package_set_making_cancel(struct package_set_making *making);

// ---- Users ----------------------------------------------------------------------------------

// `user` (the id of a sandbox of `owner`) uses the set of that name from now on, instead of the one
// that it used; NULL: none. A later gateway knows it, too.
void package_sets_use(struct package_sets *sets, const char *user, const char *owner,
                      const char *name);
// The wheels of the set that it uses, borrowed; NULL: it uses none.
const json_t *package_sets_wheels_of(const struct package_sets *sets, const char *user);
// The name of that set, likewise.
const char *package_sets_name_of(const struct package_sets *sets, const char *user);
// After a start: `user` is still there; and then: all others that used sets before are not.
void package_sets_keep(struct package_sets *sets, const char *user);
void package_sets_forget_others(struct package_sets *sets);
