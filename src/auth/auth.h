// SPDX-License-Identifier: Apache-2.0
// API keys: the authenticator behind the settings api-key and api-keys-file.
#pragma once

#include "base.h"
#include "http.h"
#include "loop.h"

struct api_keys_settings {
    const char *key;          // of the owner "default"; or NULL
    const char *path;         // the file: see api_keys_new(); or NULL
    struct http_quota alone;  // of the owner, while all keys belong to one
    struct http_quota shared; // of each owner, while there are several
};

// All keys, and whose they are. Only SHA-256 hashes of them are kept.
struct api_keys;
// Reads the file: one `owner:key` or `owner:sha256:<hex>` a line, and at least one; # starts a
// comment. An owner's name has 1 to 64 characters of A-Za-z0-9._- and may have several keys.
// NULL with KG_INVALID, or KG_INTERNAL where the file cannot be read; the message names the line
// and never the key. The settings are copied.
KG_MUST_CHECK struct api_keys *api_keys_new(const struct api_keys_settings *settings,
                                            struct kg_error *err);
// After the server that uses the authenticator.
void api_keys_free(struct api_keys *keys);
KG_DEFINE_AUTO(api_keys, api_keys_free)
// Reads the file again whenever it changes, on a worker. A file that is missing or broken, as a
// whole or in one line, changes nothing: the keys read last stay, and the log says what is wrong.
// `on_change` (may be NULL) is called after other keys have taken effect. At most once.
void api_keys_watch(struct api_keys *keys, struct loop *loop, loop_fn on_change, void *arg);
// The same, where somebody else watches the file, since this process may not read it: each change
// comes by api_keys_take_file(), and so does the file once at the start, since it may have changed
// after it was read first.
void api_keys_follow(struct api_keys *keys, struct loop *loop, loop_fn on_change, void *arg);
// The file has changed: `fd` is the new content, a regular file that is read from its beginning,
// wherever its offset is; the keys own it. While another content is being read, only the newest one
// waits. Or `fd` is -1, and `err` says why the file cannot be opened; what waits is still read,
// since it is newer than the keys in force. `err` is not used where there is a descriptor.
void api_keys_take_file(struct api_keys *keys, int fd, const struct kg_error *err);
// Valid until api_keys_free(). Answers at once.
struct http_authenticator *api_keys_authenticator(struct api_keys *keys);
// Replaces what each owner may have, while there are several.
void api_keys_set_shared(struct api_keys *keys, const struct http_quota *shared);
// Whether the keys belong to more than one owner, now.
bool api_keys_have_several_owners(const struct api_keys *keys);
