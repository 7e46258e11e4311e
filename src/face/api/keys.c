// SPDX-License-Identifier: Apache-2.0
// The resource /api/v1/keys: the keys of the caller's account; and new keys of other users, for
// administrators. Only where there are accounts.

#include <stdio.h>

#include "account_store.h"
#include "accounts.h"
#include "api_priv.h"

json_t *
json_time(int64_t ms)
{
    char text[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(ms, text);
    return ms > 0 ? json_string(text) : json_null();
}

static void
add_to_list(const struct account_key *key, void *arg)
{
    json_array_append_new(arg, json_pack("{s:s, s:s, s:o, s:o}", "id", key->id, "name", key->name,
                                         "created_at", json_time(key->created_ms), "used_at",
                                         json_time(key->used_ms)));
}

static int
list_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    json_t *keys = json_array();
    self->answer = json_pack("{s:o}", "keys", keys);
    if (account_key_each(store, self->owner, add_to_list, keys, err) < 0)
        return -1;
    json_object_set_new(self->answer, "total", json_integer((json_int_t)json_array_size(keys)));
    return 0;
}

void
handle_key_list(struct http_request *request, void *arg)
{
    account_request_start(account_request_new(request, NULL, NULL), arg, list_run);
}

// ---- New keys -------------------------------------------------------------------------------

static int
add_key(struct account_request *self, struct account_store *store, const char *user,
        struct kg_error *err)
{
    char key[ACCOUNT_KEY_LEN + 1];
    const char *name = self->body.name ? self->body.name : "";
    if (account_key_add(store, user, name, key, err) < 0)
        return -1;
    account_key_id(key, self->key_id);
    self->answer = json_pack("{s:s, s:s, s:s}", "id", self->key_id, "name", name, "key", key);
    return 0;
}

static int
create_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    return add_key(self, store, self->owner, err);
}

// Only what is well-formed counts.
void
handle_key_create(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    struct account_request *self = account_request_new(request, "key made", NULL);
    struct kg_error err;
    if (account_request_read(self, key_body_parse) < 0)
        return;
    if (accounts_take_change(context->accounts, CHANGE_KEY, self->owner, &err) < 0)
        account_request_refuse(self, &err);
    else
        account_request_start(self, context, create_run);
}

static int
create_for_user_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    if (account_user_check_administrator(store, self->owner, err) < 0)
        return -1;
    return add_key(self, store, self->subject, err);
}

void
handle_user_key_create(struct http_request *request, void *arg)
{
    struct account_request *self =
        account_request_new(request, "key made", http_request_param(request, "id"));
    if (account_request_read(self, key_body_parse) == 0)
        account_request_start(self, arg, create_for_user_run);
}

// ---- DELETE ---------------------------------------------------------------------------------

static int
revoke_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    if (account_key_revoke(store, self->owner, self->subject, err) < 0)
        return -1;
    // It may be the whole key, which is not for the log.
    if (!account_key_id(self->subject, self->key_id))
        snprintf(self->key_id, sizeof self->key_id, "%s", self->subject);
    free(KG_STEAL(self->subject));
    self->answer = json_pack("{s:s}", "message", "Key revoked");
    return 0;
}

void
handle_key_revoke(struct http_request *request, void *arg)
{
    const char *id = http_request_param(request, "id");
    account_request_start(account_request_new(request, "key revoked", id), arg, revoke_run);
}
