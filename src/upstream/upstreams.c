// SPDX-License-Identifier: Apache-2.0
// All servers, and which owners may use them.

#include "upstreams.h"

#include <string.h>

#include "upstream.h"

enum { BYTES_OF_ALL = 128 << 20 };

struct upstreams {
    struct upstreams_settings settings;
    struct connection_context context;
    struct budget bytes;
    struct upstream **all;
    size_t n;
};

struct upstreams *
upstreams_new(const struct upstreams_settings *settings)
{
    struct upstreams *upstreams = KG_NEW(struct upstreams);
    upstreams->settings = *settings;
    budget_init(&upstreams->bytes, "upstream_bytes", BYTES_OF_ALL, BYTES_OF_ALL / 2);
    upstreams->context = (struct connection_context){
        .transports = {[CONNECTION_HTTP] = &http_transport, [CONNECTION_STDIO] = &stdio_transport},
        .loop = settings->loop,
        .client = settings->client,
        .bytes = &upstreams->bytes,
        .start = settings->start,
        .stop = settings->stop,
        .start_arg = settings->start_arg,
    };
    upstreams->n = settings->file->n;
    upstreams->all = kg_calloc(upstreams->n + 1, sizeof upstreams->all[0]);
    for (size_t i = 0; i < upstreams->n; i++) {
        const struct server_spec *spec = &settings->file->servers[i];
        upstreams->all[i] =
            upstream_new(&upstreams->context, spec, i,
                         spec->timeout_ms ? spec->timeout_ms : settings->call_timeout_ms);
    }
    return upstreams;
}

void
upstreams_free(struct upstreams *upstreams)
{
    if (!upstreams)
        return;
    for (size_t i = 0; i < upstreams->n; i++)
        upstream_free(upstreams->all[i]);
    budget_fini(&upstreams->bytes);
    free(upstreams->all);
    free(upstreams);
}

// ---- For code -------------------------------------------------------------------------------

static bool
may_use(const struct upstreams *upstreams, const struct upstream *upstream, const char *owner)
{
    const struct upstreams_settings *settings = &upstreams->settings;
    char **owners = upstream_spec(upstream)->owners;
    if (!owners)
        return settings->is_operators(owner, settings->operators_arg);
    for (; *owners; owners++) {
        if (strcmp(*owners, "*") == 0 || strcmp(*owners, owner) == 0)
            return true;
    }
    return false;
}

// That the owner may use; its name has `len` bytes.
static struct upstream *
upstreams_find(const struct upstreams *upstreams, const char *owner, const char *name, size_t len)
{
    for (size_t i = 0; i < upstreams->n; i++) {
        const char *its_name = upstream_spec(upstreams->all[i])->name;
        if (strlen(its_name) == len && memcmp(its_name, name, len) == 0)
            return may_use(upstreams, upstreams->all[i], owner) ? upstreams->all[i] : NULL;
    }
    return NULL;
}

json_t *
upstreams_list_servers(const struct upstreams *upstreams, const char *owner)
{
    json_t *list = json_array();
    for (size_t i = 0; i < upstreams->n; i++) {
        const struct upstream *upstream = upstreams->all[i];
        const struct connection *connection = upstream_connection(upstream);
        if (!may_use(upstreams, upstream, owner))
            continue;
        json_t *server =
            json_pack("{s:s, s:I}", "name", upstream_spec(upstream)->name, "tools",
                      (json_int_t)json_array_size(upstream_offer(upstream)->described));
        if (!connection_is_up(connection))
            json_object_set_new(server, "error",
                                json_string(connection_error(connection)->message));
        json_array_append_new(list, server);
    }
    return list;
}

json_t *
upstreams_list_tools(const struct upstreams *upstreams, const char *owner, const char *server)
{
    json_t *list = json_array();
    for (size_t i = 0; i < upstreams->n; i++) {
        const struct upstream *upstream = upstreams->all[i];
        bool wanted = !server || strcmp(server, upstream_spec(upstream)->name) == 0;
        if (wanted && may_use(upstreams, upstream, owner))
            json_array_extend(list, upstream_offer(upstream)->described);
    }
    return list;
}

bool
upstreams_have(const struct upstreams *upstreams, const char *owner, const char *name)
{
    size_t len = strcspn(name, ".");
    return name[len] == '.' && upstreams_find(upstreams, owner, name, len);
}

struct upstream_call *
upstream_call_start(struct upstreams *upstreams, const struct upstream_call_spec *spec,
                    upstream_fn fn, void *arg, struct kg_error *err)
{
    size_t len = strcspn(spec->name, ".");
    struct upstream *upstream = upstreams_find(upstreams, spec->owner, spec->name, len);
    if (!upstream || spec->name[len] != '.') {
        (void)kg_error_set(err, KG_NOT_FOUND, 0, "there is no tool \"%.60s\"", spec->name);
        return NULL;
    }
    return upstream_call_tool(upstream, spec->name + len + 1, spec, fn, arg, err);
}

void
upstreams_end_session(struct upstreams *upstreams, const void *session)
{
    for (size_t i = 0; upstreams && i < upstreams->n; i++)
        upstream_end_session(upstreams->all[i], session);
}

// ---- For the operator -----------------------------------------------------------------------

size_t
upstreams_count(const struct upstreams *upstreams)
{
    return upstreams->n;
}

struct upstream_state
upstreams_state(const struct upstreams *upstreams, size_t i)
{
    const struct upstream *upstream = upstreams->all[i];
    const struct connection *connection = upstream_connection(upstream);
    const struct offer *offer = upstream_offer(upstream);
    return (struct upstream_state){
        .name = upstream_spec(upstream)->name,
        .listed = offer->tools != NULL,
        .has_failed = connection_has_failed(connection),
        .n_offered = json_array_size(offer->described),
        .n_listed = offer->n_listed,
        .n_left_out = offer->n_left_out,
        .error = connection_is_up(connection) ? NULL : connection_detail(connection),
    };
}
