// SPDX-License-Identifier: Apache-2.0
// The pool. A sandbox that is made for a request and one that is made to wait are the same:
// whichever gets ready first goes to the request that has waited longest. As many are made as there
// are requests and empty places, few at a time.

#include "pool.h"

#include <assert.h>
#include <string.h>
#include <sys/queue.h>

#include "metrics.h"

enum {
    MAX_STARTING = 4, // more at a time would only slow each other down
    MIN_BACKOFF_MS = 500,
    MAX_BACKOFF_MS = 30 * 1000,
    ADOPT_TIMEOUT_MS = 10 * 1000,
};

enum entry_state {
    ENTRY_SANDBOX, // the sandbox is being made
    ENTRY_KERNEL,  // its kernel is being started
    ENTRY_WARMING, // can be given away already
    ENTRY_READY,
    ENTRY_FAILED, // waits to be destroyed
};

struct pool_entry {
    TAILQ_ENTRY(pool_entry) link;
    struct pool *pool;
    enum entry_state state;
    bool bare;    // for a request that wants no kernel
    bool adopted; // made by an earlier gateway
    struct sandbox *sandbox;
    struct kernel *kernel;
};

struct pool_request {
    TAILQ_ENTRY(pool_request) link;
    struct pool *pool;
    bool with_kernel;
    struct loop_timer *deadline;
    pool_fn fn;
    void *arg;
};

struct pool {
    struct loop *loop;
    struct pool_settings settings;
    TAILQ_HEAD(, pool_entry) entries;
    TAILQ_HEAD(, pool_request) requests;
    struct loop_timer *work; // gives, clears away and makes what there is to
    int64_t backoff_ms;      // since the last start failed; 0: it did not
    int64_t not_before_ms;   // the next start
    size_t n_destroying;
    bool proven; // a kernel of it has got ready once
    bool ending;
    loop_fn on_ended;
    void *on_ended_arg;
};

// ---- Requests -------------------------------------------------------------------------------

static void
request_free(struct pool_request *request)
{
    TAILQ_REMOVE(&request->pool->requests, request, link);
    loop_timer_free(request->deadline);
    free(request);
}

static void
request_answer(struct pool_request *request, struct sandbox *sandbox, struct kernel *kernel,
               const struct kg_error *err)
{
    pool_fn fn = request->fn;
    void *arg = request->arg;
    request_free(request);
    fn(sandbox, kernel, err, arg);
}

static void
on_deadline(void *arg)
{
    struct pool_request *request = arg;
    struct kg_error err = {0};
    kg_error_set(&err, KG_KERNEL_START_TIMEOUT, 0, "no sandbox got ready within %lld s",
                 (long long)request->pool->settings.wait_timeout_ms / 1000);
    request_answer(request, NULL, NULL, &err);
}

struct pool_request *
pool_ask(struct pool *pool, bool with_kernel, pool_fn fn, void *arg)
{
    struct pool_request *request = KG_NEW(struct pool_request);
    request->pool = pool;
    request->with_kernel = with_kernel;
    request->fn = fn;
    request->arg = arg;
    request->deadline = loop_timer_new(pool->loop, on_deadline, request);
    loop_timer_start(request->deadline, pool->settings.wait_timeout_ms);
    TAILQ_INSERT_TAIL(&pool->requests, request, link);
    loop_timer_start(pool->work, 0);
    return request;
}

void
pool_request_cancel(struct pool_request *request)
{
    loop_timer_start(request->pool->work, 0);
    request_free(request);
}

static struct pool_request *
first_request(const struct pool *pool, bool with_kernel)
{
    struct pool_request *request;
    TAILQ_FOREACH(request, &pool->requests, link) {
        if (request->with_kernel == with_kernel)
            return request;
    }
    return NULL;
}

// ---- Entries --------------------------------------------------------------------------------

static void
look_whether_ended(struct pool *pool)
{
    if (!pool->on_ended || pool->n_destroying > 0 || !TAILQ_EMPTY(&pool->entries))
        return;
    loop_fn fn = KG_STEAL(pool->on_ended);
    fn(pool->on_ended_arg);
}

static void
on_destroyed(const struct kg_error *err, void *arg)
{
    struct pool *pool = arg;
    if (err)
        log_error("a sandbox of the pool was not destroyed", LOG_ERR(err));
    pool->n_destroying--;
    look_whether_ended(pool);
}

static void
entry_destroy(struct pool_entry *entry)
{
    struct pool *pool = entry->pool;
    entry->state = ENTRY_FAILED; // what fails meanwhile has nothing to do any more
    kernel_free(entry->kernel, NULL);
    pool->n_destroying++;
    sandbox_destroy(entry->sandbox, on_destroyed, pool);
    TAILQ_REMOVE(&pool->entries, entry, link);
    free(entry);
}

