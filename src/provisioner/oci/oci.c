// SPDX-License-Identifier: Apache-2.0
// The engine "oci": its settings and its vtable.
#include "oci_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

static int
copy_kernel_envs(struct oci *oci, const struct provisioner_settings *settings, struct kg_error *err)
{
    // The packages' folder is next to the environments, and is mounted in the same way.
    const struct provisioner_kernel_env packages = {"packages", settings->packages_dir};
    bool shares = provisioner_shares_folders(&oci->base);
    // Image `host` is this machine's own files, and its environments are among them.
    size_t n_envs = shares || oci->host_image ? settings->n_kernel_envs : 0;
    size_t n = n_envs + (shares && settings->packages_dir ? 1 : 0);
    oci->kernel_envs = kg_calloc(n + 1, sizeof(*oci->kernel_envs));
    for (size_t i = 0; i < n; i++) {
        const struct provisioner_kernel_env *env =
            i < n_envs ? &settings->kernel_envs[i] : &packages;
        char *host_dir = provisioner_real_path("setting kernels-dir", env->host_dir, err);
        if (!host_dir)
            return -1;
        oci->kernel_envs[oci->n_kernel_envs++] = (struct oci_kernel_env){
            .name = kg_strdup(env->name), .host_dir = host_dir, .changes = env == &packages};
    }
    return 0;
}

static int
take_settings(struct oci *oci, const struct provisioner_settings *settings, struct kg_error *err)
{
    oci->limits = settings->limits;
    oci->host_image = strcmp(settings->image, "host") == 0;
    oci->root_dir = oci->host_image ? kg_asprintf("%s/root", oci->base.state_dir)
                                    : provisioner_real_path("setting image", settings->image, err);
    oci->agent_path = provisioner_real_path("setting agent", settings->agent_path, err);
    if (!oci->root_dir || !oci->agent_path)
        return -1;
    return copy_kernel_envs(oci, settings, err);
}

static void
oci_close(struct oci *oci)
{
    if (!oci)
        return;
    for (size_t i = 0; i < oci->n_kernel_envs; i++) {
        free(oci->kernel_envs[i].name);
        free(oci->kernel_envs[i].host_dir);
    }
    free(oci->kernel_envs);
    free(oci->runtime_root);
    free(oci->runtime);
    free(oci->root_dir);
    free(oci->agent_path);
    free(oci->mount_points);
    if (oci->group)
        cgroup_remove(&oci->cgroups, oci->group); // fails if sandboxes are kept
    free(oci->group);
    provisioner_fini(&oci->base);
    cgroups_fini(&oci->cgroups);
    free(oci);
}
KG_DEFINE_AUTO(oci, oci_close)

// Sets everything up except the runtime, which oci_trial() chooses.
static struct oci *
oci_open(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    KG_AUTO(oci) oci = KG_NEW(struct oci);
    cgroups_init(&oci->cgroups);
    if (provisioner_init(&oci->base, &provisioner_oci, loop, settings, err) < 0 ||
        take_settings(oci, settings, err) < 0)
        return NULL;
    oci->group = kg_asprintf("kernelgate-%s", oci->base.gateway_id);
    int made = oci->host_image ? host_image_make(oci, err) : folder_image_check(oci, err);
    cgroups_add_disk(&oci->cgroups, oci->root_dir);
    cgroups_add_disk(&oci->cgroups, "/usr");
    for (size_t i = 0; i < oci->n_kernel_envs; i++)
        cgroups_add_disk(&oci->cgroups, oci->kernel_envs[i].host_dir);
    return made < 0 || layers_prepare(oci, err) < 0 ? NULL : KG_STEAL(oci);
}

