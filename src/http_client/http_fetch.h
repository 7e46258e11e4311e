// SPDX-License-Identifier: Apache-2.0
// Downloads a file by its URL, to disk, within limits of size and time. Follows redirects, each of
// them under the address policy.
#pragma once

#include "address_policy.h"
#include "base.h"
#include "http_client.h"

struct http_fetch_spec {
    const char *url;                     // http:// or https://
    const struct address_policy *policy; // borrowed
    const char *dir;                     // for the temporary file
    int64_t max_bytes;
    int64_t timeout_ms; // for the whole download
};

// `fd` and `name` belong to the callback.
struct http_fetch_result {
    int fd; // of a file without a name
    int64_t len;
    char *name; // see http_fetch_name()
};

// On error `result` is NULL: KG_INVALID (not a URL, an address that is not allowed),
// KG_UPLOAD_TOO_LARGE, KG_NOT_FOUND (the server's 404 or 410), KG_INTERNAL.
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

// A safe name for the file: from the header Content-Disposition (RFC 6266; may be NULL), otherwise
// from the last segment of the URL's path, otherwise "download". It is UTF-8 of 1 to FETCH_NAME_MAX
// bytes, without separators, control characters, or a leading dot. To be freed.
char *http_fetch_name(const char *disposition, const char *url);
