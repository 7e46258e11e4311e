// SPDX-License-Identifier: Apache-2.0
// The Model Context Protocol: revisions, dispatch, transports. Providers implement tools, resources
// and prompts; nothing here knows of kernels. All functions and callbacks run on the loop.
#pragma once

#include <jansson.h>

#include "base.h"
#include "http.h"
#include "loop.h"

struct mcp;
struct mcp_call;

enum mcp_revision {
    MCP_2024_11_05,
    MCP_2025_03_26,
    MCP_2025_06_18,
    MCP_2025_11_25,
    MCP_2026_07_28, // stateless; in earlier revisions clients begin with `initialize`
    MCP_N_REVISIONS
};

// ---- Providers ------------------------------------------------------------------------------

// Implements tools, resources and prompts. Every member may be NULL. The lists of several providers
// are joined in the order of registration, and a call is offered to them in that order.
//
// Lists are JSON arrays in the shape of the newest revision; the caller owns them. The core removes
// what an older revision does not have (title, outputSchema, icons, …). Lists are requested often,
// so a provider should make them once. They may depend on the profile, which is "" by default.
//
// The functions that take a call return false if its name is not theirs, and leave it alone. Else
// they answer the call exactly once, now or later, with mcp_call_finish() or mcp_call_fail().
struct mcp_provider {
    // What a model should know about the server; several are joined by an empty line. To be freed.
    char *(*instructions)(const char *profile, void *arg);

    // {name, title, description, inputSchema, outputSchema?, annotations, icons?}
    json_t *(*list_tools)(const char *profile, void *arg);
    // Result: mcp_tool_result(). The provider checks the arguments; wrong ones are a result, too.
    bool (*call_tool)(struct mcp_call *call, void *arg);

    // {name, title, description, arguments: [{name, description, required}]}
    json_t *(*list_prompts)(const char *profile, void *arg);
    // Result: {description?, messages: [{role, content}]}
    bool (*get_prompt)(struct mcp_call *call, void *arg);

    // {uriTemplate, name, title, description, mimeType?}
    json_t *(*list_resource_templates)(const char *profile, void *arg);
    // Result: {resources: [{uri, name, title, description, mimeType?, size?}]}.
    void (*list_resources)(struct mcp_call *call, void *arg);
    // Result: {contents: [{uri, mimeType?, text | blob}]}.
    bool (*read_resource)(struct mcp_call *call, void *arg);

    // The names of the tools' arguments that are ids of sessions, NULL-terminated.
    const char *const *session_arguments;
    // Where an installation has several gateways: what a request concerns besides these arguments.
    // `params` is JSON, as the client has sent it. As `ask` of struct http_concern.
    void (*concern)(const char *method, const char *params, size_t len, struct http_concern *ret,
                    char **ret_name, void *arg);

    // Completes an argument of a prompt or of a resource template. Result: mcp_completion().
    bool (*complete)(struct mcp_call *call, void *arg);
};

// A member of a JSON object that is a string, to be freed; else NULL. The text may be anything.
char *mcp_member_string(const char *text, size_t len, const char *name);
// Borrows the provider. Before the first request.
void mcp_add_provider(struct mcp *mcp, const struct mcp_provider *provider, void *arg);

// ---- Calls: the request ---------------------------------------------------------------------

// What these return is borrowed until the call is answered. Names come from the client and are
// bounded.
const char *mcp_call_owner(const struct mcp_call *call);
const char *mcp_call_profile(const struct mcp_call *call);
// What other replicas list, an array of what GET /api/v1/sessions answers there; NULL: nobody was
// asked.
json_t *mcp_call_elsewhere(const struct mcp_call *call);
enum mcp_revision mcp_call_revision(const struct mcp_call *call);
// The name of the tool or prompt, or the URI of the resource or of the resource template.
const char *mcp_call_name(const struct mcp_call *call);
// An object, never NULL: the arguments of the tool or prompt; for a completion those that are known
// already.
const json_t *mcp_call_arguments(const struct mcp_call *call);
// For a completion: the name of the argument, and the beginning of its value.
const char *mcp_call_completed_argument(const struct mcp_call *call);
const char *mcp_call_completed_value(const struct mcp_call *call);
// This server's URL as the client knows it, "http://127.0.0.1:16010"; NULL over stdio.
const char *mcp_call_base_url(const struct mcp_call *call);

// ---- Calls: the client's MCP session --------------------------------------------------------

// A provider can keep values for an MCP session, each under a key (any address). `free_fn` (may be
// NULL) is called when the value is replaced, or when the session is freed; in the second case no
// provider is on the stack. MCP_2026_07_28 over HTTP has no sessions: setting returns false and
// takes nothing, getting returns NULL.
typedef void (*mcp_value_free_fn)(void *value);
bool mcp_call_has_session(const struct mcp_call *call);
// NULL: it has none. Valid until the values that were set for it are freed.
struct mcp_session;
const struct mcp_session *mcp_call_session(const struct mcp_call *call);
// For how many milliseconds the client has sent nothing, had no stream open and waited for no
// answer. 0 as long as it is connected all the time, as over stdio.
int64_t mcp_session_idle_ms(const struct mcp_session *session);
void *mcp_call_session_value(const struct mcp_call *call, const void *key);
bool mcp_call_set_session_value(struct mcp_call *call, const void *key, void *value,
                                mcp_value_free_fn free_fn);

// ---- Calls: while they run ------------------------------------------------------------------

