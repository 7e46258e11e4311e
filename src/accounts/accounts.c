// SPDX-License-Identifier: Apache-2.0
// The authenticator. The keys of the database are in memory, and a check finds the key there,
// unless the file has changed: then it waits until a read that began after the change has ended.

#include <assert.h>
#include <string.h>
#include <sys/queue.h>

#include "accounts.h"
#include "accounts_priv.h"

enum { TOKEN_LEN = 32 };

// A check that waits for the file.
struct http_check {
    TAILQ_ENTRY(http_check) link;
    struct accounts *accounts;
    uint64_t after; // the read that it needs
    char id[ACCOUNT_KEY_ID_LEN + 1];
    char credential[ACCOUNT_KEY_LEN + 1];
    char owner[HTTP_OWNER_MAX + 1]; // whether there is such a user; empty: whose the credential is
    http_checked_fn done;
    void *arg;
};

struct accounts {
    struct http_authenticator authenticator; // the first member
    struct accounts_settings settings;
    struct account_list *list; // in force; NULL: not known
    struct account_reader *reader;
    struct account_writer *writer;
    struct change_limits *limits;
    struct account_counts counts;
    TAILQ_HEAD(, http_check) checks;
    size_t n_users;
    int n_fixed_owners;
    bool several;
    char first_user_token[TOKEN_LEN + 1]; // empty: there are users
};

// ---- Checks ---------------------------------------------------------------------------------

static const char *
accounts_find(struct accounts *accounts, const char *id, const char *credential)
{
    bool first = false;
    const char *owner = account_list_find(accounts->list, id, credential,
                                          account_writer_round(accounts->writer), &first);
    if (first)
        account_writer_note_use(accounts->writer, id);
    return owner ? owner : "";
}

static const char *
accounts_enabled(const struct accounts *accounts, const char *name)
{
    const struct listed_user *user =
        accounts->list ? account_list_user(accounts->list, name) : NULL;
    return user && !user->disabled ? user->name : "";
}

static const char *
accounts_answer(struct accounts *accounts, const struct http_check *check)
{
    return check->owner[0] ? accounts_enabled(accounts, check->owner)
                           : accounts_find(accounts, check->id, check->credential);
}

// The first one that the read with that number answers.
static struct http_check *
next_check(const struct accounts *accounts, uint64_t number)
{
    struct http_check *check;
    TAILQ_FOREACH(check, &accounts->checks, link) {
        if (check->after <= number)
            break;
    }
    return check;
}

static void
answer_checks(struct accounts *accounts, uint64_t number, const struct kg_error *err)
{
    struct http_check *check;
    while ((check = next_check(accounts, number))) {
        TAILQ_REMOVE(&accounts->checks, check, link);
        check->done(err ? "" : accounts_answer(accounts, check), err, check->arg);
        free(check);
    }
}

static struct http_check *
accounts_check(struct http_authenticator *authenticator, const char *credential, char *ret_owner,
               http_checked_fn done, void *arg)
{
    struct accounts *accounts = (struct accounts *)authenticator;
    struct http_authenticator *fixed = accounts->settings.fixed;
    char id[ACCOUNT_KEY_ID_LEN + 1];
    ret_owner[0] = '\0';
    if (fixed) {
        struct http_check *later = fixed->ops->check(fixed, credential, ret_owner, done, arg);
        assert(!later);
    }
    if (ret_owner[0] || !key_parse(credential, id))
        return NULL;
    uint64_t after = account_reader_ask(accounts->reader, false);
    if (after == 0) {
        strcpy(ret_owner,
               accounts_find(accounts, id, credential)); // at most HTTP_OWNER_MAX characters
        return NULL;
    }
    struct http_check *check = KG_NEW(struct http_check);
    *check = (struct http_check){.accounts = accounts, .after = after, .done = done, .arg = arg};
    strcpy(check->id, id);
    strcpy(check->credential, credential); // key_parse() checked its length
    TAILQ_INSERT_TAIL(&accounts->checks, check, link);
    return check;
}

static struct http_check *
accounts_check_owner(struct http_authenticator *authenticator, const char *owner, char *ret_owner,
                     http_checked_fn done, void *arg)
{
    struct accounts *accounts = (struct accounts *)authenticator;
    struct http_authenticator *fixed = accounts->settings.fixed;
    ret_owner[0] = '\0';
    if (fixed && fixed->ops->has_owner(fixed, owner)) {
        strcpy(ret_owner, owner); // at most HTTP_OWNER_MAX characters
        return NULL;
    }
    uint64_t after = account_reader_ask(accounts->reader, false);
    if (after == 0) {
        strcpy(ret_owner, accounts_enabled(accounts, owner)); // the same
        return NULL;
    }
    struct http_check *check = KG_NEW(struct http_check);
    *check = (struct http_check){.accounts = accounts, .after = after, .done = done, .arg = arg};
    strcpy(check->owner, owner); // the same
    TAILQ_INSERT_TAIL(&accounts->checks, check, link);
    return check;
}

static void
accounts_cancel(struct http_check *check)
{
    TAILQ_REMOVE(&check->accounts->checks, check, link);
    free(check);
}

