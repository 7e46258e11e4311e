// SPDX-License-Identifier: Apache-2.0
// The authenticator. The database is read on a worker, one job at a time, and its keys are kept in
// memory. A check finds the key there, unless the file has changed: then it waits until the file
// has been read by a job that began after the change.

#include <assert.h>
#include <string.h>
#include <sys/queue.h>

#include "accounts.h"
#include "accounts_priv.h"

enum {
    AGAIN_MS = 200,        // after a change: see store_commit(), and writers that are not ours
    RETRY_MS = 1000,       // after a failure
    WRITE_USES_MS = 10000, // between the use of a key and its record in the file
    USES_MAX = 4096,
    TOKEN_LEN = 32,
};

// A check that waits for the file.
struct http_check {
    TAILQ_ENTRY(http_check) link;
    struct accounts *accounts;
    uint64_t after; // the job that it needs has a higher number
    char id[ACCOUNT_KEY_ID_LEN + 1];
    char credential[ACCOUNT_KEY_LEN + 1];
    http_checked_fn done;
    void *arg;
};

struct accounts {
    struct http_authenticator authenticator; // the first member
    struct accounts_settings settings;
    char *path;
    struct account_store *store; // while no job has it
    struct account_list *list;   // in force; NULL: not known
    struct account_watch *watch;
    struct loop_work *work;
    struct account_call *call; // of the job
    TAILQ_HEAD(, account_call) calls;
    uint64_t n_started; // jobs
    bool stale;         // the file may have changed since the last job began
    bool behind;        // the file may have changed between what `list` is of and the present job
    bool made;          // the file was there once: it is not made again
    struct loop_timer *begin;
    struct loop_timer *again;
    struct loop_timer *write_uses;
    struct key_use *uses; // not in the file yet
    size_t n_uses;
    bool uses_failed;
    TAILQ_HEAD(, http_check) checks;
    size_t n_users;
    int n_fixed_owners;
    bool several;
    char first_user_token[TOKEN_LEN + 1]; // empty: there are users
};

// ---- Jobs -----------------------------------------------------------------------------------

static void job_done(void *arg);

static void
start_job(struct accounts *accounts, bool with_uses)
{
    assert(!accounts->work);
    // What has happened so far, the job will see.
    accounts->behind = account_watch_changed(accounts->watch) || accounts->stale;
    accounts->stale = false;
    accounts->n_started++;
    struct account_job *job = KG_NEW(struct account_job);
    job->accounts = accounts;
    job->store = KG_STEAL(accounts->store);
    job->path = kg_strdup(accounts->path);
    job->make = !accounts->made;
    job->full = !accounts->list;
    job->call = accounts->call = TAILQ_FIRST(&accounts->calls);
    if (job->call)
        TAILQ_REMOVE(&accounts->calls, job->call, link);
    if (with_uses) {
        job->uses = KG_STEAL(accounts->uses);
        job->n_uses = accounts->n_uses;
        accounts->n_uses = 0;
        account_list_forget_uses(accounts->list);
    }
    accounts->work =
        loop_work_start(accounts->settings.loop, LOOP_LANE_GATEWAY, account_job_run, job_done, job);
}

// ---- Uses -----------------------------------------------------------------------------------

static void
note_use(struct accounts *accounts, const char *id)
{
    if (accounts->n_uses == USES_MAX)
        return;
    if (!accounts->uses)
        accounts->uses = kg_calloc(USES_MAX, sizeof *accounts->uses);
    struct key_use *use = &accounts->uses[accounts->n_uses++];
    *use = (struct key_use){.used_ms = clock_wall_ms()};
    strcpy(use->id, id);
    if (!loop_timer_active(accounts->write_uses))
        loop_timer_start(accounts->write_uses, WRITE_USES_MS);
}

static void
on_write_uses(void *arg)
{
    struct accounts *accounts = arg;
    if (accounts->work || !accounts->list)
        loop_timer_start(accounts->write_uses, RETRY_MS);
    else if (accounts->n_uses > 0)
        start_job(accounts, true);
}

// Said once until it works again.
static void
report_uses(struct accounts *accounts, const struct account_job *job)
{
    if (job->uses_failed && !accounts->uses_failed)
        log_error("cannot write when keys were used last", LOG_ERR(&job->uses_err));
    if (job->n_uses > 0)
        accounts->uses_failed = job->uses_failed;
}

// ---- Checks ---------------------------------------------------------------------------------

static const char *
find(struct accounts *accounts, const char *id, const char *credential)
{
    bool first = false;
    const char *owner = account_list_find(accounts->list, id, credential, &first);
    if (first)
        note_use(accounts, id);
    return owner ? owner : "";
}

// The first one that the job with that number answers.
static struct http_check *
next_check(const struct accounts *accounts, uint64_t finished)
{
    struct http_check *check;
    TAILQ_FOREACH(check, &accounts->checks, link) {
        if (check->after < finished)
            break;
    }
    return check;
}

