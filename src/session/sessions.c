// SPDX-License-Identifier: Apache-2.0
// The registry of sessions, its limits, and opening a session.

#include <assert.h>
#include <string.h>

#include "packages.h"
#include "pool.h"
#include "sessions_priv.h"

static const char id_characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

struct sessions *
sessions_new(struct loop *loop, const struct sessions_settings *settings)
{
    struct sessions *sessions = KG_NEW(struct sessions);
    sessions->loop = loop;
    sessions->settings = *settings;
    TAILQ_INIT(&sessions->live);
    TAILQ_INIT(&sessions->ending);
    sessions_downloads_init(sessions);
    sessions_ports_init(sessions);
    sessions_tools_init(sessions);
    sessions_watches_init(sessions);
    sessions_kernels_init(sessions);
    const struct pool_settings pool_settings = {
        .sandboxes = settings->sandboxes,
        .kernels = settings->kernels,
        .spec = settings->pooled_spec,
        .size = settings->pool_size,
        .n_bare = settings->pool_bare,
        .max_forks = settings->pool_max_forks,
        .agent_idle_timeout_s = settings->idle_timeout_s,
        .network = settings->network,
        .sandbox_timeout_ms = settings->sandbox_start_timeout_ms,
        .wait_timeout_ms = settings->sandbox_start_timeout_ms + settings->kernels->start_timeout_ms,
    };
    sessions->pool = pool_new(loop, &pool_settings);
    return sessions;
}

void
sessions_free(struct sessions *sessions)
{
    if (!sessions)
        return;
    assert(TAILQ_EMPTY(&sessions->live) && TAILQ_EMPTY(&sessions->ending));
    pool_free(sessions->pool);
    sessions_downloads_fini(sessions);
    sessions_ports_fini(sessions);
    sessions_tools_fini(sessions);
    sessions_watches_fini(sessions);
    sessions_kernels_fini(sessions);
    free(sessions);
}

static struct session *
find(struct sessions *sessions, const char *owner, const char *id)
{
    struct session *session;
    LIST_FOREACH(session, session_bucket_of(sessions, id), in_bucket) {
        if (strcmp(session->id, id) == 0 && strcmp(session->owner, owner) == 0)
            break;
    }
    return session;
}

static int
check_id(const char *id, struct kg_error *err)
{
    size_t len = strlen(id);
    if (len == 0 || len > SESSION_MAX_ID_LEN || strspn(id, id_characters) != len)
        return kg_error_set(err, KG_INVALID_SESSION_ID, 0,
                            "session_id must be 1 to %d characters of A-Z, a-z, 0-9, _ and -",
                            SESSION_MAX_ID_LEN);
    return 0;
}

struct session *
sessions_find(struct sessions *sessions, const char *owner, const char *id, struct kg_error *err)
{
    if (check_id(id, err) < 0)
        return NULL;
    struct session *session = find(sessions, owner, id);
    if (!session)
        kg_error_set(err, KG_SESSION_NOT_FOUND, 0, "there is no session %s", id);
    return session;
}

struct session *
sessions_find_by_sandbox(struct sessions *sessions, const char *id)
{
    struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link) {
        if (session->sandbox && strcmp(sandbox_id(session->sandbox), id) == 0)
            break;
    }
    return session;
}

struct session *
sessions_find_where(struct sessions *sessions,
                    bool (*is_it)(const struct session *session, void *arg), void *arg)
{
    struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link) {
        if (session->sandbox && is_it(session, arg))
            break;
    }
    return session;
}

// ---- Recovery -------------------------------------------------------------------------------

void
sessions_start(struct sessions *sessions)
{
    pool_start(sessions->pool);
}

void
sessions_set_pool_filling(struct sessions *sessions, bool filling)
{
    pool_set_filling(sessions->pool, filling);
}

int
sessions_adopt(struct sessions *sessions, const char *sandbox_id, const json_t *meta,
               struct kg_error *err)
{
    return meta ? session_adopt(sessions, sandbox_id, meta, err)
                : pool_adopt(sessions->pool, sandbox_id, err);
}

