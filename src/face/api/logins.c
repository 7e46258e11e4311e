// SPDX-License-Identifier: Apache-2.0
// Logins by name and password, passwords, and registration: POST login, and the resources password,
// users/{id}/password and registration. Only where there are accounts.
//
// A request reads the database, then compares or makes a hash, which takes long and so does not
// keep the database from others, then writes the database.

#include <sodium.h>
#include <string.h>

#include "account_store.h"
#include "accounts.h"
#include "api_priv.h"
#include "login_limits.h"
#include "password.h"
#include "sessions.h"

struct password_request;

// What a kind of request does, in this order.
struct password_flow {
    const char *what; // for the log
    bool makes_login; // of a user who is there: they are limited
    // Each on a worker. `read` may be NULL.
    int (*read)(struct password_request *self, struct account_store *store, struct kg_error *err);
    int (*write)(struct password_request *self, struct account_store *store, struct kg_error *err);
};

struct password_request {
    const struct password_flow *flow;
    struct http_request *request;
    const struct api_context *context;
    struct account_call *call; // one of the two, in progress
    struct password_job *job;
    char *caller;           // the owner; or NULL
    char *credential;       // or NULL
    bool by_login;          // the credential came in a cookie
    char *user;             // whose password it is
    char *compared;         // a password that must be the user's; or NULL
    char *made;             // the user's new password; or NULL
    bool is_first;          // of registration: with the token
    bool is_taken;          // the same: the name is that of an owner without an account
    int place;              // among the requests with passwords
    const char *counted_as; // a failed login of this name; NULL: is not counted
    int64_t counted_ms;
    char network[IP_NETWORK_TEXT_SIZE]; // of the client
    bool is_local;
    char hash[ACCOUNT_HASH_SIZE];     // of the present password
    char new_hash[ACCOUNT_HASH_SIZE]; // of `made`
    char key[ACCOUNT_KEY_LEN + 1];    // of the new login; empty: there is none
    char key_id[ACCOUNT_KEY_ID_LEN + 1];
    int n_removed; // of registration: unused accounts
    json_t *answer;
};

static void
forget(char *secret)
{
    if (secret)
        sodium_memzero(secret, strlen(secret));
    free(secret);
}

static void
password_request_free(void *arg)
{
    struct password_request *self = arg;
    free(self->caller);
    forget(self->credential);
    free(self->user);
    forget(self->compared);
    forget(self->made);
    sodium_memzero(self->key, sizeof self->key);
    json_decref(self->answer);
    free(self);
}

static void
log_written(const struct password_request *self)
{
    const struct account_event event = {
        .what = self->flow->what,
        .by = self->caller ? self->caller : self->user,
        .credential = self->credential,
        .user = self->user,
        .key_id = self->key_id,
        .network = self->network,
    };
    account_log("the accounts were used", &event);
}

static void
on_call_discarded(void *arg)
{
    struct password_request *self = arg;
    if (self->answer)
        log_written(self);
    password_request_free(self);
}

// If the client has left, what it was counted as stays: else clients that do not wait for their
// answer would not be limited.
static void
password_request_end(void *arg)
{
    struct password_request *self = arg;
    passwords_leave(self->context->passwords, self->place);
    if (self->call) {
        account_call_cancel(self->call, on_call_discarded);
        return;
    }
    if (self->job)
        password_job_cancel(self->job);
    password_request_free(self);
}

// ---- Writing --------------------------------------------------------------------------------

static int
write_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct password_request *self = arg;
    if (account_key_check(store, self->credential, err) < 0 ||
        self->flow->write(self, store, err) < 0)
        return -1;
    if (self->key[0])
        account_key_id(self->key, self->key_id);
    self->answer = login_describe(store, self->user, self->key[0] ? self->key : NULL);
    return 0;
}

