// SPDX-License-Identifier: Apache-2.0
// A request of a client until it is answered, and how a provider sees it.

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "mcp_priv.h"
#include "metrics.h"

static const char *const log_levels[] = {"debug", "info",     "notice", "warning",
                                         "error", "critical", "alert",  "emergency"};

int
mcp_log_level_find(const char *name)
{
    for (int i = 0; name && i < (int)KG_ARRAY_LEN(log_levels); i++) {
        if (strcmp(log_levels[i], name) == 0)
            return i;
    }
    return -1;
}

// ---- Life -----------------------------------------------------------------------------------

// Reads the _meta of the request.
static void
read_meta(struct mcp_call *call)
{
    call->log_level = -1;
    const json_t *meta = json_object_get(call->params, "_meta");
    if (!json_is_object(meta))
        return;
    call->meta = meta;
    const json_t *token = json_object_get(meta, "progressToken");
    if (json_is_integer(token) || json_is_string(token))
        call->progress_token = token;
    if (revision_get(call->revision)->stateless)
        call->log_level = mcp_log_level_find(rpc_string(meta, MCP_META "logLevel"));
}

struct mcp_call *
mcp_call_new(const struct origin *origin, enum mcp_revision revision, json_t *message,
             size_t weight, const struct method *method)
{
    struct mcp_call *call = KG_NEW(struct mcp_call);
    call->mcp = origin->mcp;
    call->session = origin->session;
    call->outlet = origin->outlet;
    call->owner = kg_strdup(origin->owner);
    call->profile = kg_strdup(origin->profile);
    const char *base_url = origin->session ? origin->session->base_url : origin->base_url;
    call->base_url = base_url ? kg_strdup(base_url) : NULL;
    call->elsewhere = json_incref(origin->elsewhere);
    call->revision = revision;
    call->message = message;
    call->weight = weight;
    budget_hold_start(&call->held, &call->mcp->requests, call->owner);
    budget_hold_set(&call->held, weight);
    call->method = method;
    call->empty = json_object();
    call->id = json_object_get(message, "id");
    call->params = json_object_get(message, "params");
    if (!call->params)
        call->params = call->empty;
    call->arguments = call->empty;
    call->progress = -1;
    read_meta(call);
    call->outlet->call = call;
    LIST_INSERT_HEAD(&call->mcp->calls, call, in_mcp);
    metric_add(METRIC_MCP_CALLS, 1);
    if (call->session) {
        call->session->n_calls++;
        LIST_INSERT_HEAD(&call->session->calls, call, in_session);
    }
    return call;
}

json_t *
mcp_call_take_message(struct mcp_call *call)
{
    json_t *message = call->message;
    call->message = json_pack("{s:o}", "id", json_deep_copy(call->id));
    call->id = json_object_get(call->message, "id");
    call->params = call->arguments = call->empty;
    call->meta = call->progress_token = NULL;
    call->name = NULL;
    return message;
}

void
mcp_call_shrink(struct mcp_call *call)
{
    mcp_message_free(call->mcp->loop, mcp_call_take_message(call), call->weight);
    call->weight = json_value_weight(call->message);
    budget_hold_set(&call->held, call->weight);
}

void
mcp_call_free(struct mcp_call *call)
{
    loop_timer_free(call->late_cancel);
    mcp_message_free(call->mcp->loop, call->message, call->weight);
    json_decref(call->empty);
    json_decref(call->joined);
    attachments_fini(&call->attachments);
    json_decref(call->elsewhere);
    free(call->base_url);
    free(call->profile);
    free(call->owner);
    free(call);
}

void
mcp_call_cancel(struct mcp_call *call)
{
    if (call->cancelled)
        return;
    call->cancelled = true;
    if (call->ended) // its answer is being encoded, and will be discarded
        return;
    call->holding = true;
    loop_fn on_cancel = call->on_cancel;
    call->on_cancel = NULL;
    if (!call->ended && on_cancel)
        on_cancel(call->on_cancel_arg);
    call->holding = false;
    if (call->ended)
        mcp_call_free(call);
}

static void
on_late_cancel(void *arg)
{
    struct mcp_call *call = arg;
    loop_fn on_cancel = call->on_cancel;
    call->on_cancel = NULL;
    if (on_cancel)
        on_cancel(call->on_cancel_arg);
}

