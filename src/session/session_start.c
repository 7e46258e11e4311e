// SPDX-License-Identifier: Apache-2.0
// How a session starts, with a sandbox of the pool or with one that an earlier gateway left; the
// events of its sandbox; its expiry.

#include <stdio.h>
#include <string.h>

#include "packages.h"
#include "pool.h"
#include "session.h"
#include "session_requests.h"
#include "session_tools.h"
#include "sessions_priv.h"

enum { RANDOM_ID_LEN = 16, MAX_CLAIMS = 8, ADOPT_TIMEOUT_MS = 10 * 1000 };

// ---- The sandbox ----------------------------------------------------------------------------

static void
session_on_sandbox_gone(struct sandbox *sandbox, const struct kg_error *reason, void *arg)
{
    (void)sandbox;
    struct session *session = arg;
    log_warning("a session's sandbox is gone", LOG_STR("session", session->id), LOG_ERR(reason));
    session_fail(session, reason);
}

static void
session_on_kernel_exit(struct sandbox *sandbox, const char *name, int pid, int exit_code,
                       int signal, bool oom, void *arg)
{
    (void)sandbox;
    struct session *session = arg;
    struct session_kernel *kernel = session_kernel_named(session, name);
    if (kernel)
        kernel_on_exit(kernel->kernel, pid, exit_code, signal, oom);
    else
        session_savepoint_on_exit(session, name, oom);
}

static void
session_on_kernel_memory(struct sandbox *sandbox, const char *name, int64_t bytes, void *arg)
{
    (void)sandbox;
    const struct session *session = arg;
    struct session_kernel *kernel = session_kernel_named(session, name);
    struct session_savepoint *savepoint = session_savepoint_named(session, name);
    if (kernel)
        kernel->memory_bytes = bytes;
    else if (savepoint)
        savepoint->memory_bytes = bytes;
}

static bool
session_on_request(struct sandbox *sandbox, const struct sandbox_request *request, void *arg)
{
    (void)sandbox;
    return session_requests_take(arg, request);
}

static void
session_on_tools(struct sandbox *sandbox, int fd, void *arg)
{
    (void)sandbox;
    session_tools_take(arg, fd);
}

static void session_on_adopted(struct sandbox *sandbox, void *arg);

// A sandbox of the pool is ready already: on_ready is for adopted ones.
static const struct sandbox_events session_sandbox_events = {
    .on_ready = session_on_adopted,
    .on_gone = session_on_sandbox_gone,
    .on_kernel_exit = session_on_kernel_exit,
    .on_kernel_memory = session_on_kernel_memory,
    .on_request = session_on_request,
    .on_tools = session_on_tools,
};

static void ask_pool(struct session *session);

// Another gateway has claimed the sandbox first.
static void
session_on_claim_lost(struct session *session)
{
    struct kg_error err = {0};
    log_info("another gateway has claimed a session's sandbox", LOG_STR("session", session->id),
             LOG_STR("sandbox", sandbox_id(session->sandbox)));
    while (session->n_kernels > 0)
        session_drop_kernel(session, session->kernels[0], NULL);
    session->broken = false; // one of those kernels may have noticed it first
    sandbox_free(KG_STEAL(session->sandbox));
    if (++session->n_claims_lost < MAX_CLAIMS) {
        ask_pool(session);
        return;
    }
    kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                 "other gateways claimed all of the %d sandboxes that were tried", MAX_CLAIMS);
    session_fail(session, &err);
}

// Another gateway has a session of this name. Nothing has happened in the sandbox.
static void
session_on_name_refused(struct session *session, const struct kg_error *refusal)
{
    struct kg_error err = {0};
    struct kernel *kernel = NULL;
    if (session->n_kernels > 0) {
        KG_AUTO_FREE struct session_kernel *from_pool = session->kernels[--session->n_kernels];
        kernel = from_pool->kernel;
    }
    pool_give_back(session->sessions->pool, KG_STEAL(session->sandbox), kernel);
    kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0, "%s", refusal->message);
    session_fail(session, &err);
}

// A kernel of the pool was started without the session's folder.
static void
move_in(struct session *session)
{
    for (size_t i = 0; i < session->n_kernels && session->home; i++)
        kernel_set_folder(session->kernels[i]->kernel, session->home, session->home);
}

static void
session_on_claimed(struct sandbox *sandbox, const struct kg_error *err, void *arg)
{
    (void)sandbox;
    struct session *session = arg;
    if (err && err->code == KG_NOT_FOUND) {
        session_on_claim_lost(session);
    } else if (err && err->code == KG_SESSION_BUSY) {
        session_on_name_refused(session, err);
    } else if (err) {
        session_fail(session, err);
    } else {
        session_set_state(session, SESSION_READY);
        move_in(session);
        session_start_kernels(session);
    }
}

static int
claim(struct session *session, struct kg_error *err)
{
    json_auto_t *meta = session_record_make(session);
    return sandbox_claim(session->sandbox, meta,
                         sessions_memory_of(session->sessions, session->owner), session_on_claimed,
                         session, err);
}

