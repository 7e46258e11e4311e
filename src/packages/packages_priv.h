// SPDX-License-Identifier: Apache-2.0
// The cache (wheels.c), the downloads into it (wheel_job.c), the deliveries (delivery.c).
#pragma once

#include <sys/queue.h>

#include "packages.h"
#include "wheels.h"

// Where sandboxes see wheels_shared_dir(), or the copies of its files that were delivered.
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
    TAILQ_HEAD(, wheel_job) jobs; // oldest first
    size_t n_jobs;
    size_t n_running; // jobs with a sandbox
    bool several_owners;
    char *last_owner; // owner of the job that was started last; or NULL
    bool stopped;
};

// Ends all downloads (wheel_job.c).
void wheel_jobs_stop(struct packages *packages);
