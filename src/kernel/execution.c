// SPDX-License-Identifier: Apache-2.0
// Executions and the registry that finds them by id.

#include <assert.h>
#include <string.h>

#include "execution_priv.h"
#include "kernel_priv.h"
#include "metrics.h"

enum { KEEP_MS = 10 * 60 * 1000, SWEEP_MS = 15 * 1000, MAX_ENDED = 4096 };
enum { SMALL_SHARE = 4096 }; // of what may wait: always taken

TAILQ_HEAD(execution_list, execution);

struct executions {
    struct execution_list live;
    struct execution_list ended; // in the order in which they ended
    size_t n_ended;
    size_t ended_bytes; // what their logs hold
    struct loop_timer *sweep;
    struct executions_settings settings;
    size_t n_live;
    size_t max_log_bytes; // at present: what each one's log may hold
    size_t waiting_bytes; // code and variables of those that wait
};

static const char *const state_names[] = {
    [EXECUTION_QUEUED] = "queued",
    [EXECUTION_RUNNING] = "running",
    [EXECUTION_INTERRUPTING] = "interrupting",
    [EXECUTION_KILLING] = "killing",
    [EXECUTION_DONE] = "done",
};

static const char *const status_names[] = {
    [EXECUTION_OK] = "ok",           [EXECUTION_ERROR] = "error",
    [EXECUTION_TIMEOUT] = "timeout", [EXECUTION_INTERRUPTED] = "interrupted",
    [EXECUTION_DIED] = "died",
};

// Each execution under way has its share of the whole, and at most what one may have.
static void
count_live(struct executions *executions, int change)
{
    executions->n_live += (size_t)change;
    size_t share =
        executions->settings.max_live_bytes / (executions->n_live ? executions->n_live : 1);
    size_t most = executions->settings.max_log_bytes;
    executions->max_log_bytes = share < most ? share : most;
}

// ---- One execution --------------------------------------------------------------------------

static size_t
request_bytes(const struct execution_request *request)
{
    return strlen(request->code) + (request->variables ? strlen(request->variables) : 0);
}

int
executions_check_room(const struct executions *executions, const struct execution_request *request,
                      struct kg_error *err)
{
    size_t max = executions->settings.max_waiting_bytes, bytes = request_bytes(request);
    bool small = bytes <= max / SMALL_SHARE; // nobody's large ones keep it out
    if (max == 0 || small || executions->waiting_bytes + bytes <= max)
        return 0;
    return kg_error_set(err, KG_SESSION_BUSY, 0,
                        "%zu MiB of code and variables wait already; try again later",
                        executions->waiting_bytes >> 20);
}

struct execution *
execution_new(struct executions *executions, struct kernel *kernel,
              const struct execution_request *request)
{
    struct execution *execution = KG_NEW(struct execution);
    execution->refs = 2; // the caller's and the registry's
    id_random(execution->id, EXECUTION_ID_LEN);
    execution->owner = kg_strdup(request->owner);
    execution->session_id = kg_strdup(request->session_id);
    execution->code = kg_strdup(request->code);
    execution->variables = request->variables ? kg_strdup(request->variables) : NULL;
    execution->env = request->env ? kg_strdup(request->env) : NULL;
    execution->request_bytes = request_bytes(request);
    executions->waiting_bytes += execution->request_bytes;
    execution->timeout_ms = request->timeout_ms;
    execution->keep_running = request->keep_running;
    execution->session_ends = request->session_ends;
    execution->kernel = kernel;
    execution->executions = executions;
    count_live(executions, +1);
    output_log_init(&execution->log, &executions->max_log_bytes);
    TAILQ_INSERT_TAIL(&executions->live, execution, in_registry);
    return execution;
}

struct execution *
execution_ref(struct execution *execution)
{
    execution->refs++;
    return execution;
}

void
execution_release_request(struct execution *execution)
{
    if (execution->executions)
        execution->executions->waiting_bytes -= execution->request_bytes;
    execution->request_bytes = 0;
    free(KG_STEAL(execution->variables));
    free(KG_STEAL(execution->code));
}

void
execution_unref(struct execution *execution)
{
    if (!execution || --execution->refs > 0)
        return;
    output_log_fini(&execution->log);
    execution_release_request(execution);
    free(execution->env);
    free(execution->owner);
    free(execution->session_id);
    free(execution);
}

const char *
execution_id(const struct execution *execution)
{
    return execution->id;
}

const char *
execution_session_id(const struct execution *execution)
{
    return execution->session_id;
}

enum execution_state
execution_state(const struct execution *execution)
{
    return execution->state;
}

static bool
edge_is_legal(enum execution_state from, enum execution_state to)
{
    switch (from) {
    case EXECUTION_QUEUED:
        return to == EXECUTION_RUNNING || to == EXECUTION_DONE;
    case EXECUTION_RUNNING:
        return to == EXECUTION_INTERRUPTING || to == EXECUTION_KILLING || to == EXECUTION_DONE;
    case EXECUTION_INTERRUPTING:
        return to == EXECUTION_KILLING || to == EXECUTION_DONE;
    case EXECUTION_KILLING:
        return to == EXECUTION_DONE;
    case EXECUTION_DONE:
        return false;
    }
    return false;
}

