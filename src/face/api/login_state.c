// SPDX-License-Identifier: Apache-2.0
// Who a request's owner is: GET login; and the end of a login, POST logout.

#include "account_store.h"
#include "accounts.h"
#include "api_priv.h"
#include "sessions.h"

// ---- GET login ------------------------------------------------------------------------------

json_t *
login_describe(struct account_store *store, const char *user, const char *login)
{
    char hash[ACCOUNT_HASH_SIZE], token[HTTP_CSRF_TOKEN_LEN + 1];
    bool is_administrator = account_user_check_administrator(store, user, NULL) == 0;
    bool has_password = account_password_get(store, user, hash, NULL) == 0 && hash[0];
    if (login)
        http_csrf_token(login, token);
    return json_pack("{s:s, s:b, s:b, s:o}", "user", user, "administrator", (int)is_administrator,
                     "has_password", (int)has_password, "csrf_token",
                     login ? json_string(token) : json_null());
}

static int64_t
smaller_limit(int64_t own, int64_t all)
{
    return own > 0 && own < all ? own : all;
}

void
login_describe_use(json_t *answer, const struct api_context *context, const char *user)
{
    const struct http_authenticator *authenticator = accounts_authenticator(context->accounts);
    struct http_quota quota = authenticator->ops->quota(authenticator, user);
    int64_t memory_mb = quota.max_memory_mb > 0 ? quota.max_memory_mb : context->memory_mb;
    json_object_update_new(
        answer, json_pack("{s:I, s:{s:I, s:f, s:I}}", "sessions",
                          (json_int_t)sessions_count_of(context->face->sessions, user), "quota",
                          "max_sessions",
                          (json_int_t)smaller_limit(quota.max_sessions, context->max_sessions),
                          "max_requests_per_second", quota.requests_per_second, "max_memory_mb",
                          (json_int_t)memory_mb));
}

static int
show_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    (void)err;
    self->answer = login_describe(store, self->owner, self->is_login ? self->credential : NULL);
    return 0;
}

static void
show_use(struct account_request *self)
{
    login_describe_use(self->answer, self->context, self->owner);
    account_request_reply(self);
}

void
handle_login_show(struct http_request *request, void *arg)
{
    struct account_request *self = account_request_new(request, NULL, NULL);
    self->then = show_use;
    account_request_start(self, arg, show_run);
}

// ---- POST logout ----------------------------------------------------------------------------

static int
logout_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    if (!self->is_login)
        return kg_error_set(
            err, KG_INVALID, 0,
            "only a login can be ended, which is a cookie; DELETE /api/v1/keys/{id} "
            "revokes a key");
    if (account_key_revoke(store, self->owner, self->credential, err) < 0)
        return -1;
    self->answer = json_pack("{s:s}", "message", "Logged out");
    return 0;
}

void
handle_logout(struct http_request *request, void *arg)
{
    struct account_request *self = account_request_new(request, "logged out", NULL);
    self->ends_login = true;
    account_request_start(self, arg, logout_run);
}
