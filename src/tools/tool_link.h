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
//              {"error": TEXT, "code": CODE}                of a line without an id; then the end
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
    TOOL_VALUES_MAX = 4 << 20, // bytes of memory that a line's values may take (json_weigh())
    TOOL_DEPTH_MAX = 64,       // of its values in one another
    // Bytes of answers that the code has not read. Beyond that, it gets errors in their place.
    TOOL_LINK_UNREAD_MAX = 32 << 20,
};

struct tool_link_events {
    // The texts and `arguments` are borrowed. Each must be answered, once, now or later. Code that
    // uses an id twice cannot tell the answers apart; nothing else depends on ids.
    void (*on_list)(struct tool_link *link, int64_t id, const char *server, void *arg);
    void (*on_call)(struct tool_link *link, int64_t id, const char *name, const json_t *arguments,
                    void *arg);
    void (*on_cancel)(struct tool_link *link, int64_t id, void *arg);
    // What the code has sent has taken so much of the loop's time. It may pause the link.
    void (*on_work)(struct tool_link *link, int64_t us, void *arg);
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
// Sends {"id", "result"}; `json` is the text of the value. The same.
void tool_link_give(struct tool_link *link, int64_t id, const char *json, size_t len);
void tool_link_refuse(struct tool_link *link, int64_t id, const struct kg_error *err);
// Reads nothing until it is undone, also not that the code has left.
void tool_link_pause(struct tool_link *link, bool paused);
