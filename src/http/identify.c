// SPDX-License-Identifier: Apache-2.0
// Finds the owner of a request: takes the credential from its head, and asks the authenticator,
// which names the owner at once or later. The connection remembers the owner until the next
// request.

#include <assert.h>
#include <sodium.h>
#include <string.h>
#include <strings.h>

#include "budget.h"
#include "http_priv.h"

// As Jupyter's clients send it; those without a key send an empty one.
static const char *
token_of(const struct http_request *request, const char *authorization)
{
    const char *query = http_request_query(request, "token");
    size_t scheme = authorization ? strcspn(authorization, " ") : 0;
    if ((scheme == 5 && strncasecmp(authorization, "token", 5) == 0) ||
        (scheme == 6 && strncasecmp(authorization, "Bearer", 6) == 0)) {
        const char *token = authorization + scheme + strspn(authorization + scheme, " ");
        if (*token)
            return token;
    }
    return query && *query ? query : NULL;
}

static const char *
credential_of(const struct http_request *request)
{
    const char *authorization = http_request_header(request, "Authorization");
    const char *token = request->flags & HTTP_TOKEN_KEY ? token_of(request, authorization) : NULL;
    if (token)
        return token;
    if (!(request->flags & HTTP_TOKEN_KEY) && authorization &&
        strncasecmp(authorization, "Bearer ", 7) == 0)
        return authorization + 7 + strspn(authorization + 7, " ");
    const char *key = http_request_header(request, "X-API-Key");
    if (!(key && *key) && (request->flags & HTTP_KEY_IN_QUERY))
        key = http_request_query(request, "api_key");
    return key && *key ? key : NULL;
}