void
execution_set_state(struct execution *execution, enum execution_state state)
{
    assert(edge_is_legal(execution->state, state));
    log_debug("execution state", LOG_STR("execution", execution->id),
              LOG_STR("from", state_names[execution->state]), LOG_STR("to", state_names[state]));
    execution->state = state;
}

void
execution_interrupt(struct execution *execution)
{
    if (execution->kernel)
        kernel_stop_execution(execution->kernel, execution, EXECUTION_INTERRUPTED);
}

// ---- The registry ---------------------------------------------------------------------------

static void
forget(struct execution *execution)
{
    struct executions *executions = execution->executions;
    if (execution->state == EXECUTION_DONE) {
        TAILQ_REMOVE(&executions->ended, execution, in_registry);
        executions->n_ended--;
        executions->ended_bytes -= execution->log.bytes_held;
    } else {
        TAILQ_REMOVE(&executions->live, execution, in_registry);
    }
    executions->waiting_bytes -= execution->request_bytes;
    execution->request_bytes = 0;
    execution->executions = NULL;
    execution_unref(execution);
}

// Forgets what ended too long ago, and the oldest of what is too much to keep.
static void
sweep(struct executions *executions)
{
    int64_t oldest_ms = clock_mono_ms() - KEEP_MS;
    for (struct execution *first; (first = TAILQ_FIRST(&executions->ended));) {
        bool too_much = executions->n_ended > MAX_ENDED ||
                        executions->ended_bytes > executions->settings.max_replay_bytes;
        if (!too_much && first->ended_ms >= oldest_ms)
            return;
        forget(first);
    }
}

// From the living to the ended; one that is too large to be kept is forgotten, not all the others.
static void
retire(struct execution *execution)
{
    struct executions *executions = execution->executions;
    TAILQ_REMOVE(&executions->live, execution, in_registry);
    count_live(executions, -1);
    TAILQ_INSERT_TAIL(&executions->ended, execution, in_registry);
    executions->n_ended++;
    executions->ended_bytes += execution->log.bytes_held;
    if (execution->log.bytes_held > executions->settings.max_replay_bytes)
        forget(execution);
    sweep(executions);
}

void
execution_finish(struct execution *execution, enum execution_status status, bool kernel_restarted)
{
    int64_t duration_us = execution->started_us ? clock_mono_us() - execution->started_us : 0;
    json_t *done = json_pack("{s:s, s:I, s:f, s:s}", "status", status_names[status],
                             "execution_count", (json_int_t)execution->count, "duration_ms",
                             (double)duration_us / 1000, "session_id", execution->session_id);
    if (kernel_restarted)
        json_object_set_new(done, "kernel_restarted", json_true());
    if (execution->more_files > 0)
        json_object_set_new(done, "more_files", json_integer(execution->more_files));
    execution_set_state(execution, EXECUTION_DONE);
    execution->kernel = NULL;
    execution->ended_ms = clock_mono_ms();
    execution->log.last_message++;
    log_info("execution ended", LOG_STR("execution", execution->id),
             LOG_STR("session", execution->session_id), LOG_STR("status", status_names[status]),
             LOG_INT("duration_us", duration_us), LOG_INT("bytes", execution->log.bytes_total));
    output_log_append(&execution->log, "done", OUTPUT_KEPT, done);
    metric_add(METRIC_EXECUTIONS, 1, status_names[status]);
    metric_observe_since(METRIC_EXECUTION_SECONDS, execution->log.opened_us);
    execution_release_request(execution);
    if (execution->executions)
        retire(execution);
}

static void
on_sweep(void *arg)
{
    struct executions *executions = arg;
    sweep(executions);
    loop_timer_start(executions->sweep, SWEEP_MS);
}

struct executions *
executions_new(struct loop *loop, const struct executions_settings *settings)
{
    struct executions *executions = KG_NEW(struct executions);
    TAILQ_INIT(&executions->live);
    TAILQ_INIT(&executions->ended);
    executions->settings = *settings;
    executions->max_log_bytes = settings->max_log_bytes;
    executions->sweep = loop_timer_new(loop, on_sweep, executions);
    loop_timer_start(executions->sweep, SWEEP_MS);
    return executions;
}

void
executions_free(struct executions *executions)
{
    if (!executions)
        return;
    for (struct execution *live; (live = TAILQ_FIRST(&executions->live));)
        forget(live);
    for (struct execution *ended; (ended = TAILQ_FIRST(&executions->ended));)
        forget(ended);
    loop_timer_free(executions->sweep);
    free(executions);
}

static struct execution *
find_in(const struct execution_list *list, const char *id, const char *owner)
{
    struct execution *execution;
    TAILQ_FOREACH(execution, list, in_registry) {
        if (strcmp(execution->id, id) == 0 && strcmp(execution->owner, owner) == 0)
            return execution;
    }
    return NULL;
}

struct execution *
executions_find(struct executions *executions, const char *id, const char *owner,
                struct kg_error *err)
{
    struct execution *found = find_in(&executions->live, id, owner);
    if (!found)
        found = find_in(&executions->ended, id, owner);
    if (!found)
        kg_error_set(err, KG_NOT_FOUND, 0,
                     "there is no execution %.40s; they are kept for 10 minutes", id);
    return found;
}
