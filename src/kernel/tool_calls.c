// SPDX-License-Identifier: Apache-2.0
// A call waits until the client has answered it, its time is over, its code does not want it any
// more, or the execution ends. Its number is the last part of its id, so it is known of each number
// whether it was given, without a list of those that have ended.

#include "tool_calls_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "execution_priv.h"
#include "metrics.h"
#include "tool_list.h"
#include "tool_results.h"

enum {
    WAITING_MAX = TOOL_RESULTS_MAX, // of one execution
    SMALL_CALL_BYTES = 4 << 10,     // always taken: what WAITING_MAX of them hold is bounded
};

struct tool_call {
    TAILQ_ENTRY(tool_call) link;
    struct tool_calls *calls;
    int64_t number;
    int64_t seq;  // of its line
    char *server; // that answers it; NULL: the client
    char *name;
    json_t *arguments; // for clients that join later
    size_t bytes;      // that they take
    int64_t began_us;
    struct loop_timer *timer;
    tool_result_fn fn;
    void *arg;
};

struct tool_calls {
    struct execution *execution;
    struct tool_list *tools;         // the client's; NULL: it has none
    struct budget_hold hold;         // with `tools`: their bytes, and those of what waits
    TAILQ_HEAD(, tool_call) waiting; // in the order of their numbers
    int n_waiting;
    bool ended;
};

// ---- One call -------------------------------------------------------------------------------

static char *
call_id(const struct execution *execution, int64_t number)
{
    return kg_asprintf("%s-%lld", execution->id, (long long)number);
}

static void
call_free(struct tool_call *call)
{
    loop_timer_free(call->timer);
    json_decref(call->arguments);
    free(call->server);
    free(call->name);
    free(call);
}

// The clock of the code runs again after the last one.
static void
call_leave(struct tool_call *call)
{
    struct tool_calls *calls = call->calls;
    struct execution *execution = calls->execution;
    TAILQ_REMOVE(&calls->waiting, call, link);
    if (call->bytes > 0)
        budget_hold_set(&calls->hold, calls->hold.held - call->bytes);
    if (--calls->n_waiting == 0 && execution->on_tools_wait)
        execution->on_tools_wait(execution, false, execution->on_interrupt_arg);
}

// Appends the line that says how the call has ended. A reader of the line may end the execution, so
// the call has left the list and its caller has been answered before.
static void
call_report(struct execution *execution, const struct tool_call *call, const char *status,
            size_t bytes)
{
    KG_AUTO_FREE char *id = call_id(execution, call->number);
    double duration_ms = (double)(clock_mono_us() - call->began_us) / 1000;
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:f, s:I}", "call_id", id, "name", call->name, "status", status,
                  "duration_ms", duration_ms, "bytes", (json_int_t)bytes);
    if (call->server)
        json_object_set_new(line, "server", json_string(call->server));
    else
        metric_add(METRIC_TOOL_CALLS, 1, status);
    execution_append_own_line(execution, "tool_result", OUTPUT_DROPPABLE, line);
}

static void
call_end(struct tool_call *call, const struct tool_result *result, const char *status)
{
    KG_AUTO(execution) execution = execution_ref(call->calls->execution);
    call_leave(call);
    call->fn(result, call->arg);
    call_report(execution, call, status, result->len);
    call_free(call);
}

static void
call_fail(struct tool_call *call, const char *status, const char *why)
{
    const struct tool_result result = {.error = why, .code = status};
    call_end(call, &result, status);
}

static void
call_on_time(void *arg)
{
    struct tool_call *call = arg;
    int64_t limit_ms = call->calls->execution->tool_call_timeout_ms;
    KG_AUTO_FREE char *why =
        kg_asprintf("%s was not answered within %.15g s (setting tool-call-timeout)", call->name,
                    (double)limit_ms / 1000);
    call_fail(call, "timeout", why);
}

void
tool_call_end(struct tool_call *call, const char *status, size_t bytes)
{
    KG_AUTO(execution) execution = execution_ref(call->calls->execution);
    call_leave(call);
    call_report(execution, call, status, bytes);
    call_free(call);
}

void
tool_call_cancel(struct tool_call *call)
{
    if (call)
        tool_call_end(call, "cancelled", 0);
}

// ---- Those of an execution ------------------------------------------------------------------

