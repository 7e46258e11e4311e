// SPDX-License-Identifier: Apache-2.0
// Matches requests and sandboxes. A sandbox is not created for a particular request: the first one
// that is ready goes to the next request. There are as many as pending requests and empty places
// together, a few of them starting at a time.

#include "pool_priv.h"

#include <assert.h>
#include <string.h>

#include "metrics.h"

enum {
    MAX_STARTING = 4, // more at a time would only slow each other down
    MIN_BACKOFF_MS = 500,
    MAX_BACKOFF_MS = 30 * 1000,
};

void
pool_look_whether_ended(struct pool *pool)
{
    if (!pool->on_ended || pool->n_destroying > 0 || !TAILQ_EMPTY(&pool->entries))
        return;
    loop_fn fn = KG_STEAL(pool->on_ended);
    fn(pool->on_ended_arg);
}

void
pool_back_off(struct pool *pool, const struct kg_error *err)
{
    log_warning("a sandbox of the pool could not be started", LOG_ERR(err));
    metric_add(METRIC_POOL_FAILED_STARTS, 1);
    pool->backoff_ms = pool->backoff_ms == 0 ? MIN_BACKOFF_MS : pool->backoff_ms * 2;
    if (pool->backoff_ms > MAX_BACKOFF_MS)
        pool->backoff_ms = MAX_BACKOFF_MS;
    pool->not_before_ms = clock_mono_ms() + pool->backoff_ms;
    loop_timer_start(pool->work, 0);
}

void
pool_on_start_failed(struct pool *pool, bool with_kernel, const struct kg_error *err)
{
    pool_back_off(pool, err);
    struct pool_request *first = pool_first_request(pool, with_kernel);
    if (first && !(with_kernel && pool_n_ready(pool) > 0))
        pool_request_answer(first, NULL, NULL, err);
}

// ---- Work -----------------------------------------------------------------------------------

// An entry in that state that has, or will have, a kernel.
static struct pool_entry *
find_entry(const struct pool *pool, enum pool_entry_state state)
{
    struct pool_entry *entry;
    TAILQ_FOREACH(entry, &pool->entries, link) {
        bool lives = sandbox_state(entry->sandbox) != SANDBOX_GONE; // else on_gone is about to fire
        if (entry->state == state && !entry->bare && lives)
            return entry;
    }
    return NULL;
}

static void
give(struct pool *pool)
{
    for (struct pool_request *request; (request = pool_first_request(pool, true));) {
        struct pool_entry *entry = find_entry(pool, ENTRY_READY);
        if (!entry)
            entry = find_entry(pool, ENTRY_WARMING);
        if (!entry)
            return;
        pool_entry_give(entry, request);
    }
}

int
pool_adopt(struct pool *pool, const char *id, struct kg_error *err)
{
    return pool_entry_new(pool, false, id, err);
}

void
pool_on_sandbox_exit(struct pool *pool, const char *id)
{
    struct pool_entry *entry;
    TAILQ_FOREACH(entry, &pool->entries, link) {
        if (strcmp(sandbox_id(entry->sandbox), id) == 0) {
            sandbox_on_exit(entry->sandbox);
            return;
        }
    }
}

struct demand {
    int64_t bare;        // sandboxes without a kernel that are missing
    int64_t with_kernel; // sandboxes with one
    int64_t starting;
};

static struct demand
count_demand(const struct pool *pool)
{
    struct demand demand = {.with_kernel = pool->settings.size};
    const struct pool_request *request;
    TAILQ_FOREACH(request, &pool->requests, link)
        *(request->with_kernel ? &demand.with_kernel : &demand.bare) += 1;
    const struct pool_entry *entry;
    TAILQ_FOREACH(entry, &pool->entries, link) {
        *(entry->bare ? &demand.bare : &demand.with_kernel) -= 1;
        demand.starting += entry->state == ENTRY_SANDBOX || entry->state == ENTRY_KERNEL;
    }
    return demand;
}

