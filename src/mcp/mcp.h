// SPDX-License-Identifier: Apache-2.0
// The Model Context Protocol: revisions, dispatch, transports. What is served is behind one
// vtable, the provider; nothing here knows of kernels.
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
    MCP_2026_07_28, // stateless; all before begin with `initialize`
    MCP_N_REVISIONS
};

enum mcp_list { MCP_LIST_TOOLS, MCP_LIST_PROMPTS, MCP_LIST_RESOURCES };

// ---- Providers ------------------------------------------------------------------------------

// Offers tools, resources and prompts. Every member may be NULL. Where several providers offer the
// same kind, lists are joined in the order of registration, and a call goes to the first that takes
// it.
//
// Lists are JSON arrays in the shape of the newest revision, which the caller owns: the core leaves
// out what an older one does not know (title, outputSchema, icons, …). They are asked for again and
// again, so they should be made once; they may depend on the profile, which is "" by default.
//
// A call_* returns false where the name is not its own, and has not touched the call then. Else it
// answers exactly once, now or later, with one of mcp_call_finish(), mcp_call_fail() and
// mcp_call_require_input().
struct mcp_provider {
    // What a model should know of the server; several are joined by an empty line. To be freed.
    char *(*instructions)(const char *profile, void *arg);

    // {name, title, description, inputSchema, outputSchema?, annotations, icons?}
    json_t *(*list_tools)(const char *profile, void *arg);
    // Result: mcp_tool_result(). Arguments are checked by the provider: bad ones are a result too.
    bool (*call_tool)(struct mcp_call *call, void *arg);

    // {name, title, description, arguments: [{name, description, required}]}
    json_t *(*list_prompts)(const char *profile, void *arg);
    // Result: {description?, messages: [{role, content}]}
    bool (*get_prompt)(struct mcp_call *call, void *arg);

    // {uriTemplate, name, title, description, mimeType?}
    json_t *(*list_resource_templates)(const char *profile, void *arg);
    // Result: {resources: [{uri, name, title, description, mimeType?, size?}]}; must take the call.
    void (*list_resources)(struct mcp_call *call, void *arg);
    // Result: {contents: [{uri, mimeType?, text | blob}]}. False: no such resource.
    bool (*read_resource)(struct mcp_call *call, void *arg);
    // Whether a client may ask for news of `uri` (see mcp_resource_updated()); NULL: of none.
    bool (*can_subscribe)(const char *owner, const char *uri, void *arg);

    // Of which lists mcp_list_changed() may tell: 1u << MCP_LIST_TOOLS | ….
    unsigned changing_lists;

    // Completes an argument of a prompt or of a resource template. Result: mcp_completion().
    bool (*complete)(struct mcp_call *call, void *arg);
};

// Before the first request. The provider is borrowed.
void mcp_add_provider(struct mcp *mcp, const struct mcp_provider *provider, void *arg);

// ---- Calls: what was asked ------------------------------------------------------------------

// All borrowed as long as the call is not answered. Names come from the client, and are bounded.
const char *mcp_call_owner(const struct mcp_call *call);
const char *mcp_call_profile(const struct mcp_call *call);
enum mcp_revision mcp_call_revision(const struct mcp_call *call);
// The tool's or prompt's name or the resource's URI; of a completion the prompt's name or the
// template's URI.
const char *mcp_call_name(const struct mcp_call *call);
// An object, never NULL: the arguments of a tool or a prompt; of a completion what was filled in.
const json_t *mcp_call_arguments(const struct mcp_call *call);
// Of a completion: which argument, and what of it has been typed.
const char *mcp_call_completed_argument(const struct mcp_call *call);
const char *mcp_call_completed_value(const struct mcp_call *call);
// The URL by which the client reaches this server, "http://127.0.0.1:16010"; NULL over stdio.
const char *mcp_call_base_url(const struct mcp_call *call);
// What the client can be asked for: "elicitation", "sampling", "roots" as members, if it said so in
// its `capabilities`. Their values have no meaning.
const json_t *mcp_call_client_capabilities(const struct mcp_call *call);

// ---- Calls: the client's MCP session --------------------------------------------------------

// What a provider keeps for one MCP session, under a key of its own (any address). `free_fn` (may
// be NULL) is called when the value is replaced, or when the session ends, then never while a
// call_* is on the stack. In MCP_2026_07_28 over HTTP there is no session: set returns false and
// took nothing, get returns NULL.
typedef void (*mcp_value_free_fn)(void *value);
bool mcp_call_has_session(const struct mcp_call *call);
void *mcp_call_session_value(const struct mcp_call *call, const void *key);
bool mcp_call_set_session_value(struct mcp_call *call, const void *key, void *value,
                                mcp_value_free_fn free_fn);

// ---- Calls: while they run ------------------------------------------------------------------

// `fn` fires at most once, when the client has cancelled or cannot get the answer any more. The
// call is to be answered all the same; the answer is dropped.
void mcp_call_on_cancel(struct mcp_call *call, loop_fn fn, void *arg);
// Whether the client asked for progress; where not, mcp_call_progress() does nothing.
bool mcp_call_wants_progress(const struct mcp_call *call);
// `progress` must grow from call to call; `total` <= 0: unknown; `message` may be NULL (and is left
// out where the revision has none).
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

// JSON-RPC's codes, and the protocol's.
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
    MCP_CAPABILITY_MISSING = -32021,
    MCP_UNSUPPORTED_VERSION = -32022,
};
// Adds text to the answer that the caller keeps until it is encoded, so that a figure is copied
// only once: returns a string that stands for it, for any place of the answer, also within
// mcp_json_text(). `text` is what a JSON string has between its quotes, escapes included.
// `release(arg)` is called once, on the loop, when the text is not needed any more.
json_t *mcp_call_attach(struct mcp_call *call, const char *text, size_t len, loop_fn release,
                        void *arg);
