// SPDX-License-Identifier: Apache-2.0
// Downloads into a session: the gateway fetches URLs (http:// and https://, redirects followed) if
// the address policy allows it, and writes the files to the working folder under the name that the
// server or the URL gives.
#pragma once

#include <jansson.h>

#include "base.h"

struct session;

enum { SESSION_DOWNLOADS_MAX = 20 };

struct session_download {
    const char *url;
    const char *id; // the client's own, repeated in the result; or NULL
};

// Fires once; both are borrowed. `files`: [{"url", "id"?, "path", "size", "mime"}]; `errors`:
// [{"url", "id"?, "code", "error"}].
struct session_downloads;
typedef void (*session_downloads_fn)(const json_t *files, const json_t *errors, void *arg);
// Starts `n` downloads, at most SESSION_DOWNLOADS_MAX. Each failure is an entry of `errors`.
struct session_downloads *session_downloads_start(struct session *session,
                                                  const struct session_download *downloads,
                                                  size_t n, session_downloads_fn fn, void *arg);
// Files that have arrived stay.
void session_downloads_cancel(struct session_downloads *downloads);
