// SPDX-License-Identifier: Apache-2.0
// A call waits for a place, then for the answer; its time limit counts from its start. The log and
// the metrics name it, and never what it carries.

#include <string.h>

#include "metrics.h"
#include "upstream_priv.h"

enum {
    RUNNING_MAX = 64,             // calls of a server
    OWNERS_MAX = RUNNING_MAX / 2, // of these, one owner's
    WAITING_MAX = 4096,
};

struct upstream_call {
    TAILQ_ENTRY(upstream_call) link;
    struct upstream *upstream;
    struct connection *connection;
    struct rpc_call *rpc; // NULL: it waits for a place
    char *tool;
    char *session_id;
    char *owner;       // who counts as one: budget_name()
    json_t *arguments; // until it is sent
    struct loop_timer *timer;
    struct loop_timer *turn; // begins it
    bool is_running;
    int64_t began_us;
    upstream_fn fn;
    void *arg;
};

// ---- The end --------------------------------------------------------------------------------

static void upstream_run_waiting(struct upstream *upstream);

// Takes it out, and says how it has ended.
static void
call_leave(struct upstream_call *call, const char *outcome)
{
    struct upstream *upstream = call->upstream;
    rpc_call_cancel(KG_STEAL(call->rpc));
    if (call->is_running) {
        TAILQ_REMOVE(&upstream->running, call, link);
        upstream->n_running--;
    } else {
        TAILQ_REMOVE(&upstream->waiting, call, link);
        upstream->n_waiting--;
    }
    metric_add(METRIC_UPSTREAM_CALLS, 1, upstream->spec->name, call->tool, outcome);
    metric_observe_since(METRIC_UPSTREAM_CALL_SECONDS, call->began_us, upstream->spec->name);
    log_info("a tool of an MCP server was called", LOG_STR("server", upstream->spec->name),
             LOG_STR("tool", call->tool), LOG_STR("session", call->session_id),
             LOG_STR("outcome", outcome),
             LOG_INT("duration_ms", (clock_mono_us() - call->began_us) / 1000));
    upstream_run_waiting(upstream);
}

static void
call_free(struct upstream_call *call)
{
    loop_timer_free(call->timer);
    loop_timer_free(call->turn);
    json_decref(call->arguments);
    free(call->tool);
    free(call->session_id);
    free(call->owner);
    free(call);
}

static void
call_end(struct upstream_call *call, const struct upstream_result *result)
{
    upstream_fn fn = call->fn;
    void *arg = call->arg;
    call_leave(call, result->status);
    call_free(call);
    fn(result, arg);
}

static void
call_fail(struct upstream_call *call, const char *status, const char *code, const char *why)
{
    KG_AUTO_FREE char *text = kg_strdup(why);
    server_hide_values(call->upstream->spec, text);
    const struct upstream_result result = {.error = text, .code = code, .status = status};
    call_end(call, &result);
}

void
upstream_call_cancel(struct upstream_call *call)
{
    if (!call)
        return;
    call_leave(call, "cancelled");
    call_free(call);
}

static void
call_on_time(void *arg)
{
    struct upstream_call *call = arg;
    const struct upstream *upstream = call->upstream;
    KG_AUTO_FREE char *why =
        kg_asprintf("%s.%s was not answered within %.15g s (timeout of the server, or setting "
                    "tool-call-timeout)",
                    upstream->spec->name, call->tool, (double)upstream->timeout_ms / 1000);
    call_fail(call, "timeout", "timeout", why);
}

// ---- The answer -----------------------------------------------------------------------------

static void
call_take_error(struct upstream_call *call, const json_t *error)
{
    const char *said = json_string_value(json_object_get(error, "message"));
    KG_AUTO_FREE char *why = kg_asprintf("%s.%s: %s", call->upstream->spec->name, call->tool,
                                         said && *said ? said : "the server refuses the call");
    call_fail(call, "error", "tool_error", why);
}

static void
call_on_answer(struct message *message, const struct kg_error *err, bool sent, void *arg)
{
    struct upstream_call *call = arg;
    call->rpc = NULL;
    if (!message) {
        KG_AUTO_FREE char *why = kg_asprintf(
            "%s%s", err->message, sent ? "; it is not known whether the tool has run" : "");
        call_fail(call, "error", kg_code_info(err->code)->name, why);
        return;
    }
    const json_t *error = json_object_get(message->json, "error");
    if (error || !message->value) {
        call_take_error(call, error);
        return;
    }
    if (message->is_tool_error) {
        call_fail(call, "error", "tool_error", json_string_value(message->value));
        return;
    }
    const struct upstream_result result = {
        .value = message->value, .text = message->text, .status = "ok"};
    call_end(call, &result);
}