static void
answer_checks(struct accounts *accounts, const struct kg_error *err)
{
    const uint64_t finished = accounts->n_started;
    struct http_check *check;
    while ((check = next_check(accounts, finished))) {
        TAILQ_REMOVE(&accounts->checks, check, link);
        check->done(err ? "" : find(accounts, check->id, check->credential), err, check->arg);
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
    accounts->stale |= account_watch_changed(accounts->watch);
    if (accounts->list && !accounts->stale && !accounts->behind) {
        strcpy(ret_owner, find(accounts, id, credential)); // at most HTTP_OWNER_MAX characters
        return NULL;
    }
    struct http_check *check = KG_NEW(struct http_check);
    *check = (struct http_check){
        .accounts = accounts,
        .after = accounts->stale || !accounts->work ? accounts->n_started : accounts->n_started - 1,
        .done = done,
        .arg = arg,
    };
    strcpy(check->id, id);
    strcpy(check->credential, credential); // key_parse() checked its length
    TAILQ_INSERT_TAIL(&accounts->checks, check, link);
    if (!accounts->work)
        start_job(accounts, false);
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
    const struct account_quota *own =
        accounts->list ? account_list_quota(accounts->list, owner) : NULL;
    if (own && own->max_sessions > 0)
        quota.max_sessions = own->max_sessions;
    if (own && own->max_requests_per_second > 0)
        quota.requests_per_second = own->max_requests_per_second;
    if (own && own->max_memory_mb > 0)
        quota.max_memory_mb = own->max_memory_mb;
    return quota;
}

static const struct http_authenticator_ops accounts_ops = {
    .check = accounts_check, .cancel = accounts_cancel, .quota = accounts_quota};

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

// ---- What a job has found -------------------------------------------------------------------

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
take_list(struct accounts *accounts, struct account_list *list)
{
    bool other = !accounts->list ||
                 account_list_users(accounts->list) != account_list_users(list) ||
                 account_list_keys(accounts->list) != account_list_keys(list);
    if (other)
        log_info("the accounts were read", LOG_INT("users", account_list_users(list)),
                 LOG_INT("keys", account_list_keys(list)));
    account_list_free(accounts->list);
    accounts->list = list;
    accounts->made = true;
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

static void
job_done(void *arg)
{
    struct account_job *job = arg;
    struct accounts *accounts = job->accounts;
    accounts->work = NULL;
    accounts->behind = false;
    accounts->store = KG_STEAL(job->store);
    if (job->list)
        take_list(accounts, KG_STEAL(job->list));
    if (job->failed) {
        if (accounts->list || accounts->n_started == 1)
            log_error("the accounts cannot be read: their keys are not accepted until they can",
                      LOG_ERR(&job->err));
        account_list_free(KG_STEAL(accounts->list));
        loop_timer_start(accounts->again, RETRY_MS);
    }
    report_uses(accounts, job);
    answer_checks(accounts, job->failed ? &job->err : NULL);
    accounts->call = NULL;
    account_call_finish(KG_STEAL(job->call));
    account_job_free(job);
    accounts->stale |= account_watch_changed(accounts->watch);
    bool waited_for = !TAILQ_EMPTY(&accounts->checks) || !TAILQ_EMPTY(&accounts->calls);
    if (waited_for && !accounts->work)
        start_job(accounts, false);
}

// A job starts a moment later, unless a request needs it now.
static void
on_file_changed(void *arg)
{
    struct accounts *accounts = arg;
    accounts->stale |= account_watch_changed(accounts->watch);
    if (!loop_timer_active(accounts->again))
        loop_timer_start(accounts->again, AGAIN_MS);
}

static void
on_again(void *arg)
{
    struct accounts *accounts = arg;
    if (accounts->work)
        loop_timer_start(accounts->again, AGAIN_MS);
    else
        start_job(accounts, false);
}

// ---- Calls ----------------------------------------------------------------------------------

struct account_call *
accounts_call(struct accounts *accounts, account_call_fn run, account_called_fn done, void *arg)
{
    struct account_call *call = KG_NEW(struct account_call);
    *call = (struct account_call){.accounts = accounts, .run = run, .done = done, .arg = arg};
    TAILQ_INSERT_TAIL(&accounts->calls, call, link);
    loop_timer_start(accounts->begin, 0);
    return call;
}

static void
on_begin(void *arg)
{
    struct accounts *accounts = arg;
    if (!accounts->work && !TAILQ_EMPTY(&accounts->calls))
        start_job(accounts, false);
}

void
account_call_cancel(struct account_call *call, loop_fn discard)
{
    call->done = NULL;
    call->discard = discard;
    if (call == call->accounts->call)
        return; // a worker has it
    TAILQ_REMOVE(&call->accounts->calls, call, link);
    account_call_finish(call);
}

// ---- Life -----------------------------------------------------------------------------------

struct accounts *
accounts_new(const struct accounts_settings *settings)
{
    struct accounts *accounts = KG_NEW(struct accounts);
    accounts->authenticator.ops = &accounts_ops;
    accounts->settings = *settings;
    accounts->path = kg_strdup(settings->path);
    TAILQ_INIT(&accounts->checks);
    TAILQ_INIT(&accounts->calls);
    accounts->begin = loop_timer_new(settings->loop, on_begin, accounts);
    accounts->again = loop_timer_new(settings->loop, on_again, accounts);
    accounts->write_uses = loop_timer_new(settings->loop, on_write_uses, accounts);
    accounts->watch = account_watch_new(settings->loop, accounts->path, on_file_changed, accounts);
    start_job(accounts, false);
    return accounts;
}

// A worker may have the database still; then the last uses are not written.
void
accounts_free(struct accounts *accounts)
{
    if (!accounts)
        return;
    assert(TAILQ_EMPTY(&accounts->checks) && TAILQ_EMPTY(&accounts->calls));
    struct kg_error err;
    if (accounts->work)
        loop_work_cancel(accounts->work, account_job_free);
    else if (accounts->store && accounts->n_uses > 0 &&
             key_write_uses(accounts->store, accounts->uses, accounts->n_uses, &err) < 0)
        log_error("cannot write when keys were used last", LOG_ERR(&err));
    account_store_close(accounts->store);
    account_list_free(accounts->list);
    account_watch_free(accounts->watch);
    loop_timer_free(accounts->begin);
    loop_timer_free(accounts->again);
    loop_timer_free(accounts->write_uses);
    free(accounts->uses);
    free(accounts->path);
    free(accounts);
}
