// SPDX-License-Identifier: Apache-2.0
// A set of API keys, and how it is read.
#pragma once

#include "auth.h"

// Keys and their owners. Any thread may fill one; afterwards it is not changed any more.
struct key_set;
struct key_set *key_set_new(void);
struct key_set *key_set_copy(const struct key_set *set);
void key_set_free(struct key_set *set);
KG_DEFINE_AUTO(key_set, key_set_free)
KG_MUST_CHECK int key_set_add(struct key_set *set, const char *owner, const char *key,
                              struct kg_error *err);
KG_MUST_CHECK int key_set_add_file(struct key_set *set, const char *path, struct kg_error *err);
// The same, where `fd` is the open file, which is read from its beginning. Errors name the path.
KG_MUST_CHECK int key_set_add_open_file(struct key_set *set, int fd, const char *path,
                                        struct kg_error *err);
// The owner of a key, borrowed from the set; NULL: nobody's. Compares with each key in constant
// time.
const char *key_set_find(const struct key_set *set, const char *key);
size_t key_set_count(const struct key_set *set);
bool key_set_has_owner(const struct key_set *set, const char *owner);
bool key_set_has_several_owners(const struct key_set *set);
bool key_set_equal(const struct key_set *a, const struct key_set *b);