void
tool_calls_begin(struct execution *execution, struct tool_list *tools)
{
    struct tool_calls *calls = KG_NEW(struct tool_calls);
    calls->execution = execution;
    calls->tools = tools ? tool_list_ref(tools) : NULL;
    if (tools) {
        budget_hold_start(&calls->hold, executions_waiting(execution->executions),
                          execution->owner);
        budget_hold_set(&calls->hold, tool_list_weight(tools));
    }
    TAILQ_INIT(&calls->waiting);
    execution->tool_calls = calls;
}

// A reader of a line may end the execution, and with it the list.
void
tool_calls_stop(struct execution *execution, const char *reason)
{
    if (execution->tool_calls)
        execution->tool_calls->ended = true;
    for (struct tool_call *call;
         execution->tool_calls && (call = TAILQ_FIRST(&execution->tool_calls->waiting));)
        call_fail(call, "cancelled", reason);
}

void
tool_calls_end(struct execution *execution, const char *reason)
{
    tool_calls_stop(execution, reason);
    struct tool_calls *calls = KG_STEAL(execution->tool_calls);
    if (!calls)
        return;
    budget_hold_end(&calls->hold);
    tool_list_unref(calls->tools);
    free(calls);
}

// ---- Calls of code --------------------------------------------------------------------------

struct tool_list *
execution_tools(const struct execution *execution)
{
    return execution->tool_calls ? execution->tool_calls->tools : NULL;
}

bool
execution_is_full_of_calls(const struct execution *execution)
{
    return execution->tool_calls && execution->tool_calls->n_waiting >= WAITING_MAX;
}

static bool
takes_calls(const struct execution *execution)
{
    return execution->tool_calls && !execution->tool_calls->ended &&
           execution->state == EXECUTION_RUNNING && execution->executions;
}

static int
refuse_stopped(struct kg_error *err)
{
    return kg_error_set(err, KG_KERNEL_BUSY, 0, "this execution is being stopped");
}

static int
check_room(const struct execution *execution, struct kg_error *err)
{
    if (!takes_calls(execution))
        return refuse_stopped(err);
    if (execution->n_tool_calls >= execution->max_tool_calls)
        return kg_error_set(err, KG_RATE_LIMITED, 0,
                            "an execution may make %lld calls of tools (setting max-tool-calls)",
                            (long long)execution->max_tool_calls);
    return 0;
}

static int
check_call(const struct execution *execution, const char *name, const json_t *arguments,
           size_t bytes, struct kg_error *err)
{
    if (check_room(execution, err) < 0)
        return -1;
    const struct tool_calls *calls = execution->tool_calls;
    if (tool_list_check(calls->tools, name, arguments, err) < 0)
        return -1;
    if (execution_is_full_of_calls(execution))
        return kg_error_set(err, KG_SESSION_BUSY, 0, "%d calls of this execution wait already",
                            WAITING_MAX);
    if (bytes > SMALL_CALL_BYTES && !budget_hold_has_room(&calls->hold, bytes))
        return kg_error_set(err, KG_SESSION_BUSY, 0,
                            "code, variables and calls of tools that wait take too much memory "
                            "already; try again later");
    return 0;
}

// Of the last number. Stops the clock of the code.
static struct tool_call *
call_new(struct execution *execution, const char *name, tool_result_fn fn, void *arg)
{
    struct tool_calls *calls = execution->tool_calls;
    struct tool_call *call = KG_NEW(struct tool_call);
    call->calls = calls;
    call->number = execution->n_tool_calls;
    call->name = kg_strdup(name);
    call->began_us = clock_mono_us();
    call->fn = fn;
    call->arg = arg;
    TAILQ_INSERT_TAIL(&calls->waiting, call, link);
    if (calls->n_waiting++ == 0 && execution->on_tools_wait)
        execution->on_tools_wait(execution, true, execution->on_interrupt_arg);
    return call;
}

struct tool_call *
execution_begin_call(struct execution *execution, const char *server, const char *name,
                     tool_result_fn fn, void *arg, struct kg_error *err)
{
    if (check_room(execution, err) < 0)
        return NULL;
    execution->n_tool_calls++;
    struct tool_call *call = call_new(execution, name, fn, arg);
    call->server = kg_strdup(server);
    return call;
}