void
sessions_on_sandbox_exit(struct sessions *sessions, const char *id)
{
    const struct session *session = sessions_find_by_sandbox(sessions, id);
    if (session)
        sandbox_on_exit(session->sandbox);
    else
        pool_on_sandbox_exit(sessions->pool, id);
}

void
sessions_set_several_owners(struct sessions *sessions, bool several_owners)
{
    sessions->settings.several_owners = several_owners;
    budget_set_several_owners(&sessions->downloads, several_owners);
    budget_set_several_owners(&sessions->ports, several_owners);
    budget_set_several_owners(&sessions->watches, several_owners);
    budget_set_several_owners(&sessions->tool_bytes, several_owners);
    budget_set_several_owners(&sessions->further_kernels, several_owners);
    if (sessions->settings.packages)
        packages_set_several_owners(sessions->settings.packages, several_owners);
}

// ---- Opening --------------------------------------------------------------------------------

static size_t
count_elsewhere(const struct sessions *sessions, const char *owner)
{
    const struct sessions_settings *settings = &sessions->settings;
    return settings->count_elsewhere
               ? settings->count_elsewhere(owner, settings->count_elsewhere_arg)
               : 0;
}

int64_t
sessions_count_of(const struct sessions *sessions, const char *owner)
{
    int64_t n = (int64_t)count_elsewhere(sessions, owner);
    const struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link)
        n += strcmp(session->owner, owner) == 0;
    return n;
}

// The number of the sessions of all who count as one, of all gateways of the installation.
static int64_t
count_by_name(const struct sessions *sessions, const char *name)
{
    int64_t n = (int64_t)count_elsewhere(sessions, name);
    const struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link)
        n += strcmp(budget_name(session->owner), name) == 0;
    return n;
}

// Ends the session that has been idle longest, of `whose` (an owner, or a budget_name(); NULL: of
// any). False: there is none.
static bool
evict(struct sessions *sessions, const char *whose)
{
    struct session *longest = NULL;
    struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link) {
        bool meant = !whose || strcmp(session->owner, whose) == 0 ||
                     strcmp(budget_name(session->owner), whose) == 0;
        if (meant && session_is_idle(session) &&
            (!longest || session->active_ms < longest->active_ms))
            longest = session;
    }
    if (!longest)
        return false;
    log_info("session evicted", LOG_STR("session", longest->id), LOG_STR("owner", longest->owner));
    session_end(longest, "the session was ended to make room for another one", NULL, NULL);
    return true;
}

static int64_t
max_sessions_of(const struct sessions *sessions, const char *owner)
{
    const struct sessions_settings *settings = &sessions->settings;
    return settings->max_sessions_of ? settings->max_sessions_of(owner, settings->quota_arg)
                                     : settings->max_sessions_per_owner;
}

int64_t
sessions_memory_of(const struct sessions *sessions, const char *owner)
{
    const struct sessions_settings *settings = &sessions->settings;
    return settings->max_memory_of ? settings->max_memory_of(owner, settings->quota_arg) : 0;
}

// What says how many sessions an owner may have, for messages.
static const char *
source_of_max(const struct sessions *sessions, int64_t max)
{
    const struct sessions_settings *settings = &sessions->settings;
    if (max == settings->max_sessions_per_owner)
        return "setting max-sessions-per-owner";
    if (settings->several_owners && settings->max_sessions_per_owner == 0 &&
        max == (settings->max_sessions + 1) / 2)
        return "half of setting max-sessions, while there are several owners";
    return "max-sessions of its account";
}

// Owners who share one name in budgets have half of the sessions together. 0: this one does not.
static int64_t
max_of_shared_name(const struct sessions *sessions, const char *owner)
{
    const struct sessions_settings *settings = &sessions->settings;
    bool shares = budget_name(owner) != owner && settings->several_owners;
    return shares ? (settings->max_sessions + 1) / 2 : 0;
}

