// SPDX-License-Identifier: Apache-2.0
// The tools that the code of one execution may call, as its client describes them. Immutable, and
// counted by references. On the loop's thread.
#pragma once

#include <jansson.h>

#include "base.h"

enum {
    TOOL_LIST_MAX = 256,             // tools
    TOOL_LIST_BYTES_MAX = 512 << 10, // of all as JSON
    TOOL_LIST_VALUES_MAX = 4 << 20,  // bytes of memory that they take
    TOOL_NAME_MAX = 128,             // bytes
};

struct tool_list;

// `list` (borrowed) is [{"name", "description"?, "input_schema"?}]; a name has 1 to TOOL_NAME_MAX
// printable characters of ASCII, and is there once. KG_INVALID names the tool and the field.
KG_MUST_CHECK struct tool_list *tool_list_new(const json_t *list, struct kg_error *err);
struct tool_list *tool_list_ref(struct tool_list *list);
void tool_list_unref(struct tool_list *list); // NULL is fine
KG_DEFINE_AUTO(tool_list, tool_list_unref)

// [{"name", "description", "input_schema"}], borrowed.
const json_t *tool_list_describe(const struct tool_list *list);
bool tool_list_has(const struct tool_list *list, const char *name);
// The bytes of memory that it takes.
size_t tool_list_weight(const struct tool_list *list);
// Whether a tool of that name can be called so. KG_NOT_FOUND: there is none; KG_INVALID: what is
// wrong with the arguments (json_schema.h).
KG_MUST_CHECK int tool_list_check(const struct tool_list *list, const char *name,
                                  const json_t *arguments, struct kg_error *err);
