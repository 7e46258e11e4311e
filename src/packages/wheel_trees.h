// SPDX-License-Identifier: Apache-2.0
// Unpacked wheels on disk: each is a folder of plain files that the gateway has written, and that
// nobody writes again. No sandbox sees them here: see package_sets.h. On the loop's thread.
#pragma once

#include <jansson.h>

#include "base.h"

struct loop;
struct wheel_trees;
struct wheel_tree_limits {
    int64_t max_bytes; // of all trees
    size_t max_files;  // files and folders of all trees
    size_t max_tree_files;
    int64_t max_tree_bytes;
};
// Called before an unused tree leaves, because others need its room.
typedef void (*wheel_trees_evict_fn)(const char *key, void *arg);

// Keeps trees in `dir`/unpacked and drafts in `dir`/incoming, which exists and is empty.
KG_MUST_CHECK struct wheel_trees *wheel_trees_new(struct loop *loop, const char *dir,
                                                  const struct wheel_tree_limits *limits,
                                                  wheel_trees_evict_fn on_evict, void *arg,
                                                  struct kg_error *err);
void wheel_trees_free(struct wheel_trees *trees);
KG_DEFINE_AUTO(wheel_trees, wheel_trees_free)

// The name of a wheel's tree for the interpreters with that tag ("cpython-311"). To be freed.
char *wheel_tree_key(const char *sha256, const char *tag);
bool wheel_trees_have(const struct wheel_trees *trees, const char *key);
// Zeros if it is not there.
struct wheel_tree_size {
    int64_t bytes;
    size_t n_files; // and folders
};
struct wheel_tree_size wheel_trees_size(const struct wheel_trees *trees, const char *key);
// Where a tree is. To be freed.
char *wheel_tree_path(const struct wheel_trees *trees, const char *key);
// It is the most recently used one now, for later gateways as well.
void wheel_trees_use(struct wheel_trees *trees, const char *key);
// A tree that is there and held does not leave. Holds are counted.
void wheel_trees_hold(struct wheel_trees *trees, const char *key);
void wheel_trees_let_go(struct wheel_trees *trees, const char *key);

// ---- A tree that is being written ------------------------------------------------------------

struct wheel_draft;
KG_MUST_CHECK struct wheel_draft *wheel_draft_new(struct wheel_trees *trees, const char *key,
                                                  struct kg_error *err);
// Announces the next files, [{"path", "size", "run"}], as a sandbox describes them: untrusted.
// Their contents follow. Fails if a path leads elsewhere or comes twice, or if a limit would be
// exceeded.
KG_MUST_CHECK int wheel_draft_expect(struct wheel_draft *draft, const json_t *files,
                                     struct kg_error *err);
KG_MUST_CHECK int wheel_draft_write(struct wheel_draft *draft, const void *data, size_t len,
                                    struct kg_error *err);
// Whether the contents of all announced files have come.
bool wheel_draft_is_whole(const struct wheel_draft *draft);
// Moves it to its place, unless another draft was quicker. Frees `draft` in any case.
KG_MUST_CHECK int wheel_draft_finish(struct wheel_draft *draft, struct kg_error *err);
void wheel_draft_cancel(struct wheel_draft *draft);
