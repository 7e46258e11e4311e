// SPDX-License-Identifier: Apache-2.0
// Prepares a sandbox: creates or adopts it, starts its kernel, warms it up.

#include "pool_priv.h"

#include <assert.h>

enum { ADOPT_TIMEOUT_MS = 10 * 1000 };

static const char *const state_names[] = {
    [ENTRY_SANDBOX] = "sandbox", [ENTRY_BARE] = "bare",   [ENTRY_KERNEL] = "kernel",
    [ENTRY_WARMING] = "warming", [ENTRY_READY] = "ready", [ENTRY_FAILED] = "failed",
};

// From each state; a bit for each state that may follow.
static const unsigned next_states[] = {
    [ENTRY_SANDBOX] = 1U << ENTRY_BARE | 1U << ENTRY_KERNEL | 1U << ENTRY_FAILED,
    [ENTRY_BARE] = 1U << ENTRY_KERNEL | 1U << ENTRY_FAILED,
    [ENTRY_KERNEL] = 1U << ENTRY_WARMING | 1U << ENTRY_READY | 1U << ENTRY_FAILED,
    [ENTRY_WARMING] = 1U << ENTRY_READY | 1U << ENTRY_FAILED,
    [ENTRY_READY] = 1U << ENTRY_FAILED,
    [ENTRY_FAILED] = 1U << ENTRY_FAILED, // more than one thing may fail before it is destroyed
};

void
pool_entry_set_state(struct pool_entry *entry, enum pool_entry_state state)
{
    assert(next_states[entry->state] & 1U << state);
    log_debug("pool entry state", LOG_STR("sandbox", sandbox_id(entry->sandbox)),
              LOG_STR("from", state_names[entry->state]), LOG_STR("to", state_names[state]));
    entry->state = state;
}

static void
on_destroyed(const struct kg_error *err, void *arg)
{
    struct pool *pool = arg;
    if (err)
        log_error("a sandbox of the pool was not destroyed", LOG_ERR(err));
    pool->n_destroying--;
    pool_look_whether_ended(pool);
}

void
pool_entry_destroy(struct pool_entry *entry)
{
    struct pool *pool = entry->pool;
    pool_entry_set_state(entry, ENTRY_FAILED); // so that failing calls do nothing more
    kernel_free(entry->kernel, NULL);
    pool->n_destroying++;
    sandbox_destroy(entry->sandbox, on_destroyed, pool);
    TAILQ_REMOVE(&pool->entries, entry, link);
    free(entry);
}

void
pool_entry_hand_over(struct pool_entry *entry)
{
    pool_entry_set_state(entry, ENTRY_FAILED); // so that failing calls do nothing more
    kernel_free(entry->kernel, NULL);
    sandbox_hand_over(entry->sandbox);
    TAILQ_REMOVE(&entry->pool->entries, entry, link);
    free(entry);
}

void
pool_entry_give(struct pool_entry *entry, struct pool_request *request)
{
    struct sandbox *sandbox = entry->sandbox;
    struct kernel *kernel = entry->kernel;
    TAILQ_REMOVE(&entry->pool->entries, entry, link);
    free(entry);
    pool_request_answer(request, sandbox, kernel, NULL);
}

// ---- Events of entries -----------------------------------------------------------------------

// A kernel's events come from the middle of its work, so the entry is destroyed later. (A sandbox's
// on_gone is its last event: there it is destroyed at once.)
static void
entry_fail(struct pool_entry *entry)
{
    pool_entry_set_state(entry, ENTRY_FAILED);
    loop_timer_start(entry->pool->work, 0);
}

