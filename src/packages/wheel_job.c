// SPDX-License-Identifier: Apache-2.0
// Downloads of wheels. pip runs in a separate sandbox, which has network access but no session's
// data; then the gateway checks each wheel and copies it into the cache. Where sessions use sets,
// another sandbox unpacks them.

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "loop.h"
#include "metrics.h"
#include "packages_priv.h"
#include "pip.h"
#include "wheel_sandbox.h"

enum {
    MAX_JOBS = 32,
    MAX_RUNNING = 2,
    DOWNLOAD_MS = 180 * 1000,
};

struct wheel_wait {
    LIST_ENTRY(wheel_wait) link;
    struct wheel_job *job; // NULL: the job has ended
    struct wheel_wait_events events;
    void *arg;
};

// Its steps: it is queued, its sandbox is created, certificates are delivered where no folder is
// shared, what every sandbox has is listed if that is not known, pip runs unless the same was asked
// for before, the wheels are copied one by one, they are unpacked, it ends.
struct wheel_job {
    TAILQ_ENTRY(wheel_job) link;
    struct packages *packages;
    char *owner;
    json_t *requirements;
    LIST_HEAD(, wheel_wait) waits;
    struct loop_timer *step;  // starts the job, or ends it, in a later turn of the loop
    struct budget_hold place; // of packages->downloads
    struct budget_hold run;   // of packages->running
    bool started;
    bool over;
    struct kg_error err;
    struct wheel_sandbox *sandbox;
    json_t *resolution;
    size_t n_taken;
    struct wheel_file *file;
    struct wheel_unpack *unpack;
};

// ---- The end --------------------------------------------------------------------------------

static void
release_sandbox(struct wheel_job *job)
{
    wheel_sandbox_free(KG_STEAL(job->sandbox));
    wheel_file_cancel(KG_STEAL(job->file));
    wheel_unpack_cancel(KG_STEAL(job->unpack));
}

static void
start_next(struct packages *packages)
{
    struct wheel_job *job;
    TAILQ_FOREACH(job, &packages->jobs, link)
        loop_timer_start(job->step, 0);
}

static void
job_free(struct wheel_job *job)
{
    struct packages *packages = job->packages;
    TAILQ_REMOVE(&packages->jobs, job, link);
    budget_hold_end(&job->place);
    budget_hold_end(&job->run);
    release_sandbox(job);
    loop_timer_free(job->step);
    json_decref(job->requirements);
    json_decref(job->resolution);
    free(job->owner);
    free(job);
    start_next(packages);
}

// Calls `on_done` of all waits. These callbacks may cancel other waits or start new ones.
static void
job_finish(struct wheel_job *job)
{
    struct kg_error err = job->err;
    json_auto_t *resolution = json_incref(job->resolution);
    LIST_HEAD(, wheel_wait) waits = LIST_HEAD_INITIALIZER(waits);
    for (struct wheel_wait *wait; (wait = LIST_FIRST(&job->waits));) {
        LIST_REMOVE(wait, link);
        LIST_INSERT_HEAD(&waits, wait, link);
        wait->job = NULL;
    }
    metric_add(METRIC_PACKAGE_DOWNLOADS, 1, err.code ? "failed" : "ok");
    job_free(job);
    for (struct wheel_wait *wait; (wait = LIST_FIRST(&waits));) {
        const struct wheel_wait_events events = wait->events;
        void *arg = wait->arg;
        LIST_REMOVE(wait, link);
        free(wait);
        events.on_done(err.code ? NULL : resolution, err.code ? &err : NULL, arg);
    }
}

// Ends the job in a later turn of the loop, since this may run in a callback of its sandbox.
static void
job_end(struct wheel_job *job, const struct kg_error *err)
{
    if (job->over)
        return;
    job->over = true;
    if (err)
        job->err = *err;
    loop_timer_start(job->step, 0);
}

// ---- Progress -------------------------------------------------------------------------------