struct sessions_limits
sessions_limits_of(const struct sessions *sessions, const char *owner)
{
    const struct sessions_settings *settings = &sessions->settings;
    struct sessions_limits limits = {
        .max_sessions = settings->max_sessions,
        .max_memory_mb = sessions_memory_of(sessions, owner),
        .idle_timeout_s = settings->idle_timeout_s,
        .max_lifetime_s = settings->max_lifetime_s,
        .max_savepoints = settings->max_savepoints,
    };
    int64_t own = max_sessions_of(sessions, owner);
    int64_t together = max_of_shared_name(sessions, owner);
    if (own > 0 && own < limits.max_sessions) {
        limits.max_sessions = own;
        limits.max_sessions_from = source_of_max(sessions, own);
    }
    if (together > 0 && together < limits.max_sessions) {
        limits.max_sessions = together;
        limits.max_sessions_from =
            "half of setting max-sessions, for all registered users together";
    }
    return limits;
}

static int
make_room(struct sessions *sessions, const char *owner, struct kg_error *err)
{
    const struct sessions_settings *settings = &sessions->settings;
    int64_t max_of_owner = max_sessions_of(sessions, owner);
    size_t n = sessions_count_everywhere(sessions);
    if (max_of_owner > 0 && sessions_count_of(sessions, owner) >= max_of_owner &&
        !(settings->evict_idle && evict(sessions, owner)))
        return kg_error_set(err, KG_MAX_SESSIONS, 0,
                            "this key already has %lld session%s (%s); end one, or try again later",
                            (long long)max_of_owner, max_of_owner == 1 ? "" : "s",
                            source_of_max(sessions, max_of_owner));
    const char *name = budget_name(owner);
    int64_t max_of_name = max_of_shared_name(sessions, owner);
    if (max_of_name > 0 && count_by_name(sessions, name) >= max_of_name &&
        !(settings->evict_idle && evict(sessions, name)))
        return kg_error_set(
            err, KG_MAX_SESSIONS, 0,
            "%s have %lld sessions together already (half of setting max-sessions); "
            "end one, or try again later",
            name, (long long)max_of_name);
    if ((int64_t)n >= settings->max_sessions &&
        !(settings->evict_idle && (evict(sessions, name) || evict(sessions, NULL))))
        return kg_error_set(
            err, KG_MAX_SESSIONS, 0,
            "the gateway already has %zu session%s (setting max-sessions); end one, or try "
            "again later",
            n, n == 1 ? "" : "s");
    return 0;
}

static struct session *
find_or_make(struct sessions *sessions, const struct session_request *request, struct kg_error *err)
{
    if (request->session_id) {
        if (check_id(request->session_id, err) < 0)
            return NULL;
        struct session *session = find(sessions, request->owner, request->session_id);
        if (session)
            return session;
    }
    if (request->home && session_folder_check("home", request->home, err) < 0)
        return NULL;
    if (make_room(sessions, request->owner, err) < 0)
        return NULL;
    return session_new(sessions, request);
}

struct session_open *
session_open_start(struct sessions *sessions, const struct session_request *request,
                   session_open_fn fn, void *arg, struct kg_error *err)
{
    struct session *session = find_or_make(sessions, request, err);
    if (!session)
        return NULL;
    if (session->state == SESSION_READY &&
        session_want_kernel(session, request->kernelspec, err) < 0)
        return NULL;
    session_touch(session);
    struct session_open *open = KG_NEW(struct session_open);
    open->session = session;
    open->spec = request->kernelspec;
    open->asked_us = session->state == SESSION_CREATING ? clock_mono_us() : 0;
    open->fn = fn;
    open->arg = arg;
    TAILQ_INSERT_TAIL(&session->opens, open, link);
    loop_timer_fire(session->step);
    return open;
}

void
session_open_cancel(struct session_open *open)
{
    struct session *session = open->session;
    TAILQ_REMOVE(&session->opens, open, link);
    free(open);
    if (session->state != SESSION_ENDING && session_is_over(session))
        session_end(session, NULL, NULL, NULL);
}