static void
entry_give(struct pool_entry *entry, struct pool_request *request)
{
    struct sandbox *sandbox = entry->sandbox;
    struct kernel *kernel = entry->kernel;
    TAILQ_REMOVE(&entry->pool->entries, entry, link);
    free(entry);
    request_answer(request, sandbox, kernel, NULL);
}

// The request that has waited longest is told; the next start has to wait.
static void
on_start_failed(struct pool *pool, const struct kg_error *err)
{
    log_warning("a sandbox of the pool did not get ready", LOG_ERR(err));
    metric_add(METRIC_POOL_FAILED_STARTS, 1);
    pool->backoff_ms = pool->backoff_ms == 0 ? MIN_BACKOFF_MS : pool->backoff_ms * 2;
    if (pool->backoff_ms > MAX_BACKOFF_MS)
        pool->backoff_ms = MAX_BACKOFF_MS;
    pool->not_before_ms = clock_mono_ms() + pool->backoff_ms;
    loop_timer_start(pool->work, 0);
    struct pool_request *first = TAILQ_FIRST(&pool->requests);
    if (first)
        request_answer(first, NULL, NULL, err);
}

// ---- What entries tell ----------------------------------------------------------------------

static void
on_kernel_started(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct pool_entry *entry = arg;
    if (err) {
        entry->state = ENTRY_FAILED;
        on_start_failed(entry->pool, err);
        return;
    }
    entry->pool->backoff_ms = 0;
    entry->pool->proven = true;
    bool wanted = first_request(entry->pool, true) != NULL; // then there is no time for it
    entry->state = !wanted && kernel_warm_up(kernel) ? ENTRY_WARMING : ENTRY_READY;
    loop_timer_start(entry->pool->work, 0);
}

static void
on_kernel_warm(struct kernel *kernel, void *arg)
{
    (void)kernel;
    struct pool_entry *entry = arg;
    entry->state = ENTRY_READY;
}

static void
on_execution_done(struct kernel *kernel, struct execution *execution, void *arg)
{
    (void)kernel;
    (void)execution;
    (void)arg; // nobody executes anything here
}

static void
on_kernel_broken(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    (void)kernel;
    (void)err; // told as a start that failed, or it waits already to be destroyed
    struct pool_entry *entry = arg;
    entry->state = ENTRY_FAILED;
    loop_timer_start(entry->pool->work, 0);
}

static const struct kernel_events kernel_events = {
    .on_started = on_kernel_started,
    .on_broken = on_kernel_broken,
    .on_warm = on_kernel_warm,
    .on_execution_done = on_execution_done,
};

// What an earlier gateway has started in an adopted sandbox.
static void
on_process(const json_t *body, const struct kg_error *err, void *arg)
{
    (void)err; // none: then it is started now
    struct pool_entry *entry = arg;
    const struct pool *pool = entry->pool;
    if (entry->state == ENTRY_FAILED)
        return;
    entry->state = ENTRY_KERNEL;
    entry->kernel = kernel_adopt(pool->settings.kernels, entry->sandbox, pool->settings.spec, NULL,
                                 body, &kernel_events, entry);
    if (!entry->kernel)
        entry->kernel = kernel_new(pool->settings.kernels, entry->sandbox, pool->settings.spec,
                                   NULL, &kernel_events, entry);
}

static void
ask_for_process(struct pool_entry *entry)
{
    KG_AUTO_FREE char *path = kg_asprintf("/kernels/%s", entry->pool->settings.spec->name);
    if (!sandbox_agent_call(entry->sandbox, "GET", path, NULL, ADOPT_TIMEOUT_MS, on_process, entry,
                            NULL)) {
        entry->state = ENTRY_FAILED;
        loop_timer_start(entry->pool->work, 0);
    }
}

static void
on_sandbox_ready(struct sandbox *sandbox, void *arg)
{
    struct pool_entry *entry = arg;
    struct pool *pool = entry->pool;
    if (entry->adopted) {
        ask_for_process(entry);
        return;
    }
    struct pool_request *request = entry->bare ? first_request(pool, false) : NULL;
    if (request) {
        pool->backoff_ms = 0;
        entry_give(entry, request);
        return;
    }
    entry->bare = false; // whoever asked for it has gone
    entry->state = ENTRY_KERNEL;
    entry->kernel = kernel_new(pool->settings.kernels, sandbox, pool->settings.spec, NULL,
                               &kernel_events, entry);
}

