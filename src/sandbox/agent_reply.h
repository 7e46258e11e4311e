// SPDX-License-Identifier: Apache-2.0
// Parsers of an agent's answers. They are untrusted: the tenant may have answered instead.
#pragma once

#include <jansson.h>

#include "base.h"

struct sandbox_command_result;
struct sandbox_command_start;

enum { AGENT_KERNEL_NAME_MAX = 32, AGENT_METHOD_MAX = 32, AGENT_REQUEST_MAX = 20 * 1024 };

// The content of a HEAD or RESULT frame: an object of bounded weight.
KG_MUST_CHECK json_t *agent_object_parse(const char *text, size_t len, struct kg_error *err);
// The content of an ERROR frame becomes `err`.
void agent_error_parse(const char *text, size_t len, struct kg_error *err);

struct agent_event {
    enum {
        AGENT_KERNEL_EXIT,
        AGENT_MEMORY,
        AGENT_KERNEL_MEMORY,
        AGENT_COMMANDS,
        AGENT_REQUEST,
        AGENT_REQUEST_END,
    } type;
    // A kernel has ended, or uses `memory_bytes` now:
    char kernel[AGENT_KERNEL_NAME_MAX + 1];
    int pid; // in the sandbox
    int exit_code;
    int signal;
    bool oom;
    // What the sandbox uses now:
    int64_t memory_bytes;
    // What its commands do now:
    int n_commands, n_terminals; // that run
    bool working;
    // Code asks for something, or does so no more (then there is only the id):
    int64_t request_id; // at least 1
    char method[AGENT_METHOD_MAX + 1];
    json_t *params; // an object: the caller's reference; NULL in all other events
};
KG_MUST_CHECK int agent_event_parse(const char *text, size_t len, struct agent_event *ret,
                                    struct kg_error *err);

// How a command has started; the id is borrowed from the head. An agent of kernelgate 0.2 says
// nothing of it: the id is "" then.
KG_MUST_CHECK int agent_command_start_parse(const json_t *head, struct sandbox_command_start *ret,
                                            struct kg_error *err);
// One part of a command's output.
struct agent_output {
    enum agent_output_kind { // as command_output.h of the agent has them
        AGENT_OUTPUT_STDOUT = 1,
        AGENT_OUTPUT_STDERR,
        AGENT_OUTPUT_TERMINAL,
        AGENT_OUTPUT_MISSED,
    } kind;
    const char *text;     // borrowed; UTF-8, but of a terminal
    size_t len;           // at least 1
    int64_t missed_bytes; // of AGENT_OUTPUT_MISSED, which has no text
};
KG_MUST_CHECK int agent_output_parse(const char *data, size_t len, struct agent_output *ret,
                                     struct kg_error *err);
// The result of a command.
KG_MUST_CHECK int agent_command_end_parse(const json_t *result, struct sandbox_command_result *ret,
                                          struct kg_error *err);

// What files.stat, files.mkdir, files.move and files.copy say of a file or folder, and files.list
// of each, besides its path.
struct agent_entry {
    const char *type;        // "file", "dir", "symlink" or "other", a constant
    int64_t size;            // bytes, at least 0
    int64_t mtime_ms;        // any number
    int mode;                // permissions, 0 to 07777; -1: it does not say
    int64_t uid, gid;        // in the sandbox; -1: it does not say
    const char *target;      // of a symlink, borrowed; or NULL
    const char *target_type; // what it leads to, a constant as `type`; NULL: nothing, or it does
                             // not say
};
KG_MUST_CHECK int agent_entry_parse(const json_t *entry, struct agent_entry *ret,
                                    struct kg_error *err);
// How many folders files.watch watches, or -1.
KG_MUST_CHECK int agent_watch_start_parse(const json_t *head, struct kg_error *err);
struct agent_watch_event {
    const char *event; // "create", "write", "remove", "rename", "chmod", "overflow": a constant
    const char *path;  // file_path_check(), relative to the folder; NULL of "overflow"
    const char *from;  // the same, of "rename" only; else NULL
    bool is_folder;
};
// One line of what it reports; `ret` borrows from the object that is returned, a reference. NULL:
// it is malformed.
enum { AGENT_WATCH_LINE_MAX = 16 * 1024 };
KG_MUST_CHECK json_t *agent_watch_event_parse(const char *text, size_t len,
                                              struct agent_watch_event *ret, struct kg_error *err);
// The result of files.unused: 0 to AGENT_NUMBER_MAX, or -1.
enum { AGENT_NUMBER_MAX = 9999 };
KG_MUST_CHECK int agent_number_parse(const json_t *result, struct kg_error *err);
