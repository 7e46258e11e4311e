// SPDX-License-Identifier: Apache-2.0
// The resource /api/v1/users, for administrators. Only where there are accounts.

#include "account_store.h"
#include "accounts.h"
#include "api_priv.h"
#include "sessions.h"

static void
add_to_list(const struct account_user *user, void *arg)
{
    json_array_append_new(
        arg,
        json_pack("{s:s, s:b, s:b, s:b, s:b, s:I, s:o, s:I, s:f, s:I}", "name", user->name,
                  "administrator", (int)user->administrator, "registered", (int)user->registered,
                  "disabled", (int)user->disabled, "has_password", (int)user->has_password, "keys",
                  (json_int_t)user->n_keys, "created_at", json_time(user->created_ms),
                  "max_sessions", (json_int_t)user->quota.max_sessions, "max_requests_per_second",
                  user->quota.max_requests_per_second, "max_memory_mb",
                  (json_int_t)user->quota.max_memory_mb));
}

static int
list_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    json_t *users = json_array();
    self->answer = json_pack("{s:o}", "users", users);
    if (account_user_check_administrator(store, self->owner, err) < 0 ||
        account_user_each(store, add_to_list, users, err) < 0)
        return -1;
    json_object_set_new(self->answer, "total", json_integer((json_int_t)json_array_size(users)));
    return 0;
}

static void
add_sessions(struct account_request *self)
{
    size_t i;
    json_t *user;
    json_array_foreach(json_object_get(self->answer, "users"), i, user) {
        const char *name = json_string_value(json_object_get(user, "name"));
        int64_t n = sessions_count_of(self->context->face->sessions, name);
        json_object_set_new(user, "sessions", json_integer((json_int_t)n));
    }
    account_request_reply(self);
}

void
handle_user_list(struct http_request *request, void *arg)
{
    struct account_request *self = account_request_new(request, NULL, NULL);
    self->then = add_sessions;
    account_request_start(self, arg, list_run);
}

static int
create_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    const char *name = self->body.name ? self->body.name : "";
    if (account_user_check_administrator(store, self->owner, err) < 0 ||
        account_user_add(store, name, &self->body.change, err) < 0)
        return -1;
    self->answer = json_pack("{s:s, s:s}", "name", name, "message", "User made");
    self->subject = kg_strdup(name);
    return 0;
}

void
handle_user_create(struct http_request *request, void *arg)
{
    struct account_request *self = account_request_new(request, "user made", NULL);
    if (account_request_read(self, user_body_parse) == 0)
        account_request_start(self, arg, create_run);
}

static int
change_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    if (account_user_check_administrator(store, self->owner, err) < 0 ||
        account_user_change(store, self->subject, &self->body.change, err) < 0)
        return -1;
    self->answer = json_pack("{s:s}", "message", "User changed");
    return 0;
}

void
handle_user_change(struct http_request *request, void *arg)
{
    struct account_request *self =
        account_request_new(request, "user changed", http_request_param(request, "id"));
    if (account_request_read(self, user_change_body_parse) == 0)
        account_request_start(self, arg, change_run);
}

static int
remove_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    if (account_user_check_administrator(store, self->owner, err) < 0 ||
        account_user_remove(store, self->subject, err) < 0)
        return -1;
    self->answer = json_pack("{s:s}", "message", "User removed");
    return 0;
}

void
handle_user_remove(struct http_request *request, void *arg)
{
    const char *name = http_request_param(request, "id");
    account_request_start(account_request_new(request, "user removed", name), arg, remove_run);
}
