// SPDX-License-Identifier: Apache-2.0
// Python packages: the cache of wheels, the downloads into it, the sets of unpacked wheels that
// sessions import from, and the deliveries where no folder is shared. See pip.h for running pip
// inside a sandbox and requirement.h for what clients may ask for.
#pragma once

#include <jansson.h>

#include "base.h"
#include "package_sets.h"
#include "wheels.h"

struct kernelspecs;
struct loop;
struct packages;
struct sandbox;
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
// The folder that sandboxes must see, read-only, at /opt/kernelgate/packages, where the engine
// shares folders: sessions then use sets. Else see packages_deliver(). Borrowed.
const char *packages_shared_dir(const struct packages *packages);
// The interpreter that packages are for: that of the first kernelspec for Python. To be freed;
// NULL: there is none, and no packages.
char *packages_python(const struct kernelspecs *specs);
// Fails with KG_INVALID if no kernelspec takes packages. `packages` may be NULL.
KG_MUST_CHECK int packages_check_available(const struct packages *packages, struct kg_error *err);

// ---- Resolutions ----------------------------------------------------------------------------

// What requirements were resolved to: {"wheels": [{"name", "version", "file", "size", "sha256"}],
// "satisfied": [{"requirement", "version"}]}, all of it checked.

// Finds the resolution of the same requirements (in their normal form) if the cache has all of its
// wheels, unpacked where sessions use sets; NULL otherwise. `ret_fresh` is false if the index may
// have newer versions.
json_t *packages_find(const struct packages *packages, const json_t *requirements, bool *ret_fresh);
// The version that satisfies a requirement in its normal form without any resolution: that of
// `wheels` (those that a session has; may be NULL), else that of what all have. Borrowed.
// NULL: none does, or it takes a resolution to know.
const char *packages_version_satisfying(const struct packages *packages, const json_t *wheels,
                                        const char *requirement);
// The version of what all sessions have, by its name in normal form; NULL: none, or not known yet.
const char *packages_base_version(const struct packages *packages, const char *name);
// Where sandboxes see a file of the shared folder, which may have to be delivered. To be freed.
char *packages_path_inside(const struct packages *packages, const char *path);

// ---- Sets -----------------------------------------------------------------------------------

// For engines that share folders: see package_sets.h. A user is the id of a sandbox.

// The wheels of the set that a sandbox uses, borrowed; NULL: it uses none.
const json_t *packages_wheels_of(const struct packages *packages, const char *user);
// The name of that set, likewise.
const char *packages_set_of(const struct packages *packages, const char *user);
// Makes the set of `wheels`, which a resolution and packages_wheels_of() have named: `fn` as in
// package_sets.h.
KG_MUST_CHECK struct package_set_making *packages_make_set(struct packages *packages,
                                                           const char *owner, const json_t *wheels,
                                                           package_set_fn fn, void *arg);
// Where sandboxes see it. To be freed.
char *package_set_path_inside(const char *name);
// A sandbox of `owner` uses that set from now on; NULL: it has ended.
void packages_use_set(struct packages *packages, const char *user, const char *owner,
                      const char *name);
// After a start: `user` is still there (PACKAGES_OF_ALL: there are packages of all sessions); and
// then: no other is.
#define PACKAGES_OF_ALL "all" // no sandbox has this id
void packages_keep_user(struct packages *packages, const char *user);
void packages_forget_other_users(struct packages *packages);

// ---- Packages of all sessions ---------------------------------------------------------------

// Where Python finds them, in every sandbox.
#define PACKAGES_COMMON "/opt/kernelgate/packages/all"
// Gives the packages of `requirements` (in their normal form, at least one) to all sessions: to new
// kernels and commands of those that exist, too. What an earlier gateway gave them is there until
// then, and stays if this fails. `fn` fires once, `err` is NULL if it is done. Only where the
// engine shares folders.
typedef void (*packages_common_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK int packages_prepare_common(struct packages *packages, const json_t *requirements,
                                          packages_common_fn fn, void *arg, struct kg_error *err);
// No session gets any.
void packages_clear_common(struct packages *packages);

// ---- Deliveries -----------------------------------------------------------------------------

// Whether sandboxes do not see the shared folder, and need packages_deliver().
bool packages_need_delivery(const struct packages *packages);
// Removes what earlier deliveries have left in a sandbox, and copies `files` (strings:
// wheel_path_of() or paths below the shared folder; may be empty) through the agent to below
// /mnt/data/.kg-delivered. One file at a time is written, and at most 192 KiB of it wait in the
// gateway; a sandbox that takes nothing for 30 s ends the delivery. `fn` fires once; where `err` is
// set (KG_DISK_FULL: the sandbox's disk has no room), what was written was removed again, if the
// agent still answers.
struct packages_delivery;
typedef void (*packages_delivery_fn)(const struct kg_error *err, void *arg);
KG_MUST_CHECK struct packages_delivery *
packages_deliver(const struct packages *packages, struct sandbox *sandbox, const json_t *files,
                 packages_delivery_fn fn, void *arg, struct kg_error *err);
// What was written stays until the next delivery, but of a file that is being written nothing.
void packages_delivery_cancel(struct packages_delivery *delivery);

// ---- Downloads ------------------------------------------------------------------------------

// Waits until packages_find() finds `requirements` (in their normal form). Waits for the
// same requirements share one download, which counts for the owner of the first one. Errors:
// KG_SESSION_BUSY (too many downloads), KG_DRAINING.
struct wheel_wait;
struct wheel_wait_events {
    void (*on_step)(const char *text, void *arg);             // what is being done
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
