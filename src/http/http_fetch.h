// SPDX-License-Identifier: Apache-2.0
// Getting a file from elsewhere: redirects followed, each one under the address policy; bounded in
// size and time; on disk, not in memory.
#pragma once

#include "address_policy.h"
#include "base.h"
#include "http_client.h"

struct http_fetch_spec {
    const char *url;                     // http:// or https://
    const struct address_policy *policy; // borrowed
    const char *dir;                     // where the bytes are kept meanwhile
    int64_t max_bytes;
    int64_t timeout_ms; // for all of it
};

// `fd` is of a file without a name, and the callback's.
struct http_fetch_result {
    int fd;
    int64_t len;
    char *name; // as the server or the URL says, fit for a folder; the callback's
};

// On failure `result` is NULL: KG_INVALID (no such URL, an address that is not allowed),
// KG_UPLOAD_TOO_LARGE, KG_NOT_FOUND (the server's own), KG_INTERNAL.
struct http_fetch;
typedef void (*http_fetch_fn)(struct http_fetch_result *result, const struct kg_error *err,
                              void *arg);
KG_MUST_CHECK struct http_fetch *http_fetch_start(struct http_client *client,
                                                  const struct http_fetch_spec *spec,
                                                  http_fetch_fn fn, void *arg,
                                                  struct kg_error *err);
void http_fetch_cancel(struct http_fetch *fetch);

// ---- Names ----------------------------------------------------------------------------------

enum { FETCH_NAME_MAX = 128 };

// A file's name: from the header Content-Disposition (RFC 6266; may be NULL), else from the last
// segment of the URL's path, else "download". One name of 1 to FETCH_NAME_MAX bytes of UTF-8, no
// separator, no control character, no dot first. To be freed.
char *http_fetch_name(const char *disposition, const char *url);