// ---- The start ------------------------------------------------------------------------------

static void
call_run(struct upstream_call *call)
{
    struct upstream *upstream = call->upstream;
    struct kg_error err = {0};
    json_t *params =
        json_pack("{s:s, s:o}", "name", call->tool, "arguments", KG_STEAL(call->arguments));
    TAILQ_REMOVE(&upstream->waiting, call, link);
    upstream->n_waiting--;
    TAILQ_INSERT_TAIL(&upstream->running, call, link);
    upstream->n_running++;
    call->is_running = true;
    upstream_run_waiting(upstream);
    call->rpc = connection_call(call->connection, "tools/call", params, call_on_answer, call, &err);
    if (!call->rpc)
        call_fail(call, "error", kg_code_info(err.code)->name, err.message);
}

static bool
call_has_place(const struct upstream_call *call)
{
    const struct upstream *upstream = call->upstream;
    const struct upstream_call *other;
    size_t n = 0;
    TAILQ_FOREACH(other, &upstream->running, link)
        n += strcmp(other->owner, call->owner) == 0;
    return upstream->n_running < RUNNING_MAX && n < OWNERS_MAX;
}

static void
call_on_turn(void *arg)
{
    struct upstream_call *call = arg;
    if (call_has_place(call))
        call_run(call);
}

// In a later turn: the caller is in the middle of the end of another call.
static void
upstream_run_waiting(struct upstream *upstream)
{
    struct upstream_call *call;
    if (upstream->n_running >= RUNNING_MAX)
        return;
    TAILQ_FOREACH(call, &upstream->waiting, link) {
        if (!call_has_place(call))
            continue;
        loop_timer_start(call->turn, 0);
        return;
    }
}

static int
check_call(const struct upstream *upstream, const char *tool, const json_t *arguments,
           struct kg_error *err)
{
    const struct tool_list *tools = upstream->offer.tools;
    struct kg_error why = {0};
    if (!tools) {
        *err = *connection_error(upstream->connection);
        return err->code ? -1
                         : kg_error_set(err, KG_SERVER_DOWN, 0,
                                        "the MCP server %s has not listed its tools yet",
                                        upstream->spec->name);
    }
    if (upstream->n_waiting >= WAITING_MAX)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "the MCP server %s: too many calls wait",
                            upstream->spec->name);
    if (tool_list_check(tools, tool, arguments, &why) == 0)
        return 0;
    if (why.code == KG_NOT_FOUND)
        return kg_error_set(err, KG_NOT_FOUND, 0,
                            "the MCP server %s offers no tool \"%.60s\"; tools.find() lists what "
                            "there is",
                            upstream->spec->name, tool);
    *err = why;
    return -1;
}

struct upstream_call *
upstream_call_tool(struct upstream *upstream, const char *tool,
                   const struct upstream_call_spec *spec, upstream_fn fn, void *arg,
                   struct kg_error *err)
{
    struct connection *connection = NULL;
    if (check_call(upstream, tool, spec->arguments, err) == 0)
        connection = upstream_connection_for(upstream, spec->session, err);
    if (!connection) {
        metric_add(METRIC_UPSTREAM_CALLS, 1, upstream->spec->name,
                   err->code == KG_INVALID ? tool : "unknown", "refused"); // not a tenant's word
        return NULL;
    }
    struct upstream_call *call = KG_NEW(struct upstream_call);
    call->upstream = upstream;
    call->connection = connection;
    call->tool = kg_strdup(tool);
    call->session_id = kg_strdup(spec->session_id);
    call->owner = kg_strdup(budget_name(spec->owner));
    call->arguments = json_incref((json_t *)(uintptr_t)spec->arguments);
    call->began_us = clock_mono_us();
    call->fn = fn;
    call->arg = arg;
    call->timer = loop_timer_new(upstream->context->loop, call_on_time, call);
    call->turn = loop_timer_new(upstream->context->loop, call_on_turn, call);
    loop_timer_start(call->timer, upstream->timeout_ms);
    TAILQ_INSERT_TAIL(&upstream->waiting, call, link);
    upstream->n_waiting++;
    upstream_run_waiting(upstream);
    return call;
}
