// SPDX-License-Identifier: Apache-2.0
// An execution as its kernel and the registry see it.
#pragma once

#include <sys/queue.h>

#include "budget.h"
#include "kernel.h"
#include "output_priv.h"

enum { EXECUTION_ID_LEN = 24 };

enum execution_input {
    INPUT_NONE,
    INPUT_ASKED,
    INPUT_ASKED_SECRETLY, // a password: what is given is not shown
};

struct execution {
    int refs;
    char id[EXECUTION_ID_LEN + EXECUTION_SUFFIX_MAX + 1];
    char *owner;
    char *session_id;
    char *kernel; // the name of its kernelspec
    char *msg_id; // of a tap's request; NULL: the request is the gateway's
    char *code;
    char *variables;            // JSON text, or NULL; as the code only until that is sent
    char *env;                  // the same, kept
    struct budget_hold waiting; // the bytes of the code and the variables, until then
    int64_t timeout_ms;
    const char *timeout_source; // what has set it, for messages
    int max_image_side;
    bool keep_running;
    bool allow_stdin;
    json_t *more_done; // or NULL
    bool session_ends;
    int64_t more_files; // beyond those that have lines
    enum execution_state state;
    enum execution_status stop_status; // while interrupting or killing: how it will have ended
    enum execution_status status;      // once it is done
    int64_t count;                     // the kernel's execution_count
    int exit_code;                     // of code that exited, or of its process; -1: none
    int64_t started_us;
    int64_t ended_ms;
    struct output_log log;
    // Stops it, while it waits or runs; NULL: there is nothing to stop.
    void (*on_interrupt)(struct execution *execution, void *arg);
    void *on_interrupt_arg;
    enum execution_input input;
    // Gives the kernel what its code waits for; set while `input` is not INPUT_NONE.
    int (*on_input)(struct execution *execution, const char *value, void *arg,
                    struct kg_error *err);
    void *on_input_arg;
    struct tool_calls *tool_calls; // NULL: it has no tools, or has ended
    int64_t n_tool_calls;          // that it has made
    int64_t gathered_seq;          // execution_gathered_seq()
    int64_t tool_call_timeout_ms;
    int64_t max_tool_calls;
    int64_t max_rest_ms; // of its time limit, while it waits for tools, in all
    // The code waits for tools from now on, or not any more: its time limit rests. Gets
    // on_interrupt_arg; may be NULL.
    void (*on_tools_wait)(struct execution *execution, bool waits, void *arg);
    TAILQ_ENTRY(execution) in_queue;
    struct executions *executions; // NULL once forgotten
    struct budget_hold replay;     // once it has ended: the bytes of its log
    struct budget_hold place;      // the same: 1 of those that are kept
    TAILQ_ENTRY(execution) in_registry;
    LIST_ENTRY(execution) in_bucket;
};

// Makes a queued execution, known to the registry. The caller holds a reference.
struct execution *execution_new(struct executions *executions,
                                const struct execution_request *request);
// KG_SESSION_BUSY where the requests that wait would hold too much.
KG_MUST_CHECK int executions_check_room(const struct executions *executions,
                                        const struct execution_request *request,
                                        struct kg_error *err);
// The same for any bytes of an owner, which wait to be sent to a kernel, and count in
// executions_waiting().
KG_MUST_CHECK int executions_check_waiting(const struct executions *executions, const char *owner,
                                           size_t bytes, struct kg_error *err);
struct budget *executions_waiting(struct executions *executions); // bytes; borrowed
// Code and variables were sent, or will not be; they may be large.
void execution_release_request(struct execution *execution);
size_t executions_max_message_bytes(const struct executions *executions); // 0: any
size_t executions_max_log_bytes(const struct executions *executions);
struct output_budget *executions_budget(const struct executions *executions); // borrowed
void execution_set_state(struct execution *execution, enum execution_state state);
// Appends the lines of one of its messages, which are taken from it.
void execution_take_lines(struct execution *execution, struct jupyter_message *message);
// Appends a line of the gateway's own between the kernel's messages.
void execution_append_own_line(struct execution *execution, const char *type,
                               enum output_worth worth, json_t *members);
struct loop *executions_loop(const struct executions *executions);
// Its code asks for input; or what it asked for was given, or is not awaited any more.
void execution_ask_input(struct execution *execution, const char *prompt, bool secretly);
void execution_forget_input(struct execution *execution);
// Appends the `done` line; the execution's kernel has no more to do with it.
void execution_finish(struct execution *execution, enum execution_status status,
                      bool kernel_restarted);
