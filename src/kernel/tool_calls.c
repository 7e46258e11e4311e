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

enum { WAITING_MAX = 256 }; // of one execution

struct tool_call {
    TAILQ_ENTRY(tool_call) link;
    struct tool_calls *calls;
    int64_t number;
    int64_t seq;  // of its line
    char *server; // that answers it; NULL: the client
    char *name;
    json_t *arguments; // for clients that join later
    struct budget_hold hold;
    int64_t began_us;
    struct loop_timer *timer;
    tool_result_fn fn;
    void *arg;
};

struct tool_calls {
    struct execution *execution;
    struct tool_list *tools;         // the client's; NULL: it has none
    TAILQ_HEAD(, tool_call) waiting; // in the order of their numbers
    int n_waiting;
    bool ended;
};

// ---- One call -------------------------------------------------------------------------------

static char *
call_id(const struct tool_call *call)
{
    return kg_asprintf("%s-%lld", call->calls->execution->id, (long long)call->number);
}

static void
call_free(struct tool_call *call)
{
    loop_timer_free(call->timer);
    budget_hold_end(&call->hold);
    json_decref(call->arguments);
    free(call->server);
    free(call->name);
    free(call);
}

// Takes it out, and says in the log how it has ended. The clock of the code runs again after the
// last one.
static void
call_leave(struct tool_call *call, const char *status, size_t bytes)
{
    struct tool_calls *calls = call->calls;
    struct execution *execution = calls->execution;
    KG_AUTO_FREE char *id = call_id(call);
    double duration_ms = (double)(clock_mono_us() - call->began_us) / 1000;
    TAILQ_REMOVE(&calls->waiting, call, link);
    calls->n_waiting--;
    json_t *line =
        json_pack("{s:s, s:s, s:s, s:f, s:I}", "call_id", id, "name", call->name, "status", status,
                  "duration_ms", duration_ms, "bytes", (json_int_t)bytes);
    if (call->server)
        json_object_set_new(line, "server", json_string(call->server));
    else
        metric_add(METRIC_TOOL_CALLS, 1, status);
    execution_append_own_line(execution, "tool_result", OUTPUT_DROPPABLE, line);
    if (calls->n_waiting == 0 && execution->on_tools_wait)
        execution->on_tools_wait(execution, false, execution->on_interrupt_arg);
}

static void
call_answer(struct tool_call *call, const struct tool_result *result, const char *status,
            size_t bytes)
{
    tool_result_fn fn = call->fn;
    void *arg = call->arg;
    call_leave(call, status, bytes);
    call_free(call);
    fn(result, arg);
}

static void
call_fail(struct tool_call *call, const char *status, const char *why)
{
    const struct tool_result result = {.error = why, .code = status};
    call_answer(call, &result, status, 0);
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
    call_leave(call, status, bytes);
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
    TAILQ_INIT(&calls->waiting);
    execution->tool_calls = calls;
}

void
tool_calls_stop(struct execution *execution, const char *reason)
{
    struct tool_calls *calls = execution->tool_calls;
    if (!calls)
        return;
    calls->ended = true;
    for (struct tool_call *call; (call = TAILQ_FIRST(&calls->waiting));)
        call_fail(call, "cancelled", reason);
}

void
tool_calls_end(struct execution *execution, const char *reason)
{
    tool_calls_stop(execution, reason);
    if (!execution->tool_calls)
        return;
    tool_list_unref(execution->tool_calls->tools);
    free(KG_STEAL(execution->tool_calls));
}

// ---- Calls of code --------------------------------------------------------------------------

struct tool_list *
execution_tools(const struct execution *execution)
{
    return execution->tool_calls ? execution->tool_calls->tools : NULL;
}

static int
check_room(const struct tool_calls *calls, struct kg_error *err)
{
    const struct execution *execution = calls->execution;
    if (calls->ended || execution->state != EXECUTION_RUNNING || !execution->executions)
        return kg_error_set(err, KG_KERNEL_BUSY, 0, "this execution is being stopped");
    if (execution->n_tool_calls >= execution->max_tool_calls)
        return kg_error_set(err, KG_RATE_LIMITED, 0,
                            "an execution may make %lld calls of tools (setting max-tool-calls)",
                            (long long)execution->max_tool_calls);
    return 0;
}

static int
check_call(const struct tool_calls *calls, const char *name, const json_t *arguments, size_t bytes,
           struct kg_error *err)
{
    const struct execution *execution = calls->execution;
    if (check_room(calls, err) < 0)
        return -1;
    if (tool_list_check(calls->tools, name, arguments, err) < 0)
        return -1;
    return executions_check_waiting(execution->executions, execution->owner, bytes, err);
}