struct tool_call *
execution_call_tool(struct execution *execution, const char *name, const json_t *arguments,
                    tool_result_fn fn, void *arg, struct kg_error *err)
{
    KG_AUTO(execution) held = execution_ref(execution);
    size_t bytes = json_value_weight(arguments);
    if (check_call(execution, name, arguments, bytes, err) < 0) {
        metric_add(METRIC_TOOL_CALLS, 1, "refused");
        return NULL;
    }
    KG_AUTO_FREE char *id = call_id(execution, ++execution->n_tool_calls);
    execution_append_own_line(execution, "tool_call", OUTPUT_KEPT_IF_SMALL,
                              json_pack("{s:s, s:s, s:O}", "call_id", id, "name", name, "arguments",
                                        (json_t *)(uintptr_t)arguments));
    int64_t seq = execution->log.last_seq;
    if (!takes_calls(execution)) { // a reader of the line has stopped it
        (void)refuse_stopped(err);
        metric_add(METRIC_TOOL_CALLS, 1, "refused");
        return NULL;
    }
    struct tool_call *call = call_new(execution, name, fn, arg);
    struct tool_calls *calls = call->calls;
    call->seq = seq;
    call->arguments = json_incref((json_t *)(uintptr_t)arguments);
    call->bytes = bytes;
    budget_hold_set(&calls->hold, calls->hold.held + bytes);
    call->timer = loop_timer_new(executions_loop(execution->executions), call_on_time, call);
    loop_timer_start(call->timer, execution->tool_call_timeout_ms);
    return call;
}

json_t *
execution_waiting_calls(const struct execution *execution)
{
    json_t *list = json_array();
    const struct tool_call *call;
    if (!execution->tool_calls)
        return list;
    TAILQ_FOREACH(call, &execution->tool_calls->waiting, link) {
        if (call->server)
            continue;
        KG_AUTO_FREE char *id = call_id(execution, call->number);
        json_array_append_new(list, json_pack("{s:I, s:s, s:s, s:O}", "seq", (json_int_t)call->seq,
                                              "call_id", id, "name", call->name, "arguments",
                                              call->arguments));
    }
    return list;
}

// ---- Answers of clients ---------------------------------------------------------------------

// The number in an id of this execution's calls; 0: it is none.
static int64_t
number_of(const struct execution *execution, const char *id)
{
    size_t len = strlen(execution->id);
    char *end = NULL;
    if (strncmp(id, execution->id, len) != 0 || id[len] != '-' || id[len + 1] < '1' ||
        id[len + 1] > '9')
        return 0;
    int64_t number = strtoll(id + len + 1, &end, 10);
    return *end || number > execution->n_tool_calls ? 0 : number;
}

static struct tool_call *
find_waiting(const struct execution *execution, const char *id)
{
    int64_t number = number_of(execution, id);
    struct tool_call *call = NULL;
    if (!execution->tool_calls)
        return NULL;
    TAILQ_FOREACH(call, &execution->tool_calls->waiting, link) {
        if (call->number == number && !call->server)
            break;
    }
    return call;
}

static int
check_result(const struct execution *execution, const struct tool_results *results, size_t at,
             struct kg_error *err)
{
    const char *id = tool_results_call_id(results, at);
    if (!number_of(execution, id))
        return kg_error_set(err, KG_NOT_FOUND, 0,
                            "results[%zu]: this execution has made no call %.60s", at, id);
    if (!find_waiting(execution, id))
        return kg_error_set(err, KG_TOOL_CALL_ENDED, 0,
                            "results[%zu]: the call %.60s does not wait any more; its tool_result "
                            "line says why",
                            at, id);
    return 0;
}

int
execution_give_results(struct execution *execution, const struct tool_results *results,
                       struct kg_error *err)
{
    KG_AUTO(execution) held = execution_ref(execution);
    size_t n = tool_results_count(results);
    for (size_t i = 0; i < n; i++) {
        if (check_result(execution, results, i, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < n; i++) {
        const struct tool_result result = tool_results_get(results, i);
        struct tool_call *call = find_waiting(execution, tool_results_call_id(results, i));
        if (call) // a reader of a line may have ended the others
            call_end(call, &result, result.error ? "error" : "ok");
    }
    return 0;
}