static void
on_sandbox_gone(struct sandbox *sandbox, const struct kg_error *reason, void *arg)
{
    (void)sandbox;
    struct pool_entry *entry = arg;
    struct pool *pool = entry->pool;
    entry_destroy(entry);
    on_start_failed(pool, reason);
}

static void
on_kernel_exit(struct sandbox *sandbox, const char *name, int pid, int exit_code, int signal,
               bool oom, void *arg)
{
    (void)sandbox;
    (void)name;
    struct pool_entry *entry = arg;
    bool waited = entry->state == ENTRY_WARMING || entry->state == ENTRY_READY;
    if (entry->kernel)
        kernel_on_exit(entry->kernel, pid, exit_code, signal, oom);
    if (waited) {
        entry->state = ENTRY_FAILED; // not what it was made for any more
        loop_timer_start(entry->pool->work, 0);
    }
}

static const struct sandbox_events sandbox_events = {
    .on_ready = on_sandbox_ready,
    .on_gone = on_sandbox_gone,
    .on_kernel_exit = on_kernel_exit,
};

// ---- Work -----------------------------------------------------------------------------------

// One that has, or will have, a kernel.
static struct pool_entry *
find_entry(const struct pool *pool, enum entry_state state)
{
    struct pool_entry *entry;
    TAILQ_FOREACH(entry, &pool->entries, link) {
        if (entry->state == state && !entry->bare)
            return entry;
    }
    return NULL;
}

static void
give(struct pool *pool)
{
    for (struct pool_request *request; (request = first_request(pool, true));) {
        struct pool_entry *entry = find_entry(pool, ENTRY_READY);
        if (!entry)
            entry = find_entry(pool, ENTRY_WARMING);
        if (!entry)
            return;
        entry_give(entry, request);
    }
}

// Makes an entry of a new sandbox, or of the one that has `id` already.
static int
entry_new(struct pool *pool, bool bare, const char *id, struct kg_error *err)
{
    const struct pool_settings *settings = &pool->settings;
    const struct sandbox_spec spec = {
        .agent_idle_timeout_s = (int)settings->agent_idle_timeout_s,
        .ready_timeout_ms = settings->sandbox_timeout_ms,
    };
    struct pool_entry *entry = KG_NEW(struct pool_entry);
    entry->pool = pool;
    entry->bare = bare;
    entry->adopted = id != NULL;
    entry->sandbox =
        id ? sandbox_adopt(settings->sandboxes, id, false, &spec, &sandbox_events, entry, err)
           : sandbox_create(settings->sandboxes, &spec, &sandbox_events, entry, err);
    if (!entry->sandbox) {
        free(entry);
        return -1;
    }
    TAILQ_INSERT_TAIL(&pool->entries, entry, link);
    return 0;
}

int
pool_adopt(struct pool *pool, const char *id, struct kg_error *err)
{
    return entry_new(pool, false, id, err);
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
        if (entry_new(pool, demand.bare > 0, NULL, &err) < 0) {
            on_start_failed(pool, &err);
            return;
        }
    }
}

// Requests that were cancelled leave entries that nobody waits for: those that are furthest from
// being ready go first.
static void
clear_surplus(struct pool *pool)
{
    static const enum entry_state order[] = {ENTRY_SANDBOX, ENTRY_KERNEL, ENTRY_WARMING,
                                             ENTRY_READY};
    int64_t surplus = -count_demand(pool).with_kernel;
    for (size_t i = 0; i < KG_ARRAY_LEN(order) && surplus > 0;) {
        struct pool_entry *entry = find_entry(pool, order[i]);
        if (!entry) {
            i++;
            continue;
        }
        surplus--;
        entry_destroy(entry);
    }
}

static void
on_work(void *arg)
{
    struct pool *pool = arg;
    for (struct pool_entry *failed; (failed = find_entry(pool, ENTRY_FAILED));)
        entry_destroy(failed);
    if (pool->ending)
        return;
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
        kernel_free(entry->kernel, NULL);
        sandbox_free(entry->sandbox);
        TAILQ_REMOVE(&pool->entries, entry, link);
        free(entry);
    }
    loop_timer_free(pool->work);
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
    pool->ending = true;
    pool->on_ended = on_done;
    pool->on_ended_arg = arg;
    struct kg_error err = {0};
    kg_error_set(&err, KG_DRAINING, 0, "the gateway is shutting down");
    for (struct pool_request *request; (request = TAILQ_FIRST(&pool->requests));)
        request_answer(request, NULL, NULL, &err);
    for (struct pool_entry *entry; (entry = TAILQ_FIRST(&pool->entries));)
        entry_destroy(entry);
    look_whether_ended(pool);
}