static void
make(struct pool *pool)
{
    for (;;) {
        struct demand demand = count_demand(pool);
        bool any = demand.bare > 0 || demand.with_kernel > 0;
        if (!any || demand.starting >= MAX_STARTING)
            return;
        int64_t wait_ms = pool->backoff_ms ? pool->not_before_ms - clock_mono_ms() : 0;
        if (wait_ms > 0) {
            loop_timer_start(pool->work, wait_ms);
            return;
        }
        struct kg_error err = {0};
        if (pool_entry_new(pool, demand.bare > 0, NULL, &err) < 0) {
            pool_on_start_failed(pool, demand.bare <= 0, &err);
            return;
        }
    }
}

// Cancelled requests leave entries that are no longer needed: destroys those first that are
// furthest from ready.
static void
clear_surplus(struct pool *pool)
{
    static const enum pool_entry_state order[] = {ENTRY_SANDBOX, ENTRY_KERNEL, ENTRY_WARMING,
                                                  ENTRY_READY};
    int64_t surplus = -count_demand(pool).with_kernel;
    for (size_t i = 0; i < KG_ARRAY_LEN(order) && surplus > 0;) {
        struct pool_entry *entry = find_entry(pool, order[i]);
        if (!entry) {
            i++;
            continue;
        }
        surplus--;
        pool_entry_destroy(entry);
    }
}

static void
fail_requests(struct pool *pool)
{
    struct kg_error err = {0};
    kg_error_set(&err, KG_DRAINING, 0, "the gateway is shutting down");
    for (struct pool_request *request; (request = TAILQ_FIRST(&pool->requests));)
        pool_request_answer(request, NULL, NULL, &err);
}

static void
on_work(void *arg)
{
    struct pool *pool = arg;
    for (struct pool_entry *failed; (failed = find_entry(pool, ENTRY_FAILED));)
        pool_entry_destroy(failed);
    if (pool->ending) {
        fail_requests(pool);
        return;
    }
    give(pool);
    clear_surplus(pool);
    make(pool);
}

// ---- Its life -------------------------------------------------------------------------------

struct pool *
pool_new(struct loop *loop, const struct pool_settings *settings)
{
    struct pool *pool = KG_NEW(struct pool);
    pool->loop = loop;
    pool->settings = *settings;
    TAILQ_INIT(&pool->entries);
    TAILQ_INIT(&pool->requests);
    pool->work = loop_timer_new(loop, on_work, pool);
    return pool;
}

void
pool_stop(struct pool *pool)
{
    pool->ending = true;
    fail_requests(pool);
}

void
pool_start(struct pool *pool)
{
    loop_timer_start(pool->work, 0);
}

void
pool_free(struct pool *pool)
{
    if (!pool)
        return;
    assert(TAILQ_EMPTY(&pool->requests));
    for (struct pool_entry *entry; (entry = TAILQ_FIRST(&pool->entries));) {
        pool_entry_set_state(entry, ENTRY_FAILED); // its calls fail now, and start nothing new
        kernel_free(entry->kernel, NULL);
        sandbox_free(entry->sandbox);
        TAILQ_REMOVE(&pool->entries, entry, link);
        free(entry);
    }
    loop_timer_free(pool->work);
    free(pool->last_owner);
    free(pool);
}

size_t
pool_n_ready(const struct pool *pool)
{
    size_t n = 0;
    const struct pool_entry *entry;
    TAILQ_FOREACH(entry, &pool->entries, link)
        n += entry->state == ENTRY_READY;
    return n;
}

size_t
pool_n_starting(const struct pool *pool)
{
    return (size_t)count_demand(pool).starting;
}

bool
pool_can_serve(const struct pool *pool)
{
    if (pool->settings.size > 0 && !pool->proven)
        return false;
    return pool->backoff_ms == 0 || pool_n_ready(pool) > 0;
}

void
pool_end(struct pool *pool, loop_fn on_done, void *arg)
{
    pool_stop(pool);
    pool->on_ended = on_done;
    pool->on_ended_arg = arg;
    for (struct pool_entry *entry; (entry = TAILQ_FIRST(&pool->entries));)
        pool_entry_destroy(entry);
    pool_look_whether_ended(pool);
}