static void
session_on_pooled_sandbox(struct sandbox *sandbox, struct kernel *kernel,
                          const struct kg_error *pool_err, void *arg)
{
    struct session *session = arg;
    struct kg_error err = {0};
    session->pool_request = NULL;
    if (pool_err) {
        session_fail(session, pool_err);
        return;
    }
    session->sandbox = sandbox;
    if (session->named_by_sandbox)
        session_rename(session, sandbox_id(sandbox));
    sandbox_set_events(sandbox, &session_sandbox_events, session);
    if (kernel) {
        kernel_set_events(kernel, &session_kernel_events, session);
        session_add_kernel(session, kernel);
    }
    if (claim(session, &err) < 0)
        session_fail(session, &err);
}

static void
ask_pool(struct session *session)
{
    session->pool_request = pool_ask(session->sessions->pool, session->owner, session->with_kernel,
                                     session_on_pooled_sandbox, session);
}

// ---- Expiry ---------------------------------------------------------------------------------

static void
session_on_expiry(void *arg)
{
    struct session *session = arg;
    if (!session_is_idle(session))
        session_keep(session);
    int64_t left_ms = session->active_ms + session->idle_timeout_ms - clock_mono_ms();
    bool ends = false;
    if (session->ends_wall_ms && session->ends_wall_ms - clock_wall_ms() < left_ms) {
        left_ms = session->ends_wall_ms - clock_wall_ms();
        ends = true;
    }
    if (left_ms > 0) {
        loop_timer_start(session->expiry, left_ms);
        return;
    }
    log_info(ends ? "session at its end" : "session expired", LOG_STR("session", session->id));
    session_end(session, ends ? "the session has reached its max_lifetime" : "the session expired",
                NULL, NULL);
}

// ---- Starting -------------------------------------------------------------------------------

// Creates a session without a sandbox and adds it to the registry.
static struct session *
session_make(struct sessions *sessions, const struct session_record *record)
{
    struct session *session = KG_NEW(struct session);
    session->sessions = sessions;
    TAILQ_INIT(&session->opens);
    TAILQ_INIT(&session->commands);
    TAILQ_INIT(&session->downloads);
    TAILQ_INIT(&session->installs);
    TAILQ_INIT(&session->clients);
    TAILQ_INIT(&session->ports);
    TAILQ_INIT(&session->watches);
    TAILQ_INIT(&session->kernel_calls);
    session->install_step = loop_timer_new(sessions->loop, session_installs_step, session);
    session->packages = json_object();
    snprintf(session->id, sizeof session->id, "%s", record->id);
    session->owner = kg_strdup(record->owner);
    session->env = record->env ? json_deep_copy(record->env) : json_object();
    session->home = record->home ? kg_strdup(record->home) : NULL;
    session->recorded_kernels = json_incref(record->kernels);
    session->outlives_kernels = record->outlives_kernels;
    session_savepoints_init(session, record->savepoints);
    session->metadata = record->metadata ? json_deep_copy(record->metadata) : json_object();
    session->face = json_incref(record->face);
    session->ports_are_public = record->ports_are_public;
    session_tokens_restore(session, record->tokens);
    session->idle_timeout_ms = record->idle_timeout_ms;
    session->created_wall_ms = record->created_wall_ms;
    session->created_us = clock_mono_us();
    session->ends_wall_ms = record->ends_wall_ms;
    session_touch(session);
    session->expiry = loop_timer_new(sessions->loop, session_on_expiry, session);
    session->step = loop_timer_new(sessions->loop, session_step, session);
    loop_timer_start(session->expiry, 0); // it looks again when it is due
    TAILQ_INSERT_TAIL(&sessions->live, session, link);
    LIST_INSERT_HEAD(session_bucket_of(sessions, session->id), session, in_bucket);
    sessions->n_live++;
    return session;
}

struct session *
session_new(struct sessions *sessions, const struct session_request *request)
{
    const struct sessions_settings *settings = &sessions->settings;
    char id[SESSION_MAX_ID_LEN + 1] = "sess_";
    id_random(id + strlen(id), RANDOM_ID_LEN);
    int64_t idle_s = request->idle_timeout_s ? request->idle_timeout_s : settings->idle_timeout_s;
    int64_t lifetime_s =
        request->max_lifetime_s ? request->max_lifetime_s : settings->max_lifetime_s;
    int64_t now_ms = clock_wall_ms();
    const struct session_record record = {
        .id = request->session_id ? request->session_id : id,
        .owner = request->owner,
        .env = (json_t *)(uintptr_t)request->env,
        .home = request->home,
        .metadata = (json_t *)(uintptr_t)request->metadata,
        .face = (json_t *)(uintptr_t)request->face,
        .ports_are_public = request->ports_are_public,
        .created_wall_ms = now_ms,
        .idle_timeout_ms = idle_s * 1000,
        .ends_wall_ms = lifetime_s ? now_ms + lifetime_s * 1000 : 0,
    };
    struct session *session = session_make(sessions, &record);
    session->one_shot = request->one_shot;
    session->named_by_sandbox = request->named_by_sandbox;
    // A pooled kernel has the pool's kernelspec, and does not have this session's environment.
    session->with_kernel = request->kernelspec == settings->pooled_spec &&
                           json_object_size(session->env) == 0 &&
                           (!session->home || request->kernelspec->folder_code);
    ask_pool(session);
    log_info("session opened", LOG_STR("session", session->id), LOG_STR("owner", session->owner));
    return session;
}

