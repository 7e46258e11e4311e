// SPDX-License-Identifier: Apache-2.0
// The HTTP client, on libcurl's multi interface in the loop. It does not follow redirects, uses no
// proxy, and bounds the size of every answer.
#pragma once

#include "address_policy.h"
#include "base.h"
#include "loop.h"

struct http_client;
struct http_call;
struct http_client *http_client_new(struct loop *loop);
// Cancels all calls.
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
    size_t max_body_bytes; // a larger answer is an error, KG_INTERNAL; 0: 1 MiB. Not for streams
    // Fires once, when the answer's head is complete and before any of its body; may be NULL.
    // Return false to end the call. http_call_header() works from then on.
    bool (*on_head)(struct http_call *call, int status, void *arg);
    // The addresses that the call may connect to (borrowed); others fail with KG_INVALID. Such a
    // call has a connection of its own. NULL: any address.
    const struct address_policy *policy;
    // For https, the authorities that are trusted instead of the system's, and the client's
    // certificate with its key: paths of PEM files, or PEM. NULL: none.
    const char *ca_file;
    const char *ca_pem;
    const char *certificate_file;
    const char *certificate_pem;
    const char *key_file;
    const char *key_pem;
};

// The answer. After a transport error `status` is 0 and `err` is set; an HTTP error status is not
// an error here. `body` is NUL-terminated, and borrowed until the callback returns.
struct http_call_result {
    int status;
    const char *body;
    size_t body_len;
    int64_t retry_after_s; // what the answer's Retry-After asks for; 0: it has none
    const struct kg_error *err;
};

typedef void (*http_call_fn)(const struct http_call_result *result, void *arg);
// Gets the answer's bytes as they come; return false to end the call (with an error).
typedef bool (*http_call_data_fn)(int status, const void *data, size_t len, void *arg);

// Starts a call. `on_done` fires exactly once; the handle is not valid afterwards. With `on_data`
// the body is streamed to it, and `result->body` is empty.
KG_MUST_CHECK struct http_call *http_call_start(struct http_client *client,
                                                const struct http_call_spec *spec,
                                                http_call_data_fn on_data, http_call_fn on_done,
                                                void *arg, struct kg_error *err);
// The last header of that name in the answer, borrowed; NULL: none.
const char *http_call_header(struct http_call *call, const char *name);
// Ends the call; no callback fires any more.
void http_call_cancel(struct http_call *call);

// ---- Connections without HTTP ---------------------------------------------------------------

// `fd` is non-blocking, and belongs to the callback; -1 with `err`: KG_INVALID if the policy does
// not allow the address, otherwise KG_INTERNAL.
typedef void (*http_dial_fn)(int fd, const struct kg_error *err, void *arg);
// Connects by TCP to a host, given by name or address (IPv6 without brackets). Does not block, not
// even on name servers. The callback and http_call_cancel() work as for a call.
KG_MUST_CHECK struct http_call *http_dial_start(struct http_client *client, const char *host,
                                                int port, const struct address_policy *policy,
                                                int64_t timeout_ms, http_dial_fn fn, void *arg,
                                                struct kg_error *err);
