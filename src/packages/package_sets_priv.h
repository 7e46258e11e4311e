// SPDX-License-Identifier: Apache-2.0
// The parts of package_sets.h: the sets that are there (set_list.c), who uses them (set_users.c), a
// set that is being made (set_job.c), and what a start finds and an end frees (package_sets.c).
#pragma once

#include <sodium.h>
#include <sys/queue.h>

#include "package_sets.h"
#include "wheel_trees.h"

enum { SET_NAME_LEN = 64 };

struct package_set {
    TAILQ_ENTRY(package_set) link;
    json_t *wheels;
    json_t *keys; // of their trees
    size_t n_links;
    size_t n_users;
    char name[SET_NAME_LEN + 1];
};

struct package_sets {
    struct loop *loop;
    struct package_set_limits limits;
    struct wheel_trees *trees;
    char *dir;     // shared/sets
    char *records; // sets
    char *used;    // by whom
    char *incoming;
    unsigned char key[crypto_generichash_KEYBYTES];
    size_t n_sets;                  // with those that are being made
    size_t n_links;                 // files and folders of these
    TAILQ_HEAD(, package_set) list; // least recently used first
    TAILQ_HEAD(, set_job) jobs;
    TAILQ_HEAD(, set_user) users;
};

// ---- The sets that are there (set_list.c) -----------------------------------------------------

struct package_set *set_find(const struct package_sets *sets, const char *name);
// Adds a set whose folder and record are there. `wheels` and `keys` are shared.
struct package_set *set_add(struct package_sets *sets, const char *name, json_t *wheels,
                            json_t *keys);
void set_free(struct package_sets *sets, struct package_set *set);
// With its folder and record.
void set_remove(struct package_sets *sets, struct package_set *set);
// It is the most recently used one now, for later gateways as well.
void set_touch(struct package_sets *sets, struct package_set *set);
// The path of its record. To be freed.
char *set_record_path(const struct package_sets *sets, const char *name);

// Whether all trees are there; false if `keys` has something else than strings.
bool set_has_trees(const struct package_sets *sets, const json_t *keys);
void set_hold_trees(const struct package_sets *sets, const json_t *keys, bool hold);
// How many files and folders a set of these trees has.
size_t set_count_links(const struct package_sets *sets, const json_t *keys);
// Removes unused sets until one with so many files has room; KG_DISK_FULL: all others are used.
KG_MUST_CHECK int set_make_room(struct package_sets *sets, size_t n_links, struct kg_error *err);
// A tree leaves, and so do the sets that have its files: a wheel_trees_evict_fn.
void set_on_tree_evicted(const char *key, void *sets);

// ---- Who uses them (set_users.c) --------------------------------------------------------------

// What an owner's sandboxes use: each set and each tree counts once.
struct set_share {
    json_t *names; // of sets: {name: null}
    json_t *keys;  // of trees: likewise
    size_t n_links;
};
// Adds what `owner` uses to a share, which is zeroed at first.
void set_users_add_share(const struct package_sets *sets, const char *owner,
                         struct set_share *share);
// A file of `used`, that an earlier gateway has written.
void set_users_read(struct package_sets *sets, const char *file);
void set_users_free(struct package_sets *sets);
void set_share_add(struct set_share *share, const char *name, const json_t *keys, size_t n_links);
void set_share_clear(struct set_share *share);

// ---- A set that is being made (set_job.c) -----------------------------------------------------

// The sets are about to be freed; no callback fires.
void set_jobs_leave(struct package_sets *sets);