static void
on_written(const struct kg_error *err, void *arg)
{
    struct password_request *self = arg;
    self->call = NULL;
    if (self->n_removed > 0)
        log_info("accounts were removed that nobody used again after they were made",
                 LOG_INT("users", self->n_removed));
    if (err) {
        http_reply_error(self->request, err);
        return;
    }
    log_written(self);
    if (self->key[0])
        http_reply_login(self->request, self->key, ACCOUNT_LOGIN_S);
    http_reply_header(self->request, "Cache-Control", "no-store");
    login_describe_use(self->answer, self->context, self->user);
    http_reply_json(self->request, 200, KG_STEAL(self->answer));
}

static void
start_writing(struct password_request *self)
{
    self->call = accounts_call(self->context->accounts, write_run, on_written, self);
}

// ---- Passwords ------------------------------------------------------------------------------

// Logins from loopback are limited by their names only, since proxies without X-Forwarded-For are
// there. Registrations have none.
static const char *
limited_network(const struct password_request *self)
{
    return self->is_local && self->counted_as[0] ? "" : self->network;
}

// It was counted as a failed login, and is none.
static void
give_back(struct password_request *self)
{
    if (self->counted_as)
        login_limits_give_back(self->context->login_limits, self->counted_as, limited_network(self),
                               self->counted_ms);
    self->counted_as = NULL;
}

static void
start_job(struct password_request *self, const char *password, const char *hash, password_fn done)
{
    self->job = passwords_start(self->context->passwords, password, hash, done, self);
}

static void
on_made(const char *hash, bool matches, const struct kg_error *err, void *arg)
{
    struct password_request *self = arg;
    (void)matches;
    self->job = NULL;
    if (err) {
        http_reply_error(self->request, err);
        return;
    }
    strcpy(self->new_hash, hash); // of the same size
    start_writing(self);
}

static void
start_making(struct password_request *self)
{
    struct kg_error err;
    if (self->flow->makes_login &&
        accounts_take_change(self->context->accounts, CHANGE_LOGIN, self->user, &err) < 0)
        http_reply_error(self->request, &err);
    else if (self->made)
        start_job(self, self->made, NULL, on_made);
    else
        start_writing(self);
}

static void
on_compared(const char *hash, bool matches, const struct kg_error *none, void *arg)
{
    struct password_request *self = arg;
    (void)hash;
    (void)none;
    self->job = NULL;
    if (matches) {
        give_back(self);
        start_making(self);
        return;
    }
    struct kg_error err;
    // Somebody may have typed the password there.
    const char *name = account_user_name_is_valid(self->user) ? self->user : "(not a name)";
    const char *network = self->network;
    log_warning("a login failed", LOG_STR("user", name), LOG_STR("network", network));
    if (self->made)
        kg_error_set(&err, KG_INVALID, 0, "old_password is wrong");
    else
        kg_error_set(&err, KG_UNAUTHORIZED, 0, "the name or the password is wrong");
    http_reply_error(self->request, &err);
}

// ---- Reading --------------------------------------------------------------------------------

static int
read_run(struct account_store *store, void *arg, struct kg_error *err)
{
    struct password_request *self = arg;
    if (account_key_check(store, self->credential, err) < 0)
        return -1;
    return self->flow->read(self, store, err);
}

static void
logins_on_read(const struct kg_error *err, void *arg)
{
    struct password_request *self = arg;
    self->call = NULL;
    if (err) {
        give_back(self);
        http_reply_error(self->request, err);
    } else if (self->compared) {
        start_job(self, self->compared, self->hash, on_compared);
    } else {
        start_making(self);
    }
}

// ---- Requests -------------------------------------------------------------------------------

static struct password_request *
password_request_new(struct http_request *request, const struct api_context *context,
                     const struct password_flow *flow, const char *user)
{
    struct password_request *self = KG_NEW(struct password_request);
    self->flow = flow;
    self->request = request;
    self->context = context;
    self->user = kg_strdup(user);
    self->is_local = !http_request_network(request, self->network);
    self->counted_ms = clock_mono_ms();
    return self;
}