static void
say_step(const struct wheel_job *job, const char *text)
{
    struct wheel_wait *next;
    for (struct wheel_wait *wait = LIST_FIRST(&job->waits); wait; wait = next) {
        next = LIST_NEXT(wait, link);
        wait->events.on_step(text, wait->arg);
    }
}

// ---- Unpacking ------------------------------------------------------------------------------

static void
job_on_unpacked(const struct kg_error *unpack_err, void *arg)
{
    struct wheel_job *job = arg;
    struct packages *packages = job->packages;
    struct kg_error err = {0};
    const json_t *wheels = json_object_get(job->resolution, "wheels");
    job->unpack = NULL;
    if (unpack_err)
        err = *unpack_err;
    else if (!package_sets_can_make(packages->sets, wheels, packages->tag))
        kg_error_set(&err, KG_DISK_FULL, 0,
                     "the package cache has no room for all of these packages at once");
    job_end(job, err.code ? &err : NULL);
}

// Where sessions have copies of wheels, nothing is left to do.
static void
unpack_wheels(struct wheel_job *job)
{
    struct packages *packages = job->packages;
    const json_t *wheels = json_object_get(job->resolution, "wheels");
    if (packages_need_delivery(packages) ||
        package_sets_can_make(packages->sets, wheels, packages->tag)) {
        job_end(job, NULL);
        return;
    }
    release_sandbox(job);
    say_step(job, "unpacking the wheels, each in a sandbox of its own");
    job->unpack = wheel_unpack_start(packages, wheels, job_on_unpacked, job);
}

// ---- The wheels -----------------------------------------------------------------------------

static void take_next(struct wheel_job *job);

static int
job_on_wheel_data(const void *data, size_t len, void *arg, struct kg_error *err)
{
    struct wheel_job *job = arg;
    return wheel_file_write(job->file, data, len, err);
}

static void
job_on_wheel_end(void *arg)
{
    struct wheel_job *job = arg;
    struct kg_error err = {0};
    if (wheel_file_finish(KG_STEAL(job->file), &err) < 0)
        job_end(job, &err);
    else
        take_next(job);
}

static void
take_wheel(struct wheel_job *job, const json_t *wheel)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *path =
        kg_asprintf("wheels/%s", json_string_value(json_object_get(wheel, "file")));
    job->file = wheel_file_new(job->packages->wheels, wheel, &err);
    if (job->file)
        wheel_sandbox_read(job->sandbox, path, job_on_wheel_end);
    else
        job_end(job, &err);
}

// Whether nothing has to be downloaded of a wheel: it is unpacked where that is enough, or its file
// is there.
static bool
has_wheel(const struct wheel_job *job, const json_t *wheel)
{
    const struct packages *packages = job->packages;
    json_auto_t *alone = json_pack("[O]", wheel);
    return (!packages_need_delivery(packages) &&
            package_sets_can_make(packages->sets, alone, packages->tag)) ||
           wheels_use(packages->wheels, wheel);
}

// Making room for the last wheels may have removed some of the others.
static bool
has_all(const struct wheel_job *job)
{
    size_t i;
    json_t *wheel;
    json_array_foreach(json_object_get(job->resolution, "wheels"), i, wheel) {
        if (!has_wheel(job, wheel))
            return false;
    }
    return true;
}

static void
take_next(struct wheel_job *job)
{
    const json_t *wheels = json_object_get(job->resolution, "wheels");
    struct kg_error err = {0};
    while (job->n_taken < json_array_size(wheels)) {
        const json_t *wheel = json_array_get(wheels, job->n_taken++);
        if (has_wheel(job, wheel))
            continue;
        take_wheel(job, wheel);
        return;
    }
    if (has_all(job)) {
        wheels_remember(job->packages->wheels, job->packages->environment, job->requirements,
                        job->resolution);
        unpack_wheels(job);
    } else {
        kg_error_set(&err, KG_INTERNAL, 0,
                     "the package cache has no room for all of these wheels at once");
        job_end(job, &err);
    }
}

// ---- pip ------------------------------------------------------------------------------------