// Gateways that have had the state folder are counted in a file of it, so that agents end the links
// of earlier ones.
static int
take_epoch(struct oci *oci, struct kg_error *err)
{
    KG_AUTO_FREE char *path = kg_asprintf("%s/epoch", oci->base.state_dir);
    KG_AUTO_BUF earlier = {0};
    if (access(path, F_OK) == 0 && file_read(path, 32, &earlier, err) < 0)
        return -1;
    if (earlier.len && (earlier.data[0] < '0' || earlier.data[0] > '9'))
        return kg_error_set(err, KG_INVALID, 0, "%s does not begin with a number", path);
    oci->epoch = (earlier.len ? strtoull(earlier.data, NULL, 10) : 0) + 1;
    KG_AUTO_FREE char *text = kg_asprintf("%" PRIu64 "\n", oci->epoch);
    return file_write_atomic(path, text, strlen(text), 0600, err);
}

static struct provisioner *
engine_create(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    KG_AUTO(oci) oci = oci_open(loop, settings, err);
    if (!oci || oci_trial(oci, settings->oci_runtime, err) < 0)
        return NULL;
    if (oci->base.gateway_key && take_epoch(oci, err) < 0)
        return NULL;
    cgroup_bound(&oci->cgroups, oci->group); // created by the trial's runtime
    log_info("sandboxes are made by an OCI runtime", LOG_STR("runtime", oci->runtime),
             LOG_STR("user_namespace", oci->user_namespace ? "yes" : "no"),
             LOG_STR("image", oci->root_dir));
    return &KG_STEAL(oci)->base;
}

static bool
engine_doctor(const struct provisioner_settings *settings, provisioner_finding_fn fn, void *arg,
              struct provisioner_traits *ret)
{
    struct kg_error err;
    KG_AUTO(loop) loop = loop_new();
    KG_AUTO(oci) oci = oci_open(loop, settings, &err);
    if (oci)
        return oci_doctor(oci, settings, fn, arg, ret);
    fn("oci: settings", false, err.message, arg);
    return false;
}

static void
engine_free(struct provisioner *provisioner)
{
    oci_close((struct oci *)provisioner);
}

// For tests of the TCP door; an engine that needs it reaches its sandboxes over a network.
static int
engine_dial(struct provisioner *provisioner, const char *id, uint64_t *ret_epoch,
            struct kg_error *err)
{
    int pid;
    const struct oci *oci = (struct oci *)provisioner;
    *ret_epoch = oci->epoch;
    if (!runtime_init_lives(oci, id, &pid))
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox is not running");
    return netns_dial(pid, SANDBOX_AGENT_PORT, err);
}

// With gVisor, processes of the machine cannot enter a sandbox: it has its own kernel.
static bool
engine_can_enter(const struct provisioner *provisioner)
{
    return !((const struct oci *)provisioner)->kind->own_kernel;
}

static void
engine_traits(const struct provisioner *provisioner, struct provisioner_traits *ret)
{
    oci_traits((const struct oci *)provisioner, ret);
}

static int
engine_open_entry(const struct provisioner *provisioner, const char *id,
                  struct provisioner_entry *ret, struct kg_error *err)
{
    const struct oci *oci = (const struct oci *)provisioner;
    KG_AUTO_FREE char *group = runtime_cgroup(oci, id);
    int pid;
    if (runtime_init_pid(oci, id, &pid, err) < 0)
        return -1;
    ret->pidfd = pidfd_open(pid, 0);
    // Only now is it certain that the pidfd is the init's: the process id could have been reused.
    if (ret->pidfd < 0 || !runtime_init_lives(oci, id, &pid))
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0, "the sandbox is not running");
    int n = cgroup_open_members(&oci->cgroups, group, ret->groups, PROVISIONER_MAX_GROUPS, err);
    ret->n_groups = n < 0 ? 0 : (size_t)n;
    ret->user_namespace = oci->user_namespace;
    return n < 0 ? -1 : 0;
}

const struct provisioner_engine provisioner_oci = {
    .name = "oci",
    .is_on_this_machine = true,
    .create = engine_create,
    .free = engine_free,
    .doctor = engine_doctor,
    .traits = engine_traits,
    .dial = engine_dial,
    .open_entry = engine_open_entry,
    .can_enter = engine_can_enter,
    .limit = oci_limit,
    .op_size = sizeof(struct oci_op),
    .op_start = oci_op_start,
    .op_fini = oci_op_fini,
};