static void
on_kernel_started(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    struct pool_entry *entry = arg;
    if (err && entry->adopted) {
        log_warning("a kernel of another gateway cannot be used", LOG_ERR(err));
        entry_fail(entry);
        return;
    }
    if (err) {
        pool_entry_set_state(entry, ENTRY_FAILED);
        pool_on_kernel_failed(entry->pool, err);
        return;
    }
    entry->pool->backoff_ms = 0;
    entry->pool->proven = true;
    bool wanted = pool_first_request(entry->pool, true) != NULL; // then it is handed over unwarmed
    pool_entry_set_state(entry, !wanted && kernel_warm_up(kernel) ? ENTRY_WARMING : ENTRY_READY);
    loop_timer_start(entry->pool->work, 0);
}

static void
on_kernel_warm(struct kernel *kernel, void *arg)
{
    (void)kernel;
    struct pool_entry *entry = arg;
    if (entry->state != ENTRY_WARMING) // it may have failed meanwhile
        return;
    pool_entry_set_state(entry, ENTRY_READY);
    loop_timer_start(entry->pool->work, 0);
}

static void
on_execution_done(struct kernel *kernel, struct execution *execution, void *arg)
{
    (void)kernel;
    (void)execution;
    (void)arg; // nothing is executed in a pooled kernel
}

static void
on_kernel_broken(struct kernel *kernel, const struct kg_error *err, void *arg)
{
    (void)kernel;
    (void)err; // on_started reports it, or the entry has failed already
    entry_fail(arg);
}

// The kernel ended or was lost in the pool, or its warm-up took too long. The entry fails, since
// the new process would be cold and nothing would report when it is ready.
static void
entry_on_kernel_replaced(struct kernel *kernel, void *arg)
{
    (void)kernel;
    struct pool_entry *entry = arg;
    bool warming = entry->state == ENTRY_WARMING;
    if (!warming && entry->state != ENTRY_READY)
        return;
    entry_fail(entry);
    if (!warming)
        return;
    struct kg_error err = {0};
    kg_error_set(&err, KG_KERNEL_START_TIMEOUT, 0, "the kernel ended or hung during its warm-up");
    pool_back_off(entry->pool, &err);
}

static const struct kernel_events kernel_events = {
    .on_started = on_kernel_started,
    .on_broken = on_kernel_broken,
    .on_warm = on_kernel_warm,
    .on_replaced = entry_on_kernel_replaced,
    .on_execution_done = on_execution_done,
};

void
pool_entry_start_kernel(struct pool_entry *entry)
{
    const struct pool_settings *settings = &entry->pool->settings;
    pool_entry_set_state(entry, ENTRY_KERNEL);
    entry->adopted = false; // not its kernel
    const struct kernel_settings of_kernel = {.spec = settings->spec};
    entry->kernel =
        kernel_new(settings->kernels, entry->sandbox, &of_kernel, &kernel_events, entry);
}

static void
become_bare(struct pool_entry *entry)
{
    pool_entry_set_state(entry, ENTRY_BARE);
    loop_timer_start(entry->pool->work, 0);
}

// The kernel process that an earlier gateway started in an adopted sandbox.
static void
on_process(const json_t *body, const struct kg_error *err, void *arg)
{
    (void)err; // there is none
    struct pool_entry *entry = arg;
    const struct pool *pool = entry->pool;
    const struct kernel_context *kernels = pool->settings.kernels;
    if (entry->state == ENTRY_FAILED)
        return;
    if (!body) {
        become_bare(entry);
        return;
    }
    pool_entry_set_state(entry, ENTRY_KERNEL);
    const struct kernel_settings settings = {.spec = pool->settings.spec};
    entry->kernel = kernel_adopt(kernels, entry->sandbox, &settings, body,
                                 kernels->start_timeout_ms, &kernel_events, entry);
    if (!entry->kernel)
        entry_fail(entry); // the process has ended
}

static void
ask_for_process(struct pool_entry *entry)
{
    json_auto_t *params = json_pack("{s:s}", "name", entry->pool->settings.spec->name);
    if (!sandbox_agent_call(entry->sandbox, "kernels.describe", params, ADOPT_TIMEOUT_MS,
                            on_process, entry, NULL))
        entry_fail(entry);
}

