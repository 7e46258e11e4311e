// SPDX-License-Identifier: Apache-2.0
// A connection of a process in a sandbox whose code calls tools, as the gateway hears it, through
// the agent. Lines of JSON, each at most TOOL_LINE_MAX bytes:
//
//     agent    {"kernel": NAME or null}                     once, the first: whose process it is
//     code     {"id": INTEGER, "method": "list"}           all tools
//              {"id", "method": "list", "server": NAME}     those of one server of the operator's;
//                                                           "": the client's, and names of servers
//              {"id", "method": "call", "name": TEXT, "arguments": {…}}
//              {"id", "method": "cancel"}                   of a call; it is not answered any more
//     gateway  {"id", "tools": […], "servers": […]}         in any order
//              {"id", "result": …}, {"id", "file": PATH} or {"id", "error": TEXT, "code": CODE}
//
// All of it is untrusted. On the loop's thread.
#pragma once

#include <jansson.h>

#include "base.h"
#include "budget.h"

struct loop;
struct tool_link;

enum {
    TOOL_LINE_MAX = 512 << 10,
    TOOL_LINK_UNREAD_MAX = 8 << 20, // bytes of answers that the code has not read
};

struct tool_link_events {
    // The texts and `arguments` are borrowed. Each id is that of one request under way at most. It
    // must be answered, once, now or later.
    void (*on_list)(struct tool_link *link, int64_t id, const char *server, void *arg);
    void (*on_call)(struct tool_link *link, int64_t id, const char *name, const json_t *arguments,
                    void *arg);
    void (*on_cancel)(struct tool_link *link, int64_t id, void *arg);
    // Its code has left, or was sent away: it is freed after that. Requests are not answered any
    // more.
    void (*on_end)(struct tool_link *link, void *arg);
};

// Owns `fd` (non-blocking). What it holds counts in `budget` as the owner's.
struct tool_link *tool_link_new(struct loop *loop, int fd, struct budget *budget, const char *owner,
                                const struct tool_link_events *events, void *arg);
// Without on_end.
void tool_link_free(struct tool_link *link);
// The name of the kernel from which the process descends, borrowed; "": of none.
const char *tool_link_kernel(const struct tool_link *link);
// Sends {"id"} and the members of `answer` (taken). It may end the link, in a later turn.
void tool_link_answer(struct tool_link *link, int64_t id, json_t *answer);
void tool_link_refuse(struct tool_link *link, int64_t id, const struct kg_error *err);
// Reads no further requests until it is undone.
void tool_link_pause(struct tool_link *link, bool paused);
