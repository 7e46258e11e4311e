// SPDX-License-Identifier: Apache-2.0
// The cache (wheels.c), the downloads into it (wheel_job.c, wheel_unpack.c), the sets that sessions
// import from (package_sets.h), the deliveries (delivery.c), and what every sandbox has anyway
// (environment.c).
#pragma once

#include <sys/queue.h>

#include "budget.h"
#include "package_sets.h"
#include "packages.h"
#include "wheels.h"

// Where sandboxes see wheels_shared_dir(), or the copies of files that were delivered.
#define PACKAGES_INSIDE "/opt/kernelgate/packages"
#define PACKAGES_DELIVERED FILE_OWN_PREFIX "delivered" // in /mnt/data

struct wheel_job;

struct packages {
    struct loop *loop;
    const struct sandbox_context *sandboxes;
    char *python;    // path inside of the kernelspec that takes packages; NULL: none does
    char *index_url; // or NULL: pip's own default
    bool has_authorities;
    struct wheels *wheels;
    struct package_sets *sets;
    struct common_packages *common; // while those of all sessions are being prepared
    json_t *base;                 // {name: version} of what every sandbox has; NULL: not known yet
    char *tag;                    // of the interpreter ("cpython-311"); likewise
    char *environment;            // a hash of both; likewise
    TAILQ_HEAD(, wheel_job) jobs; // oldest first
    struct budget downloads;      // places: jobs
    struct budget running;        // places: jobs with a sandbox
    bool several_owners;
    char *last_owner; // owner of the job that was started last; or NULL
    bool stopped;
};

// The downloads of wheels, and how many places there are (wheel_job.c).
void wheel_jobs_init(struct packages *packages, bool several_owners);
void wheel_jobs_set_several_owners(struct packages *packages, bool several_owners);
// Ends all downloads.
void wheel_jobs_stop(struct packages *packages);
// After wheel_jobs_stop().
void wheel_jobs_fini(struct packages *packages);

// Takes the output of `packages.py list` in a clean sandbox (environment.c).
KG_MUST_CHECK int environment_take(struct packages *packages, const char *text, size_t len,
                                   struct kg_error *err);
void environment_clear(struct packages *packages);

// Ends the preparation of the packages of all sessions; its `fn` does not fire (common_packages.c).
void common_packages_cancel(struct packages *packages);

// Unpacks those wheels of a resolution that are not unpacked, one after the other, each in a
// sandbox of its own that has no way out (wheel_unpack.c). `fn` fires once, in a later turn of the
// loop, while the sandbox is being destroyed.
struct wheel_unpack;
typedef void (*wheel_unpack_fn)(const struct kg_error *err, void *arg);
struct wheel_unpack *wheel_unpack_start(struct packages *packages, const json_t *wheels,
                                        wheel_unpack_fn fn, void *arg);
void wheel_unpack_cancel(struct wheel_unpack *unpack);
