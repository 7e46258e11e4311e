// SPDX-License-Identifier: Apache-2.0
// JSON-RPC messages of an MCP server, which is not trusted: bounded in size, depth and memory.
#pragma once

#include <jansson.h>

#include "base.h"

enum {
    MESSAGE_MAX = 8 << 20,        // bytes
    MESSAGE_INLINE_MAX = 64 << 10 // a larger one is parsed on a worker
};

struct message {
    json_t *json;       // an object
    json_t *value;      // of the result of a tool: what code gets, a new reference; else NULL
    char *text;         // the value as JSON, where the message is large; else NULL
    bool is_tool_error; // the tool has failed: the value is its text
};

// From any thread. On failure the message is all zero.
KG_MUST_CHECK int message_parse(struct message *ret, const char *text, size_t len,
                                struct kg_error *err);
void message_fini(struct message *message);