void
mcp_call_on_cancel(struct mcp_call *call, loop_fn fn, void *arg)
{
    call->on_cancel = fn;
    call->on_cancel_arg = arg;
    if (!call->cancelled)
        return;
    if (!call->late_cancel)
        call->late_cancel = loop_timer_new(call->mcp->loop, on_late_cancel, call);
    loop_timer_start(call->late_cancel, 0);
}

// ---- What was asked -------------------------------------------------------------------------

const char *
mcp_call_owner(const struct mcp_call *call)
{
    return call->owner;
}

json_t *
mcp_call_elsewhere(const struct mcp_call *call)
{
    return call->elsewhere;
}

const char *
mcp_call_profile(const struct mcp_call *call)
{
    return call->profile;
}

enum mcp_revision
mcp_call_revision(const struct mcp_call *call)
{
    return call->revision;
}

const char *
mcp_call_name(const struct mcp_call *call)
{
    return call->name;
}

const json_t *
mcp_call_arguments(const struct mcp_call *call)
{
    return call->arguments;
}

const char *
mcp_call_completed_argument(const struct mcp_call *call)
{
    const char *name = rpc_string(json_object_get(call->params, "argument"), "name");
    return name ? name : "";
}

const char *
mcp_call_completed_value(const struct mcp_call *call)
{
    const char *value = rpc_string(json_object_get(call->params, "argument"), "value");
    return value ? value : "";
}

const char *
mcp_call_base_url(const struct mcp_call *call)
{
    return call->base_url;
}

// ---- The session ----------------------------------------------------------------------------

bool
mcp_call_has_session(const struct mcp_call *call)
{
    return call->session != NULL;
}

const struct mcp_session *
mcp_call_session(const struct mcp_call *call)
{
    return call->session;
}

static struct session_value *
find_value(struct mcp_session *session, const void *key)
{
    for (size_t i = 0; session && i < session->n_values; i++) {
        if (session->values[i].key == key)
            return &session->values[i];
    }
    return NULL;
}

void *
mcp_call_session_value(const struct mcp_call *call, const void *key)
{
    struct session_value *value = find_value(call->session, key);
    return value ? value->value : NULL;
}

bool
mcp_call_set_session_value(struct mcp_call *call, const void *key, void *value,
                           mcp_value_free_fn free_fn)
{
    struct mcp_session *session = call->session;
    if (!session)
        return false;
    struct session_value *slot = find_value(session, key);
    if (!slot) {
        session->values =
            kg_realloc(session->values, (session->n_values + 1) * sizeof session->values[0]);
        slot = &session->values[session->n_values++];
        *slot = (struct session_value){.key = key};
    }
    struct session_value old = *slot;
    slot->value = value;
    slot->free_fn = free_fn;
    if (old.free_fn)
        old.free_fn(old.value);
    return true;
}

// ---- Progress and log -----------------------------------------------------------------------

bool
call_can_send(const struct mcp_call *call)
{
    return !call->cancelled && call->outlet->ops->can_send(call->outlet);
}

bool
mcp_call_wants_progress(const struct mcp_call *call)
{
    return call->progress_token && call_can_send(call);
}

void
mcp_call_progress(struct mcp_call *call, double progress, double total, const char *message)
{
    if (!mcp_call_wants_progress(call) || progress <= call->progress)
        return;
    call->progress = progress;
    json_t *params =
        json_pack("{s:O, s:f}", "progressToken", call->progress_token, "progress", progress);
    if (total > 0)
        json_object_set_new(params, "total", json_real(total));
    if (message && revision_get(call->revision)->progress_text)
        json_object_set_new(params, "message", json_string(message));
    call->outlet->ops->send(call->outlet, rpc_notification("notifications/progress", params), true);
}

bool
mcp_call_wants_log(const struct mcp_call *call, enum mcp_log_level level)
{
    if (!call_can_send(call))
        return false;
    if (revision_get(call->revision)->stateless)
        return call->log_level >= 0 && (int)level >= call->log_level;
    return call->session && level >= call->session->log_level;
}

void
mcp_call_log(struct mcp_call *call, enum mcp_log_level level, const char *logger, json_t *data)
{
    if (!mcp_call_wants_log(call, level)) {
        json_decref(data);
        return;
    }
    json_t *params =
        json_pack("{s:s, s:s*, s:o}", "level", log_levels[level], "logger", logger, "data", data);
    call->outlet->ops->send(call->outlet, rpc_notification("notifications/message", params), true);
}
