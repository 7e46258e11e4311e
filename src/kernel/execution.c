// SPDX-License-Identifier: Apache-2.0
// Executions and the registry that finds them by id.

#include <assert.h>
#include <string.h>

#include "execution_priv.h"
#include "metrics.h"
#include "tool_list.h"

enum { KEEP_MS = 10 * 60 * 1000, MAX_ENDED = 4096 };
enum { SMALL_SHARE = 4096 }; // of what may wait: always taken
enum { BUCKETS = 1024 };

TAILQ_HEAD(execution_list, execution);

struct executions {
    struct execution_list live;
    struct execution_list ended; // in the order in which they ended
    struct budget places;        // of those that have ended
    struct budget replay;        // bytes: their logs
    struct budget waiting;       // bytes: what waits for kernels
    struct output_budget *live_logs;
    struct loop *loop;
    struct loop_timer *sweep;
    struct executions_settings settings;
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
    const struct budget *waiting = &executions->waiting;
    size_t own = budget_held_by(waiting, owner);
    if (bytes <= waiting->max / SMALL_SHARE) // small ones are always taken
        return 0;
    if (own + bytes > waiting->max_share) // one owner does not keep the others out
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "%zu MiB of your code and variables wait already; try again later",
                            own >> 20);
    if (waiting->held + bytes > waiting->max)
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "%zu MiB of code and variables wait already; try again later",
                            waiting->held >> 20);
    return 0;
}

int
executions_check_room(const struct executions *executions, const struct execution_request *request,
                      struct kg_error *err)
{
    size_t tools = request->tools ? tool_list_weight(request->tools) : 0;
    return executions_check_waiting(executions, request->owner, request_bytes(request) + tools,
                                    err);
}

struct budget *
executions_waiting(struct executions *executions)
{
    return &executions->waiting;
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
    return executions->live_logs;
}

