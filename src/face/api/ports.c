// SPDX-License-Identifier: Apache-2.0
// The ports of a session: GET lists what listens, POST makes a link to one, or makes one public.

#include "ports.h"

#include <string.h>

#include "api_priv.h"
#include "session.h"
#include "session_ports.h"

// ---- GET ------------------------------------------------------------------------------------

struct ports_listing {
    struct http_request *request;
    const struct api_context *context;
    const struct session *session; // valid while there is a call
    struct sandbox_call *call;
};

static void
ports_listing_free(void *arg)
{
    struct ports_listing *listing = arg;
    sandbox_call_cancel(listing->call);
    free(listing);
}

static void
add_urls(const struct ports_listing *listing, json_t *ports)
{
    size_t i;
    json_t *entry;
    json_array_foreach(ports, i, entry) {
        int port = (int)json_integer_value(json_object_get(entry, "port"));
        KG_AUTO_FREE char *url = ports_url(listing->context->face->ports, listing->request,
                                           listing->session, port, NULL);
        json_object_set_new(entry, "url", url ? json_string(url) : json_null());
    }
}

static void
ports_on_listed(const json_t *result, const struct kg_error *call_err, void *arg)
{
    struct ports_listing *listing = arg;
    struct kg_error err = {0};
    listing->call = NULL;
    if (!result)
        err = *call_err;
    json_t *ports = result ? session_port_list_parse(listing->session, result, &err) : NULL;
    if (!ports) {
        http_reply_error(listing->request, &err);
        return;
    }
    add_urls(listing, ports);
    http_reply_json(listing->request, 200, json_pack("{s:o}", "ports", ports));
}

void
handle_port_list(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    struct ports_listing *listing = KG_NEW(struct ports_listing);
    *listing = (struct ports_listing){.request = request, .context = arg, .session = session};
    http_request_own(request, listing, ports_listing_free);
    listing->call = session_port_list(session, ports_on_listed, listing, &err);
    if (!listing->call)
        http_reply_error(request, &err);
}

// ---- POST -----------------------------------------------------------------------------------

static int
take_port(const struct http_request *request, int *ret, struct kg_error *err)
{
    const char *text = http_request_param(request, "port");
    size_t len = strlen(text);
    *ret = len < 6 && strspn(text, "0123456789") == len ? atoi(text) : 0;
    if (*ret < 1 || *ret > SESSION_PORT_MAX)
        return kg_error_set(err, KG_INVALID, 0, "port must be a number from 1 to %d",
                            SESSION_PORT_MAX);
    return 0;
}

static json_t *
make_link(struct http_request *request, const struct api_context *context, struct session *session,
          int port, struct kg_error *err)
{
    struct ports *ports = context->face->ports;
    char ends[CLOCK_RFC3339_LEN];
    int64_t ends_ms = 0;
    bool is_public = session_port_is_public(session, port);
    KG_AUTO_FREE char *url = is_public ? ports_url(ports, request, session, port, err)
                                       : ports_link(ports, request, session, port, &ends_ms, err);
    if (!url)
        return NULL;
    clock_format_rfc3339(ends_ms, ends);
    return json_pack("{s:i, s:b, s:s, s:o}", "port", port, "public", (int)is_public, "url", url,
                     "expires_at", is_public ? json_null() : json_string(ends));
}

static json_t *
change_port(struct http_request *request, const struct api_context *context, struct kg_error *err)
{
    int port;
    bool has_public = false, is_public = false;
    struct session *session = api_session(request, context, err);
    if (!session || take_port(request, &port, err) < 0)
        return NULL;
    json_auto_t *root = NULL;
    if (http_request_body_len(request) > 0) {
        root = http_request_json(request, err);
        if (!root || port_body_parse(root, &has_public, &is_public, err) < 0)
            return NULL;
    }
    if (has_public && http_request_has_token(request)) {
        kg_error_set(err, KG_TOKEN_SCOPE, 0, "public: this needs the key of the session's owner");
        return NULL;
    }
    KG_AUTO_FREE char *url = ports_url(context->face->ports, request, session, port, err);
    if (!url || (has_public && session_port_set_public(session, port, is_public, err) < 0))
        return NULL;
    session_touch(session);
    return make_link(request, context, session, port, err);
}

void
handle_port_link(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    json_t *answer = change_port(request, arg, &err);
    if (answer)
        http_reply_json(request, 200, answer);
    else
        http_reply_error(request, &err);
}
