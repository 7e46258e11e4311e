// SPDX-License-Identifier: Apache-2.0
// Executions and the registry that finds them by id.

#include <assert.h>
#include <string.h>

#include "budget.h"
#include "execution_priv.h"
#include "metrics.h"

enum { KEEP_MS = 10 * 60 * 1000, MAX_ENDED = 4096 };
enum { SMALL_SHARE = 4096 }; // of what may wait: always taken
enum { BUCKETS = 1024 };

TAILQ_HEAD(execution_list, execution);

// What the executions of one owner hold; there as long as one of them is.
struct execution_share {
    LIST_ENTRY(execution_share) link;
    char *name; // budget_name()
    size_t n_executions;
    struct execution_list ended; // oldest first
    size_t n_ended;
    size_t replay_bytes;  // of the logs of those that have ended
    size_t waiting_bytes; // of the code and variables of those that wait
};

struct executions {
    struct execution_list live;
    struct execution_list ended; // in the order in which they ended
    size_t n_ended;
    size_t ended_bytes; // what their logs hold
    struct loop_timer *sweep;
    struct executions_settings settings;
    struct output_budget *budget; // of the logs of those that are live
    size_t waiting_bytes;         // code and variables of those that wait
    LIST_HEAD(, execution_share) shares;
    LIST_HEAD(execution_bucket, execution) buckets[BUCKETS]; // by id
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

static struct execution_bucket *
bucket_of(struct executions *executions, const char *id)
{
    return &executions->buckets[hash_fnv1a(id, strlen(id)) % BUCKETS];
}

// ---- Shares ---------------------------------------------------------------------------------

static struct execution_share *
share_find(const struct executions *executions, const char *owner)
{
    const char *name = budget_name(owner);
    struct execution_share *share;
    LIST_FOREACH(share, &executions->shares, link) {
        if (strcmp(share->name, name) == 0)
            return share;
    }
    return NULL;
}

static struct execution_share *
share_enter(struct executions *executions, const char *owner)
{
    struct execution_share *share = share_find(executions, owner);
    if (!share) {
        share = KG_NEW(struct execution_share);
        share->name = kg_strdup(budget_name(owner));
        TAILQ_INIT(&share->ended);
        LIST_INSERT_HEAD(&executions->shares, share, link);
    }
    share->n_executions++;
    return share;
}

static void
share_leave(struct execution_share *share)
{
    if (--share->n_executions > 0)
        return;
    LIST_REMOVE(share, link);
    free(share->name);
    free(share);
}

// The oldest that has ended, of the owner whose ended ones are most, in bytes or in number.
static struct execution *
oldest_of_largest(const struct executions *executions, bool by_bytes)
{
    const struct execution_share *largest = NULL, *share;
    LIST_FOREACH(share, &executions->shares, link) {
        if (!largest || (by_bytes ? share->replay_bytes > largest->replay_bytes
                                  : share->n_ended > largest->n_ended))
            largest = share;
    }
    return TAILQ_FIRST(&largest->ended);
}

// ---- One execution --------------------------------------------------------------------------

static size_t
request_bytes(const struct execution_request *request)
{
    return strlen(request->code) + (request->variables ? strlen(request->variables) : 0);
}

int
executions_check_waiting(const struct executions *executions, const char *owner, size_t bytes,
                         struct kg_error *err)
{
    size_t max = executions->settings.max_waiting_bytes;
    const struct execution_share *share = share_find(executions, owner);
    size_t own = share ? share->waiting_bytes : 0;
    bool small = bytes <= max / SMALL_SHARE; // small ones are always taken
    if (max == 0 || small)
        return 0;
    if (own + bytes > max / 2) // one owner does not keep the others out
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "%zu MiB of your code and variables wait already; try again later",
                            own >> 20);
    if (executions->waiting_bytes + bytes > max)
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "%zu MiB of code and variables wait already; try again later",
                            executions->waiting_bytes >> 20);
    return 0;
}

int
executions_check_room(const struct executions *executions, const struct execution_request *request,
                      struct kg_error *err)
{
    return executions_check_waiting(executions, request->owner, request_bytes(request), err);
}

struct execution_share *
executions_enter(struct executions *executions, const char *owner)
{
    return share_enter(executions, owner);
}

void
executions_leave(struct execution_share *share)
{
    share_leave(share);
}

void
executions_count_waiting(struct executions *executions, struct execution_share *share,
                         ssize_t bytes)
{
    executions->waiting_bytes += (size_t)bytes;
    share->waiting_bytes += (size_t)bytes;
}

size_t
executions_max_message_bytes(const struct executions *executions)
{
    return executions->settings.max_message_bytes;
}

size_t
executions_max_log_bytes(const struct executions *executions)
{
    return executions->settings.max_log_bytes;
}

struct output_budget *
executions_budget(const struct executions *executions)
{
    return executions->budget;
}

