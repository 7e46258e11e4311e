// SPDX-License-Identifier: Apache-2.0
// The credential of a request, checked again after the request was handled.

#include <string.h>

#include "http_priv.h"

struct http_credential {
    struct http_server *server;
    char *text;
    bool is_login;
    char owner[HTTP_OWNER_MAX + 1];
    struct http_check *check; // in progress; or NULL
    http_rechecked_fn on_checked;
    void *arg;
};

struct http_credential *
http_credential_new(const struct http_request *request, http_rechecked_fn on_checked, void *arg)
{
    bool is_login = false;
    char *text = request->is_identified ? http_request_credential(request, &is_login) : NULL;
    if (!text)
        return NULL;
    struct http_credential *credential = KG_NEW(struct http_credential);
    credential->server = request->server;
    credential->text = text;
    credential->is_login = is_login;
    strcpy(credential->owner, request->owner); // of the same size
    credential->on_checked = on_checked;
    credential->arg = arg;
    return credential;
}

void
http_credential_free(struct http_credential *credential)
{
    if (!credential)
        return;
    if (credential->check)
        credential->server->authenticator->ops->cancel(credential->check);
    explicit_bzero(credential->text, strlen(credential->text));
    free(credential->text);
    free(credential);
}

static enum http_validity
validity_of(const struct http_credential *credential, const char *owner)
{
    return strcmp(owner, credential->owner) == 0 ? HTTP_VALID : HTTP_INVALID;
}

static void
credential_on_checked(const char *owner, const struct kg_error *err, void *arg)
{
    struct http_credential *credential = arg;
    credential->check = NULL;
    credential->on_checked(err ? HTTP_UNKNOWN : validity_of(credential, owner), credential->arg);
}

enum http_validity
http_credential_check(struct http_credential *credential)
{
    struct http_identity identity;
    if (credential->check)
        return HTTP_UNKNOWN;
    credential->check = identify_ask(credential->server, credential->text, credential->is_login,
                                     &identity, credential_on_checked, credential);
    return credential->check ? HTTP_UNKNOWN : validity_of(credential, identity.owner);
}
