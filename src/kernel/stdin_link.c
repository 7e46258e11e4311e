// SPDX-License-Identifier: Apache-2.0

#include "stdin_link_priv.h"

enum { MAX_TRIES = 200, RETRY_MS = 10, LINK_TIMEOUT_MS = 5 * 1000 };

static void
stdin_link_end(struct stdin_link *link, enum stdin_link_state state)
{
    link->state = state;
    loop_timer_stop(link->retry);
    if (link->call)
        sandbox_call_cancel(KG_STEAL(link->call));
}

static void
stdin_link_settle(struct stdin_link *link, enum stdin_link_state state)
{
    if (state == STDIN_LINK_MISSING)
        log_info("a kernel has no stdin channel", LOG_STR("sandbox", sandbox_id(link->sandbox)),
                 LOG_STR("kernel", link->kernel));
    stdin_link_end(link, state);
    link->on_settled(link->arg);
}

static void
stdin_link_on_linked(int fd, const struct kg_error *link_err, void *arg)
{
    struct stdin_link *link = arg;
    struct kg_error err = {0};
    (void)link_err;
    link->call = NULL;
    if (fd >= 0 && jupyter_channels_attach(link->channels, JUPYTER_STDIN, fd, &err) == 0)
        link->state = STDIN_LINK_CONNECTING;
    loop_timer_start(link->retry, fd >= 0 ? 0 : RETRY_MS);
}

static void
stdin_link_go_on(void *arg)
{
    struct stdin_link *link = arg;
    if (link->n_tries++ == MAX_TRIES) {
        stdin_link_settle(link, STDIN_LINK_MISSING);
    } else if (link->state == STDIN_LINK_ASKED) {
        KG_AUTO_FREE char *target =
            kg_asprintf("%s/%s", link->kernel, jupyter_channel_name(JUPYTER_STDIN));
        struct kg_error err = {0};
        link->call = sandbox_open_link(link->sandbox, target, LINK_TIMEOUT_MS, stdin_link_on_linked,
                                       link, &err);
        if (!link->call)
            loop_timer_start(link->retry, RETRY_MS);
    } else if (jupyter_channels_is_connected(link->channels, JUPYTER_STDIN)) {
        stdin_link_settle(link, STDIN_LINK_OPEN);
    } else {
        loop_timer_start(link->retry, RETRY_MS);
    }
}

void
stdin_link_open(struct stdin_link *link, struct jupyter_channels *channels)
{
    if (link->state != STDIN_LINK_NONE)
        return;
    link->channels = channels;
    link->state = STDIN_LINK_ASKED;
    link->n_tries = 0;
    loop_timer_start(link->retry, 0);
}

void
stdin_link_lose(struct stdin_link *link)
{
    stdin_link_settle(link, STDIN_LINK_MISSING);
}

void
stdin_link_close(struct stdin_link *link)
{
    stdin_link_end(link, STDIN_LINK_NONE);
}

bool
stdin_link_is_pending(const struct stdin_link *link)
{
    return link->state == STDIN_LINK_ASKED || link->state == STDIN_LINK_CONNECTING;
}

void
stdin_link_init(struct stdin_link *link, struct loop *loop, struct sandbox *sandbox,
                const char *kernel, void (*on_settled)(void *arg), void *arg)
{
    link->sandbox = sandbox;
    link->kernel = kernel;
    link->on_settled = on_settled;
    link->arg = arg;
    link->retry = loop_timer_new(loop, stdin_link_go_on, link);
}

void
stdin_link_fini(struct stdin_link *link)
{
    stdin_link_close(link);
    loop_timer_free(link->retry);
}