static void
count_waiting(struct execution *execution, ssize_t bytes)
{
    if (!execution->executions)
        return;
    executions_count_waiting(execution->executions, execution->share, bytes);
}

struct execution *
execution_new(struct executions *executions, const struct execution_request *request)
{
    struct execution *execution = KG_NEW(struct execution);
    execution->refs = 2; // the caller's and the registry's
    execution->exit_code = -1;
    execution->executions = executions;
    id_random(execution->id, EXECUTION_ID_LEN);
    if (executions->settings.id_suffix)
        strncat(execution->id, executions->settings.id_suffix, EXECUTION_SUFFIX_MAX);
    execution->owner = kg_strdup(request->owner);
    execution->session_id = kg_strdup(request->session_id);
    execution->code = kg_strdup(request->code);
    execution->variables = request->variables ? kg_strdup(request->variables) : NULL;
    execution->env = request->env ? kg_strdup(request->env) : NULL;
    execution->share = share_enter(executions, request->owner);
    execution->request_bytes = request_bytes(request);
    count_waiting(execution, (ssize_t)execution->request_bytes);
    execution->timeout_ms = request->timeout_ms;
    execution->max_image_side = request->max_image_side;
    execution->keep_running = request->keep_running;
    execution->session_ends = request->session_ends;
    size_t max_message = executions->settings.max_message_bytes;
    output_log_init(&execution->log, executions->budget, executions->settings.max_log_bytes,
                    max_message ? max_message : SIZE_MAX);
    TAILQ_INSERT_TAIL(&executions->live, execution, in_registry);
    LIST_INSERT_HEAD(bucket_of(executions, execution->id), execution, in_bucket);
    return execution;
}

struct execution *
execution_ref(struct execution *execution)
{
    execution->refs++;
    return execution;
}

static void
execution_release_count(struct execution *execution)
{
    count_waiting(execution, -(ssize_t)execution->request_bytes);
    execution->request_bytes = 0;
}

