// SPDX-License-Identifier: Apache-2.0
// MCP servers behind the gateway, whose tools code in the sandboxes may call. The gateway is their
// client, and the only one who knows their credentials. All on the loop's thread.
#pragma once

#include <jansson.h>

#include "base.h"
#include "servers_file.h"
#include "upstream_call.h"

struct http_client;
struct loop;
struct upstreams;

struct upstreams_settings {
    struct loop *loop;
    struct http_client *client;
    const struct servers_file *file; // borrowed, and so is what follows
    int64_t call_timeout_ms;         // where the file has none
    // Whether the owner's key is in the settings: such owners may use the servers for which the
    // file names none.
    bool (*is_operators)(const char *owner, const void *arg);
    const void *operators_arg;
    // Starts the program of a server: see struct connection_context.
    void *(*start)(size_t number, void (*fn)(int fd, const struct kg_error *err, void *arg),
                   void *fn_arg, void *arg, struct kg_error *err);
    void (*stop)(void *start, void *arg);
    void *start_arg;
};

// Connects at once.
struct upstreams *upstreams_new(const struct upstreams_settings *settings);
// All calls must have ended. NULL is fine.
void upstreams_free(struct upstreams *upstreams);
KG_DEFINE_AUTO(upstreams, upstreams_free)

// ---- For code -------------------------------------------------------------------------------

// The servers that the owner may use: [{"name", "tools" (how many), "error" (if it is down)}], a
// new reference.
json_t *upstreams_list_servers(const struct upstreams *upstreams, const char *owner);
// Their tools, or only those of one `server` (NULL: of all), as in struct offer; a new reference.
json_t *upstreams_list_tools(const struct upstreams *upstreams, const char *owner,
                             const char *server);
// Whether a tool of that name ("server.tool") is one of a server that the owner may use.
bool upstreams_have(const struct upstreams *upstreams, const char *owner, const char *name);

// `fn` is called once, later. KG_NOT_FOUND: there is no such tool; KG_INVALID: what is wrong with
// the arguments; KG_SERVER_DOWN: the server is down.
KG_MUST_CHECK struct upstream_call *upstream_call_start(struct upstreams *upstreams,
                                                        const struct upstream_call_spec *spec,
                                                        upstream_fn fn, void *arg,
                                                        struct kg_error *err);
// Ends the connections that were this session's alone.
void upstreams_end_session(struct upstreams *upstreams, const void *session);

// ---- For the operator -----------------------------------------------------------------------

struct upstream_state {
    const char *name;
    bool listed;     // it has said which tools it has
    bool has_failed; // an attempt to connect has
    size_t n_offered, n_listed, n_left_out;
    const char *error; // NULL: there is none
};
size_t upstreams_count(const struct upstreams *upstreams);
struct upstream_state upstreams_state(const struct upstreams *upstreams, size_t i);
