// SPDX-License-Identifier: Apache-2.0
// The commands of the kernelgate binary, and what they share. Wiring only.
#pragma once

#include "base.h"
#include "config.h"
#include "kernel.h"
#include "link_hello.h"
#include "provisioner.h"

// Each gets the arguments from its own name on and returns the exit code.
int command_serve(int argc, char **argv);
int command_mcp(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_user(int argc, char **argv);
int command_key(int argc, char **argv);
int command_packages(int argc, char **argv);

// ---- state.c --------------------------------------------------------------------------------

// The state folder: locked as long as this process lives, and those beside it, with an id that
// survives them. Without a helper `dir` is `root`. With a helper only root writes to `root`, and
// the gateway to `dir`, which is below it, and to the packages' folder.
struct state {
    char *root;
    char *dir;
    char *packages;
    char id[9];
    int lock_fd;     // of this process and those beside it, which keep it: see state_leave_lock()
    int own_lock_fd; // of this process alone
};
KG_MUST_CHECK int state_open(struct state *state, const char *configured, struct kg_error *err);
// The first free one of the folders mcp/0, mcp/1, … below it: each client that speaks stdio has a
// gateway of its own, and the next one cleans up after one that was killed.
KG_MUST_CHECK int state_open_slot(struct state *state, const char *configured,
                                  struct kg_error *err);
// Divides it between the helper and a gateway with these ids. What an earlier version, or an
// earlier user, has left in it is kept. `by_path`: other processes use `dir`, too, so it is its
// real path. As root.
KG_MUST_CHECK int state_divide(struct state *state, unsigned user, unsigned group, bool by_path,
                               struct kg_error *err);
// Leaves the first lock to the processes beside this one: this one could release it for all. It
// keeps the other one, should they end before it.
void state_leave_lock(struct state *state);
void state_close(struct state *state);
// Where it is unless it was configured. To be freed.
char *state_default_dir(void);
// A folder of nobody else's below the state folder, which is made where it is not there: for
// trials, beside a gateway that may hold the lock. state_drop_trial() removes what was made.
struct state_trial {
    char *dir;
    bool made_base; // the state folder itself, too
};
KG_MUST_CHECK int state_make_trial(struct state_trial *trial, const char *configured,
                                   struct kg_error *err);
void state_drop_trial(struct state_trial *trial);

// ---- reach.c --------------------------------------------------------------------------------

// Whether every user may pass through all folders above an absolute path.
KG_MUST_CHECK bool path_is_reachable(const char *path);
// The path, or if it is not reachable or is long, a short one by a descriptor of this process,
// which stays open: it still is a path when the process is another user. To be freed.
#define PATH_BY_DESCRIPTOR "/proc/self/fd/"
char *path_to_reach(const char *path);

// ---- packages_command.c ---------------------------------------------------------------------

// The packages that all sessions get, from the setting and from the state folder: requirements in
// their normal form (requirement.h), a new reference, which may be empty.
KG_MUST_CHECK json_t *common_packages_list(const struct config *config, const char *state_dir,
                                           struct kg_error *err);

// ---- link_key.c -----------------------------------------------------------------------------

// Reads the installation's key pair from `configured`. If that is NULL, reads it from the state
// folder, and creates it there if it does not exist.
KG_MUST_CHECK int link_key_load(const char *configured, const char *state_dir, struct link_key *ret,
                                struct kg_error *err);

// ---- tool_servers.c -------------------------------------------------------------------------

// Connects to each MCP server of the setting mcp-servers, and says which tools it offers. Whether
// all do.
typedef void (*tool_server_fn)(const char *what, bool ok, const char *detail, void *arg);
bool tool_servers_try(const struct config *config, tool_server_fn fn, void *arg);

// ---- layout.c -------------------------------------------------------------------------------

// Where the parts of an installation are: in ../libexec/kernelgate and ../share/kernelgate beside
// the binary (cmake/Layout.cmake). Nowhere else, since root runs what is found.
struct layout {
    char *agent;
    char *enter; // the library that zygotes load
    char *kernelspec_dir;
    char *kernels_dir;
    char *console_dir;
};
KG_MUST_CHECK int layout_find(struct layout *layout, const struct config *config,
                              struct kg_error *err);
void layout_fini(struct layout *layout);

// ---- kernel_env.c ---------------------------------------------------------------------------

// What every kernel and command has in its environment: an object of strings, the caller's; NULL
// with `err` where pass-through-env cannot be heeded.
json_t *kernel_env_make(const struct config *config, bool common_packages, struct kg_error *err);

// ---- engine.c -------------------------------------------------------------------------------

// The provisioner's settings, from the configuration; the arrays live in it.
struct engine_settings {
    struct provisioner_settings settings;
    struct provisioner_kernel_env *envs;
    char **env_dirs;
    char gateway_key[2 * LINK_KEY_LEN + 1];
};
void engine_settings_init(struct engine_settings *engine, const struct config *config,
                          const struct layout *layout, const struct kernelspecs *specs,
                          const char *state_dir, const char *gateway_id);
// Those to choose from where a helper makes the sandboxes of `oci`.
extern const struct provisioner_engine *const engines_with_helper[];
void engine_settings_fini(struct engine_settings *engine);
// Whether sandboxes that see this machine's files can find the kernel's program: its environment
// has been made, or it is in none. It may be another kernelspec's.
bool engine_has_program(const struct provisioner_settings *settings, const struct kernelspec *spec);
// Fails if sandboxes would see this machine's files, and the environment of the default kernel is
// missing; warns of others. Engines whose image has the kernels are not checked.
struct engine_kernels {
    const char *engine;
    const struct engine_settings *settings;
    const char *dir; // of the environments
    const struct kernelspecs *specs;
    const struct kernelspec *default_spec;
};
KG_MUST_CHECK int engine_check_kernels(const struct engine_kernels *kernels, struct kg_error *err);
