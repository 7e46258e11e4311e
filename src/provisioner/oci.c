// SPDX-License-Identifier: Apache-2.0
// The engine "oci": its settings, its watches over the sandboxes' init processes, its vtable.
#include "oci_priv.h"

#include <errno.h>
#include <string.h>

// Over one sandbox's init.
struct oci_watch {
    TAILQ_ENTRY(oci_watch) next;
    struct oci *oci;
    char id[SANDBOX_ID_MAX + 1];
    struct loop_pid_watch *pid;
    provisioner_exit_fn on_exit;
    void *arg;
};

char *
oci_container_id(const struct oci *oci, const char *id)
{
    return kg_asprintf("kg-%s-%s", oci->gateway_id, id);
}

static void
watch_free(struct oci_watch *watch)
{
    TAILQ_REMOVE(&watch->oci->watches, watch, next);
    loop_pid_watch_free(watch->pid);
    free(watch);
}

static void
on_init_ended(void *arg)
{
    struct oci_watch *watch = arg;
    struct oci_watch ended = *watch;
    watch_free(watch);
    log_info("sandbox's container ended", LOG_STR("sandbox", ended.id));
    ended.on_exit(ended.id, ended.arg);
}

int
oci_watch_start(struct oci *oci, const char *id, int pid, provisioner_exit_fn on_exit, void *arg,
                struct kg_error *err)
{
    struct oci_watch *watch = KG_NEW(struct oci_watch);
    watch->oci = oci;
    watch->on_exit = on_exit;
    watch->arg = arg;
    memcpy(watch->id, id, strlen(id));
    TAILQ_INSERT_TAIL(&oci->watches, watch, next);
    watch->pid = loop_pid_watch_new(oci->base.loop, pid, on_init_ended, watch, err);
    if (watch->pid)
        return 0;
    watch_free(watch);
    return -1;
}

void
oci_watch_stop(struct oci *oci, const char *id)
{
    struct oci_watch *watch;
    TAILQ_FOREACH(watch, &oci->watches, next) {
        if (!strcmp(watch->id, id)) {
            watch_free(watch);
            return;
        }
    }
}

// Sources of mounts must be absolute, and there.
static char *
real_path(const char *what, const char *path, struct kg_error *err)
{
    char *real = realpath(path, NULL);
    if (!real)
        kg_error_set(err, KG_INVALID, errno, "%s %s", what, path);
    return real;
}

static int
copy_kernel_envs(struct oci *oci, const struct provisioner_settings *settings, struct kg_error *err)
{
    oci->kernel_envs = kg_calloc(settings->n_kernel_envs + 1, sizeof(*oci->kernel_envs));
    for (size_t i = 0; i < settings->n_kernel_envs; i++) {
        const struct provisioner_kernel_env *env = &settings->kernel_envs[i];
        char *host_dir = real_path("the kernels' environment", env->host_dir, err);
        if (!host_dir)
            return -1;
        oci->kernel_envs[oci->n_kernel_envs++] =
            (struct oci_kernel_env){.name = kg_strdup(env->name), .host_dir = host_dir};
    }
    return 0;
}

static int
take_settings(struct oci *oci, const struct provisioner_settings *settings, struct kg_error *err)
{
    oci->gateway_id = kg_strdup(settings->gateway_id);
    oci->limits = settings->limits;
    oci->host_image = !strcmp(settings->image, "host");
    oci->base.state_dir = real_path("the state folder", settings->state_dir, err);
    if (!oci->base.state_dir)
        return -1;
    oci->root_dir = oci->host_image ? kg_asprintf("%s/root", oci->base.state_dir)
                                    : real_path("the image folder", settings->image, err);
    oci->agent_path = real_path("the agent", settings->agent_path, err);
    if (!oci->root_dir || !oci->agent_path)
        return -1;
    return copy_kernel_envs(oci, settings, err);
}

struct oci *
oci_open(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    KG_AUTO(oci) oci = KG_NEW(struct oci);
    oci->base.engine = &provisioner_oci;
    oci->base.loop = loop;
    TAILQ_INIT(&oci->watches);
    TAILQ_INIT(&oci->ops);
    oci->pump = loop_timer_new(loop, oci_op_pump, oci);
    cgroup_probe(&oci->cgroups);
    if (take_settings(oci, settings, err) < 0)
        return NULL;
    int made = oci->host_image ? host_image_make(oci, err) : folder_image_check(oci, err);
    return made < 0 ? NULL : KG_STEAL(oci);
}

void
oci_close(struct oci *oci)
{
    if (!oci)
        return;
    oci_op_drop_all(oci);
    struct oci_watch *watch;
    while ((watch = TAILQ_FIRST(&oci->watches)))
        watch_free(watch);
    loop_timer_free(oci->pump);
    for (size_t i = 0; i < oci->n_kernel_envs; i++) {
        free(oci->kernel_envs[i].name);
        free(oci->kernel_envs[i].host_dir);
    }
    free(oci->kernel_envs);
    free(oci->runtime_root);
    free(oci->runtime);
    free(oci->root_dir);
    free(oci->agent_path);
    free(oci->gateway_id);
    free(oci->base.state_dir);
    free(oci);
}

static struct provisioner *
engine_create(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    KG_AUTO(oci) oci = oci_open(loop, settings, err);
    if (!oci || oci_trial(oci, settings->oci_runtime, err) < 0)
        return NULL;
    log_info("sandboxes are made by an OCI runtime", LOG_STR("runtime", oci->runtime),
             LOG_STR("user_namespace", oci->user_namespace ? "yes" : "no"),
             LOG_STR("image", oci->root_dir));
    return &KG_STEAL(oci)->base;
}

static void
engine_free(struct provisioner *provisioner)
{
    oci_close((struct oci *)provisioner);
}

static int
engine_claim(struct provisioner *provisioner, const char *id, const json_t *meta,
             struct kg_error *err)
{
    return folder_claim(provisioner->state_dir, id, meta, err);
}

static bool
engine_is_idle(const struct provisioner *provisioner)
{
    return TAILQ_EMPTY(&((const struct oci *)provisioner)->ops);
}

const struct provisioner_engine provisioner_oci = {
    .name = "oci",
    .create = engine_create,
    .free = engine_free,
    .doctor = oci_doctor,
    .sandbox_create = oci_sandbox_create,
    .sandbox_destroy = oci_sandbox_destroy,
    .sandbox_claim = engine_claim,
    .recover = oci_recover,
    .op_cancel = oci_op_cancel,
    .is_idle = engine_is_idle,
};