// Each of these ends the call, which is gone afterwards.
// Takes `result`, in the shape of the newest revision. Nobody may share any part of it: a large one
// is encoded and freed on a worker.
void mcp_call_finish(struct mcp_call *call, json_t *result);
// A protocol error: one that a model cannot fix. Takes `data` (may be NULL).
void mcp_call_fail(struct mcp_call *call, int code, json_t *data, const char *fmt, ...)
    KG_PRINTF(4, 5);
// {content, isError?}; takes `content`, an array of blocks. `structured` (taken, may be NULL)
// becomes structuredContent.
json_t *mcp_tool_result(json_t *content, json_t *structured, bool is_error);
// Content blocks. Invalid UTF-8 in text is replaced; base64 is taken as it is.
json_t *mcp_text(const char *text, size_t len);
// JSON as text. Takes `value`, which must not be shared; it is encoded together with the answer.
json_t *mcp_json_text(json_t *value);
// Base64 as a JSON string, which is taken.
json_t *mcp_image_string(json_t *base64, const char *mime);
// Before MCP_2025_06_18 the core makes a text block of it. `size` < 0: unknown.
json_t *mcp_resource_link(const char *uri, const char *name, const char *description,
                          const char *mime, int64_t size);
// {completion: {values, total, hasMore}} of `values` (taken), of which at most 100 are sent.
json_t *mcp_completion(json_t *values);

// ---- What only providers of the tests do ----------------------------------------------------

typedef void (*mcp_answer_fn)(const json_t *result, const char *message, void *arg);
#ifdef KG_MCP_ASKS
// Sends a request (elicitation/create, sampling/createMessage, roots/list) to the client; takes
// `params`. The answer comes to `fn`, exactly once: `result`, or NULL with the error in `message`
// (also when the call is cancelled). Only before MCP_2026_07_28; false: cannot be asked there, and
// `fn` will not fire. One question at a time.
KG_MUST_CHECK bool mcp_call_ask(struct mcp_call *call, const char *method, json_t *params,
                                mcp_answer_fn fn, void *arg);
// MCP_2026_07_28: answers the call with `input_required`. `requests` is {key: {method, params}};
// `state` (may be NULL) comes back with the retried call, signed, so that the client cannot change
// it. Takes both.
void mcp_call_require_input(struct mcp_call *call, json_t *requests, json_t *state);
// What the retried call brought: {key: result}, or NULL; and the state, or NULL.
const json_t *mcp_call_input_responses(const struct mcp_call *call);
const json_t *mcp_call_state(const struct mcp_call *call);
// Closes the call's stream without an answer where the transport can resume it: what comes later
// waits for the client to come back. Elsewhere it does nothing.
void mcp_call_close_stream(struct mcp_call *call);
// MCP_2026_07_28 answers capability errors in a shape of its own; before it is MCP_SERVER_ERROR.
// `capability` is "elicitation", "sampling", "roots".
void mcp_call_fail_capability(struct mcp_call *call, const char *capability);

json_t *mcp_image(const char *base64, size_t len, const char *mime);
json_t *mcp_audio(const char *base64, size_t len, const char *mime);
// `resource` is what resources/read lists in `contents`; taken.
json_t *mcp_embedded(json_t *resource);

// Tells the owner's clients that asked for it. NULL as the owner: everybody's.
void mcp_resource_updated(struct mcp *mcp, const char *owner, const char *uri);
void mcp_list_changed(struct mcp *mcp, const char *owner, enum mcp_list list);
#endif

// ---- The adapter ----------------------------------------------------------------------------

struct mcp_settings {
    struct loop *loop;
    const char *const *profiles; // NULL-terminated; those beside the default one
    // MCP sessions at all, and of one owner. Beyond that the owner's longest idle one ends; where
    // it has no idle one, a new one is refused.
    size_t max_sessions;
    size_t max_sessions_per_owner;
    int64_t session_idle_ms; // without a request, a stream or a running call
    size_t max_replay_bytes; // of events kept for Last-Event-ID, of one session
};
struct mcp *mcp_new(const struct mcp_settings *settings);
// After the HTTP server, before a stdio transport is freed. Cancels every call that still runs;
// what a provider has not answered by then it must not touch any more.
void mcp_free(struct mcp *mcp);
KG_DEFINE_AUTO(mcp, mcp_free)
// Whether `profile` is "" or one of the settings'.
bool mcp_knows_profile(const struct mcp *mcp, const char *profile);
// Asked for each request of a batch but the first: the transport has already asked
// for that one. Nonzero with `err`: the request is one too many for its owner.
typedef int (*mcp_admit_fn)(const char *owner, void *arg, struct kg_error *err);
void mcp_set_admit(struct mcp *mcp, mcp_admit_fn admit, void *arg);
// Refuses calls of tools from then on, and ends the streams on which nothing is due.
void mcp_drain(struct mcp *mcp);

// Adds /mcp, /sse and /messages/ to the server; `mcp` must outlive it.
void mcp_serve_http(struct mcp *mcp, struct http_server *server);

// Speaks on two descriptors, which stay the caller's; everything belongs to `owner`. `on_end` fires
// once, when the input has ended and what ran was cancelled.
struct mcp_stdio;
KG_MUST_CHECK struct mcp_stdio *mcp_stdio_new(struct mcp *mcp, int in, int out, const char *owner,
                                              const char *profile, loop_fn on_end, void *arg,
                                              struct kg_error *err);
// After mcp_free().
void mcp_stdio_free(struct mcp_stdio *stdio);
KG_DEFINE_AUTO(mcp_stdio, mcp_stdio_free)