static void
on_sandbox_ready(struct sandbox *sandbox, void *arg)
{
    (void)sandbox;
    struct pool_entry *entry = arg;
    if (entry->adopted)
        ask_for_process(entry);
    else
        become_bare(entry);
}

static void
on_sandbox_gone(struct sandbox *sandbox, const struct kg_error *reason, void *arg)
{
    struct pool_entry *entry = arg;
    struct pool *pool = entry->pool;
    bool had_kernel = entry->kernel != NULL;
    // If another gateway has taken it, or has made it, that says nothing of those made here.
    bool is_elsewhere = sandbox_is_lost(sandbox) || entry->adopted;
    pool_entry_destroy(entry);
    if (is_elsewhere)
        loop_timer_start(pool->work, 0);
    else if (had_kernel)
        pool_on_kernel_failed(pool, reason);
    else
        pool_on_sandbox_failed(pool, reason);
}

static void
on_kernel_exit(struct sandbox *sandbox, const char *name, int pid, int exit_code, int signal,
               bool oom, void *arg)
{
    (void)sandbox;
    (void)name;
    const struct pool_entry *entry = arg;
    if (entry->kernel)
        kernel_on_exit(entry->kernel, pid, exit_code, signal, oom);
}

static const struct sandbox_events sandbox_events = {
    .on_ready = on_sandbox_ready,
    .on_gone = on_sandbox_gone,
    .on_kernel_exit = on_kernel_exit,
};

// ---- Making one ------------------------------------------------------------------------------

static struct sandbox_spec
sandbox_spec_of(const struct pool_settings *settings)
{
    return (struct sandbox_spec){
        .agent_idle_timeout_s = (int)settings->agent_idle_timeout_s,
        .network = settings->network,
        .ready_timeout_ms = settings->sandbox_timeout_ms,
    };
}

static struct pool_entry *
entry_make(struct pool *pool, bool adopted)
{
    struct pool_entry *entry = KG_NEW(struct pool_entry);
    entry->pool = pool;
    entry->adopted = adopted;
    return entry;
}

// Takes the entry. It fails without a sandbox.
static int
entry_add(struct pool_entry *entry, struct sandbox *sandbox)
{
    entry->sandbox = sandbox;
    if (!sandbox) {
        free(entry);
        return -1;
    }
    TAILQ_INSERT_TAIL(&entry->pool->entries, entry, link);
    return 0;
}

int
pool_entry_new(struct pool *pool, const char *id, struct kg_error *err)
{
    const struct sandbox_context *sandboxes = pool->settings.sandboxes;
    const struct sandbox_spec spec = sandbox_spec_of(&pool->settings);
    struct pool_entry *entry = entry_make(pool, id != NULL);
    return entry_add(entry,
                     id ? sandbox_adopt(sandboxes, id, false, &spec, &sandbox_events, entry, err)
                        : sandbox_create(sandboxes, &spec, &sandbox_events, entry, err));
}

int
pool_entry_take(struct pool *pool, struct kg_error *err)
{
    const struct sandbox_spec spec = sandbox_spec_of(&pool->settings);
    struct pool_entry *entry = entry_make(pool, true);
    return entry_add(entry,
                     sandbox_take(pool->settings.sandboxes, &spec, &sandbox_events, entry, err));
}

void
pool_give_back(struct pool *pool, struct sandbox *sandbox, struct kernel *kernel)
{
    struct pool_entry *entry = entry_make(pool, false);
    entry->kernel = kernel;
    entry->state = kernel ? ENTRY_READY : ENTRY_BARE;
    sandbox_set_events(sandbox, &sandbox_events, entry);
    if (kernel)
        kernel_set_events(kernel, &kernel_events, entry);
    (void)entry_add(entry, sandbox);
    loop_timer_start(pool->work, 0);
}
