// SPDX-License-Identifier: Apache-2.0
// The parts of the agent, for its own files.
#pragma once

#include "agent.h"
#include "changes.h"
#include "children.h"
#include "commands.h"
#include "events.h"
#include "kernels.h"
#include "links.h"
#include "listener.h"
#include "proxy.h"
#include "request.h"
#include "socket_watch.h"
#include "tenant.h"
#include "usage_report.h"

struct mirroring;

struct agent {
    struct loop *loop;
    struct agent_settings settings;
    loop_fn on_end;
    void *arg;
    int64_t started_ms;
    struct children *children;
    struct events *events;
    struct usage_report *usage_report;
    struct socket_watch *socket_watch; // NULL outside a sandbox
    struct commands *commands;
    struct kernels *kernels;
    struct links *links;
    struct listener *listener; // NULL: the agent dials a door
    struct proxy *proxy;       // of the way out; or NULL
    struct tenant *tenant;     // or NULL
    struct changes *changes;
    int n_copies;                // files.copy calls under way
    int n_watches;               // files.watch calls
    struct mirroring *mirroring; // data.keep or data.restore; or NULL
    struct server *server;
};

// What the gateway can call: {"method", "params"} and the result of each (methods.c).
extern const struct method agent_methods[];
// A string for the operating system: at most `max` bytes, without a NUL.
bool is_plain_string(const json_t *value, size_t max);
// `env` is an object of variables, or NULL.
KG_MUST_CHECK int check_env(json_t *env, struct kg_error *err);
// Fills `ret` with the strings of a list of 1 to `max` of them, and a NULL.
KG_MUST_CHECK int check_argv(const json_t *argv, size_t max, size_t max_len, const char **ret,
                             struct kg_error *err);

// Sets the error of parameters that are not those of the method. Returns -1.
int params_failed(const json_error_t *why, struct kg_error *err);

// Commands: their start (exec.c), and the rest (command_calls.c).
void commands_run_call(struct request *request, void *arg);
void commands_join_call(struct request *request, void *arg);
void commands_list_call(struct request *request, void *arg);
void commands_input_call(struct request *request, void *arg);
void commands_close_input_call(struct request *request, void *arg);
void commands_resize_call(struct request *request, void *arg);
void commands_signal_call(struct request *request, void *arg);

// Ports (ports.c).
// Whether a port is none of the tenant's: the agent's own, or a kernel's. `arg`: the agent.
bool agent_port_is_own(int port, void *arg);
void ports_list_call(struct request *request, void *arg);

// Where a path leads (file_place.c): below the working folder or, with a / first, below the root.
struct file_place {
    const char *root; // of the agent's settings
    const char *path; // below it, borrowed
};
// KG_INVALID_PATH: it is the kernel's or the agent's own.
KG_MUST_CHECK int file_place_find(const struct agent *agent, const char *path,
                                  struct file_place *ret, struct kg_error *err);
// Whether it is below the root.
bool file_place_is_whole(const struct agent *agent, const struct file_place *place);
// The path below the working folder, borrowed from `path`; NULL: it is elsewhere.
const char *file_place_in_data(const struct agent *agent, const char *root, const char *path);
// The path below the root, to be freed.
char *file_place_from_root(const struct agent *agent, const struct file_place *place);

// Files (files_calls.c).
void files_list_call(struct request *request, void *arg);
void files_describe_call(struct request *request, void *arg);
void files_read_call(struct request *request, void *arg);
void files_write_call(struct request *request, void *arg);
void files_append_call(struct request *request, void *arg);
void files_delete_call(struct request *request, void *arg);
// Files and folders (entries_calls.c).
void files_stat_call(struct request *request, void *arg);
void files_chmod_call(struct request *request, void *arg);
void files_unused_call(struct request *request, void *arg);
void files_mkdir_call(struct request *request, void *arg);
void files_move_call(struct request *request, void *arg);
void files_copy_call(struct request *request, void *arg);
// What savepoints keep of them (data_calls.c).
void data_keep_call(struct request *request, void *arg);
void data_check_call(struct request *request, void *arg);
void data_restore_call(struct request *request, void *arg);
void data_drop_call(struct request *request, void *arg);
// Ends what is under way. NULL is fine.
void mirroring_cancel(struct mirroring *mirroring);
// Watching (watch_calls.c).
void files_watch_call(struct request *request, void *arg);
