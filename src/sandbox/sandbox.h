// SPDX-License-Identifier: Apache-2.0
// One container: its life at the provisioner, the links that its agent dials, the agent's client.
#pragma once

#include <jansson.h>

#include "base.h"
#include "http_client.h"
#include "loop.h"
#include "provisioner.h"

// What every sandbox of a gateway shares; all borrowed.
struct sandbox_context {
    struct loop *loop;
    struct provisioner *provisioner;
    struct http_client *http;
};

enum sandbox_state {
    SANDBOX_CREATING, // the container is being made, or its agent has not dialled in yet
    SANDBOX_READY,    // links are there
    SANDBOX_CLAIMED,  // a session's
    SANDBOX_DESTROYING,
    SANDBOX_GONE,
};

struct sandbox;

struct sandbox_events {
    // The agent answers: kernels can be started. Once.
    void (*on_ready)(struct sandbox *sandbox, void *arg);
    // The container could not be made, or has ended. Once; what remains is to call sandbox_free().
    void (*on_gone)(struct sandbox *sandbox, const struct kg_error *reason, void *arg);
    // A kernel that the agent started has ended. `signal` is 0 where it exited; `oom` where the
    // kernel's end was the kernel's out-of-memory killer.
    void (*on_kernel_exit)(struct sandbox *sandbox, const char *kernel, int pid, int exit_code,
                           int signal, bool oom, void *arg);
};

struct sandbox_spec {
    int agent_idle_timeout_s;
    bool network;
    int64_t ready_timeout_ms; // from the start to on_ready; then on_gone
};

// Makes a sandbox with a random id. The events fire until sandbox_free().
KG_MUST_CHECK struct sandbox *sandbox_create(const struct sandbox_context *context,
                                             const struct sandbox_spec *spec,
                                             const struct sandbox_events *events, void *arg,
                                             struct kg_error *err);
// Takes up one that provisioner_recover() found; its exit is told by sandbox_on_exit().
KG_MUST_CHECK struct sandbox *sandbox_adopt(const struct sandbox_context *context, const char *id,
                                            bool claimed, const struct sandbox_spec *spec,
                                            const struct sandbox_events *events, void *arg,
                                            struct kg_error *err);
void sandbox_on_exit(struct sandbox *sandbox);

// Whose events these are: for a sandbox that passes from the pool to a session.
void sandbox_set_events(struct sandbox *sandbox, const struct sandbox_events *events, void *arg);
const char *sandbox_id(const struct sandbox *sandbox);
enum sandbox_state sandbox_state(const struct sandbox *sandbox);
// A folder for the gateway's own endpoints of this sandbox, private to it. Borrowed.
const char *sandbox_dir(const struct sandbox *sandbox);

// Records whose it is (see provisioner_claim); ready -> claimed.
KG_MUST_CHECK int sandbox_claim(struct sandbox *sandbox, const json_t *meta, struct kg_error *err);

// Destroys the container. `on_done` (may be NULL) fires once, when nothing is left of it; the
// sandbox is freed then. No other event fires after this call; calls under way fail during it.
void sandbox_destroy(struct sandbox *sandbox, provisioner_done_fn on_done, void *arg);
// Frees the gateway's side only: the container lives on, for the next gateway (--keep-sandboxes).
// An exit of that container is then no longer told, if the provisioner is freed before the loop
// runs again.
void sandbox_free(struct sandbox *sandbox);
KG_DEFINE_AUTO(sandbox, sandbox_free)

// ---- Links ----------------------------------------------------------------------------------

// A call under way to the agent; its callback fires exactly once, then the handle is gone.
struct sandbox_call;
void sandbox_call_cancel(struct sandbox_call *call);

// Opens a link to a target inside: "<kernel>/shell", "<kernel>/iopub", "<kernel>/control", "agent".
// The callback owns `fd`; -1 with `err` where the agent refused or did not answer.
typedef void (*sandbox_link_fn)(int fd, const struct kg_error *err, void *arg);
KG_MUST_CHECK struct sandbox_call *sandbox_open_link(struct sandbox *sandbox, const char *target,
                                                     int64_t timeout_ms, sandbox_link_fn fn,
                                                     void *arg, struct kg_error *err);

// ---- The agent's API ------------------------------------------------------------------------

// `body` is the agent's JSON, borrowed; NULL with `err` on failure.
typedef void (*sandbox_agent_fn)(const json_t *body, const struct kg_error *err, void *arg);

// One call of the agent's HTTP API, any route of it: `body` may be NULL (borrowed).
KG_MUST_CHECK struct sandbox_call *sandbox_agent_call(struct sandbox *sandbox, const char *method,
                                                      const char *path, const json_t *body,
                                                      int64_t timeout_ms, sandbox_agent_fn fn,
                                                      void *arg, struct kg_error *err);