// For routes that are not public: as whom the request is made.
static void
take_caller(struct password_request *self)
{
    self->caller = kg_strdup(http_request_owner(self->request));
    self->credential = http_request_credential(self->request, &self->by_login);
}

// Takes a place, and counts a login as failed until it is known not to be.
static int
enter(struct password_request *self, struct kg_error *err)
{
    struct passwords *passwords = self->context->passwords;
    if (self->made && password_check(self->made, err) < 0)
        return -1;
    if (self->counted_as && login_limits_take(self->context->login_limits, self->counted_as,
                                              limited_network(self), self->counted_ms, err) < 0)
        return -1;
    self->place = self->caller ? passwords_enter(passwords, PASSWORD_USERS, self->caller, err)
                               : passwords_enter(passwords, PASSWORD_STRANGERS,
                                                 self->is_local ? "" : self->network, err);
    if (self->place < 0)
        give_back(self);
    return self->place < 0 ? -1 : 0;
}

static void
password_request_start(struct password_request *self)
{
    struct kg_error err;
    if (enter(self, &err) < 0) {
        http_reply_error(self->request, &err);
        password_request_free(self);
        return;
    }
    http_request_own(self->request, self, password_request_end);
    if (self->flow->read)
        self->call = accounts_call(self->context->accounts, read_run, logins_on_read, self);
    else
        start_making(self);
}

// The body, to be released; NULL: has replied with the error.
static json_t *
read_body(struct http_request *request, const char *const *required, const char *const *optional,
          struct password_body *ret)
{
    struct kg_error err = {0};
    json_auto_t *root =
        http_request_body_len(request) == 0 ? json_object() : http_request_json(request, &err);
    if (root && password_body_parse(root, required, optional, ret, &err) == 0)
        return KG_STEAL(root);
    http_reply_error(request, &err);
    return NULL;
}

// ---- POST login -----------------------------------------------------------------------------

static int
read_hash(struct password_request *self, struct account_store *store, struct kg_error *err)
{
    return account_password_get(store, self->user, self->hash, err);
}

static int
write_login(struct password_request *self, struct account_store *store, struct kg_error *err)
{
    return account_login_add(store, self->user, self->hash, self->key, err);
}

static const struct password_flow login_flow = {"logged in", true, read_hash, write_login};

void
handle_login(struct http_request *request, void *arg)
{
    static const char *const required[] = {"name", "password", NULL}, *const optional[] = {NULL};
    struct password_body body;
    json_auto_t *root = read_body(request, required, optional, &body);
    if (!root)
        return;
    struct password_request *self = password_request_new(request, arg, &login_flow, body.name);
    self->compared = kg_strdup(body.password);
    self->counted_as = self->user;
    password_request_start(self);
}

// ---- PUT password ---------------------------------------------------------------------------

static int
read_own_hash(struct password_request *self, struct account_store *store, struct kg_error *err)
{
    if (read_hash(self, store, err) < 0)
        return -1;
    if (self->hash[0] && !self->compared)
        return kg_error_set(err, KG_INVALID, 0, "old_password is missing");
    return 0;
}

static int
write_own(struct password_request *self, struct account_store *store, struct kg_error *err)
{
    if (account_password_set(store, self->user, self->hash, self->new_hash, err) < 0)
        return -1;
    return self->by_login ? account_login_add(store, self->user, self->new_hash, self->key, err)
                          : 0;
}

static const struct password_flow own_flow = {"password changed", true, read_own_hash, write_own};

void
handle_password_change(struct http_request *request, void *arg)
{
    static const char *const required[] = {"new_password", NULL};
    static const char *const optional[] = {"old_password", NULL};
    struct password_body body;
    json_auto_t *root = read_body(request, required, optional, &body);
    if (!root)
        return;
    struct password_request *self =
        password_request_new(request, arg, &own_flow, http_request_owner(request));
    take_caller(self);
    self->compared = body.old_password ? kg_strdup(body.old_password) : NULL;
    self->counted_as = body.old_password ? self->user : NULL;
    self->made = kg_strdup(body.new_password);
    password_request_start(self);
}

