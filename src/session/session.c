// SPDX-License-Identifier: Apache-2.0
// One session: its sandbox, its kernels, its expiry.

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "metrics.h"
#include "session_priv.h"

enum { RANDOM_ID_LEN = 16 };

static const char *const state_names[] = {
    [SESSION_CREATING] = "creating",
    [SESSION_READY] = "ready",
    [SESSION_ENDING] = "ending",
};

void
session_set_state(struct session *session, enum session_state state)
{
    assert(session->state != SESSION_ENDING && state != SESSION_CREATING);
    log_debug("session state", LOG_STR("session", session->id),
              LOG_STR("from", state_names[session->state]), LOG_STR("to", state_names[state]));
    session->state = state;
}

// ---- Those who wait for it ------------------------------------------------------------------

static void
answer_open(struct session_open *open, struct kernel *kernel, const struct kg_error *err)
{
    struct session *session = open->session;
    TAILQ_REMOVE(&session->opens, open, link);
    if (open->asked_us && !err)
        metric_observe_since(METRIC_SESSION_OPEN_SECONDS, open->asked_us);
    open->fn(err ? NULL : session, kernel, err, open->arg);
    free(open);
}

void
session_fail_opens(struct session *session, const struct kernelspec *spec,
                   const struct kg_error *err)
{
    struct session_open *next;
    for (struct session_open *open = TAILQ_FIRST(&session->opens); open; open = next) {
        next = TAILQ_NEXT(open, link);
        if (!spec || open->spec == spec)
            answer_open(open, NULL, err);
    }
}

struct kernel *
session_find_kernel(const struct session *session, const struct kernelspec *spec)
{
    for (size_t i = 0; i < session->n_kernels; i++) {
        if (kernel_spec(session->kernels[i]) == spec)
            return session->kernels[i];
    }
    return NULL;
}

// Those who came after the kernel's failure was told, and before the kernel is freed.
static void
fail_late_opens(struct session *session, const struct kernelspec *spec)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_KERNEL_START_TIMEOUT, 0, "the kernel %s could not be started",
                 spec->name);
    session_fail_opens(session, spec, &err);
}

// Answers those whose kernel is ready; frees kernels that could not be started, and ends a session
// that has none, or that was for one execution.
static void
on_wake(void *arg)
{
    struct session *session = arg;
    if (session->state != SESSION_READY)
        return;
    session_commands_run(session);
    struct session_open *next;
    for (struct session_open *open = TAILQ_FIRST(&session->opens); open; open = next) {
        next = TAILQ_NEXT(open, link);
        struct kernel *kernel = session_find_kernel(session, open->spec);
        if (kernel && kernel_has_started(kernel))
            answer_open(open, kernel, NULL);
    }
    for (size_t i = session->n_kernels; i-- > 0;) {
        struct kernel *kernel = session->kernels[i];
        if (kernel_state(kernel) == KERNEL_DEAD && !kernel_has_started(kernel)) {
            session->kernels[i] = session->kernels[--session->n_kernels];
            fail_late_opens(session, kernel_spec(kernel));
            kernel_free(kernel, NULL);
        }
    }
    bool over = session->one_shot && TAILQ_EMPTY(&session->opens) && !session_is_busy(session);
    if (session->broken)
        session_end(session, "the sandbox's agent does not answer", NULL, NULL);
    else if (over || session->n_kernels == 0)
        session_end(session, NULL, NULL, NULL);
}

// ---- Kernels --------------------------------------------------------------------------------

static void
on_kernel_started(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct session *session = arg;
    if (err)
        session_fail_opens(session, kernel_spec(kernel), err);
    loop_timer_start(session->wake, 0);
}

static void
on_execution_done(struct kernel *kernel, struct execution *execution, void *arg)
{
    (void)kernel;
    (void)execution;
    struct session *session = arg;
    session->execution_count++;
    if (session->state == SESSION_ENDING)
        return;
    session_touch(session);
    loop_timer_start(session->wake, 0);
}

// Called from inside the kernel's work: the session is ended when that is over.
static void
on_kernel_broken(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    (void)kernel;
    struct session *session = arg;
    log_warning("a session's sandbox is of no use any more", LOG_STR("session", session->id),
                LOG_ERR(err));
    session->broken = true;
    loop_timer_start(session->wake, 0);
}

const struct kernel_events session_kernel_events = {
    .on_started = on_kernel_started,
    .on_broken = on_kernel_broken,
    .on_execution_done = on_execution_done,
};

struct kernel *
session_kernel(struct session *session, const struct kernelspec *spec, struct kg_error *err)
{
    struct kernel *kernel = session_find_kernel(session, spec);
    if (kernel)
        return kernel;
    if (session->n_kernels == SESSION_MAX_KERNELS) {
        kg_error_set(err, KG_INVALID, 0, "a session has at most %d kernels", SESSION_MAX_KERNELS);
        return NULL;
    }
    kernel = kernel_new(session->sessions->settings.kernels, session->sandbox, spec, session->env,
                        &session_kernel_events, session);
    session->kernels[session->n_kernels++] = kernel;
    return kernel;
}

// ---- The sandbox ----------------------------------------------------------------------------

static int
claim(struct session *session, struct kg_error *err)
{
    json_auto_t *meta = json_pack(
        "{s:s, s:s, s:I, s:I, s:b, s:O}", "session_id", session->id, "owner", session->owner,
        "created_ms", (json_int_t)session->created_wall_ms, "idle_timeout_ms",
        (json_int_t)session->idle_timeout_ms, "one_shot", session->one_shot, "env", session->env);
    return sandbox_claim(session->sandbox, meta, err);
}

