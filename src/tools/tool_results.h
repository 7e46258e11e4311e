// SPDX-License-Identifier: Apache-2.0
// What a client answers to calls of tools. A value is kept as JSON text, which is what the code
// gets: values would take many times as much memory. May be made, and freed, on any thread.
#pragma once

#include <jansson.h>

#include "base.h"

enum { TOOL_RESULTS_MAX = 256 };

struct tool_results;

// `list` (borrowed) is [{"call_id", "result" or "error"}], 1 to TOOL_RESULTS_MAX, each id once.
// KG_INVALID names the result, and what is wrong with it.
KG_MUST_CHECK struct tool_results *tool_results_new(const json_t *list, struct kg_error *err);
void tool_results_free(struct tool_results *results); // NULL is fine
KG_DEFINE_AUTO(tool_results, tool_results_free)

struct tool_result {
    const char *json;  // a value, as text; NULL: it has failed
    size_t len;        // of `json`
    const char *error; // what the client says, or why no result comes
    const char *code;  // of the error: `tool_error`, `timeout` or `cancelled`
};

size_t tool_results_count(const struct tool_results *results);
// Borrowed.
const char *tool_results_call_id(const struct tool_results *results, size_t at);
struct tool_result tool_results_get(const struct tool_results *results, size_t at);
