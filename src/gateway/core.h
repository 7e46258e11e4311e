// SPDX-License-Identifier: Apache-2.0
// What `serve` and `mcp` share: the whole gateway but its faces.
#pragma once

#include "address_policy.h"
#include "choices.h"
#include "egress.h"
#include "face.h"
#include "file_links.h"
#include "forks.h"
#include "gateway.h"
#include "helper.h"
#include "http_client.h"
#include "kernel.h"
#include "packages.h"
#include "pool.h"
#include "sandbox.h"
#include "server_process.h"
#include "sessions.h"
#include "upstreams.h"
#include "zygotes.h"

// In the order in which it is made. `config`, `state` (opened), `forgetful` and what is said about
// owners are given.
struct core {
    const struct config *config;
    struct state state;
    bool forgetful;      // what an earlier run has left is removed, not taken up
    bool several_owners; // one of them takes half at most of what they share
    int64_t (*max_sessions_of)(const char *owner, const void *arg); // see sessions_settings
    int64_t (*max_memory_of)(const char *owner, const void *arg);   // the same
    // Whether an owner's key is in the settings; NULL: all owners are the operator.
    bool (*is_operators)(const char *owner, const void *arg);
    const void *quota_arg;
    struct layout layout;
    struct kernelspecs *specs;
    const struct kernelspec *default_spec;
    char *packages_dir; // that sandboxes see
    struct engine_settings engine;
    struct loop *loop;
    struct http_client *client;
    struct address_policy *policy;
    struct egress *egress;
    struct packages *packages;
    json_t *common_packages; // requirements of all sessions; may be empty
    bool has_link;
    struct helper_link link; // until core_make_loop() makes `helper` of it
    struct helper *helper;   // NULL: this process makes the sandboxes, or another engine
    struct forks *forks;     // NULL: kernels start by exec
    struct provisioner *provisioner;
    struct provisioner_traits traits;
    int64_t max_sessions;       // the setting, or what the engine has memory for
    size_t max_further_kernels; // of all sessions
    struct pool_size pool_size;
    json_t *kernel_env;
    struct executions *executions;
    struct servers_file *servers; // MCP servers whose tools code may call; NULL: there are none
    struct server_processes *processes; // their programs, where this process starts them
    struct upstreams *upstreams;
    struct link_key *link_key; // where the gateway dials agents; or NULL
    struct file_links *links;
    struct sandbox_context sandbox_context;
    struct living_sandboxes living;
    struct kernel_context kernel_context;
    struct sessions *sessions;
    struct terminals *terminals;
    struct ports *ports;
    struct face_context face;
    struct kg_error recovery_error;
    struct provisioner_op *takeover; // of what another replica has left, under way
};

// Reads what only root may be able to read, and starts nothing.
KG_MUST_CHECK int core_prepare(struct core *core, struct kg_error *err);
// The zygotes of the kernelspecs, by their numbers; all is borrowed from `core` but the arrays.
struct core_zygotes {
    struct zygote_spec *specs;
    json_t **envs;
    size_t n;
};
void core_list_zygotes(const struct core *core, struct core_zygotes *ret);
void core_free_zygotes(struct core_zygotes *zygotes);
// Makes the loop, and of `link` the helper.
void core_make_loop(struct core *core);
// Recovers what an earlier run has left.
KG_MUST_CHECK int core_start(struct core *core, struct kg_error *err);
// Starts the zygotes and fills the pool.
void core_open(struct core *core);
// From now on takes over what other replicas leave; without replicas does nothing.
void core_follow_replicas(struct core *core);
// Does so no more, since this replica ends soon; without replicas does nothing.
void core_retire(struct core *core);
// Leaves the sessions that are idle to other replicas, if there are any.
void core_hand_over(struct core *core);
// Leaves this replica's sandboxes to the others, once they are released.
void core_leave_replicas(struct core *core);
// Must be called before the loop ends, which waits for removals in the background.
void core_stop_zygotes(struct core *core);
// Whether no sandbox and no zygote is being removed any more.
bool core_is_idle(const struct core *core);
// After the faces. Also of one that has not started, or half.
void core_fini(struct core *core);
// Prints why a gateway did not start; `is_root`: it was started as root.
void core_print_failure(const struct kg_error *err, bool is_root);

// ---- tool_servers.c -------------------------------------------------------------------------

// Reads the setting mcp-servers.
KG_MUST_CHECK int core_load_servers(struct core *core, struct kg_error *err);
// Connects to the servers.
void core_start_servers(struct core *core);
void core_free_servers(struct core *core);

// ---- mcp_face.c -----------------------------------------------------------------------------

// The MCP adapter of a core that has started, and what it serves.
struct mcp_face;
// `upload_root`: below which files of this machine may be uploaded; NULL: none.
struct mcp_face *mcp_face_new(struct core *core, const char *upload_root);
// After whatever transport it has, before the core.
void mcp_face_free(struct mcp_face *face);
struct mcp;
struct http_server;
void mcp_face_serve_http(struct mcp_face *face, struct http_server *server);
struct mcp *mcp_face_mcp(const struct mcp_face *face);
