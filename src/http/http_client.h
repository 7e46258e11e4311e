// SPDX-License-Identifier: Apache-2.0
// The HTTP client on libcurl's multi interface, driven by the loop. It follows no redirect, uses no
// proxy, and bounds every answer.
#pragma once

#include "address_policy.h"
#include "base.h"
#include "loop.h"

struct http_client;
struct http_call;
struct http_client *http_client_new(struct loop *loop);
// Cancels what is under way.
void http_client_free(struct http_client *client);
KG_DEFINE_AUTO(http_client, http_client_free)

struct http_call_spec {
    const char *method;         // "GET", "POST", …
    const char *url;            // http:// or https://
    const char *unix_path;      // connect to this Unix socket instead of the URL's host
    const char *const *headers; // "Name: value", NULL-terminated, or NULL
    const void *body;           // copied
    size_t body_len;
    int64_t timeout_ms;    // for the whole call; 0: none (streams)
    size_t max_body_bytes; // an answer above fails with KG_INTERNAL; 0: 1 MiB. Not for streams
    // When the answer's head is complete, before any of its body: once; may be NULL. Return false
    // to cut the call. http_call_header() is for its time.
    bool (*on_head)(struct http_call *call, int status, void *arg);
    // Where the URL may lead (borrowed; else the call fails with KG_INVALID), over a connection of
    // its own; NULL: anywhere.
    const struct address_policy *policy;
};

// What came back. On a transport failure `status` is 0 and `err` says why; an HTTP error status is
// not a failure here. `body` is NUL-terminated and borrowed for the time of the callback.
struct http_call_result {
    int status;
    const char *body;
    size_t body_len;
    const struct kg_error *err;
};

typedef void (*http_call_fn)(const struct http_call_result *result, void *arg);
// Gets the answer's bytes as they come; return false to cut the call (its end is then a failure).
typedef bool (*http_call_data_fn)(int status, const void *data, size_t len, void *arg);

// Starts a call. `on_done` fires exactly once, after that the handle is gone. With `on_data` the
// body is streamed to it and `result->body` is empty.
KG_MUST_CHECK struct http_call *http_call_start(struct http_client *client,
                                                const struct http_call_spec *spec,
                                                http_call_data_fn on_data, http_call_fn on_done,
                                                void *arg, struct kg_error *err);
// A header of the answer, the last one of that name; NULL: there is none. Borrowed.
const char *http_call_header(struct http_call *call, const char *name);
// Ends the call; no callback fires any more.
void http_call_cancel(struct http_call *call);

// ---- Connections without HTTP ---------------------------------------------------------------

// `fd` is non-blocking and the callback's; -1 with `err`: KG_INVALID where the policy forbids the
// address, else KG_INTERNAL.
typedef void (*http_dial_fn)(int fd, const struct kg_error *err, void *arg);
// Connects by TCP to a host by its name or address (an IPv6 one without brackets), without blocking
// on a name server either; the callback and http_call_cancel() are as with a call.
KG_MUST_CHECK struct http_call *http_dial_start(struct http_client *client, const char *host,
                                                int port, const struct address_policy *policy,
                                                int64_t timeout_ms, http_dial_fn fn, void *arg,
                                                struct kg_error *err);
