// SPDX-License-Identifier: Apache-2.0
// Exit watches: one callback per sandbox container.
#include <string.h>

#include "provisioner_engine.h"

static void
watch_free(struct sandbox_watch *watch)
{
    TAILQ_REMOVE(&watch->provisioner->watches, watch, next);
    loop_pid_watch_free(watch->pid);
    free(watch->container);
    free(watch);
}

struct sandbox_watch *
watch_find(const struct provisioner *provisioner, const char *id)
{
    struct sandbox_watch *watch;
    TAILQ_FOREACH(watch, &provisioner->watches, next) {
        if (strcmp(watch->id, id) == 0)
            return watch;
    }
    return NULL;
}

int
watch_start(struct provisioner *provisioner, const char *id, int pid, provisioner_exit_fn on_exit,
            void *arg, struct kg_error *err)
{
    struct sandbox_watch *watch = KG_NEW(struct sandbox_watch);
    watch->provisioner = provisioner;
    watch->since_ms = clock_mono_ms();
    watch->on_exit = on_exit;
    watch->arg = arg;
    memcpy(watch->id, id, strlen(id));
    TAILQ_INSERT_TAIL(&provisioner->watches, watch, next);
    if (pid)
        watch->pid = loop_pid_watch_new(provisioner->loop, pid, watch_fire, watch, err);
    if (!pid || watch->pid)
        return 0;
    watch_free(watch);
    return -1;
}

void
watch_fire(void *arg)
{
    struct sandbox_watch *watch = arg;
    struct sandbox_watch ended = *watch;
    watch_free(watch);
    log_info("sandbox's container ended", LOG_STR("sandbox", ended.id));
    if (ended.on_exit)
        ended.on_exit(ended.id, ended.arg);
}

void
watch_stop(struct provisioner *provisioner, const char *id)
{
    struct sandbox_watch *watch = watch_find(provisioner, id);
    if (watch)
        watch_free(watch);
}

void
watch_mute(struct provisioner *provisioner, const char *id)
{
    struct sandbox_watch *watch = watch_find(provisioner, id);
    if (watch)
        watch->on_exit = NULL;
}

void
watch_stop_all(struct provisioner *provisioner)
{
    struct sandbox_watch *watch;
    while ((watch = TAILQ_FIRST(&provisioner->watches)))
        watch_free(watch);
}
