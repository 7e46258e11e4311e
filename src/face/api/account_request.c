// SPDX-License-Identifier: Apache-2.0
// A request that a worker answers from the database of accounts.

#include <string.h>

#include "account_store.h"
#include "accounts.h"
#include "api_priv.h"

static void
account_request_free(void *arg)
{
    struct account_request *self = arg;
    json_decref(self->root);
    json_decref(self->answer);
    free(self->owner);
    free(self->credential);
    free(self->subject);
    free(self);
}

// "disabled=true, max_sessions=3": what a body has asked for, without names, which may be secret.
static void
list_changes(const json_t *body, struct buf *ret)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, name, value) {
        KG_AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        if (strcmp(name, "name") != 0 && !json_is_null(value))
            buf_printf(ret, "%s%s=%s", ret->len > 0 ? ", " : "", name, text);
    }
}

static void
log_changed(const struct account_request *self)
{
    KG_AUTO_BUF changes = {0};
    if (!self->what || !self->succeeded)
        return;
    list_changes(self->root, &changes);
    const struct account_event event = {
        .what = self->what,
        .by = self->owner,
        .credential = self->credential,
        .user = self->subject,
        .key_id = self->key_id,
        .changed = changes.data,
        .network = self->network,
    };
    account_log("the accounts were changed", &event);
}

void
account_request_reply(struct account_request *self)
{
    if (self->ends_login)
        http_reply_login(self->request, "", 0);
    http_reply_header(self->request, "Cache-Control", "no-store");
    http_reply_json(self->request, 200, KG_STEAL(self->answer));
    account_request_free(self);
}

void
account_request_refuse(struct account_request *self, const struct kg_error *err)
{
    http_reply_error(self->request, err);
    account_request_free(self);
}

static void
on_called(const struct kg_error *err, void *arg)
{
    struct account_request *self = arg;
    http_request_disown(self->request);
    log_changed(self);
    if (err) {
        account_request_refuse(self, err);
    } else if (self->then) {
        self->then(self);
    } else {
        account_request_reply(self);
    }
}

static void
on_discarded(void *arg)
{
    struct account_request *self = arg;
    if (!self->then) // what it was to do after that is not done
        log_changed(self);
    account_request_free(self);
}

static void
account_request_cancel(void *arg)
{
    const struct account_request *self = arg;
    account_call_cancel(self->call, on_discarded);
}

struct account_request *
account_request_new(struct http_request *request, const char *what, const char *subject)
{
    struct account_request *self = KG_NEW(struct account_request);
    self->request = request;
    self->what = what;
    self->owner = kg_strdup(http_request_owner(request));
    self->credential = http_request_credential(request, &self->is_login);
    (void)http_request_network(request, self->network);
    self->subject = subject ? kg_strdup(subject) : NULL;
    return self;
}

int
account_request_read(struct account_request *self, account_body_fn parse)
{
    struct kg_error err = {0};
    struct http_request *request = self->request;
    self->root =
        http_request_body_len(request) == 0 ? json_object() : http_request_json(request, &err);
    if (self->root && parse(self->root, &self->body, &err) == 0)
        return 0;
    account_request_refuse(self, &err);
    return -1;
}

static int
check_and_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct account_request *self = arg;
    if (account_key_check(store, self->credential, err) < 0)
        return -1;
    self->succeeded = self->run(store, self, err) == 0;
    return self->succeeded ? 0 : -1;
}

void
account_request_start(struct account_request *self, const struct api_context *context,
                      account_call_fn run)
{
    self->context = context;
    self->run = run;
    self->call = accounts_call(context->accounts, check_and_run, on_called, self);
    http_request_own(self->request, self, account_request_cancel);
}
