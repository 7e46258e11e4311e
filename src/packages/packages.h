// SPDX-License-Identifier: Apache-2.0
// Python packages: the cache of wheels that all sandboxes share, and the downloads into it. See
// pip.h for running pip inside a sandbox and requirement.h for what clients may ask for.
#pragma once

#include <jansson.h>

#include "base.h"

struct kernelspecs;
struct loop;
struct packages;
struct sandbox_context;

// All borrowed.
struct packages_settings {
    const struct sandbox_context *sandboxes; // may be filled in later, before the first download
    const struct kernelspecs *specs;
    const char *dir;       // for the cache
    const char *index_url; // NULL: PIP_INDEX_URL, else pip's own default
    bool several_owners;   // one owner gets at most half of the downloads
};
KG_MUST_CHECK struct packages *
packages_new(struct loop *loop, const struct packages_settings *settings, struct kg_error *err);
void packages_set_several_owners(struct packages *packages, bool several_owners);
// Ends all downloads: their waits fail with KG_DRAINING, their sandboxes are being destroyed.
void packages_stop(struct packages *packages);
void packages_free(struct packages *packages);
// The folder that sandboxes must see, read-only, at /opt/kernelgate/packages. Borrowed.
const char *packages_shared_dir(const struct packages *packages);
// Fails with KG_INVALID if no kernelspec takes packages. `packages` may be NULL.
KG_MUST_CHECK int packages_check_available(const struct packages *packages, struct kg_error *err);

// ---- Resolutions ----------------------------------------------------------------------------

// What requirements were resolved to: {"wheels": [{"name", "version", "file", "size", "sha256"}],
// "satisfied": [{"requirement", "version"}]}, all of it checked.

// Finds the resolution of the same requirements (in their normal form) if the cache has all of its
// wheels; NULL otherwise. `ret_fresh` is false if the index may have newer versions.
json_t *packages_find(const struct packages *packages, const json_t *requirements, bool *ret_fresh);
// Where sandboxes see a wheel of a resolution. To be freed.
char *wheel_path_inside(const json_t *wheel);

// ---- Downloads ------------------------------------------------------------------------------

// Waits until the wheels of `requirements` (in their normal form) are in the cache. Waits for the
// same requirements share one download, which counts for the owner of the first one. Errors:
// KG_SESSION_BUSY (too many downloads), KG_DRAINING.
struct wheel_wait;
struct wheel_wait_events {
    void (*on_text)(const char *text, size_t len, void *arg); // pip's messages
    // Once; `resolution` is borrowed, NULL if `err` is set.
    void (*on_done)(const json_t *resolution, const struct kg_error *err, void *arg);
};
KG_MUST_CHECK struct wheel_wait *wheel_wait_start(struct packages *packages, const char *owner,
                                                  const json_t *requirements,
                                                  const struct wheel_wait_events *events, void *arg,
                                                  struct kg_error *err);
// A download that has begun goes on.
void wheel_wait_cancel(struct wheel_wait *wait);
