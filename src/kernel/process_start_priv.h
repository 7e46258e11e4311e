// SPDX-License-Identifier: Apache-2.0
// The start of a kernel's process: by a fork, by exec, or by taking up one that runs; until the
// process is ready. What comes after that is the process's own (process_priv.h).
#pragma once

#include "jupyter.h"
#include "kernel.h"
#include "sandbox.h"

struct kernel_fork;

// The receiver must not free the start from inside any of these.
struct process_start_events {
    // There is a process; `pid` is its id in the sandbox. The receiver opens channels for it, and
    // calls start_connect() or start_fail().
    void (*on_started)(int pid, void *arg);
    // The process answers requests.
    void (*on_ready)(void *arg);
    // What was adopted or forked cannot be used. The receiver kills it, and starts another one.
    void (*on_unusable)(void *arg);
    void (*on_failed)(const struct kg_error *err, void *arg);
};

// How far a start has come.
struct process_start {
    const struct kernel_context *context;
    struct sandbox *sandbox;
    const struct kernelspec *spec;
    const char *name; // of the kernel; not owned
    json_t *env;      // of the session
    char *folder;     // struct kernel_settings; NULL: none of its own
    char *home;       // the same
    const struct process_start_events *events;
    void *arg;
    const char *key;                   // of the process; not owned
    struct jupyter_channels *channels; // not owned; valid from start_connect() on
    struct sandbox_call *call;         // to the agent, or for a link
    struct kernel_fork *fork;          // by a zygote
    char *savepoint;                   // which forks the next process; NULL: none does
    bool restores_files;               // of the savepoint
    struct savepoint_ask *ask;         // while it is asked
    char id[9];                        // of the connection file of a kernel by fork
    int64_t asked_us;                  // clock_mono_us() when the start began
    enum jupyter_channel channel;      // the next one to connect
    struct loop_timer *deadline;
    struct loop_timer *retry;
    struct loop_timer *give_up; // the start has failed and the agent cannot be asked why
    char *failure;
    int n_asked;
    bool info_replied;
    char *info; // the content of that reply, if it is not too large to be kept
    bool iopub_heard;
    bool forking;
    bool exec_only; // a fork has failed: this start is by exec
    bool adopting;  // a process that an earlier gateway has started
    int64_t adopt_timeout_ms;
};

// `settings->name` stays until start_fini(); the rest is copied.
void start_init(struct process_start *start, const struct kernel_context *context,
                struct sandbox *sandbox, const struct kernel_settings *settings,
                const struct process_start_events *events, void *arg);
// For the next process: kernel_set_folder().
void start_set_folder(struct process_start *start, const char *folder, const char *home);
// The next process is forked from that savepoint, after its files (if it has some) were put back.
// If it cannot be, the start fails.
void start_set_savepoint(struct process_start *start, const char *savepoint, bool files);
void start_fini(struct process_start *start);
// Starts a process that gets `key`; or takes up the one that runs with that pid and key, which has
// `timeout_ms` to answer once its channels are linked. `key` stays until the start has ended.
void start_new(struct process_start *start, const char *key);
void start_adopt(struct process_start *start, int pid, const char *key, int64_t timeout_ms);
// Links the channels, which stay until the start has ended, and waits until the process is ready.
void start_connect(struct process_start *start, struct jupyter_channels *channels);
// Every message that comes before on_ready.
void start_on_message(struct process_start *start, enum jupyter_channel channel,
                      const struct jupyter_message *message);
// Ends in on_unusable at once where the process was adopted or forked, because executions that wait
// can run in another one; else in on_failed, when the agent has been asked for the last line that
// the process wrote.
void start_fail(struct process_start *start, const char *reason);
void start_cancel(struct process_start *start);
