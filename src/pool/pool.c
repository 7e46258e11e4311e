// SPDX-License-Identifier: Apache-2.0
// Matches requests and sandboxes. A sandbox is not created for a particular request: each is bare
// at first, and goes to a request without a kernel or gets one; the first kernel that is ready goes
// to the next request. There are as many as pending requests and empty places together, a few of
// them starting at a time.

#include "pool_priv.h"

#include <assert.h>
#include <string.h>

#include "metrics.h"

enum {
    MAX_STARTING = 4,      // more at a time would only slow each other down
    STARTING_PER_FORK = 2, // a machine with many processors starts more
    MIN_BACKOFF_MS = 500,
    CHECK_AGAIN_MS = 500,
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
pool_on_kernel_failed(struct pool *pool, const struct kg_error *err)
{
    pool_back_off(pool, err);
    struct pool_request *first = pool_first_request(pool, true);
    if (first && pool_n_ready(pool) == 0)
        pool_request_answer(first, NULL, NULL, err);
}

void
pool_on_sandbox_failed(struct pool *pool, const struct kg_error *err)
{
    struct pool_request *first = pool_first_request(pool, false);
    if (!first) {
        pool_on_kernel_failed(pool, err);
        return;
    }
    pool_back_off(pool, err);
    pool_request_answer(first, NULL, NULL, err);
}

// ---- Work -----------------------------------------------------------------------------------

static struct pool_entry *
find_entry(const struct pool *pool, enum pool_entry_state state)
{
    struct pool_entry *entry;
    TAILQ_FOREACH(entry, &pool->entries, link) {
        bool lives = sandbox_state(entry->sandbox) != SANDBOX_GONE; // else on_gone is about to fire
        if (entry->state == state && lives)
            return entry;
    }
    return NULL;
}

static void
give(struct pool *pool)
{
    struct pool_request *request;
    struct pool_entry *entry;
    while ((request = pool_first_request(pool, true)) &&
           ((entry = find_entry(pool, ENTRY_READY)) || (entry = find_entry(pool, ENTRY_WARMING))))
        pool_entry_give(entry, request);
    while ((request = pool_first_request(pool, false)) && (entry = find_entry(pool, ENTRY_BARE))) {
        pool->backoff_ms = 0;
        pool_entry_give(entry, request);
    }
}

int
pool_adopt(struct pool *pool, const char *id, struct kg_error *err)
{
    return pool_entry_new(pool, id, err);
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
    int64_t kernels;   // how many are missing; negative: there are too many
    int64_t sandboxes; // the same, with and without a kernel
    int64_t adopted;   // sandboxes that may have a kernel
    int64_t kernels_starting;
    int64_t starting; // these, and sandboxes that are being created
    int64_t bare;     // sandboxes without a kernel, also those that are being created
    int64_t needed;   // of these, for the requests that wait
    bool waits;       // a request does
    bool urgent;      // for a kernel
};

static struct demand
count_demand(const struct pool *pool)
{
    struct demand demand = {.kernels = pool_target(pool),
                            .sandboxes =
                                pool->filling ? pool->settings.size + pool->settings.n_bare : 0};
    const struct pool_request *request;
    TAILQ_FOREACH(request, &pool->requests, link) {
        demand.sandboxes++;
        demand.waits = true;
        demand.needed += !request->with_kernel;
        demand.kernels += request->with_kernel;
        demand.urgent |= request->with_kernel;
    }
    const struct pool_entry *entry;
    TAILQ_FOREACH(entry, &pool->entries, link) {
        demand.sandboxes--;
        demand.bare += entry->state < ENTRY_KERNEL;
        demand.kernels -= entry->state >= ENTRY_KERNEL;
        demand.adopted += entry->state == ENTRY_SANDBOX && entry->adopted;
        demand.kernels_starting += entry->state == ENTRY_KERNEL;
        demand.starting += entry->state == ENTRY_SANDBOX || entry->state == ENTRY_KERNEL;
    }
    if (demand.kernels > pool_target(pool)) // kernels for requests, not for places
        demand.needed += demand.kernels - pool_target(pool);
    return demand;
}

// The next bare sandbox that should get its kernel now; or NULL. Forks keep the processors busy: as
// many as there are if requests wait, else one, so that sandboxes are ready first.
static struct pool_entry *
next_for_kernel(const struct pool *pool, const struct demand *demand)
{
    int64_t most = demand->urgent ? pool->settings.max_forks : 1;
    bool room = pool->settings.max_forks == 0 || demand->kernels_starting < most;
    return demand->kernels > demand->adopted && room ? find_entry(pool, ENTRY_BARE) : NULL;
}

// With forks, places are filled again when no request needs the processors. And while a bare
// sandbox waits for its fork, another one would only delay that.
static bool
wants_sandbox(const struct pool *pool, const struct demand *demand)
{
    bool forks = pool->settings.max_forks > 0;
    if (forks && demand->waits && demand->bare >= demand->needed)
        return false;
    if (forks && demand->urgent && find_entry(pool, ENTRY_BARE))
        return false;
    int64_t most = pool->settings.max_forks * STARTING_PER_FORK;
    if (most < MAX_STARTING)
        most = MAX_STARTING;
    return demand->sandboxes > 0 && demand->starting < most;
}

// What another gateway keeps ready has a kernel.
static int
add_sandbox(struct pool *pool, struct kg_error *err)
{
    if (!pool->filling && pool_first_request(pool, true) && pool_entry_take(pool, err) == 0)
        return 0;
    return pool_entry_new(pool, NULL, err);
}

// Whether sandboxes of this engine can be used; else requests fail, and it is asked again later.
static bool
can_make(struct pool *pool)
{
    struct kg_error err = {0};
    if (sandbox_check(pool->settings.sandboxes, &err) == 0)
        return true;
    for (struct pool_request *request; (request = TAILQ_FIRST(&pool->requests));)
        pool_request_answer(request, NULL, NULL, &err);
    loop_timer_start(pool->work, CHECK_AGAIN_MS);
    return false;
}

static void
make(struct pool *pool)
{
    while (can_make(pool)) {
        const struct demand demand = count_demand(pool);
        struct pool_entry *bare = next_for_kernel(pool, &demand);
        if (!bare && !wants_sandbox(pool, &demand))
            return;
        int64_t wait_ms = pool->backoff_ms ? pool->not_before_ms - clock_mono_ms() : 0;
        if (wait_ms > 0) {
            loop_timer_start(pool->work, wait_ms);
            return;
        }
        struct kg_error err = {0};
        if (bare) {
            pool_entry_start_kernel(bare);
        } else if (add_sandbox(pool, &err) < 0) {
            pool_on_sandbox_failed(pool, &err);
            return;
        }
    }
}

static void
remove_first(struct pool *pool, const enum pool_entry_state *order, size_t n_states, int64_t n)
{
    for (size_t i = 0; i < n_states && n > 0;) {
        struct pool_entry *entry = find_entry(pool, order[i]);
        if (!entry) {
            i++;
            continue;
        }
        n--;
        if (pool->filling || entry->state == ENTRY_SANDBOX)
            pool_entry_destroy(entry);
        else
            pool_entry_hand_over(entry);
    }
}

// Cancelled requests leave entries that are no longer needed: removes those first that are furthest
// from ready.
static void
clear_surplus(struct pool *pool)
{
    static const enum pool_entry_state with_kernel[] = {ENTRY_KERNEL, ENTRY_WARMING, ENTRY_READY};
    static const enum pool_entry_state without[] = {ENTRY_SANDBOX, ENTRY_BARE};
    remove_first(pool, with_kernel, KG_ARRAY_LEN(with_kernel), -count_demand(pool).kernels);
    remove_first(pool, without, KG_ARRAY_LEN(without), -count_demand(pool).sandboxes);
}

// What no request waits for here may serve one elsewhere.
static void
offer(struct pool *pool)
{
    struct pool_entry *entry;
    TAILQ_FOREACH(entry, &pool->entries, link) {
        if (entry->state != ENTRY_READY || entry->offered)
            continue;
        entry->offered = true;
        sandbox_offer(entry->sandbox);
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
    offer(pool);
    if (pool->started || !TAILQ_EMPTY(&pool->requests))
        make(pool);
}

// ---- Its life -------------------------------------------------------------------------------

struct pool *
pool_new(struct loop *loop, const struct pool_settings *settings)
{
    struct pool *pool = KG_NEW(struct pool);
    pool->loop = loop;
    pool->settings = *settings;
    pool->filling = true;
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
pool_set_filling(struct pool *pool, bool filling)
{
    pool->filling = filling;
    loop_timer_start(pool->work, 0);
}

int64_t
pool_target(const struct pool *pool)
{
    return pool->filling ? pool->settings.size : 0;
}

void
pool_start(struct pool *pool)
{
    pool->started = true;
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

int
pool_check_ready(const struct pool *pool, struct kg_error *err)
{
    bool proven = pool_target(pool) == 0 || pool->proven;
    if (sandbox_check(pool->settings.sandboxes, err) < 0)
        return -1;
    if (proven && (pool->backoff_ms == 0 || pool_n_ready(pool) > 0))
        return 0;
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                        "no sandbox is ready yet; if this lasts, the log has the reason");
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