static void
on_sandbox_gone(struct sandbox *sandbox, const struct kg_error *reason, void *arg)
{
    (void)sandbox;
    struct session *session = arg;
    log_warning("a session's sandbox is gone", LOG_STR("session", session->id), LOG_ERR(reason));
    session_fail_opens(session, NULL, reason);
    session_end(session, reason->message, NULL, NULL);
}

static void
on_kernel_exit(struct sandbox *sandbox, const char *name, int pid, int exit_code, int signal,
               bool oom, void *arg)
{
    (void)sandbox;
    struct session *session = arg;
    for (size_t i = 0; i < session->n_kernels; i++) {
        if (strcmp(kernel_spec(session->kernels[i])->name, name) == 0)
            kernel_on_exit(session->kernels[i], pid, exit_code, signal, oom);
    }
}

const struct sandbox_events session_sandbox_events = {
    .on_ready = session_on_adopted,
    .on_gone = on_sandbox_gone,
    .on_kernel_exit = on_kernel_exit,
};

// The kernels that those who wait want.
void
session_start_kernels(struct session *session)
{
    struct session_open *next;
    for (struct session_open *open = TAILQ_FIRST(&session->opens); open; open = next) {
        struct kg_error err = {0};
        next = TAILQ_NEXT(open, link);
        if (!session_kernel(session, open->spec, &err))
            answer_open(open, NULL, &err);
    }
    // Where no kernel came of it (all who waited have left) there is nothing to keep it for.
    loop_timer_start(session->wake, 0);
}

static void
on_sandbox(struct sandbox *sandbox, struct kernel *kernel, const struct kg_error *ask_err,
           void *arg)
{
    struct session *session = arg;
    session->asking = NULL;
    if (ask_err) {
        session_fail_opens(session, NULL, ask_err);
        session_end(session, ask_err->message, NULL, NULL);
        return;
    }
    session->sandbox = sandbox;
    sandbox_set_events(sandbox, &session_sandbox_events, session);
    if (kernel) {
        kernel_set_events(kernel, &session_kernel_events, session);
        session->kernels[session->n_kernels++] = kernel;
    }
    struct kg_error err = {0};
    if (claim(session, &err) < 0) {
        session_fail_opens(session, NULL, &err);
        session_end(session, err.message, NULL, NULL);
        return;
    }
    session_set_state(session, SESSION_READY);
    session_start_kernels(session);
}

// ---- Expiry ---------------------------------------------------------------------------------

bool
session_is_busy(const struct session *session)
{
    // An adopted one may be, until its agent has said what runs in it.
    if (session->state == SESSION_CREATING && session->sandbox)
        return true;
    if (!TAILQ_EMPTY(&session->commands) || !TAILQ_EMPTY(&session->downloads) ||
        !TAILQ_EMPTY(&session->installs))
        return true;
    for (size_t i = 0; i < session->n_kernels; i++) {
        if (kernel_is_busy(session->kernels[i]))
            return true;
    }
    return false;
}

bool
session_is_idle(const struct session *session)
{
    return session->state == SESSION_READY && TAILQ_EMPTY(&session->opens) &&
           session->n_file_ops == 0 && session->restart.n_pending == 0 && !session_is_busy(session);
}

void
session_touch(struct session *session)
{
    session->active_ms = clock_mono_ms();
    session->active_wall_ms = clock_wall_ms();
}

static void
on_expiry(void *arg)
{
    struct session *session = arg;
    if (!session_is_idle(session))
        session_touch(session);
    int64_t left_ms = session->active_ms + session->idle_timeout_ms - clock_mono_ms();
    if (left_ms > 0) {
        loop_timer_start(session->expiry, left_ms);
        return;
    }
    log_info("session expired", LOG_STR("session", session->id));
    session_end(session, "the session expired", NULL, NULL);
}

// ---- Its life -------------------------------------------------------------------------------

struct session *
session_make(struct sessions *sessions, const char *owner, const char *id, const json_t *env,
             int64_t idle_timeout_ms)
{
    struct session *session = KG_NEW(struct session);
    session->sessions = sessions;
    TAILQ_INIT(&session->opens);
    TAILQ_INIT(&session->commands);
    TAILQ_INIT(&session->downloads);
    TAILQ_INIT(&session->installs);
    session->install_step = loop_timer_new(sessions->loop, session_installs_step, session);
    session->packages = json_object();
    snprintf(session->id, sizeof session->id, "%s", id);
    session->owner = kg_strdup(owner);
    session->env = env ? json_deep_copy(env) : json_object();
    session->idle_timeout_ms = idle_timeout_ms;
    session->created_wall_ms = clock_wall_ms();
    session_touch(session);
    session->expiry = loop_timer_new(sessions->loop, on_expiry, session);
    session->wake = loop_timer_new(sessions->loop, on_wake, session);
    loop_timer_start(session->expiry, session->idle_timeout_ms);
    TAILQ_INSERT_TAIL(&sessions->live, session, link);
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
    struct session *session =
        session_make(sessions, request->owner, request->session_id ? request->session_id : id,
                     request->env, idle_s * 1000);
    session->one_shot = request->one_shot;
    // A kernel that is there already has neither another language nor this session's environment.
    bool with_kernel =
        request->kernelspec == settings->pooled_spec && json_object_size(session->env) == 0;
    session->asking = pool_ask(sessions->pool, session->owner, with_kernel, on_sandbox, session);
    log_info("session opened", LOG_STR("session", session->id), LOG_STR("owner", session->owner));
    return session;
}

const char *
session_id(const struct session *session)
{
    return session->id;
}

struct sandbox *
session_sandbox(const struct session *session)
{
    return session->sandbox;
}
