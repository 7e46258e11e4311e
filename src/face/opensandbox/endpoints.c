// SPDX-License-Identifier: Apache-2.0
// GET /v1/sandboxes/{id}/endpoints/{port}: the address of a port of a sandbox, and the headers that
// let a client in. Clients write their own scheme before the address.

#include <stdio.h>
#include <string.h>

#include "opensandbox_priv.h"
#include "ports.h"
#include "sandbox.h"
#include "session_ports.h"
#include "session_tokens.h"

// The same whenever it is asked for; it ends with the sandbox. To be freed.
static char *
token_of(const struct opensandbox *self, const struct session *session, const char *label,
         int scopes)
{
    _Static_assert((int)SESSION_TOKEN_SCOPES_MAX >= (int)HTTP_SCOPES_TEXT_MAX, "names of scopes");
    struct session_token_claim claim = {0};
    snprintf(claim.owner, sizeof claim.owner, "%s", session_owner(session));
    snprintf(claim.session_id, sizeof claim.session_id, "%s", session_id(session));
    http_scopes_format(scopes, claim.scopes);
    return session_token_standing(self->settings.tokens, &claim,
                                  sandbox_id(session_sandbox(session)), label);
}

static void
reply_endpoint(struct http_request *request, const char *address, json_t *headers)
{
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_json(request, 200, json_pack("{s:s, s:o}", "endpoint", address, "headers", headers));
}

// What the gateway answers itself.
static void
show_own(struct http_request *request, const struct opensandbox *self,
         const struct session *session, int port)
{
    const char *host = http_request_header(request, "Host");
    KG_AUTO_FREE char *token =
        token_of(self, session, "opensandbox", HTTP_SCOPE_READ | HTTP_SCOPE_RUN | HTTP_SCOPE_FILES);
    KG_AUTO_FREE char *address =
        kg_asprintf("%s" SANDBOXES "/%s/proxy/%d", host ? host : "", session_id(session), port);
    reply_endpoint(request, address, json_pack("{s:s}", KEY_HEADER, token));
}

// What code in the sandbox answers: at a host of its own.
static void
show_port(struct http_request *request, const struct opensandbox *self,
          const struct session *session, int port)
{
    struct kg_error err = {0};
    KG_AUTO_FREE char *url = ports_url(self->settings.face->ports, request, session, port, &err);
    const char *scheme_end = url ? strstr(url, "://") : NULL;
    if (!scheme_end) {
        http_reply_error(request, &err);
        return;
    }
    KG_AUTO_FREE char *address = kg_strdup(scheme_end + strlen("://"));
    KG_AUTO_FREE char *token = token_of(self, session, "opensandboxport", HTTP_SCOPE_PORTS);
    address[strcspn(address, "/")] = '\0';
    reply_endpoint(request, address, json_pack("{s:s}", self->settings.port_header, token));
}

void
handle_os_endpoint(struct http_request *request, void *arg)
{
    const struct opensandbox *self = arg;
    struct kg_error err = {0};
    int64_t port;
    const struct session *session = find_sandbox(request, self);
    if (!session)
        return;
    if (parse_number(http_request_param(request, "port"), "port", 0, SESSION_PORT_MAX, &port,
                     &err) == 0 &&
        port == 0)
        kg_error_set(&err, KG_INVALID, 0, "port must be 1 to %d", SESSION_PORT_MAX);
    else if (!session_sandbox(session))
        kg_error_set(&err, KG_SESSION_BUSY, 0, "the sandbox is still being created");
    if (err.code != KG_OK)
        http_reply_error(request, &err);
    else if (port == EXECD_PORT || port == POLICY_PORT)
        show_own(request, self, session, (int)port);
    else
        show_port(request, self, session, (int)port);
}