// ---- Adopting -------------------------------------------------------------------------------

// Processes of further kernels that were removed, or opened, just when the gateway ended.
static void
forget_strangers(struct session *session, const json_t *processes)
{
    size_t i;
    json_t *process;
    json_array_foreach(processes, i, process) {
        const char *name = json_string_value(json_object_get(process, "name"));
        if (name && kernel_name_valid(name) && !session_kernel_named(session, name) &&
            !session_savepoint_named(session, name) &&
            !kernelspecs_find(session->sessions->settings.specs, name, NULL))
            session_kernel_forget(session, name, false);
    }
}

// Takes up the kernel's process; where it has ended meanwhile, a further kernel gets a new one.
static void
adopt_kernel(struct session *session, const struct kernel_settings *settings, const json_t *process)
{
    const struct sessions_settings *common = &session->sessions->settings;
    const char *name = settings->name ? settings->name : settings->spec->name;
    if (session_kernel_named(session, name) || session->n_kernels == SESSION_MAX_KERNELS)
        return;
    struct kernel *kernel = kernel_adopt(common->kernels, session->sandbox, settings, process,
                                         common->adopt_timeout_ms, &session_kernel_events, session);
    if (!kernel && settings->name)
        kernel = kernel_new(common->kernels, session->sandbox, settings, &session_kernel_events,
                            session);
    if (kernel)
        session_add_kernel(session, kernel);
}

static void
adopt_kernels(struct session *session, const json_t *processes)
{
    const struct kernelspecs *specs = session->sessions->settings.specs;
    json_auto_t *recorded = KG_STEAL(session->recorded_kernels);
    size_t i;
    json_t *entry;
    for (i = 0; i < kernelspecs_count(specs); i++) {
        const struct kernelspec *spec = kernelspecs_at(specs, i);
        const json_t *process = session_process_named(processes, spec->name);
        const struct kernel_settings settings = session_kernel_settings(session, spec, NULL, NULL);
        if (process)
            adopt_kernel(session, &settings, process);
    }
    json_array_foreach(recorded, i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *kernel = json_string_value(json_object_get(entry, "kernel"));
        const char *cwd = json_string_value(json_object_get(entry, "cwd"));
        const struct kernelspec *spec = kernel ? kernelspecs_find(specs, kernel, NULL) : NULL;
        if (!name || !kernel_name_valid(name) || kernelspecs_find(specs, name, NULL) || !spec)
            continue;
        const struct kernel_settings settings = session_kernel_settings(session, spec, name, cwd);
        adopt_kernel(session, &settings, session_process_named(processes, name));
    }
    session_savepoints_adopt(session, processes);
    forget_strangers(session, processes);
}

static void
session_on_processes(const json_t *body, const struct kg_error *err, void *arg)
{
    struct session *session = arg;
    if (session->state == SESSION_ENDING)
        return;
    if (!body) {
        session_end(session, err->message, NULL, NULL);
        return;
    }
    adopt_kernels(session, json_object_get(body, "kernels"));
    log_info("session adopted", LOG_STR("session", session->id), LOG_STR("owner", session->owner),
             LOG_INT("kernels", (int64_t)session->n_kernels));
    session_set_state(session, SESSION_READY);
    session_start_kernels(session);
    if (session->state == SESSION_READY && session->n_kernels == 0 && !session->outlives_kernels)
        (void)!session_want_kernel(session, session->sessions->settings.pooled_spec, NULL);
}

static void
session_on_adopted(struct sandbox *sandbox, void *arg)
{
    struct kg_error err = {0};
    if (!sandbox_agent_call(sandbox, "kernels.list", NULL, ADOPT_TIMEOUT_MS, session_on_processes,
                            arg, &err))
        session_end(arg, err.message, NULL, NULL);
}

int
session_adopt(struct sessions *sessions, const char *id, const json_t *meta, struct kg_error *err)
{
    struct session_record record;
    if (session_record_read(meta, &record, err) < 0)
        return -1;
    const struct sandbox_spec spec = {
        .agent_idle_timeout_s = (int)sessions->settings.idle_timeout_s,
        .network = sessions->settings.network,
        .ready_timeout_ms = sessions->settings.sandbox_start_timeout_ms,
    };
    struct session *session = session_make(sessions, &record);
    session->sandbox = sandbox_adopt(sessions->settings.sandboxes, id, true, &spec,
                                     &session_sandbox_events, session, err);
    if (session->sandbox) {
        if (sessions->settings.packages)
            packages_keep_user(sessions->settings.packages, id);
        return 0;
    }
    session_end(session, err->message, NULL, NULL);
    return -1;
}