static void
job_on_text(const char *text, size_t len, void *arg)
{
    const struct wheel_job *job = arg;
    struct wheel_wait *next;
    for (struct wheel_wait *wait = LIST_FIRST(&job->waits); wait; wait = next) {
        next = LIST_NEXT(wait, link);
        wait->events.on_text(text, len, wait->arg);
    }
}

static void
job_on_resolved(void *arg)
{
    struct wheel_job *job = arg;
    struct kg_error err = {0};
    const struct buf *text = wheel_sandbox_result(job->sandbox);
    job->resolution = resolution_parse(text->data, text->len, &err);
    if (job->resolution)
        take_next(job);
    else
        job_end(job, &err);
}

static json_t *
make_env(const struct packages *packages)
{
    // The index is not in this sandbox, even if its name is "localhost": no host bypasses the
    // proxy.
    json_t *env = json_pack("{s:s, s:s, s:s, s:s}", "PYTHONDONTWRITEBYTECODE", "1", "LANG",
                            "C.UTF-8", "no_proxy", "", "NO_PROXY", "");
    if (packages->index_url)
        json_object_set_new(env, "PIP_INDEX_URL", json_string(packages->index_url));
    if (packages->has_authorities) {
        KG_AUTO_FREE char *path = packages_path_inside(packages, "ca.pem");
        json_object_set_new(env, "PIP_CERT", json_string(path));
    }
    return env;
}

static void
wheel_job_run(struct wheel_job *job, const char *action, const json_t *args, wheel_sandbox_fn next)
{
    json_auto_t *env = make_env(job->packages);
    wheel_sandbox_run(job->sandbox, pip_argv(job->packages, action, args), env, DOWNLOAD_MS, next);
}

// ---- Its start ------------------------------------------------------------------------------

// The resolution of the same requirements from an earlier job, or an earlier gateway.
static json_t *
find_known(const struct wheel_job *job)
{
    const struct packages *packages = job->packages;
    bool fresh = false;
    json_auto_t *known =
        wheels_find(packages->wheels, packages->environment, job->requirements, &fresh);
    return known && fresh ? KG_STEAL(known) : NULL;
}

static void
resolve(struct wheel_job *job)
{
    job->resolution = find_known(job);
    if (job->resolution && has_all(job)) {
        say_step(job, "all wheels are in the cache");
        unpack_wheels(job);
        return;
    }
    json_decref(KG_STEAL(job->resolution));
    say_step(job, "asking the index, in a sandbox of its own");
    wheel_job_run(job, "download", job->requirements, job_on_resolved);
}

static void
job_on_listed(void *arg)
{
    struct wheel_job *job = arg;
    struct kg_error err = {0};
    const struct buf *text = wheel_sandbox_result(job->sandbox);
    if (environment_take(job->packages, text->data, text->len, &err) < 0)
        job_end(job, &err);
    else
        resolve(job);
}

static void
look(void *arg)
{
    struct wheel_job *job = arg;
    json_auto_t *all = json_array();
    if (job->packages->environment)
        resolve(job);
    else
        wheel_job_run(job, "list", all, job_on_listed);
}

static void
job_on_ready(void *arg)
{
    struct wheel_job *job = arg;
    if (job->packages->has_authorities && packages_need_delivery(job->packages))
        wheel_sandbox_deliver(job->sandbox, "ca.pem", look);
    else
        look(job);
}

static void
job_on_failed(const struct kg_error *err, void *arg)
{
    job_end(arg, err);
}

// ---- A job ----------------------------------------------------------------------------------

static void
job_start(struct wheel_job *job)
{
    static const struct wheel_sandbox_events events = {
        .on_failed = job_on_failed, .on_text = job_on_text, .on_data = job_on_wheel_data};
    struct kg_error err = {0};
    job->started = true;
    budget_hold_start(&job->run, &job->packages->running, job->owner);
    budget_hold_set(&job->run, 1);
    free(job->packages->last_owner);
    job->packages->last_owner = kg_strdup(job->owner);
    job->sandbox = wheel_sandbox_new(job->packages, true, &events, job, job_on_ready, &err);
    if (!job->sandbox)
        job_end(job, &err);
}