// ---- All of them ----------------------------------------------------------------------------

size_t
sessions_count(const struct sessions *sessions)
{
    return sessions->n_live;
}

size_t
sessions_count_everywhere(const struct sessions *sessions)
{
    return sessions->n_live + count_elsewhere(sessions, NULL);
}

void
sessions_count_commands(const struct sessions *sessions, int64_t *ret_commands,
                        int64_t *ret_terminals)
{
    const struct session *session;
    *ret_commands = *ret_terminals = 0;
    TAILQ_FOREACH(session, &sessions->live, link) {
        const struct sandbox_activity activity = session_activity(session);
        *ret_commands += activity.n_running;
        *ret_terminals += activity.n_terminals;
    }
}

struct sessions_forks
sessions_count_forks(const struct sessions *sessions)
{
    struct sessions_forks forks = {0};
    const struct session *session;
    const struct session_savepoint *savepoint;
    TAILQ_FOREACH(session, &sessions->live, link) {
        TAILQ_FOREACH(savepoint, &session->savepoints, link) {
            forks.savepoints++;
            forks.savepoint_bytes += savepoint->memory_bytes > 0 ? savepoint->memory_bytes : 0;
        }
        for (size_t i = 0; i < session->n_kernels; i++) {
            const struct session_kernel *kernel = session->kernels[i];
            if (session_kernel_is_default(kernel->kernel))
                continue;
            forks.branches++;
            forks.branch_bytes += kernel->memory_bytes > 0 ? kernel->memory_bytes : 0;
        }
    }
    return forks;
}

json_t *
sessions_ids(const struct sessions *sessions, const char *owner)
{
    json_t *ids = json_array();
    const struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link) {
        if (strcmp(session->owner, owner) == 0)
            json_array_append_new(ids, json_string(session->id));
    }
    return ids;
}

void
sessions_each(struct sessions *sessions, const char *owner,
              void (*fn)(struct session *session, void *arg), void *arg)
{
    struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link) {
        if (strcmp(session->owner, owner) == 0)
            fn(session, arg);
    }
}

static bool
has_kernel_of(const struct session *session, const struct kernelspec *spec)
{
    const struct kernel *kernel;
    for (size_t i = 0; (kernel = session_kernel_at(session, i)); i++) {
        if (kernel_spec(kernel) == spec)
            return true;
    }
    return false;
}

static bool
passes(const struct session *session, const struct sessions_filter *filter)
{
    return session_has_metadata(session, filter->metadata) &&
           (!filter->spec || has_kernel_of(session, filter->spec)) &&
           (!filter->busy || session_is_busy(session) == *filter->busy);
}

json_t *
sessions_describe_some(const struct sessions *sessions, const char *owner,
                       const struct sessions_filter *filter)
{
    json_t *some = json_object();
    struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link) {
        if (strcmp(session->owner, owner) == 0 && passes(session, filter))
            json_object_set_new(some, session->id, session_describe(session));
    }
    return some;
}

json_t *
sessions_describe(const struct sessions *sessions, const char *owner)
{
    return sessions_describe_some(sessions, owner, &(const struct sessions_filter){0});
}

bool
sessions_are_busy(const struct sessions *sessions)
{
    struct session *session;
    TAILQ_FOREACH(session, &sessions->live, link) {
        if (session_is_awaited(session))
            return true;
    }
    return false;
}

size_t
sessions_n_pooled(const struct sessions *sessions)
{
    return pool_n_ready(sessions->pool);
}

int64_t
sessions_pool_target(const struct sessions *sessions)
{
    return pool_target(sessions->pool);
}

size_t
sessions_n_starting(const struct sessions *sessions)
{
    return pool_n_starting(sessions->pool);
}

int
sessions_check_ready(const struct sessions *sessions, struct kg_error *err)
{
    return pool_check_ready(sessions->pool, err);
}
