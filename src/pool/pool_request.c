// SPDX-License-Identifier: Apache-2.0
// Pending requests for a sandbox.

#include "budget.h"
#include "pool_priv.h"

#include <string.h>

static void
request_free(struct pool_request *request)
{
    TAILQ_REMOVE(&request->pool->requests, request, link);
    loop_timer_free(request->deadline);
    free(request->owner);
    free(request);
}

void
pool_request_answer(struct pool_request *request, struct sandbox *sandbox, struct kernel *kernel,
                    const struct kg_error *err)
{
    pool_fn fn = request->fn;
    void *arg = request->arg;
    free(request->pool->last_owner);
    request->pool->last_owner = KG_STEAL(request->owner);
    request_free(request);
    fn(sandbox, kernel, err, arg);
}

static void
request_on_deadline(void *arg)
{
    struct pool_request *request = arg;
    struct kg_error err = {0};
    kg_error_set(&err, KG_KERNEL_START_TIMEOUT, 0, "no sandbox was ready within %lld s",
                 (long long)request->pool->settings.wait_timeout_ms / 1000);
    pool_request_answer(request, NULL, NULL, &err);
}

struct pool_request *
pool_ask(struct pool *pool, const char *owner, bool with_kernel, pool_fn fn, void *arg)
{
    struct pool_request *request = KG_NEW(struct pool_request);
    request->pool = pool;
    request->owner = kg_strdup(owner);
    request->with_kernel = with_kernel;
    request->fn = fn;
    request->arg = arg;
    request->deadline = loop_timer_new(pool->loop, request_on_deadline, request);
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

struct pool_request *
pool_first_request(const struct pool *pool, bool with_kernel)
{
    struct pool_request *first = NULL;
    struct pool_request *request;
    TAILQ_FOREACH(request, &pool->requests, link) {
        if (request->with_kernel != with_kernel)
            continue;
        if (!pool->last_owner || !budget_is_common(request->owner, pool->last_owner))
            return request;
        if (!first)
            first = request;
    }
    return first;
}
