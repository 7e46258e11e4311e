// SPDX-License-Identifier: Apache-2.0
// Links to files of a session for people: the link carries the owner, an expiry and a signature, so
// a browser needs no API key. The signing key is a file in a folder of the gateway.
#pragma once

#include "base.h"

struct file_links;
struct sessions;

// The route of the links, which a face serves.
#define FILE_LINKS_PATH "/files"
#define FILE_LINKS_ROUTE "/files/{id}/{path...}"

KG_MUST_CHECK struct file_links *file_links_new(const char *dir, struct kg_error *err);
void file_links_free(struct file_links *links);
KG_DEFINE_AUTO(file_links, file_links_free)
// Signs with a key made of that secret from now on: all gateways that have it accept the links.
void file_links_share_key(struct file_links *links, const unsigned char *secret, size_t len);
// Fills `ret` with a key for another purpose, which `label` names. After file_links_share_key().
void file_links_derive(const struct file_links *links, const char *label, unsigned char *ret,
                       size_t len);
// From now on a link ends with its session: the id of the session's sandbox is signed too, so a
// later session of the same name does not honour it. `sessions` is borrowed.
void file_links_set_sessions(struct file_links *links, struct sessions *sessions);
// A path and query of the gateway, to be freed, for a path as session_files.h has it: one with a /
// first becomes the query's root. The link is invalid if the session does not exist.
char *file_links_make(const struct file_links *links, const char *owner, const char *session_id,
                      const char *path);
// Whether these query values of a link (`owner` is one of them) are valid now for that file. False
// if the session has ended.
bool file_links_check(const struct file_links *links, const char *owner, const char *session_id,
                      const char *path, const char *expires, const char *signature);
