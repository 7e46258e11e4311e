// SPDX-License-Identifier: Apache-2.0
// The cache of wheels, the resolution of each request for packages, and the folder that every
// sandbox sees read-only.
#pragma once

#include <jansson.h>

#include "base.h"

struct wheels;

// Creates `dir` if it is missing. Its folder `shared/`, for the sandboxes, holds `packages.py`,
// `unpack.py` and `ca.pem` (a copy of the file `authorities`, unless that is NULL); `wheels/`,
// `resolutions/` and `incoming/`, which is empty, are the gateway's own.
KG_MUST_CHECK struct wheels *wheels_new(const char *dir, const char *authorities,
                                        struct kg_error *err);
void wheels_free(struct wheels *wheels);
KG_DEFINE_AUTO(wheels, wheels_free)
// The path of `shared/`. Borrowed.
const char *wheels_shared_dir(const struct wheels *wheels);
// The path of a wheel (wheel_path_of()), or of a file of `shared/`. To be freed.
char *wheels_locate(const struct wheels *wheels, const char *path);

// ---- Resolutions ----------------------------------------------------------------------------

// A resolution: {"wheels": [{"name", "version", "file", "size", "sha256"}], "satisfied":
// [{"requirement", "version"}]}, all checked. `packages` are requirements in their normal form;
// `environment` says what they are resolved for, such as a hash of what is installed there.

// Parses a sandbox's output; NULL with `err` if it is malformed.
KG_MUST_CHECK json_t *resolution_parse(const char *text, size_t len, struct kg_error *err);
// Finds the resolution of the same requirements, whether or not its wheels are in the cache; else
// NULL. `ret_fresh` is false if the index may have newer versions.
json_t *wheels_find(const struct wheels *wheels, const char *environment, const json_t *packages,
                    bool *ret_fresh);
// Stores a resolution, also for the exact versions that it found.
void wheels_remember(struct wheels *wheels, const char *environment, const json_t *packages,
                     const json_t *resolution);

// ---- Wheels ---------------------------------------------------------------------------------

// The path of a wheel for wheels_locate() and packages_deliver(). To be freed.
char *wheel_path_of(const json_t *wheel);
// The path of a wheel below `wheels/`, to be freed. Its folder is named by its SHA-256, so that a
// file of the same name from another index is another wheel.
char *wheel_place(const json_t *wheel);
bool wheels_has(const struct wheels *wheels, const json_t *wheel);
// The same, and marks it as used: the cache removes the least recently used wheels first.
bool wheels_use(const struct wheels *wheels, const json_t *wheel);
// It is not needed any more.
void wheels_drop(const struct wheels *wheels, const json_t *wheel);

// A wheel on its way into the cache.
struct wheel_file;
KG_MUST_CHECK struct wheel_file *wheel_file_new(struct wheels *wheels, const json_t *wheel,
                                                struct kg_error *err);
KG_MUST_CHECK int wheel_file_write(struct wheel_file *file, const void *data, size_t len,
                                   struct kg_error *err);
// Moves it into the cache if size and SHA-256 match the resolution. Frees `file` in any case.
KG_MUST_CHECK int wheel_file_finish(struct wheel_file *file, struct kg_error *err);
void wheel_file_cancel(struct wheel_file *file);
