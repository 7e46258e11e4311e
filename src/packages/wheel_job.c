// SPDX-License-Identifier: Apache-2.0
// Downloads of wheels. pip runs in a separate sandbox, which has network access but no session's
// data; then the gateway checks each wheel and copies it into the cache. Where sessions use sets,
// another sandbox unpacks them.

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "budget.h"
#include "loop.h"
#include "metrics.h"
#include "packages_priv.h"
#include "pip.h"

enum {
    MAX_JOBS = 32,
    MAX_RUNNING = 2,
    READY_MS = 30 * 1000,
    DOWNLOAD_MS = 180 * 1000,
    SILENCE_MS = 30 * 1000,
    AGENT_IDLE_S = 300,
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
    struct loop_timer *step; // starts the job, or ends it, in a later turn of the loop
    bool started;
    bool over;
    struct kg_error err;
    struct sandbox *sandbox;
    struct packages_delivery *delivery;
    struct sandbox_command *command;
    struct pip_output output;
    json_t *resolution;
    size_t n_taken;
    struct sandbox_call *call;
    struct wheel_file *file;
    struct wheel_unpack *unpack;
};

// ---- The end --------------------------------------------------------------------------------

static void
release_sandbox(struct wheel_job *job)
{
    packages_delivery_cancel(KG_STEAL(job->delivery));
    if (job->command)
        sandbox_command_cancel(KG_STEAL(job->command));
    sandbox_call_cancel(KG_STEAL(job->call));
    wheel_file_cancel(KG_STEAL(job->file));
    wheel_unpack_cancel(KG_STEAL(job->unpack));
    if (job->sandbox)
        sandbox_destroy(KG_STEAL(job->sandbox), NULL, NULL);
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
    packages->n_jobs--;
    packages->n_running -= job->started;
    release_sandbox(job);
    loop_timer_free(job->step);
    pip_output_clear(&job->output);
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

// ---- Words for those who wait --------------------------------------------------------------

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

static void
job_on_wheel_data(const void *data, size_t len, void *arg)
{
    struct wheel_job *job = arg;
    struct kg_error err = {0};
    if (wheel_file_write(job->file, data, len, &err) == 0)
        return;
    sandbox_call_cancel(KG_STEAL(job->call));
    job_end(job, &err);
}

static void
job_on_wheel_end(const json_t *result, const struct kg_error *end_err, void *arg)
{
    (void)result;
    struct wheel_job *job = arg;
    struct kg_error err = {0};
    job->call = NULL;
    if (end_err)
        job_end(job, end_err);
    else if (wheel_file_finish(KG_STEAL(job->file), &err) < 0)
        job_end(job, &err);
    else
        take_next(job);
}

static int
take_wheel(struct wheel_job *job, const json_t *wheel, struct kg_error *err)
{
    static const struct sandbox_stream_events events = {.on_data = job_on_wheel_data,
                                                        .on_end = job_on_wheel_end};
    KG_AUTO_FREE char *path =
        kg_asprintf("wheels/%s", json_string_value(json_object_get(wheel, "file")));
    json_auto_t *params = json_pack("{s:s}", "path", path);
    const struct sandbox_stream_spec spec = {
        .method = "files.read",
        .params = params,
        .head_timeout_ms = SILENCE_MS,
        .silence_timeout_ms = SILENCE_MS,
    };
    job->file = wheel_file_new(job->packages->wheels, wheel, err);
    if (!job->file)
        return -1;
    job->call = sandbox_agent_stream(job->sandbox, &spec, &events, job, err);
    return job->call ? 0 : -1;
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
        if (take_wheel(job, wheel, &err) < 0)
            job_end(job, &err);
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
job_on_output(enum sandbox_stream stream, const char *text, size_t len, void *arg)
{
    struct wheel_job *job = arg;
    struct wheel_wait *next;
    pip_output_take(&job->output, stream, text, len);
    if (stream == SANDBOX_STDOUT)
        return;
    for (struct wheel_wait *wait = LIST_FIRST(&job->waits); wait; wait = next) {
        next = LIST_NEXT(wait, link);
        wait->events.on_text(text, len, wait->arg);
    }
}

static void
job_on_resolved(const struct sandbox_command_result *result, const struct kg_error *end_err,
                void *arg)
{
    struct wheel_job *job = arg;
    struct kg_error err = {0};
    const struct buf *text = &job->output.result;
    job->command = NULL;
    if (pip_output_check(&job->output, result, end_err, &err) == 0)
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
run(struct wheel_job *job, const char *action, const json_t *args,
    void (*on_end)(const struct sandbox_command_result *, const struct kg_error *, void *))
{
    const struct sandbox_command_events events = {.on_output = job_on_output, .on_end = on_end};
    struct kg_error err = {0};
    json_auto_t *env = make_env(job->packages);
    char **argv = pip_argv(job->packages, action, args);
    pip_output_clear(&job->output);
    const struct sandbox_command_spec spec = {
        .argv = (const char *const *)argv,
        .env = env,
        .timeout_ms = DOWNLOAD_MS,
        .max_output_bytes = PIP_OUTPUT_MAX,
    };
    job->command = sandbox_command_start(job->sandbox, &spec, &events, job, &err);
    pip_argv_free(argv);
    if (!job->command)
        job_end(job, &err);
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
    run(job, "download", job->requirements, job_on_resolved);
}

static void
job_on_listed(const struct sandbox_command_result *result, const struct kg_error *end_err,
              void *arg)
{
    struct wheel_job *job = arg;
    struct kg_error err = {0};
    const struct buf *text = &job->output.result;
    job->command = NULL;
    if (pip_output_check(&job->output, result, end_err, &err) < 0 ||
        environment_take(job->packages, text->data, text->len, &err) < 0)
        job_end(job, &err);
    else
        resolve(job);
}

static void
look(struct wheel_job *job)
{
    json_auto_t *all = json_array();
    if (job->packages->environment)
        resolve(job);
    else
        run(job, "list", all, job_on_listed);
}

static void
job_on_delivered(const struct kg_error *err, void *arg)
{
    struct wheel_job *job = arg;
    job->delivery = NULL;
    if (err)
        job_end(job, err);
    else
        look(job);
}

static void
job_on_claimed(struct sandbox *sandbox, const struct kg_error *claim_err, void *arg)
{
    struct wheel_job *job = arg;
    struct kg_error err = {0};
    if (claim_err) {
        job_end(job, claim_err);
        return;
    }
    if (!job->packages->has_authorities || !packages_need_delivery(job->packages)) {
        look(job);
        return;
    }
    json_auto_t *files = json_pack("[s]", "ca.pem");
    job->delivery = packages_deliver(job->packages, sandbox, files, job_on_delivered, job, &err);
    if (!job->delivery)
        job_end(job, &err);
}

static void
job_on_ready(struct sandbox *sandbox, void *arg)
{
    struct kg_error err = {0};
    // After a crash the next gateway sees from this that the sandbox belongs to no session.
    json_auto_t *meta = json_pack("{s:s}", "purpose", "packages");
    if (sandbox_claim(sandbox, meta, 0, job_on_claimed, arg, &err) < 0)
        job_end(arg, &err);
}

static void
job_on_gone(struct sandbox *sandbox, const struct kg_error *reason, void *arg)
{
    struct wheel_job *job = arg;
    (void)sandbox;
    job_end(job, reason);
}

static void
job_on_kernel_exit(struct sandbox *sandbox, const char *kernel, int pid, int exit_code, int signal,
                   bool oom, void *arg)
{
    (void)sandbox;
    (void)kernel;
    (void)pid;
    (void)exit_code;
    (void)signal;
    (void)oom;
    (void)arg; // this sandbox has no kernels
}

// ---- A job ----------------------------------------------------------------------------------

static void
job_start(struct wheel_job *job)
{
    static const struct sandbox_events events = {
        .on_ready = job_on_ready, .on_gone = job_on_gone, .on_kernel_exit = job_on_kernel_exit};
    static const struct sandbox_spec spec = {
        .agent_idle_timeout_s = AGENT_IDLE_S, .network = true, .ready_timeout_ms = READY_MS};
    struct kg_error err = {0};
    job->started = true;
    job->packages->n_running++;
    free(job->packages->last_owner);
    job->packages->last_owner = kg_strdup(job->owner);
    job->sandbox = sandbox_create(job->packages->sandboxes, &spec, &events, job, &err);
    if (!job->sandbox)
        job_end(job, &err);
}

static size_t
count_of_owner(const struct packages *packages, const char *owner, bool started)
{
    size_t n = 0;
    const struct wheel_job *job;
    TAILQ_FOREACH(job, &packages->jobs, link)
        n += (job->started || !started) && budget_is_common(job->owner, owner);
    return n;
}

// The oldest job that may start now; those of the owner whose job started last come last.
static const struct wheel_job *
find_next(const struct packages *packages)
{
    const struct wheel_job *next = NULL;
    const struct wheel_job *job;
    if (packages->n_running >= MAX_RUNNING)
        return NULL;
    TAILQ_FOREACH(job, &packages->jobs, link) {
        if (job->started || job->over ||
            (packages->several_owners &&
             count_of_owner(packages, job->owner, true) >= MAX_RUNNING / 2))
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
    if (packages->n_jobs >= MAX_JOBS ||
        (packages->several_owners && count_of_owner(packages, owner, false) >= MAX_JOBS / 2))
        return NULL;
    job = KG_NEW(struct wheel_job);
    job->packages = packages;
    job->owner = kg_strdup(owner);
    job->requirements = json_deep_copy(requirements);
    LIST_INIT(&job->waits);
    job->step = loop_timer_new(packages->loop, job_on_step, job);
    loop_timer_start(job->step, 0);
    TAILQ_INSERT_TAIL(&packages->jobs, job, link);
    packages->n_jobs++;
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