// The oldest job that may start now; those of the owner whose job started last come last.
static const struct wheel_job *
find_next(const struct packages *packages)
{
    const struct wheel_job *next = NULL;
    const struct wheel_job *job;
    TAILQ_FOREACH(job, &packages->jobs, link) {
        if (job->started || job->over || !budget_has_room(&packages->running, job->owner, 1))
            continue;
        if (!packages->last_owner || !budget_is_common(job->owner, packages->last_owner))
            return job;
        if (!next)
            next = job;
    }
    return next;
}

static void
job_on_step(void *arg)
{
    struct wheel_job *job = arg;
    if (job->over)
        job_finish(job);
    else if (!job->started && LIST_EMPTY(&job->waits))
        job_free(job); // all waits were cancelled
    else if (job == find_next(job->packages)) {
        job_start(job);
        start_next(job->packages);
    }
}

static struct wheel_job *
job_of(struct packages *packages, const char *owner, const json_t *requirements)
{
    struct wheel_job *job;
    TAILQ_FOREACH(job, &packages->jobs, link) {
        if (!job->over && json_equal(job->requirements, requirements))
            return job;
    }
    if (!budget_has_room(&packages->downloads, owner, 1))
        return NULL;
    job = KG_NEW(struct wheel_job);
    job->packages = packages;
    job->owner = kg_strdup(owner);
    budget_hold_start(&job->place, &packages->downloads, owner);
    budget_hold_set(&job->place, 1);
    job->requirements = json_deep_copy(requirements);
    LIST_INIT(&job->waits);
    job->step = loop_timer_new(packages->loop, job_on_step, job);
    loop_timer_start(job->step, 0);
    TAILQ_INSERT_TAIL(&packages->jobs, job, link);
    return job;
}

struct wheel_wait *
wheel_wait_start(struct packages *packages, const char *owner, const json_t *requirements,
                 const struct wheel_wait_events *events, void *arg, struct kg_error *err)
{
    struct wheel_job *job = packages->stopped ? NULL : job_of(packages, owner, requirements);
    if (!job) {
        kg_error_set(err, packages->stopped ? KG_DRAINING : KG_SESSION_BUSY, 0,
                     packages->stopped ? "the gateway is shutting down"
                                       : "too many packages are being downloaded; try again later");
        return NULL;
    }
    struct wheel_wait *wait = KG_NEW(struct wheel_wait);
    wait->job = job;
    wait->events = *events;
    wait->arg = arg;
    LIST_INSERT_HEAD(&job->waits, wait, link);
    return wait;
}

void
wheel_wait_cancel(struct wheel_wait *wait)
{
    if (!wait)
        return;
    if (wait->job)
        loop_timer_start(wait->job->step, 0);
    LIST_REMOVE(wait, link);
    free(wait);
}

// ---- All of them ----------------------------------------------------------------------------

void
wheel_jobs_init(struct packages *packages, bool several_owners)
{
    TAILQ_INIT(&packages->jobs);
    budget_init(&packages->downloads, "package_downloads", MAX_JOBS, MAX_JOBS);
    budget_init(&packages->running, "package_downloads_running", MAX_RUNNING, MAX_RUNNING);
    wheel_jobs_set_several_owners(packages, several_owners);
}

void
wheel_jobs_set_several_owners(struct packages *packages, bool several_owners)
{
    packages->several_owners = several_owners;
    budget_set_several_owners(&packages->downloads, several_owners);
    budget_set_several_owners(&packages->running, several_owners);
}

void
wheel_jobs_fini(struct packages *packages)
{
    budget_fini(&packages->downloads);
    budget_fini(&packages->running);
    free(packages->last_owner);
}

void
wheel_jobs_stop(struct packages *packages)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_DRAINING, 0, "the gateway is shutting down");
    packages->stopped = true;
    for (struct wheel_job *job; (job = TAILQ_FIRST(&packages->jobs));) {
        job->err = err;
        job_finish(job);
    }
}