// Pages cannot send other headers with a WebSocket: the key in base64url, as the end of an offered
// subprotocol. To be freed; NULL: there is none.
static char *
key_in_subprotocol(const struct http_request *request)
{
    static const char prefix[] = "kernelgate.key.";
    const char *list = http_request_header(request, "Sec-WebSocket-Protocol");
    const char *found = list ? strstr(list, prefix) : NULL;
    if (!found || (found > list && !strchr(", \t", found[-1])))
        return NULL;
    found += strlen(prefix);
    size_t len = strcspn(found, ", \t"), key_len;
    KG_AUTO_FREE char *key = kg_calloc(len + 1, 1);
    if (sodium_base642bin((unsigned char *)key, len, found, len, NULL, &key_len, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0)
        return NULL;
    return strlen(key) == key_len && key_len > 0 ? KG_STEAL(key) : NULL;
}

static char *
own_credential(const struct http_request *request, bool *ret_is_login)
{
    const char *credential = credential_of(request);
    bool others_count = !credential && !(request->flags & HTTP_TOKEN_KEY);
    bool may_be_offered = others_count && (request->flags & HTTP_KEY_IN_QUERY);
    char *offered = may_be_offered ? key_in_subprotocol(request) : NULL;
    char *login = others_count && !offered ? cookie_login(request) : NULL;
    *ret_is_login = login != NULL;
    return credential ? kg_strdup(credential) : offered ? offered : login;
}

char *
http_request_credential(const struct http_request *request, bool *ret_is_login)
{
    if (!request->dialect)
        return own_credential(request, ret_is_login);
    char *theirs = request->dialect->credential(request);
    const char *bearer = theirs ? NULL : credential_of(request);
    *ret_is_login = false;
    return theirs ? theirs : bearer ? kg_strdup(bearer) : NULL;
}

struct http_quota
http_server_quota(const struct http_server *server, const char *owner)
{
    const struct http_authenticator *authenticator = server->authenticator;
    return authenticator ? authenticator->ops->quota(authenticator, owner)
                         : server->anonymous_quota;
}

// A connection counts for the owner of its last request, since a proxy's connections carry requests
// of several owners.
static void
identify_set_owner(struct http_connection *conn, const char *name)
{
    struct http_owners *owners = &conn->server->owners;
    struct http_owner *before = KG_STEAL(conn->counted_for);
    assert(strlen(name) <= HTTP_OWNER_MAX);
    strcpy(conn->owner, name);
    if (*name)
        conn->counted_for = owner_join(owners, budget_name(name));
    if (before)
        owner_leave(owners, before, clock_mono_us());
}

static void
identify_on_checked(const char *owner, const struct kg_error *err, void *arg)
{
    struct http_connection *conn = arg;
    conn->check = NULL;
    if (err) {
        conn->unchecked = KG_NEW(struct kg_error);
        *conn->unchecked = *err;
    }
    identify_set_owner(conn, owner);
    conn->on_identified(conn);
}

// A token speaks for its owner, who must still be one.
static struct http_check *
ask_owner(struct http_server *server, struct http_identity *ret, http_checked_fn done, void *arg)
{
    struct http_authenticator *authenticator = server->authenticator;
    char name[HTTP_OWNER_MAX + 1];
    struct http_check *check = NULL;
    strcpy(name, ret->owner); // of the same size
    if (!authenticator && strcmp(name, HTTP_ANONYMOUS) == 0)
        return NULL;
    ret->owner[0] = '\0';
    if (authenticator && authenticator->ops->check_owner)
        check = authenticator->ops->check_owner(authenticator, name, ret->owner, done, arg);
    if (!check && !ret->owner[0])
        kg_error_set(&ret->err, KG_UNAUTHORIZED, 0, "the owner of this token has no key any more");
    return check;
}

struct http_check *
identify_ask(struct http_server *server, const char *credential, bool is_login,
             struct http_identity *ret, http_checked_fn done, void *arg)
{
    struct http_authenticator *authenticator = server->authenticator;
    *ret = (struct http_identity){0};
    switch (is_login ? HTTP_TOKEN_NONE : token_read(server, credential, &ret->token, ret->owner)) {
    case HTTP_TOKEN_ENDED:
        *ret = (struct http_identity){0};
        kg_error_set(&ret->err, KG_UNAUTHORIZED, 0,
                     "the token has expired, or was revoked, or its session has ended");
        return NULL;
    case HTTP_TOKEN_ELSEWHERE:
    case HTTP_TOKEN_VALID:
        return ask_owner(server, ret, done, arg);
    case HTTP_TOKEN_NONE:
        break;
    }
    return authenticator
               ? authenticator->ops->check(authenticator, credential, ret->owner, done, arg)
               : NULL;
}

// Without an authenticator only a token is a credential.
static char *
credential_that_counts(const struct http_connection *conn, const struct http_request *request,
                       bool *ret_is_login)
{
    KG_AUTO_FREE char *credential = http_request_credential(request, ret_is_login);
    struct http_token token;
    char owner[HTTP_OWNER_MAX + 1];
    bool counts = credential && (conn->server->authenticator ||
                                 (!*ret_is_login && !proxies_say_elsewhere(request) &&
                                  token_read(conn->server, credential, &token, owner)));
    return counts ? KG_STEAL(credential) : NULL;
}

bool
identify_start(struct http_connection *conn, const struct http_request *request,
               http_identified_fn on_identified)
{
    bool is_login = false;
    KG_AUTO_FREE char *credential = credential_that_counts(conn, request, &is_login);
    struct http_identity identity = {0};
    conn->has_credential = credential != NULL;
    conn->lacks_csrf_token = is_login && !cookie_is_meant(request, credential);
    conn->on_identified = on_identified;
    if (credential && !conn->lacks_csrf_token)
        conn->check =
            identify_ask(conn->server, credential, is_login, &identity, identify_on_checked, conn);
    else if (!conn->server->authenticator && !proxies_say_elsewhere(request))
        strcpy(identity.owner, HTTP_ANONYMOUS);
    conn->token = identity.token;
    if (identity.err.code) {
        conn->unchecked = KG_NEW(struct kg_error);
        *conn->unchecked = identity.err;
    }
    if (!conn->check)
        identify_set_owner(conn, identity.owner);
    return conn->check != NULL;
}

void
identify_reset(struct http_connection *conn)
{
    if (conn->check)
        conn->server->authenticator->ops->cancel(KG_STEAL(conn->check));
    conn->has_credential = conn->lacks_csrf_token = false;
    free(KG_STEAL(conn->unchecked));
    conn->token = (struct http_token){0};
    conn->owner[0] = '\0';
}

void
identify_forget(struct http_connection *conn)
{
    identify_reset(conn);
    if (conn->counted_for)
        owner_leave(&conn->server->owners, KG_STEAL(conn->counted_for), clock_mono_us());
}

static int
check_connections(const struct http_connection *conn, struct kg_error *err)
{
    struct http_quota quota = http_server_quota(conn->server, conn->owner);
    bool is_common = budget_name(conn->owner) != conn->owner;
    if (quota.max_connections > 0 && conn->counted_for->n_connections > quota.max_connections)
        return kg_error_set(err, KG_RATE_LIMITED, 0,
                            "%s %d connections, which is the most that are allowed; close some, or "
                            "reuse them",
                            is_common ? "all " BUDGET_REGISTERED " have" : "this owner has",
                            quota.max_connections);
    return 0;
}

void
identify_as_owner(struct http_connection *conn, const char *owner)
{
    conn->has_credential = false;
    identify_set_owner(conn, owner);
}

int
identify_as(struct http_connection *conn, struct http_request *request, const char *owner,
            struct kg_error *err)
{
    identify_set_owner(conn, owner);
    strcpy(request->owner, conn->owner); // of the same size
    request->wrong_key = false;
    return check_connections(conn, err);
}

int
identify_check(struct http_connection *conn, struct http_request *request, struct kg_error *err)
{
    const struct http_server *server = conn->server;
    if (conn->token.scopes && (request->flags & HTTP_PUBLIC))
        return 0; // a token is for nothing that is public: it is as if it was not sent
    strcpy(request->owner, conn->owner); // of the same size
    request->token = conn->token;
    request->wrong_key =
        conn->has_credential && !conn->owner[0] && !conn->unchecked && !conn->lacks_csrf_token;
    request->is_identified = conn->has_credential && conn->owner[0];
    if (!conn->owner[0] && (request->flags & HTTP_PUBLIC))
        return 0;
    if (conn->unchecked) {
        *err = *conn->unchecked;
        return -1;
    }
    if (conn->lacks_csrf_token)
        return kg_error_set(
            err, KG_CSRF_TOKEN, 0,
            "a request with the cookie of a login needs its csrf_token in the header "
            "X-CSRF-Token: GET /api/v1/login tells it");
    if (!conn->owner[0] && !server->authenticator)
        return kg_error_set(err, KG_FORBIDDEN_HOST, 0,
                            "this gateway has no API key, and a proxy says that this request comes "
                            "from another machine: start the gateway with --api-key");
    if (!conn->owner[0])
        return kg_error_set(err, KG_UNAUTHORIZED, 0,
                            conn->has_credential ? "Invalid API key" : "API key required");
    return token_check_head(request, err) < 0 ? -1 : check_connections(conn, err);
}

int
http_server_admit(struct http_server *server, const char *owner, struct kg_error *err)
{
    return owner_take_request(&server->owners, owner,
                              http_server_quota(server, owner).requests_per_second, clock_mono_us(),
                              err);
}
