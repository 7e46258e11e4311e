// SPDX-License-Identifier: Apache-2.0
// The list of tools is asked for whenever the connection is up again, when the server says that it
// has changed, and now and then where the server cannot say so. While the server is down, the last
// one is kept.

#include <string.h>

#include "metrics.h"
#include "upstream_priv.h"

enum {
    OWN_MAX = 256, // connections of sessions
    PAGES_MAX = 64,
    LISTED_MAX = 4096, // tools
    LIST_TIMEOUT_MS = 60 * 1000,
    LIST_PACE_MS = 500,
    LIST_RETRY_MS = 30 * 1000,
    LIST_RENEW_MS = 300 * 1000,
};

// ---- The list -------------------------------------------------------------------------------

static void upstream_ask_page(struct upstream *upstream, const char *cursor);

static void
upstream_end_listing(struct upstream *upstream)
{
    rpc_call_cancel(KG_STEAL(upstream->listing));
    loop_timer_stop(upstream->list_timeout);
    json_decref(KG_STEAL(upstream->pages));
    upstream->n_pages = 0;
}

static void
upstream_fail_listing(struct upstream *upstream, const char *why)
{
    KG_AUTO_FREE char *text = kg_strdup(why);
    server_hide_values(upstream->spec, text);
    log_warning("an MCP server does not list its tools; the last list stays",
                LOG_STR("server", upstream->spec->name), LOG_STR("error", text));
    upstream_end_listing(upstream);
    loop_timer_start(upstream->list_soon, LIST_RETRY_MS);
}

static void
upstream_take_list(struct upstream *upstream)
{
    struct offer offer;
    offer_init(&offer, upstream->spec, upstream->pages);
    bool changed = !json_equal(offer.described, upstream->offer.described);
    offer_fini(&upstream->offer);
    upstream->offer = offer;
    upstream_end_listing(upstream);
    metric_set(METRIC_UPSTREAM_TOOLS, (double)json_array_size(offer.described),
               upstream->spec->name);
    if (changed)
        log_info("an MCP server has listed its tools", LOG_STR("server", upstream->spec->name),
                 LOG_INT("offered", json_array_size(offer.described)),
                 LOG_INT("listed", offer.n_listed), LOG_INT("left_out", offer.n_left_out));
    if (upstream->list_again)
        loop_timer_start(upstream->list_soon, LIST_PACE_MS);
    else if (!connection_hears_changes(upstream->connection))
        loop_timer_start(upstream->list_soon, LIST_RENEW_MS);
}

static void
upstream_on_page(struct message *message, const struct kg_error *err, bool sent, void *arg)
{
    struct upstream *upstream = arg;
    (void)sent;
    upstream->listing = NULL;
    const json_t *result = message ? json_object_get(message->json, "result") : NULL;
    const json_t *tools = json_object_get(result, "tools");
    const char *cursor = json_string_value(json_object_get(result, "nextCursor"));
    if (!message) {
        upstream_fail_listing(upstream, err->message);
        return;
    }
    if (!json_is_array(tools)) {
        const json_t *error = json_object_get(message->json, "error");
        const char *said = json_string_value(json_object_get(error, "message"));
        upstream_fail_listing(upstream, said ? said : "its answer has no tools");
        return;
    }
    json_array_extend(upstream->pages, (json_t *)(uintptr_t)tools);
    bool more = cursor && *cursor && ++upstream->n_pages < PAGES_MAX &&
                json_array_size(upstream->pages) < LISTED_MAX;
    if (more)
        upstream_ask_page(upstream, cursor);
    else
        upstream_take_list(upstream);
}

static void
upstream_ask_page(struct upstream *upstream, const char *cursor)
{
    struct kg_error err = {0};
    json_t *params = cursor ? json_pack("{s:s}", "cursor", cursor) : json_object();
    upstream->listing = connection_call(upstream->connection, "tools/list", params,
                                        upstream_on_page, upstream, &err);
    if (!upstream->listing)
        upstream_fail_listing(upstream, err.message);
}

static void
upstream_on_list_soon(void *arg)
{
    struct upstream *upstream = arg;
    if (upstream->listing) {
        upstream->list_again = true;
        return;
    }
    if (!connection_is_up(upstream->connection))
        return; // it lists when it is up again
    upstream->list_again = false;
    upstream->pages = json_array();
    loop_timer_start(upstream->list_timeout, LIST_TIMEOUT_MS);
    upstream_ask_page(upstream, NULL);
}

