// SPDX-License-Identifier: Apache-2.0
// Reading what an agent says: untrusted, since the tenant may have answered in its place.
#pragma once

#include <jansson.h>

#include "base.h"
#include "sandbox.h"

enum {
    AGENT_EVENT_LINE_MAX = 4096,
    AGENT_COMMAND_LINE_MAX = 256 * 1024, // 32 KiB of NULs, each of them an escape, and more
    AGENT_KERNEL_NAME_MAX = 32,
};

// The body of an answer: an object; an error status becomes `err` with the agent's text.
KG_MUST_CHECK json_t *agent_reply_parse(int status, const char *body, size_t len,
                                        struct kg_error *err);

// A kernel_exit event.
struct agent_event {
    char kernel[AGENT_KERNEL_NAME_MAX + 1];
    int pid; // in the sandbox
    int exit_code;
    int signal;
    bool oom;
};
KG_MUST_CHECK int agent_event_parse(const char *line, size_t len, struct agent_event *ret,
                                    struct kg_error *err);

// A line of a command: text of one of its streams, or its end.
struct agent_command_line {
    bool is_end;
    enum sandbox_stream stream;
    json_t *text; // a string, the caller's; NULL at the end
    struct sandbox_command_result result;
};
KG_MUST_CHECK int agent_command_parse(const char *line, size_t len, struct agent_command_line *ret,
                                      struct kg_error *err);

// Cuts a stream into lines; all zero is a valid start. `fn` gets each line without its newline;
// a line that is too long is given to it once, as NULL.
struct agent_lines {
    struct buf line;
    size_t max; // 0: AGENT_EVENT_LINE_MAX
    bool overlong;
};
typedef void (*agent_line_fn)(const char *line, size_t len, void *arg);
void agent_lines_feed(struct agent_lines *lines, const char *data, size_t len, agent_line_fn fn,
                      void *arg);
void agent_lines_fini(struct agent_lines *lines);
