// SPDX-License-Identifier: Apache-2.0
// Runs a temporary container, to find out which runtime works here, and whether in a user
// namespace.
#include "oci_priv.h"

#include <string.h>
#include <unistd.h>

#define TRIAL_TIMEOUT_MS 20000
#define SWEEP_TRIES 200
#define SWEEP_PAUSE_US 10000

const char *const oci_runtimes[] = {"runc", "crun", NULL};

// The outcome of a process that was run in a separate loop.
struct outcome {
    struct loop *loop;
    const struct oci *oci;
    const char *id;
    bool failed;
    struct kg_error err;
};

static void
on_ended(const struct loop_process_result *result, void *arg)
{
    struct outcome *outcome = arg;
    outcome->failed = result->exit_code != 0;
    if (outcome->failed)
        runtime_error(outcome->oci, outcome->id, result, &outcome->err);
    loop_stop(outcome->loop);
}

static int
run_and_wait(struct outcome *outcome, struct runtime_argv *argv)
{
    KG_AUTO(loop) loop = loop_new();
    struct loop_process_spec spec = {.argv = argv->items, .timeout_ms = TRIAL_TIMEOUT_MS};
    outcome->loop = loop;
    if (!loop_process_start(loop, &spec, on_ended, outcome, &outcome->err))
        outcome->failed = true;
    else
        loop_run(loop);
    runtime_argv_fini(argv);
    return outcome->failed ? -1 : 0;
}

static void
clean_up(const struct oci *oci, const char *id)
{
    if (runtime_knows(oci, id)) {
        struct outcome outcome = {.oci = oci, .id = id};
        struct runtime_argv argv;
        runtime_argv_delete(oci, id, &argv);
        if (run_and_wait(&outcome, &argv) < 0)
            log_warning("cannot delete the trial's container", LOG_ERR(&outcome.err));
    }
    KG_AUTO_FREE char *group = runtime_cgroup(oci, id);
    for (int i = 0; i < SWEEP_TRIES && !cgroup_sweep(&oci->cgroups, group); i++)
        usleep(SWEEP_PAUSE_US);
    struct kg_error err;
    if (folder_remove(oci->base.state_dir, id, &err) < 0)
        log_warning("cannot remove the trial's folder", LOG_ERR(&err));
}

static int
try_once(const struct oci *oci, struct kg_error *err)
{
    char id[9];
    id_random(id, 8);
    struct outcome outcome = {.oci = oci, .id = id};
    struct runtime_argv argv;
    json_t *args = json_pack("[s, s]", SANDBOX_AGENT, "--version");
    bool made = folder_make(oci->base.state_dir, id, &outcome.err) == 0 &&
                bundle_write(oci, id, args, &outcome.err) == 0;
    runtime_argv_run(oci, id, false, &argv);
    int result = made ? run_and_wait(&outcome, &argv) : -1;
    clean_up(oci, id);
    if (result < 0)
        *err = outcome.err;
    return result;
}

// Runs `kg-agent --version` in a sandbox with the best inodes that work. `why` says why better ones
// do not work; its code is KG_OK if all inodes are the sandbox's own.
static int
try_container(struct oci *oci, struct kg_error *why, struct kg_error *err)
{
    *why = (struct kg_error){0};
    // With its own kernel it has its own inodes, whatever is mounted.
    enum oci_inodes best = oci->kind->own_kernel ? INODES_SHARED : INODES_OWN;
    for (enum oci_inodes inodes = best; inodes <= INODES_SHARED; inodes++) {
        oci->inodes = inodes;
        if (try_once(oci, err) == 0)
            return 0;
        if (!why->code)
            *why = *err;
    }
    return -1;
}

static int
use_runtime(struct oci *oci, const char *name, struct kg_error *err)
{
    free(oci->runtime);
    free(oci->runtime_root);
    const char *slash = strrchr(name, '/');
    oci->runtime = runtime_find(name);
    oci->runtime_root = kg_asprintf("%s/oci-%s", oci->base.state_dir, slash ? slash + 1 : name);
    oci->kind = runtime_kind_of(name);
    oci->user_namespace = oci->kind->user_namespace;
    oci->base.denies_newer_calls = oci->kind->denies_newer_calls;
    oci->base.counts_udp = oci->kind->own_kernel || !oci->cgroups.memory_v1;
    if (oci->runtime)
        return 0;
    if (slash)
        return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                            "setting oci-runtime: there is no program %s", name);
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                        "%s is not installed (the distribution packages %s)", name,
                        oci->kind->packages);
}

int
oci_try_runtime(struct oci *oci, const char *name, struct oci_shortfall *ret, struct kg_error *err)
{
    *ret = (struct oci_shortfall){0};
    if (use_runtime(oci, name, err) < 0)
        return -1;
    if (try_container(oci, &ret->inodes, err) == 0)
        return 0;
    if (!oci->user_namespace)
        return -1;
    oci->user_namespace = false;
    ret->users = *err;
    return try_container(oci, &ret->inodes, err);
}

char *
oci_users_advice(void)
{
    KG_AUTO_BUF text = {0};
    long most = 0;
    if (file_read("/proc/sys/user/max_user_namespaces", 64, &text, NULL) == 0 && text.len)
        most = strtol(text.data, NULL, 10);
    return most > 0
               ? kg_asprintf(
                     "sysctl user.max_user_namespaces is %ld, so something else forbids them", most)
               : kg_strdup("Linux allows none: sysctl user.max_user_namespaces=16384");
}

static void
warn_of_users(const struct kg_error *why)
{
    KG_AUTO_FREE char *advice = oci_users_advice();
    log_warning("sandboxes run without a user namespace", LOG_ERR(why), LOG_STR("advice", advice));
}

static int
try_for_service(struct oci *oci, const char *name, struct kg_error *err)
{
    struct oci_shortfall shortfall;
    if (oci_try_runtime(oci, name, &shortfall, err) < 0)
        return -1;
    if (shortfall.users.code)
        warn_of_users(&shortfall.users);
    if (shortfall.inodes.code)
        log_warning("sandboxes share inodes with the host", LOG_ERR(&shortfall.inodes));
    return 0;
}

int
oci_trial(struct oci *oci, const char *wanted, struct kg_error *err)
{
    if (strcmp(wanted, "auto") != 0)
        return try_for_service(oci, wanted, err);
    int result = -1;
    for (size_t i = 0; oci_runtimes[i] && result < 0; i++) {
        struct kg_error why;
        result = try_for_service(oci, oci_runtimes[i], &why);
        if (result < 0 && i == 0)
            *err = why; // the first choice's error is the one to fix
    }
    return result;
}

void
oci_traits(const struct oci *oci, struct provisioner_traits *ret)
{
    ret->can_enter = !oci->kind->own_kernel; // as engine_can_enter() says
    ret->memory_bound = cgroup_memory_bound(&oci->cgroups, oci->group);
}