static void
upstream_on_list_timeout(void *arg)
{
    upstream_fail_listing(arg, "it does not answer tools/list");
}

// ---- Connections ----------------------------------------------------------------------------

static void
upstream_on_up(struct connection *connection, void *arg)
{
    struct upstream *upstream = arg;
    (void)connection;
    metric_set(METRIC_UPSTREAM_UP, 1, upstream->spec->name);
    loop_timer_start(upstream->list_soon, 0);
}

static void
upstream_on_down(struct connection *connection, void *arg)
{
    struct upstream *upstream = arg;
    (void)connection;
    metric_set(METRIC_UPSTREAM_UP, 0, upstream->spec->name);
}

static void
upstream_on_list_changed(struct connection *connection, void *arg)
{
    struct upstream *upstream = arg;
    (void)connection;
    if (upstream->listing)
        upstream->list_again = true;
    else
        loop_timer_start(upstream->list_soon, LIST_PACE_MS);
}

static void
own_on_change(struct connection *connection, void *arg)
{
    (void)connection;
    (void)arg;
}

struct connection *
upstream_connection_for(struct upstream *upstream, const void *session, struct kg_error *err)
{
    static const struct connection_events events = {
        .on_up = own_on_change, .on_down = own_on_change, .on_list_changed = own_on_change};
    struct own_connection *own;
    if (!upstream->spec->per_session)
        return upstream->connection;
    LIST_FOREACH(own, &upstream->own, link) {
        if (own->session == session)
            return own->connection;
    }
    if (upstream->n_own >= OWN_MAX) {
        (void)kg_error_set(err, KG_SESSION_BUSY, 0,
                           "the MCP server %s: %d sessions have a connection of their own, which "
                           "is as many as there may be",
                           upstream->spec->name, OWN_MAX);
        return NULL;
    }
    own = KG_NEW(struct own_connection);
    own->session = session;
    own->connection = connection_new(upstream->context, upstream->spec, upstream->number, false,
                                     &events, upstream);
    LIST_INSERT_HEAD(&upstream->own, own, link);
    upstream->n_own++;
    return own->connection;
}

static void
own_free(struct upstream *upstream, struct own_connection *own)
{
    LIST_REMOVE(own, link);
    upstream->n_own--;
    connection_free(own->connection);
    free(own);
}

void
upstream_end_session(struct upstream *upstream, const void *session)
{
    struct own_connection *own;
    LIST_FOREACH(own, &upstream->own, link) {
        if (own->session == session)
            break;
    }
    if (own)
        own_free(upstream, own);
}

// ---- Life -----------------------------------------------------------------------------------

struct upstream *
upstream_new(const struct connection_context *context, const struct server_spec *spec,
             size_t number, int64_t timeout_ms)
{
    static const struct connection_events events = {.on_up = upstream_on_up,
                                                    .on_down = upstream_on_down,
                                                    .on_list_changed = upstream_on_list_changed};
    struct upstream *upstream = KG_NEW(struct upstream);
    upstream->context = context;
    upstream->spec = spec;
    upstream->number = number;
    upstream->timeout_ms = timeout_ms;
    LIST_INIT(&upstream->own);
    TAILQ_INIT(&upstream->waiting);
    TAILQ_INIT(&upstream->running);
    upstream->offer.described = json_array();
    upstream->list_soon = loop_timer_new(context->loop, upstream_on_list_soon, upstream);
    upstream->list_timeout = loop_timer_new(context->loop, upstream_on_list_timeout, upstream);
    upstream->connection = connection_new(context, spec, number, true, &events, upstream);
    metric_set(METRIC_UPSTREAM_UP, 0, spec->name);
    metric_set(METRIC_UPSTREAM_TOOLS, 0, spec->name);
    connection_open(upstream->connection);
    return upstream;
}

void
upstream_free(struct upstream *upstream)
{
    upstream_end_listing(upstream);
    for (struct own_connection *own; (own = LIST_FIRST(&upstream->own));)
        own_free(upstream, own);
    connection_free(upstream->connection);
    offer_fini(&upstream->offer);
    loop_timer_free(upstream->list_soon);
    loop_timer_free(upstream->list_timeout);
    free(upstream);
}

const struct server_spec *
upstream_spec(const struct upstream *upstream)
{
    return upstream->spec;
}

const struct offer *
upstream_offer(const struct upstream *upstream)
{
    return &upstream->offer;
}

const struct connection *
upstream_connection(const struct upstream *upstream)
{
    return upstream->connection;
}
