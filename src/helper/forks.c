// SPDX-License-Identifier: Apache-2.0
#include "forks.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "helper.h"

struct kernel_fork {
    kernel_forked_fn fn;
    void *arg;
};

struct forks_kernel {
    char *name;
    bool ready;
    struct kg_error failure; // code KG_OK: none
};

struct forks {
    struct helper *helper;
    struct forks_kernel *kernels;
    size_t n;
    bool started;
    struct helper_call *warming;
    struct helper_call *cooling;
    struct loop_timer *settle;
    loop_fn on_settled; // NULL: was called
    void *arg;
};

static struct forks_kernel *
forks_find(const struct forks *forks, const char *kernel)
{
    for (size_t i = 0; forks && i < forks->n; i++) {
        if (strcmp(forks->kernels[i].name, kernel) == 0)
            return &forks->kernels[i];
    }
    return NULL;
}

static void
close_unused(int fd)
{
    if (fd >= 0)
        close(fd);
}

// ---- Their life -----------------------------------------------------------------------------

static void
forks_settle(void *arg)
{
    struct forks *forks = arg;
    if (forks->on_settled)
        KG_STEAL(forks->on_settled)(forks->arg);
}

static void
on_zygote(const struct helper_reply *reply, int fd, void *arg)
{
    struct forks *forks = arg;
    close_unused(fd);
    if (reply->number < 0 || (size_t)reply->number >= forks->n)
        return;
    struct forks_kernel *kernel = &forks->kernels[reply->number];
    kernel->failure = (struct kg_error){0};
    kernel->ready = !helper_reply_error(reply, &kernel->failure);
}

static void
forks_fail_all(struct forks *forks, const struct kg_error *why)
{
    for (size_t i = 0; i < forks->n; i++) {
        forks->kernels[i].ready = false;
        forks->kernels[i].failure = *why;
    }
}

static void
on_warm(const struct helper_reply *reply, int fd, void *arg)
{
    struct forks *forks = arg;
    close_unused(fd);
    if (reply->event != HELPER_DONE)
        return;
    forks->warming = NULL;
    forks_settle(forks);
}

static void
forks_warm(struct forks *forks)
{
    const struct helper_request request = {.verb = HELPER_WARM};
    struct kg_error err;
    forks->warming = helper_ask(forks->helper, &request, on_warm, forks, &err);
    if (forks->warming)
        return;
    forks_fail_all(forks, &err);
    loop_timer_start(forks->settle, 0);
}

static void
on_lost(const struct helper_reply *reply, int fd, void *arg)
{
    struct forks *forks = arg;
    struct kg_error err = {0};
    close_unused(fd);
    (void)helper_reply_error(reply, &err);
    forks_fail_all(forks, &err);
}

static void
forks_on_back(const struct helper_reply *reply, int fd, void *arg)
{
    struct forks *forks = arg;
    (void)reply;
    close_unused(fd);
    if (forks->started && !forks->warming)
        forks_warm(forks);
}

void
forks_start(struct forks *forks, loop_fn on_settled, void *arg)
{
    forks->started = true;
    forks->on_settled = on_settled;
    forks->arg = arg;
    forks_warm(forks);
}

static void
on_cool(const struct helper_reply *reply, int fd, void *arg)
{
    struct forks *forks = arg;
    close_unused(fd);
    if (reply->event == HELPER_DONE)
        forks->cooling = NULL;
}

void
forks_stop(struct forks *forks)
{
    const struct helper_request request = {.verb = HELPER_COOL};
    const struct kg_error stopped = {.code = KG_DRAINING, .message = "the zygotes were ended"};
    struct kg_error err;
    forks->on_settled = NULL;
    loop_timer_stop(forks->settle);
    if (!forks->started)
        return;
    forks->started = false;
    forks_fail_all(forks, &stopped);
    forks->cooling = helper_ask(forks->helper, &request, on_cool, forks, &err);
}

bool
forks_are_stopping(const struct forks *forks)
{
    return forks && forks->cooling;
}

struct forks *
forks_new(struct loop *loop, struct helper *helper, const char *const *kernels, size_t n)
{
    struct forks *forks = KG_NEW(struct forks);
    forks->helper = helper;
    forks->kernels = kg_calloc(n + 1, sizeof forks->kernels[0]);
    forks->n = n;
    for (size_t i = 0; i < n; i++)
        forks->kernels[i].name = kg_strdup(kernels[i]);
    forks->settle = loop_timer_new(loop, forks_settle, forks);
    helper_on(helper, HELPER_ZYGOTE, on_zygote, forks);
    helper_on(helper, HELPER_LOST, on_lost, forks);
    helper_on(helper, HELPER_BACK, forks_on_back, forks);
    return forks;
}

void
forks_free(struct forks *forks)
{
    if (!forks)
        return;
    helper_off(forks->helper, forks);
    helper_call_cancel(forks->warming);
    helper_call_cancel(forks->cooling);
    loop_timer_free(forks->settle);
    for (size_t i = 0; i < forks->n; i++)
        free(forks->kernels[i].name);
    free(forks->kernels);
    free(forks);
}

// ---- Forks ----------------------------------------------------------------------------------

bool
forks_have(const struct forks *forks, const char *kernel)
{
    return forks_find(forks, kernel) != NULL;
}

int
forks_ready(const struct forks *forks, const char *kernel, struct kg_error *err)
{
    const struct forks_kernel *found = forks_find(forks, kernel);
    if (found && found->ready)
        return 0;
    if (found && found->failure.code) {
        *err = found->failure;
        return -1;
    }
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "no zygote is ready yet");
}

static void
on_forked(const struct helper_reply *reply, int fd, void *arg)
{
    struct kernel_fork *asked = arg;
    const struct kernel_fork done = *asked;
    struct kg_error err;
    close_unused(fd);
    if (reply->event != HELPER_DONE)
        return;
    free(asked);
    bool failed = helper_reply_error(reply, &err);
    if (!failed && (reply->number <= 1 || reply->number > INT32_MAX))
        failed = kg_error_set(&err, KG_INTERNAL, 0, "the helper sent no process id") < 0;
    if (done.fn)
        done.fn(failed ? 0 : (int)reply->number, failed ? &err : NULL, done.arg);
}

struct kernel_fork *
forks_ask(struct forks *forks, const char *kernel, const char *sandbox_id, const char *id,
          kernel_forked_fn fn, void *arg, struct kg_error *err)
{
    struct helper_request request = {.verb = HELPER_FORK};
    const struct forks_kernel *found = forks_find(forks, kernel);
    if (forks_ready(forks, kernel, err) < 0 || !found)
        return NULL;
    assert(strlen(sandbox_id) <= HELPER_ID_MAX && strlen(id) == HELPER_FORK_LEN);
    request.number = found - forks->kernels;
    memcpy(request.id, sandbox_id, strlen(sandbox_id));
    memcpy(request.fork, id, strlen(id));
    struct kernel_fork *asked = KG_NEW(struct kernel_fork);
    asked->fn = fn;
    asked->arg = arg;
    if (helper_ask(forks->helper, &request, on_forked, asked, err))
        return asked;
    free(asked);
    return NULL;
}

void
kernel_fork_cancel(struct kernel_fork *fork)
{
    if (fork)
        fork->fn = NULL;
}
