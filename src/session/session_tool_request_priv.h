// SPDX-License-Identifier: Apache-2.0
// A call of a tool by code in a session, from its line to its answer.
#pragma once

#include <sys/queue.h>

#include "base.h"
#include "budget.h"
#include "kernel.h"

struct session;
struct session_file_op;
struct tool_link;
struct upstream_call;

// A connection of code.
struct tool_caller {
    LIST_ENTRY(tool_caller) entry;
    struct session *session;
    struct tool_link *link;
    LIST_HEAD(, tool_request) requests;
};

struct tool_request {
    LIST_ENTRY(tool_request) entry;
    struct tool_caller *caller;
    int64_t id;
    char *name; // of the tool
    TAILQ_ENTRY(tool_request) queued;
    int64_t came_ms;
    char *arguments;                   // JSON text, while it is queued
    struct tool_call *call;            // while it waits; NULL: also if no execution makes it
    struct upstream_call *server_call; // the same, of a server's tool
    bool is_server_call;
    char *text;              // its result, while it is written to a file
    struct budget_hold hold; // the bytes of `arguments` or `text`
    char *path;
    struct session_file_op *op;
};

// Of `caller` (borrowed); `id` is the code's.
struct tool_request *tool_request_new(struct tool_caller *caller, int64_t id, const char *name);
// Without an answer: ends what it waits for.
void tool_request_free(struct tool_request *request);
void tool_request_leave_queue(struct tool_request *request);

// These answer the code, and free the request. `answer` is taken.
void tool_request_answer(struct tool_request *request, json_t *answer);
void tool_request_refuse(struct tool_request *request, const struct kg_error *err);
// A tool_result_fn. A file is written first, if the result is too large for a value.
void tool_request_on_result(const struct tool_result *result, void *request);

// Calls the tool of an MCP server. On failure the request is not answered.
KG_MUST_CHECK int tool_request_call_server(struct tool_request *request, const json_t *arguments,
                                           struct kg_error *err);