// `fn` is called at most once, when the client has cancelled or cannot receive the answer any more.
// The provider must still answer the call; the answer is discarded.
void mcp_call_on_cancel(struct mcp_call *call, loop_fn fn, void *arg);
// Whether the client asked for progress. If it did not, mcp_call_progress() does nothing.
bool mcp_call_wants_progress(const struct mcp_call *call);
// Ignored unless `progress` is greater than before. `total` <= 0: unknown. `message` may be NULL;
// some revisions have none.
void mcp_call_progress(struct mcp_call *call, double progress, double total, const char *message);

enum mcp_log_level {
    MCP_LOG_DEBUG,
    MCP_LOG_INFO,
    MCP_LOG_NOTICE,
    MCP_LOG_WARNING,
    MCP_LOG_ERROR,
    MCP_LOG_CRITICAL,
    MCP_LOG_ALERT,
    MCP_LOG_EMERGENCY,
};
// Whether the client asked for messages of this level.
bool mcp_call_wants_log(const struct mcp_call *call, enum mcp_log_level level);
// Takes `data` (any JSON, usually a string).
void mcp_call_log(struct mcp_call *call, enum mcp_log_level level, const char *logger,
                  json_t *data);

// ---- Calls: the answer ----------------------------------------------------------------------

// Error codes of JSON-RPC and of MCP.
enum {
    MCP_PARSE_ERROR = -32700,
    MCP_INVALID_REQUEST = -32600,
    MCP_METHOD_NOT_FOUND = -32601,
    MCP_INVALID_PARAMS = -32602,
    MCP_INTERNAL_ERROR = -32603,
    MCP_SERVER_ERROR = -32000,
    MCP_SESSION_UNKNOWN = -32001,
    MCP_RESOURCE_NOT_FOUND = -32002,
    MCP_HEADER_MISMATCH = -32020,
    MCP_UNSUPPORTED_VERSION = -32022,
};

// Adds a text to the answer that the caller keeps until the answer is encoded, so that a figure is
// copied only once. Returns a placeholder, a string for any place in the answer, also within
// mcp_json_text(). `text` is what a JSON string has between its quotes, with escapes.
// `release(arg)` is called once, on the loop, when the text is not needed any more.
json_t *mcp_call_attach(struct mcp_call *call, const char *text, size_t len, loop_fn release,
                        void *arg);

// The next two end the call: it must not be used afterwards.

// Takes `result`, in the shape of the newest revision. The caller must not keep references to any
// part of it, since a worker encodes and frees a large one.
void mcp_call_finish(struct mcp_call *call, json_t *result);
// A protocol error, which a model cannot correct. Takes `data` (may be NULL).
void mcp_call_fail(struct mcp_call *call, int code, json_t *data, const char *fmt, ...)
    KG_PRINTF(4, 5);

// {content, structuredContent?, isError?}. Takes `content`, an array of blocks, and `structured`
// (may be NULL).
json_t *mcp_tool_result(json_t *content, json_t *structured, bool is_error);
// Content blocks. Invalid UTF-8 in text is replaced; base64 is not checked.
json_t *mcp_text(const char *text, size_t len);
// JSON as text. Takes `value`, which is encoded with the answer. The caller must not keep
// references.
json_t *mcp_json_text(json_t *value);
// Takes `base64`, a JSON string.
json_t *mcp_image_string(json_t *base64, const char *mime);
// Before MCP_2025_06_18 the core replaces it by a text block. `size` < 0: unknown.
json_t *mcp_resource_link(const char *uri, const char *name, const char *description,
                          const char *mime, int64_t size);
// {completion: {values, total, hasMore}}. Takes `values`, and leaves at most 100 of them.
json_t *mcp_completion(json_t *values);

// ---- The adapter ----------------------------------------------------------------------------

struct mcp_settings {
    struct loop *loop;
    const char *const *profiles; // NULL-terminated, without the default one
    // MCP sessions in total, and of one owner. Beyond that the owner's longest idle session ends;
    // if none is idle, a new session is refused.
    size_t max_sessions;
    size_t max_sessions_per_owner;
    int64_t session_idle_ms; // without a request, a stream or a running call
    size_t max_replay_bytes; // of the events that a session keeps for Last-Event-ID
    const char *id_suffix;   // of the MCP sessions' ids, up to MCP_SUFFIX_MAX characters; or NULL
};
enum { MCP_SUFFIX_MAX = 10 };
struct mcp *mcp_new(const struct mcp_settings *settings);
// Cancels all calls. Afterwards providers must not use a call that they have not answered. Free the
// HTTP server before, and a stdio transport after.
void mcp_free(struct mcp *mcp);
KG_DEFINE_AUTO(mcp, mcp_free)
// Whether `profile` is "" or in the settings.
bool mcp_knows_profile(const struct mcp *mcp, const char *profile);
// Called for each request of a batch except for the first, which the transport has counted. Fails
// if the owner sends too many requests.
typedef int (*mcp_admit_fn)(const char *owner, void *arg, struct kg_error *err);
void mcp_set_admit(struct mcp *mcp, mcp_admit_fn admit, void *arg);
// From now on refuses tools/call, and ends the streams on which no answer is expected.
void mcp_drain(struct mcp *mcp);
// Adds /mcp, /sse and /messages/ to the server; `mcp` must outlive it.
void mcp_serve_http(struct mcp *mcp, struct http_server *server);

// Serves one client on two descriptors, which are borrowed; everything belongs to `owner`. `on_end`
// is called once, when the input has ended and all calls were cancelled.
struct mcp_stdio;
KG_MUST_CHECK struct mcp_stdio *mcp_stdio_new(struct mcp *mcp, int in, int out, const char *owner,
                                              const char *profile, loop_fn on_end, void *arg,
                                              struct kg_error *err);
// After mcp_free().
void mcp_stdio_free(struct mcp_stdio *stdio);
KG_DEFINE_AUTO(mcp_stdio, mcp_stdio_free)