// ---- PUT users/{id}/password, for administrators --------------------------------------------

static int
check_caller(struct password_request *self, struct account_store *store, struct kg_error *err)
{
    return account_user_check_administrator(store, self->caller, err);
}

static int
write_of_user(struct password_request *self, struct account_store *store, struct kg_error *err)
{
    if (check_caller(self, store, err) < 0)
        return -1;
    return account_password_set(store, self->user, NULL, self->new_hash, err);
}

static const struct password_flow user_flow = {"password set", false, check_caller, write_of_user};

void
handle_user_password(struct http_request *request, void *arg)
{
    static const char *const required[] = {"password", NULL}, *const optional[] = {NULL};
    struct password_body body;
    json_auto_t *root = read_body(request, required, optional, &body);
    if (!root)
        return;
    struct password_request *self =
        password_request_new(request, arg, &user_flow, http_request_param(request, "id"));
    take_caller(self);
    self->made = kg_strdup(body.password);
    password_request_start(self);
}

// ---- Registration ---------------------------------------------------------------------------

void
handle_registration_show(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    http_reply_header(request, "Cache-Control", "no-store");
    http_reply_json(request, 200,
                    json_pack("{s:b, s:b}", "open", (int)context->registration_is_open, "first",
                              (int)(accounts_first_user_token(context->accounts) != NULL)));
}

static int
write_new_user(struct password_request *self, struct account_store *store, struct kg_error *err)
{
    const struct account_registration limits = {
        .max = self->context->max_registered_users,
        .unused_ms = self->context->unused_accounts_ms,
    };
    if (self->is_taken)
        return account_user_taken(self->user, err);
    if (!self->is_first && account_registration_check(store, &limits, &self->n_removed, err) < 0)
        return -1;
    return account_register(store, self->user, self->new_hash, self->is_first, self->key, err);
}

static const struct password_flow register_flow = {"user registered", false, NULL, write_new_user};

static bool
is_token(const struct api_context *context, const char *token)
{
    const char *right = accounts_first_user_token(context->accounts);
    return token && right && strlen(token) == strlen(right) &&
           sodium_memcmp(token, right, strlen(right)) == 0;
}

// Counts it as a registration, too, so that tokens cannot be guessed, and as a wrong key of that
// address.
static void
refuse_token(struct http_request *request, const struct api_context *context)
{
    struct kg_error err;
    char network[IP_NETWORK_TEXT_SIZE];
    (void)http_request_network(request, network);
    if (login_limits_take(context->login_limits, "", network, clock_mono_ms(), &err) < 0)
        http_reply_error(request, &err);
    else
        http_request_refuse_secret(request);
}

// Whoever registers must not get the sessions of others.
static bool
is_owner(const struct api_context *context, const char *name)
{
    return accounts_have_fixed_owner(context->accounts, name) ||
           sessions_count_of(context->face->sessions, name) > 0;
}

void
handle_register(struct http_request *request, void *arg)
{
    static const char *const required[] = {"name", "password", NULL};
    static const char *const optional[] = {"token", NULL};
    const struct api_context *context = arg;
    struct password_body body;
    json_auto_t *root = read_body(request, required, optional, &body);
    if (!root)
        return;
    struct kg_error err;
    if (body.token && !is_token(context, body.token)) {
        refuse_token(request, context);
        return;
    }
    if (!body.token && !context->registration_is_open) {
        kg_error_set(&err, KG_REGISTRATION_CLOSED, 0,
                     "only administrators can create accounts; the first one is created with the "
                     "token in the "
                     "gateway's log");
        http_reply_error(request, &err);
        return;
    }
    struct password_request *self = password_request_new(request, arg, &register_flow, body.name);
    self->made = kg_strdup(body.password);
    self->is_first = body.token != NULL;
    self->is_taken = !body.token && is_owner(context, body.name);
    self->counted_as = body.token ? NULL : "";
    password_request_start(self);
}
