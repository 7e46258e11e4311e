// SPDX-License-Identifier: Apache-2.0
// The hosts of ports as a site of the server, and the links to them.

#include "ports.h"

#include <string.h>

#include "loop.h"
#include "ports_priv.h"
#include "sandbox.h"
#include "session.h"
#include "session_ports.h"
#include "session_tokens.h"
#include "sessions.h"

struct ports {
    struct ports_settings settings;
    const struct session_tokens *session_tokens;
    struct port_tokens tokens;
};

struct ports *
ports_new(const struct ports_settings *settings)
{
    struct ports *ports = KG_NEW(struct ports);
    ports->settings = *settings;
    TAILQ_INIT(&ports->tokens);
    return ports;
}

void
ports_free(struct ports *ports)
{
    if (!ports)
        return;
    port_tokens_fini(&ports->tokens);
    free(ports);
}

// ---- URLs -----------------------------------------------------------------------------------

// Of the gateway's own host in the request: what the client needs for the port's, too.
static const char *
port_suffix(const struct http_request *request)
{
    const char *host = http_request_header(request, "Host");
    const char *colon = host ? strrchr(host, ':') : NULL;
    return colon && !strchr(colon, ']') ? colon : "";
}

static bool
has_domain(const struct ports *ports, const struct http_request *request)
{
    const char *domain = ports->settings.domain;
    return *domain && (strcmp(domain, "localhost") != 0 || http_request_is_to_loopback(request));
}

char *
ports_domain(const struct ports *ports, const struct http_request *request)
{
    if (!has_domain(ports, request))
        return NULL;
    return kg_asprintf("%s%s", ports->settings.domain, port_suffix(request));
}

static int
find_host(const struct ports *ports, const struct http_request *request,
          const struct session *session, int port, struct port_host *ret, struct kg_error *err)
{
    const struct sandbox *sandbox = session_sandbox(session);
    if (!has_domain(ports, request))
        return kg_error_set(err, KG_PORT_FORBIDDEN, 0,
                            "ports have no address that can be reached from here: set "
                            "ports-domain");
    if (!sandbox || strlen(sandbox_id(sandbox)) > PORT_HOST_ID_MAX)
        return kg_error_set(err, KG_SESSION_BUSY, 0, "the session is still being created");
    *ret = (struct port_host){.port = port};
    strcpy(ret->id, sandbox_id(sandbox)); // it fits
    return 0;
}

static char *
format_url(const struct ports *ports, const struct http_request *request,
           const struct port_host *host, const char *token)
{
    return kg_asprintf("%s://%d-%s.%s%s/%s%s", http_request_is_https(request) ? "https" : "http",
                       host->port, host->id, ports->settings.domain, port_suffix(request),
                       token ? "?" PORT_TOKEN_PARAM "=" : "", token ? token : "");
}

char *
ports_url(const struct ports *ports, const struct http_request *request,
          const struct session *session, int port, struct kg_error *err)
{
    struct port_host host;
    if (find_host(ports, request, session, port, &host, err) < 0)
        return NULL;
    return format_url(ports, request, &host, NULL);
}

char *
ports_link(struct ports *ports, const struct http_request *request, const struct session *session,
           int port, int64_t *ret_ends_ms, struct kg_error *err)
{
    struct port_host host;
    if (find_host(ports, request, session, port, &host, err) < 0)
        return NULL;
    return format_url(ports, request, &host, port_token_make(&ports->tokens, &host, ret_ends_ms));
}

// ---- Requests -------------------------------------------------------------------------------

static enum port_host_kind
host_of(const struct ports *ports, const struct http_request *request, struct port_host *ret)
{
    return port_host_parse(http_request_header(request, "Host"), ports->settings.domain, ret);
}

static bool
ports_claim(const char *host, void *arg)
{
    const struct ports *ports = arg;
    struct port_host ignored;
    return port_host_parse(host, ports->settings.domain, &ignored) != PORT_HOST_OTHER;
}

// Whether the host is the gateway's own, after all.
static bool
ports_is_server(const char *host, char *ret_value, void *arg)
{
    _Static_assert((int)HTTP_NAMED_MAX >= (int)PORT_HOST_ID_MAX, "the id of a sandbox");
    const struct ports *ports = arg;
    struct port_host parsed;
    if (!ports->settings.own_ports)
        return false;
    if (port_host_is_api(host, ports->settings.domain))
        return true;
    if (port_host_parse(host, ports->settings.domain, &parsed) != PORT_HOST_OK)
        return false;
    for (const int *port = ports->settings.own_ports; *port; port++) {
        if (*port == parsed.port) {
            strcpy(ret_value, parsed.id); // it fits
            return true;
        }
    }
    return false;
}

static bool
has_link_token(const struct http_request *request)
{
    KG_AUTO_FREE char *rest = NULL;
    KG_AUTO_FREE char *token = port_target_token(http_request_target(request), &rest);
    return token && http_request_method(request) == HTTP_GET;
}

