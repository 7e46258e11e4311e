// SPDX-License-Identifier: Apache-2.0
// Internals of the engine "docker": sandboxes are containers of the Docker Engine, controlled by
// its HTTP API (1.41 and later), or of Podman, which implements the same API.
#pragma once

#include "http_client.h"
#include "provisioner_engine.h"

#define DOCKER_IMAGE "kernelgate-kernel:latest" // if the image setting is "host"
#define DOCKER_LABEL_GATEWAY "kernelgate.gateway"
#define DOCKER_LABEL_SANDBOX "kernelgate.sandbox"
#define DOCKER_LABEL_STATE "kernelgate.state" // the state folder's path
#define DOCKER_LABEL_FOLDER                                                                        \
    "kernelgate.folder" // its device:inode, since containers differ in paths

// The event stream, and the periodic listing of all containers.
struct docker_monitor {
    struct loop_timer *timer; // the next listing
    struct http_call *look;
    struct http_call *events;
    struct json_lines lines;
    int64_t asked_ms;  // when the current listing began, as clock_mono_ms()
    int64_t asked_s;   // and as seconds since 1970
    int64_t events_ms; // when the event stream was last requested
    bool down;         // the last listing failed
    bool no_events;    // the last event stream was refused
};

struct docker;
// The pull of the image has ended; `err` NULL: the engine has it.
typedef void (*docker_pulled_fn)(struct docker *docker, const struct kg_error *err);

// The pull of the image.
struct docker_pull {
    struct http_call *call; // NULL: none is running
    docker_pulled_fn on_done;
    struct loop_timer *silence;
    int64_t silence_ms; // after which the pull fails
    struct json_lines lines;
    char error[160];
    int64_t logged_ms; // when progress was last logged
};

struct docker {
    struct provisioner base;
    struct http_client *http;
    char *host;        // as configured
    char *socket_path; // NULL: TCP
    char *url;         // http://HOST
    int api_minor;     // of version 1.x
    bool podman;
    bool own_users; // containers use the host's user ids; set by docker_take_info()
    char *image;
    char *agent_path;   // our copy in the state folder, which has the same path for the engine
    char *packages_dir; // or NULL
    char *seccomp;      // the security option with our filter
    char *folder;       // the state folder's device:inode
    bool warned;        // the engine's warning about a create was logged
    struct provisioner_limits limits;
    struct docker_monitor monitor;
    struct docker_pull pull;
};

struct docker_op {
    struct provisioner_op base;
    struct http_call *call;
    struct loop_timer *timer;
    int64_t delete_until_ms;
    char *container; // the engine's id of the container that was made, or is to be removed
    bool died;       // it ended before its start was confirmed
    bool pulling;    // waits for the image
    bool pulled;     // has waited for the image
    bool displaced;  // a half-made container of ours had the name
};

static inline struct docker *
docker_of(const struct provisioner_op *op)
{
    return (struct docker *)op->provisioner;
}

// ---- The engine (docker.c) ------------------------------------------------------------------

// Sets everything up without asking the engine yet.
struct docker *docker_open(struct loop *loop, const struct provisioner_settings *settings,
                           struct kg_error *err);
void docker_close(struct docker *docker);
KG_DEFINE_AUTO(docker, docker_close)

// ---- Calls (docker_api.c) ------------------------------------------------------------------

// Parses unix:///path and tcp://host[:port]; refuses other schemes.
KG_MUST_CHECK int docker_parse_host(struct docker *docker, const char *host, struct kg_error *err);
// Calls the engine; `path` begins with a slash and has no version, `body` (stolen) may be NULL.
KG_MUST_CHECK struct http_call *docker_call(struct docker *docker, const char *method,
                                            const char *path, json_t *body, http_call_fn on_done,
                                            void *arg, struct kg_error *err);
// The same, for an answer that arrives in pieces and may never end.
KG_MUST_CHECK struct http_call *docker_stream(struct docker *docker, const char *method,
                                              const char *path, http_call_data_fn on_data,
                                              http_call_fn on_done, void *arg,
                                              struct kg_error *err);