// Counts it, and stops the clock of the code.
static struct tool_call *
call_new(struct tool_calls *calls, const char *name, tool_result_fn fn, void *arg)
{
    struct execution *execution = calls->execution;
    struct tool_call *call = KG_NEW(struct tool_call);
    call->calls = calls;
    call->number = ++execution->n_tool_calls;
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
    struct tool_calls *calls = execution->tool_calls;
    if (check_room(calls, err) < 0)
        return NULL;
    struct tool_call *call = call_new(calls, name, fn, arg);
    call->server = kg_strdup(server);
    return call;
}

struct tool_call *
execution_call_tool(struct execution *execution, const char *name, const json_t *arguments,
                    tool_result_fn fn, void *arg, struct kg_error *err)
{
    struct tool_calls *calls = execution->tool_calls;
    size_t bytes = json_dumpb(arguments, NULL, 0, JSON_COMPACT);
    if (check_call(calls, name, arguments, bytes, err) < 0) {
        metric_add(METRIC_TOOL_CALLS, 1, "refused");
        return NULL;
    }
    struct tool_call *call = call_new(calls, name, fn, arg);
    call->arguments = json_incref((json_t *)(uintptr_t)arguments);
    budget_hold_start(&call->hold, executions_waiting(execution->executions), execution->owner);
    budget_hold_set(&call->hold, bytes);
    call->timer = loop_timer_new(executions_loop(execution->executions), call_on_time, call);
    loop_timer_start(call->timer, execution->tool_call_timeout_ms);
    KG_AUTO_FREE char *id = call_id(call);
    execution_append_own_line(
        execution, "tool_call", OUTPUT_KEPT_IF_SMALL,
        json_pack("{s:s, s:s, s:O}", "call_id", id, "name", name, "arguments", call->arguments));
    call->seq = execution->log.last_seq;
    return call;
}

bool
execution_is_full_of_calls(const struct execution *execution)
{
    return execution->tool_calls && execution->tool_calls->n_waiting >= WAITING_MAX;
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
        KG_AUTO_FREE char *id = call_id(call);
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
find_waiting(const struct execution *execution, int64_t number)
{
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
check_result(const struct execution *execution, const json_t *results, size_t at,
             struct kg_error *err)
{
    static const char *const names[] = {"call_id", "result", "error"};
    const json_t *item = json_array_get(results, at);
    const char *id = json_string_value(json_object_get(item, "call_id"));
    const json_t *error = json_object_get(item, "error");
    bool has_result = json_object_get(item, "result");
    size_t n_known = 0;
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        n_known += json_object_get(item, names[i]) != NULL;
    if (!id || has_result == (error != NULL) || (error && !json_is_string(error)) ||
        n_known != json_object_size(item))
        return kg_error_set(err, KG_INVALID, 0,
                            "results[%zu] must be {\"call_id\", \"result\": any value} or "
                            "{\"call_id\", \"error\": a string}",
                            at);
    for (size_t i = 0; i < at; i++) {
        const char *other =
            json_string_value(json_object_get(json_array_get(results, i), "call_id"));
        if (strcmp(other, id) == 0)
            return kg_error_set(err, KG_INVALID, 0, "results[%zu]: %.60s has two results", at, id);
    }
    int64_t number = number_of(execution, id);
    if (!number)
        return kg_error_set(err, KG_NOT_FOUND, 0,
                            "results[%zu]: this execution has made no call %.60s", at, id);
    if (!find_waiting(execution, number))
        return kg_error_set(err, KG_TOOL_CALL_ENDED, 0,
                            "results[%zu]: the call %.60s does not wait any more; its tool_result "
                            "line says why",
                            at, id);
    return 0;
}

int
execution_give_results(struct execution *execution, const json_t *results, struct kg_error *err)
{
    size_t i;
    const json_t *item;
    if (!json_is_array(results) || json_array_size(results) == 0 ||
        json_array_size(results) > WAITING_MAX)
        return kg_error_set(err, KG_INVALID, 0, "results must be a list of 1 to %d results",
                            WAITING_MAX);
    for (i = 0; i < json_array_size(results); i++) {
        if (check_result(execution, results, i, err) < 0)
            return -1;
    }
    json_array_foreach((json_t *)(uintptr_t)results, i, item) {
        const char *id = json_string_value(json_object_get(item, "call_id"));
        const char *error = json_string_value(json_object_get(item, "error"));
        const json_t *value = json_object_get(item, "result");
        const struct tool_result result = {
            .value = value, .error = error, .code = error ? "tool_error" : NULL};
        struct tool_call *call = find_waiting(execution, number_of(execution, id));
        if (call) // one result may end the code, and with it the other calls
            call_answer(call, &result, error ? "error" : "ok",
                        value ? json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY)
                              : strlen(error));
    }
    return 0;
}