// Programs send a token of the session where browsers have the cookie.
static bool
has_session_token(const struct ports *ports, const struct http_request *request,
                  const struct session *session)
{
    struct session_token_claim claim;
    const char *name = ports->settings.token_header;
    const char *token = name ? http_request_header(request, name) : NULL;
    return token &&
           session_token_read(ports->session_tokens, token, &claim) == SESSION_TOKEN_VALID &&
           (http_scopes_parse(claim.scopes) & HTTP_SCOPE_PORTS) && strcmp(claim.owner, session_owner(session)) == 0 &&
           strcmp(claim.session_id, session_id(session)) == 0;
}

// Whether the request may use the port.
static int
check_access(const struct ports *ports, const struct http_request *request,
             const struct session *session, const struct port_host *host, struct kg_error *err)
{
    bool is_public = session_port_is_public(session, host->port);
    if (is_public || port_has_cookie(request, ports->settings.links, host))
        return port_check_origin(request, is_public, err);
    if (has_session_token(ports, request, session))
        return 0;
    return kg_error_set(
        err, KG_PORT_PRIVATE, 0,
        "port %d is private: the owner of its session can make a link that opens it, or "
        "make it public",
        host->port);
}

// Whether a link has let the client in. A page of another host may make a browser send the cookie:
// such a request is a stranger's.
static bool
is_let_in(const struct ports *ports, const struct http_request *request,
          const struct port_host *host)
{
    return port_has_cookie(request, ports->settings.links, host) &&
           port_check_origin(request, false, NULL) == 0;
}

// Another gateway may have the session: then that one checks.
static int
ports_admit(const struct http_request *request, char *ret_owner, bool *ret_trusted, void *arg,
            struct kg_error *err)
{
    const struct ports *ports = arg;
    struct port_host host;
    if (host_of(ports, request, &host) != PORT_HOST_OK)
        return kg_error_set(err, KG_NOT_FOUND, 0, "no port has this host: it is <port>-<id>.%s",
                            ports->settings.domain);
    const struct session *session = sessions_find_by_sandbox(ports->settings.sessions, host.id);
    if (!session)
        *ret_trusted = is_let_in(ports, request, &host);
    if (!session || has_link_token(request))
        return 0;
    if (check_access(ports, request, session, &host, err) < 0)
        return -1;
    // A stranger who visits a public port does not use up what its owner may have.
    if (is_let_in(ports, request, &host) || has_session_token(ports, request, session))
        strcpy(ret_owner, session_owner(session)); // of that size
    return 0;
}

// False: it has none. The address with the token is in no history and in no Referer then.
static bool
exchange_token(struct ports *ports, struct http_request *request, const struct port_host *host)
{
    struct kg_error err;
    KG_AUTO_FREE char *rest = NULL;
    KG_AUTO_FREE char *token = port_target_token(http_request_target(request), &rest);
    if (!token || http_request_method(request) != HTTP_GET)
        return false;
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_header(request, "Referrer-Policy", "no-referrer");
    bool is_known = port_has_cookie(request, ports->settings.links, host);
    if (!port_token_take(&ports->tokens, host, token) && !is_known) {
        kg_error_set(&err, KG_PORT_PRIVATE, 0,
                     "this link to port %d was used already, or is too old: the owner of the "
                     "session can make another one",
                     host->port);
        http_reply_error(request, &err);
        return true;
    }
    KG_AUTO_FREE char *location =
        kg_asprintf("%s://%s%s", http_request_is_https(request) ? "https" : "http",
                    http_request_header(request, "Host"), rest);
    if (!is_known)
        port_reply_cookie(request, ports->settings.links, host);
    http_reply_header(request, "Location", location);
    http_reply(request, 302, NULL, NULL, 0);
    return true;
}

static void
handle_port(struct http_request *request, void *arg)
{
    struct ports *ports = arg;
    struct port_host host;
    struct kg_error err = {0};
    (void)host_of(ports, request, &host); // admitted, so it is one
    struct session *session = sessions_find_by_sandbox(ports->settings.sessions, host.id);
    if (!session)
        kg_error_set(&err, KG_NOT_FOUND, 0,
                     "no session has a port of this host; it may have ended");
    else if (exchange_token(ports, request, &host))
        return;
    else if (check_access(ports, request, session, &host, &err) == 0) {
        port_forward_start(ports->settings.loop, request, session, host.port);
        return;
    }
    http_reply_error(request, &err);
}

static void
ask_concern(struct http_request *request, struct http_concern *ret, char **ret_name, void *arg)
{
    struct port_host host;
    (void)host_of(arg, request, &host);
    ret->kind = HTTP_CONCERNS_SANDBOX;
    *ret_name = kg_strdup(host.id);
}

void
ports_serve_http(struct ports *ports, struct http_server *server,
                 const struct session_tokens *tokens)
{
    static const struct http_concern concerns[] = {
        {.kind = HTTP_CONCERNS_ASKED, .ask = ask_concern}, {0}};
    const struct http_site site = {
        .name = "ports",
        .claims = ports_claim,
        .admit = ports_admit,
        .handler = handle_port,
        .concerns = concerns,
        .is_server = ports_is_server,
        .named_in = ports->settings.named_in,
        .arg = ports,
    };
    ports->session_tokens = tokens;
    if (*ports->settings.domain)
        http_server_set_site(server, &site);
}