void
execution_release_request(struct execution *execution)
{
    execution_release_count(execution);
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
    free(execution->kernel);
    free(execution->msg_id);
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

bool
execution_interrupt(struct execution *execution)
{
    if (!execution->on_interrupt)
        return false;
    execution->on_interrupt(execution, execution->on_interrupt_arg);
    return true;
}

// ---- The registry ---------------------------------------------------------------------------

static void
count_ended(struct execution *execution, int change)
{
    struct executions *executions = execution->executions;
    size_t bytes = execution->log.bytes_held;
    executions->n_ended += (size_t)change;
    executions->ended_bytes += change > 0 ? bytes : -bytes;
    execution->share->n_ended += (size_t)change;
    execution->share->replay_bytes += change > 0 ? bytes : -bytes;
}

static void
forget(struct execution *execution)
{
    struct executions *executions = execution->executions;
    if (execution->state == EXECUTION_DONE) {
        TAILQ_REMOVE(&executions->ended, execution, in_registry);
        TAILQ_REMOVE(&execution->share->ended, execution, in_share);
        count_ended(execution, -1);
    } else {
        TAILQ_REMOVE(&executions->live, execution, in_registry);
        output_log_leave_budget(&execution->log);
    }
    LIST_REMOVE(execution, in_bucket);
    execution_release_count(execution);
    share_leave(KG_STEAL(execution->share));
    execution->executions = NULL;
    execution_unref(execution);
}

// Forgets what ended too long ago, and what is too much to keep. The timer then waits for the
// oldest that is left, so that an idle gateway is not woken up.
static void
sweep(struct executions *executions)
{
    int64_t oldest_ms = clock_mono_ms() - KEEP_MS;
    struct execution *first;
    while ((first = TAILQ_FIRST(&executions->ended)) && first->ended_ms <= oldest_ms)
        forget(first);
    while (executions->ended_bytes > executions->settings.max_replay_bytes)
        forget(oldest_of_largest(executions, true));
    while (executions->n_ended > MAX_ENDED)
        forget(oldest_of_largest(executions, false));
    if ((first = TAILQ_FIRST(&executions->ended)) && !loop_timer_active(executions->sweep))
        loop_timer_start(executions->sweep, first->ended_ms - oldest_ms);
}

// From the living to the ended; one that is too large to be kept is forgotten, not all the others.
static void
retire(struct execution *execution)
{
    struct executions *executions = execution->executions;
    TAILQ_REMOVE(&executions->live, execution, in_registry);
    output_log_leave_budget(&execution->log);
    TAILQ_INSERT_TAIL(&executions->ended, execution, in_registry);
    TAILQ_INSERT_TAIL(&execution->share->ended, execution, in_share);
    count_ended(execution, +1);
    if (execution->log.bytes_held > executions->settings.max_replay_bytes)
        forget(execution);
    sweep(executions);
}

// A message that was too large is counted as dropped; its line says so.
void
execution_take_lines(struct execution *execution, struct jupyter_message *message)
{
    if (message->cut_bytes > 0 && message->shaped) {
        metric_add(METRIC_OUTPUT_DROPPED_LINES, 1);
        metric_add(METRIC_OUTPUT_DROPPED_BYTES, (double)message->cut_bytes);
    }
    output_append_lines(&execution->log, KG_STEAL(message->shaped));
}

void
execution_finish(struct execution *execution, enum execution_status status, bool kernel_restarted)
{
    int64_t duration_us = execution->started_us ? clock_mono_us() - execution->started_us : 0;
    json_t *done = json_pack("{s:s, s:I, s:f, s:s}", "status", status_names[status],
                             "execution_count", (json_int_t)execution->count, "duration_ms",
                             (double)duration_us / 1000, "session_id", execution->session_id);
    if (execution->exit_code >= 0)
        json_object_set_new(done, "exit_code", json_integer(execution->exit_code));
    if (kernel_restarted)
        json_object_set_new(done, "kernel_restarted", json_true());
    if (execution->more_files > 0)
        json_object_set_new(done, "more_files", json_integer(execution->more_files));
    execution_set_state(execution, EXECUTION_DONE);
    execution->on_interrupt = NULL;
    execution->status = status;
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
    sweep(arg);
}

struct executions *
executions_new(struct loop *loop, const struct executions_settings *settings)
{
    struct executions *executions = KG_NEW(struct executions);
    TAILQ_INIT(&executions->live);
    TAILQ_INIT(&executions->ended);
    executions->settings = *settings;
    LIST_INIT(&executions->shares);
    executions->budget = output_budget_new(settings->max_live_bytes);
    executions->sweep = loop_timer_new(loop, on_sweep, executions);
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
    output_budget_unref(executions->budget);
    free(executions);
}

struct execution *
executions_find(struct executions *executions, const char *id, const char *owner,
                struct kg_error *err)
{
    struct execution *found;
    LIST_FOREACH(found, bucket_of(executions, id), in_bucket) {
        if (strcmp(found->id, id) == 0 && strcmp(found->owner, owner) == 0)
            break;
    }
    if (!found)
        kg_error_set(err, KG_NOT_FOUND, 0,
                     "there is no execution %.40s; they are kept for 10 minutes", id);
    return found;
}

// ---- Descriptions ---------------------------------------------------------------------------

// A time of clock_mono_us(); 0: null.
static json_t *
describe_time(int64_t mono_us)
{
    char text[CLOCK_RFC3339_LEN];
    if (mono_us == 0)
        return json_null();
    clock_format_rfc3339(clock_wall_ms() - (clock_mono_us() - mono_us) / 1000, text);
    return json_string(text);
}

static json_t *
describe(const struct execution *execution)
{
    bool is_done = execution->state == EXECUTION_DONE;
    json_t *body = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "execution_id", execution->id,
                             "state", state_names[execution->state], "kernel", execution->kernel,
                             "created_at", describe_time(execution->log.opened_us), "started_at",
                             describe_time(execution->started_us), "ended_at",
                             describe_time(execution->ended_ms * 1000));
    if (is_done)
        json_object_set_new(body, "status", json_string(status_names[execution->status]));
    if (execution->msg_id)
        json_object_set_new(body, "msg_id", json_string(execution->msg_id));
    return body;
}

static int
compare_newest(const void *a, const void *b)
{
    const struct execution *one = *(struct execution *const *)a;
    const struct execution *other = *(struct execution *const *)b;
    return (one->log.opened_us < other->log.opened_us) -
           (one->log.opened_us > other->log.opened_us);
}

// Their number; `to` may be NULL.
static size_t
gather(const struct execution_list *list, const char *owner, const char *session_id,
       const struct execution **to)
{
    size_t n = 0;
    const struct execution *execution;
    TAILQ_FOREACH(execution, list, in_registry) {
        if (strcmp(execution->session_id, session_id) != 0 || strcmp(execution->owner, owner) != 0)
            continue;
        if (to)
            to[n] = execution;
        n++;
    }
    return n;
}

json_t *
executions_describe(const struct executions *executions, const char *owner, const char *session_id)
{
    size_t max = gather(&executions->live, owner, session_id, NULL) +
                 gather(&executions->ended, owner, session_id, NULL);
    KG_AUTO_FREE const struct execution **found = kg_calloc(max + 1, sizeof *found);
    size_t n = gather(&executions->live, owner, session_id, found);
    n += gather(&executions->ended, owner, session_id, found + n);
    qsort(found, n, sizeof *found, compare_newest);
    json_t *list = json_array();
    for (size_t i = 0; i < n && i < EXECUTIONS_DESCRIBED_MAX; i++)
        json_array_append_new(list, describe(found[i]));
    return json_pack("{s:o, s:I}", "executions", list, "total", (json_int_t)n);
}