// Returns 0 for a status below 300, else -1 with the reason in `err`.
int docker_check(const struct docker *docker, const struct http_call_result *result,
                 struct kg_error *err);
// Reads the API version from the engine's answer to /version.
KG_MUST_CHECK int docker_take_version(struct docker *docker, const json_t *body,
                                      struct kg_error *err);
// `text` as a part of a URL. To be freed.
char *docker_escape(const char *text);
// `/containers/<name of the sandbox's container><rest>`. To be freed.
char *docker_container_path(const struct docker *docker, const char *id, const char *rest);
// Lists all containers of this gateway, or those of one sandbox.
KG_MUST_CHECK struct http_call *docker_list(struct docker *docker, const char *id,
                                            http_call_fn on_done, void *arg, struct kg_error *err);
// Lists the containers of all gateways.
KG_MUST_CHECK struct http_call *docker_list_all(struct docker *docker, http_call_fn on_done,
                                                void *arg, struct kg_error *err);

// A sandbox's container, of any gateway; all borrowed.
struct docker_container {
    const char *id; // the engine's
    const char *gateway;
    const char *sandbox;
    const char *state_dir; // or NULL
    const char *folder;    // or NULL
    bool ours;
    bool lives; // only set from a list
};
// Reads an element of a list, or the subject of an event. False if it is not a sandbox's container.
// The labels alone do not suffice, since an image that was committed from a sandbox has them, too,
// and so have its containers. The name must match them.
bool docker_take_listed(const struct docker *docker, const json_t *element,
                        struct docker_container *ret);
bool docker_take_actor(const struct docker *docker, const json_t *actor,
                       struct docker_container *ret);

// ---- The container's spec (docker_spec.c) ---------------------------------------------------

// Writes the files that all containers share: a copy of the agent, and for Podman the system call
// filter. Call it when the engine's version is known.
KG_MUST_CHECK int docker_write_files(struct docker *docker, const char *agent_path,
                                     struct kg_error *err);
// Writes the files that define the sandbox's user to the sandbox's folder.
KG_MUST_CHECK int docker_write_users(const struct docker *docker, const char *id,
                                     struct kg_error *err);
// The body of a create request; `args` (stolen) are the agent's.
json_t *docker_container_spec(const struct docker *docker, const char *id, json_t *args);

// ---- Operations (docker_op.c) ---------------------------------------------------------------

void docker_op_start(struct provisioner_op *op);
void docker_op_fini(struct provisioner_op *op);
void docker_op_cancelled(struct provisioner_op *op);
bool docker_op_explain(const struct provisioner_op *op, struct kg_error *err);

// ---- The image (docker_pull.c) --------------------------------------------------------------

// Pulls the image; nothing to do if a pull is running. `on_done` fires once for each pull, never
// before docker_pull() has returned.
KG_MUST_CHECK int docker_pull(struct docker *docker, docker_pulled_fn on_done,
                              struct kg_error *err);
void docker_pull_fini(struct docker *docker);

// ---- Watching containers (docker_monitor.c) -------------------------------------------------

// Starts to notice the end of containers, and to remove those without a sandbox. Call it once.
void docker_monitor_start(struct docker *docker);
void docker_monitor_fini(struct docker *docker);

// ---- The trial (docker_trial.c) -------------------------------------------------------------

// Asks for the engine's version, and whether it can set limits; blocks.
KG_MUST_CHECK int docker_trial(struct docker *docker, struct kg_error *err);
// Stores the relevant parts of the engine's answer to /info.
void docker_take_info(struct docker *docker, const json_t *info);
// The limits that the engine cannot set, by its answer to /info, such as "memory, swap": either
// those that a sandbox needs, or the others. To be freed; NULL: none is missing.
char *docker_missing_limits(const json_t *info, bool needed);
bool docker_doctor(struct docker *docker, const char *agent_path, provisioner_finding_fn fn,
                   void *arg);