static struct http_quota
accounts_quota(const struct http_authenticator *authenticator, const char *owner)
{
    const struct accounts *accounts = (const struct accounts *)authenticator;
    struct http_quota quota =
        accounts->several ? accounts->settings.shared : accounts->settings.alone;
    const struct listed_user *user =
        accounts->list ? account_list_user(accounts->list, owner) : NULL;
    const struct account_quota *own = user ? &user->quota : NULL;
    if (own && own->max_sessions > 0)
        quota.max_sessions = own->max_sessions;
    if (own && own->max_requests_per_second > 0)
        quota.requests_per_second = own->max_requests_per_second;
    if (own && own->max_memory_mb > 0)
        quota.max_memory_mb = own->max_memory_mb;
    return quota;
}

static const struct http_authenticator_ops accounts_ops = {.check = accounts_check,
                                                           .cancel = accounts_cancel,
                                                           .quota = accounts_quota,
                                                           .check_owner = accounts_check_owner};

struct http_authenticator *
accounts_authenticator(struct accounts *accounts)
{
    return &accounts->authenticator;
}

bool
accounts_have_fixed_owner(const struct accounts *accounts, const char *owner)
{
    const struct http_authenticator *fixed = accounts->settings.fixed;
    return fixed && fixed->ops->has_owner(fixed, owner);
}

bool
accounts_have_several_owners(const struct accounts *accounts)
{
    return accounts->several;
}

bool
accounts_has_registered(const struct accounts *accounts, const char *owner)
{
    const struct listed_user *user =
        accounts->list ? account_list_user(accounts->list, owner) : NULL;
    return user && user->registered;
}

int
accounts_take_change(struct accounts *accounts, enum change_kind kind, const char *name,
                     struct kg_error *err)
{
    const struct listed_user *user =
        accounts->list ? account_list_user(accounts->list, name) : NULL;
    if (!user || user->administrator)
        return 0; // without an account there is no change
    return change_limits_take(accounts->limits, kind, name, user->registered, clock_mono_ms(), err);
}

// ---- What was read --------------------------------------------------------------------------

// What is known of the users stays, while the file cannot be read.
static void
count_owners(struct accounts *accounts)
{
    if (accounts->list)
        accounts->n_users = account_list_users(accounts->list);
    accounts->several = accounts->n_users + (size_t)accounts->n_fixed_owners > 1;
}

const char *
accounts_first_user_token(const struct accounts *accounts)
{
    return accounts->list && accounts->first_user_token[0] ? accounts->first_user_token : NULL;
}

static void
make_first_user_token(struct accounts *accounts)
{
    if (!account_list_is_empty(accounts->list)) {
        accounts->first_user_token[0] = '\0';
    } else if (!accounts->first_user_token[0]) {
        id_random(accounts->first_user_token, TOKEN_LEN);
        log_warning("there are no users: with this token the console makes the first one, an "
                    "administrator",
                    LOG_STR("token", accounts->first_user_token));
    }
}

static void
take_news(struct accounts *accounts, struct account_news *news)
{
    size_t users = accounts->list ? account_list_users(accounts->list) : SIZE_MAX;
    size_t keys = accounts->list ? account_list_keys(accounts->list) : SIZE_MAX;
    accounts->counts.n_full += news->all != NULL;
    accounts->counts.n_rows += news->n_read;
    if (news->all) {
        account_list_free(accounts->list);
        accounts->list = KG_STEAL(news->all);
    }
    for (size_t i = 0; i < news->n_rows; i++)
        account_list_take(accounts->list, &news->rows[i]);
    if (users != account_list_users(accounts->list) || keys != account_list_keys(accounts->list))
        log_info("the accounts were read", LOG_INT("users", account_list_users(accounts->list)),
                 LOG_INT("keys", account_list_keys(accounts->list)));
    make_first_user_token(accounts);
    bool before = accounts->several;
    count_owners(accounts);
    if (accounts->several != before && accounts->settings.on_owners)
        accounts->settings.on_owners(accounts->settings.arg);
}

void
accounts_set_fixed_owners(struct accounts *accounts, int n)
{
    accounts->n_fixed_owners = n;
    count_owners(accounts);
}

struct account_counts
accounts_counts(const struct accounts *accounts)
{
    return accounts->counts;
}

static void
accounts_on_read(uint64_t number, struct account_news *news, const struct kg_error *err, void *arg)
{
    struct accounts *accounts = arg;
    if (news)
        take_news(accounts, news);
    if (err) {
        if (accounts->list || number == 1)
            log_error("the accounts cannot be read: their keys are not accepted until they can",
                      LOG_ERR(err));
        account_list_free(KG_STEAL(accounts->list));
    }
    answer_checks(accounts, number, err);
    account_writer_on_read(accounts->writer, number);
}

// ---- Life -----------------------------------------------------------------------------------

struct account_call *
accounts_call(struct accounts *accounts, account_call_fn run, account_called_fn done, void *arg)
{
    return account_writer_call(accounts->writer, run, done, arg);
}

struct accounts *
accounts_new(const struct accounts_settings *settings)
{
    struct accounts *accounts = KG_NEW(struct accounts);
    accounts->authenticator.ops = &accounts_ops;
    accounts->settings = *settings;
    TAILQ_INIT(&accounts->checks);
    accounts->limits = change_limits_new(settings->changes_per_minute);
    accounts->reader =
        account_reader_new(settings->loop, settings->path, accounts_on_read, accounts);
    accounts->writer = account_writer_new(settings->loop, settings->path, accounts->reader);
    return accounts;
}

void
accounts_free(struct accounts *accounts)
{
    if (!accounts)
        return;
    assert(TAILQ_EMPTY(&accounts->checks));
    account_writer_free(accounts->writer);
    account_reader_free(accounts->reader);
    account_list_free(accounts->list);
    change_limits_free(accounts->limits);
    free(accounts);
}