static const char *
timeout_source(const struct executions_settings *settings, int64_t timeout_ms)
{
    if (timeout_ms == settings->default_timeout_ms)
        return "setting max-execution-time; a request may name its own timeout";
    if (timeout_ms == settings->max_timeout_ms)
        return "setting max-timeout";
    return "timeout of the request";
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
    budget_hold_start(&execution->waiting, &executions->waiting, request->owner);
    budget_hold_set(&execution->waiting, request_bytes(request));
    execution->timeout_ms = request->timeout_ms;
    execution->timeout_source = timeout_source(&executions->settings, request->timeout_ms);
    execution->max_image_side = request->max_image_side;
    execution->keep_running = request->keep_running;
    execution->allow_stdin = request->allow_stdin;
    execution->more_done = json_incref(request->more_done);
    execution->session_ends = request->session_ends;
    execution->tool_call_timeout_ms = executions->settings.tool_call_timeout_ms;
    execution->max_tool_calls = executions->settings.max_tool_calls;
    execution->max_rest_ms = executions->settings.max_timeout_ms;
    size_t max_message = executions->settings.max_message_bytes;
    output_log_init(&execution->log, executions->live_logs, executions->settings.max_log_bytes,
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

void
execution_release_request(struct execution *execution)
{
    budget_hold_end(&execution->waiting);
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
    json_decref(execution->more_done);
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

int64_t
execution_opened_us(const struct execution *execution)
{
    return execution->log.opened_us;
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

void
execution_append_own_line(struct execution *execution, const char *type, enum output_worth worth,
                          json_t *members)
{
    execution->log.last_message++;
    output_log_append(&execution->log, type, worth, members);
}

void
execution_ask_input(struct execution *execution, const char *prompt, bool secretly)
{
    execution->input = secretly ? INPUT_ASKED_SECRETLY : INPUT_ASKED;
    execution_append_own_line(execution, "input_request", OUTPUT_KEPT_IF_SMALL,
                              json_pack("{s:s, s:b}", "prompt", prompt, "password", secretly));
}

void
execution_forget_input(struct execution *execution)
{
    execution->input = INPUT_NONE;
}

int
execution_give_input(struct execution *execution, const char *value, struct kg_error *err)
{
    if (execution->input == INPUT_NONE)
        return kg_error_set(err, KG_NO_INPUT_REQUEST, 0,
                            "the code of this execution does not wait for input%s",
                            execution->allow_stdin ? "" : ": it was started without allow_stdin");
    if (execution->on_input(execution, value, execution->on_input_arg, err) < 0)
        return -1;
    bool shown = execution->input == INPUT_ASKED;
    execution_forget_input(execution);
    execution_append_own_line(execution, "input_reply", OUTPUT_KEPT_IF_SMALL,
                              json_pack("{s:s*}", "value", shown ? value : NULL));
    return 0;
}

int64_t
execution_gathered_seq(const struct execution *execution)
{
    return execution->gathered_seq;
}

void
execution_set_gathered_seq(struct execution *execution, int64_t seq)
{
    execution->gathered_seq = seq;
}

// ---- The registry ---------------------------------------------------------------------------

static void
forget(struct execution *execution)
{
    struct executions *executions = execution->executions;
    if (execution->state == EXECUTION_DONE) {
        TAILQ_REMOVE(&executions->ended, execution, in_registry);
        budget_hold_end(&execution->replay);
        budget_hold_end(&execution->place);
    } else {
        TAILQ_REMOVE(&executions->live, execution, in_registry);
        output_log_leave_budget(&execution->log);
    }
    LIST_REMOVE(execution, in_bucket);
    budget_hold_end(&execution->waiting);
    execution->executions = NULL;
    execution_unref(execution);
}

// The oldest that has ended, of the owner whose ended ones hold most.
static struct execution *
oldest_of_largest(const struct budget *budget)
{
    return TAILQ_FIRST(&budget_largest(budget)->holds)->holder;
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
    while (executions->replay.held > executions->replay.max)
        forget(oldest_of_largest(&executions->replay));
    while (executions->places.held > executions->places.max)
        forget(oldest_of_largest(&executions->places));
    if ((first = TAILQ_FIRST(&executions->ended)) && !loop_timer_active(executions->sweep))
        loop_timer_start(executions->sweep, first->ended_ms - oldest_ms);
}

static void
execution_keep(struct execution *execution, struct budget_hold *hold, struct budget *budget,
               size_t held)
{
    budget_hold_start(hold, budget, execution->owner);
    budget_hold_set(hold, held);
    hold->holder = execution;
}

// From the living to the ended; one that is too large to be kept is forgotten, not all the others.
static void
retire(struct execution *execution)
{
    struct executions *executions = execution->executions;
    TAILQ_REMOVE(&executions->live, execution, in_registry);
    output_log_leave_budget(&execution->log);
    TAILQ_INSERT_TAIL(&executions->ended, execution, in_registry);
    execution_keep(execution, &execution->replay, &executions->replay, execution->log.bytes_held);
    execution_keep(execution, &execution->place, &executions->places, 1);
    if (execution->replay.held > executions->replay.max)
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
    if (execution->more_done)
        json_object_update(done, execution->more_done);
    execution_set_state(execution, EXECUTION_DONE);
    execution->on_interrupt = NULL;
    execution_forget_input(execution);
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
    executions->loop = loop;
    executions->settings = *settings;
    size_t max_replay = settings->max_replay_bytes;
    size_t max_waiting = settings->max_waiting_bytes ? settings->max_waiting_bytes : SIZE_MAX;
    budget_init(&executions->places, "executions_kept", MAX_ENDED, MAX_ENDED);
    budget_init(&executions->replay, "execution_replay_bytes", max_replay, max_replay);
    budget_init(&executions->waiting, "execution_waiting_bytes", max_waiting, max_waiting / 2);
    executions->live_logs = output_budget_new(settings->max_live_bytes);
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
    budget_fini(&executions->places);
    budget_fini(&executions->replay);
    budget_fini(&executions->waiting);
    loop_timer_free(executions->sweep);
    output_budget_unref(executions->live_logs);
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

struct loop *
executions_loop(const struct executions *executions)
{
    return executions->loop;
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
