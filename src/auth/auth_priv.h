// SPDX-License-Identifier: Apache-2.0
// The parts of the API keys: a set of keys, and the watch of their file.
#pragma once

#include "auth.h"

// ---- key_set.c ------------------------------------------------------------------------------

// Keys and their owners. Any thread may fill one; afterwards it is not changed any more.
struct key_set;
struct key_set *key_set_new(void);
struct key_set *key_set_copy(const struct key_set *set);
void key_set_free(struct key_set *set);
KG_DEFINE_AUTO(key_set, key_set_free)
KG_MUST_CHECK int key_set_add(struct key_set *set, const char *owner, const char *key,
                              struct kg_error *err);
KG_MUST_CHECK int key_set_add_file(struct key_set *set, const char *path, struct kg_error *err);
// The owner of a key, borrowed from the set; NULL: nobody's. Compares with each key in constant
// time.
const char *key_set_find(const struct key_set *set, const char *key);
size_t key_set_count(const struct key_set *set);
bool key_set_has_owner(const struct key_set *set, const char *owner);
bool key_set_has_several_owners(const struct key_set *set);
bool key_set_equal(const struct key_set *a, const struct key_set *b);

// ---- file_watch.c ---------------------------------------------------------------------------

// Notices, without looking periodically, that a path may have other content: the file was written,
// replaced by a rename, removed or made; or a symlink on the way to it now points elsewhere, which
// is how Kubernetes changes a mounted Secret.
struct file_watch;
// `on_change` is called once for changes that follow one another closely. Never NULL; where the
// path cannot be watched (the log says why), it is never called.
struct file_watch *file_watch_new(struct loop *loop, const char *path, loop_fn on_change,
                                  void *arg);
void file_watch_free(struct file_watch *watch);
