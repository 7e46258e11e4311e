// SPDX-License-Identifier: Apache-2.0
// The cache of wheels: one folder for the gateway, which every sandbox sees read-only, and what
// each request for packages was resolved to, which no sandbox sees.
#pragma once

#include <jansson.h>

#include "base.h"

struct wheels;

// `dir` is made where it is not there. It gets `shared/`, for the sandboxes: `packages.py`,
// `ca.pem` (where `authorities`, a file, is not NULL) and `wheels/`.
KG_MUST_CHECK struct wheels *wheels_new(const char *dir, const char *authorities,
                                        struct kg_error *err);
void wheels_free(struct wheels *wheels);
KG_DEFINE_AUTO(wheels, wheels_free)
// Where `shared/` is.
const char *wheels_shared_dir(const struct wheels *wheels);

// ---- What was asked for before --------------------------------------------------------------

// A resolution: {"wheels": [{"name", "version", "file", "size", "sha256"}], "satisfied":
// [{"requirement", "version"}]}, all checked. `packages` are requirements in their normal form.

// Reads what a sandbox said; NULL with `err` where it is malformed.
KG_MUST_CHECK json_t *resolution_parse(const char *text, size_t len, struct kg_error *err);
// The resolution of the same requirements, with all its wheels in the cache; NULL: none.
// `ret_fresh` is false where the index may know better by now.
json_t *wheels_find(const struct wheels *wheels, const json_t *packages, bool *ret_fresh);
// Remembers it, also for the versions that were found.
void wheels_remember(struct wheels *wheels, const json_t *packages, const json_t *resolution);

// ---- Wheels ---------------------------------------------------------------------------------

// Where it lies below `wheels/`: in a folder named by its SHA-256, so that a file of the same name
// that another index serves is another wheel. To be freed.
char *wheel_place(const json_t *wheel);
bool wheels_has(const struct wheels *wheels, const json_t *wheel);
// The same of one that is about to be used: those that nobody has used for longest leave first.
bool wheels_use(const struct wheels *wheels, const json_t *wheel);

// A wheel on its way into the cache.
struct wheel_file;
KG_MUST_CHECK struct wheel_file *wheel_file_new(struct wheels *wheels, const json_t *wheel,
                                                struct kg_error *err);
KG_MUST_CHECK int wheel_file_write(struct wheel_file *file, const void *data, size_t len,
                                   struct kg_error *err);
// Puts it into the cache, if size and SHA-256 are those of the resolution. Frees it in any case.
KG_MUST_CHECK int wheel_file_finish(struct wheel_file *file, struct kg_error *err);
void wheel_file_cancel(struct wheel_file *file);
