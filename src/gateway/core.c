// SPDX-License-Identifier: Apache-2.0
// The part of a gateway that all faces share: sandboxes, kernels, sessions.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "core.h"
#include "e2b.h"
#include "jupyter.h"
#include "metrics.h"
#include "ports.h"
#include "provisioner_replicas.h"
#include "session.h"
#include "terminals.h"

enum {
    SANDBOX_START_TIMEOUT_MS = 30 * 1000,
    REPLAY_BYTES = 32 << 20,
    WAITING_BYTES = 256 << 20, // of code and variables
    MESSAGE_SLACK = 64 << 10,  // what a message has around the output that it brings
};

// ---- Start ----------------------------------------------------------------------------------

// Never called: the operation is cancelled at once.
static void
on_removed(const struct kg_error *err, void *arg)
{
    (void)err;
    (void)arg;
}

static void
on_found(const char *id, const json_t *meta, void *arg)
{
    struct core *core = arg;
    struct kg_error err = {.message = "its client has gone"};
    if (!core->forgetful && sessions_adopt(core->sessions, id, meta, &err) == 0)
        return;
    log_info("removing a sandbox of an earlier run", LOG_STR("sandbox", id), LOG_ERR(&err));
    struct provisioner_op *op = provisioner_destroy(core->provisioner, id, on_removed, NULL, &err);
    if (op)
        provisioner_op_cancel(op); // the removal continues in the background
    else
        log_warning("a sandbox of an earlier run stays", LOG_ERR(&err));
}

static void
on_recovered(const struct kg_error *err, void *arg)
{
    struct core *core = arg;
    if (err)
        core->recovery_error = *err;
    loop_stop(core->loop);
}

static void
on_adopted_exit(const char *id, void *arg)
{
    struct core *core = arg;
    sessions_on_sandbox_exit(core->sessions, id);
}

// Adopts the sandboxes of an earlier run, and removes those that cannot be used.
static int
recover(struct core *core, struct kg_error *err)
{
    if (!provisioner_recover(core->provisioner, on_found, on_recovered, on_adopted_exit, core, err))
        return -1;
    loop_run(core->loop);
    if (core->recovery_error.code != KG_OK) {
        *err = core->recovery_error;
        return -1;
    }
    if (json_array_size(core->common_packages) > 0)
        packages_keep_user(core->packages, PACKAGES_OF_ALL);
    packages_forget_other_users(core->packages);
    return 0;
}

// ---- Replicas -------------------------------------------------------------------------------

static void
on_taken_over(const struct kg_error *err, void *arg)
{
    struct core *core = arg;
    core->takeover = NULL;
    if (err)
        log_warning("not all sessions of another replica were taken over", LOG_ERR(err));
}

static void
on_lost(void *arg)
{
    struct core *core = arg;
    struct kg_error err = {0};
    if (core->takeover)
        return;
    core->takeover = provisioner_recover(core->provisioner, on_found, on_taken_over,
                                         on_adopted_exit, core, &err);
    if (!core->takeover)
        log_warning("cannot take over the sessions of another replica", LOG_ERR(&err));
}

static void
on_lead(void *arg)
{
    struct core *core = arg;
    sessions_set_pool_filling(core->sessions, provisioner_leads(core->provisioner));
}

void
core_follow_replicas(struct core *core)
{
    if (!provisioner_replica_id(core->provisioner))
        return;
    provisioner_on_lost(core->provisioner, on_lost, core);
    provisioner_on_lead(core->provisioner, on_lead, core);
    on_lead(core);
}

void
core_retire(struct core *core)
{
    provisioner_op_cancel(KG_STEAL(core->takeover));
    provisioner_retire(core->provisioner);
}

void
core_hand_over(struct core *core)
{
    struct provisioner_place others[PROVISIONER_REPLICAS_MAX];
    if (provisioner_replica_id(core->provisioner) &&
        provisioner_other_replicas(core->provisioner, others) > 0)
        sessions_hand_over(core->sessions);
}

void
core_leave_replicas(struct core *core)
{
    if (provisioner_replica_id(core->provisioner))
        provisioner_leave(core->provisioner);
}

// ---- Parts ----------------------------------------------------------------------------------

static char *
make_file_url(const void *arg, const char *owner, const char *session_id, const char *path)
{
    return file_links_make(arg, owner, session_id, path);
}

static int
start_client(struct core *core, struct kg_error *err)
{
    KG_AUTO_FREE char **allow = config_split_list(core->config->fetch_allow);
    struct kg_error why = {0};
    core->policy = address_policy_new((const char *const *)allow, &why);
    if (!core->policy)
        return kg_error_set(err, KG_INVALID, 0, "setting fetch-allow: %s", why.message);
    core->client = http_client_new(core->loop);
    core->egress = egress_new(core->loop, core->client, core->policy);
    return 0;
}

static int
load_link_key(struct core *core, struct kg_error *err)
{
    core->link_key = KG_NEW(struct link_key);
    if (link_key_load(core->config->link_key_file, core->state.root, core->link_key, err) < 0)
        return -1;
    link_key_format(core->link_key->public_key, core->engine.gateway_key);
    core->engine.settings.gateway_key = core->engine.gateway_key;
    return 0;
}

// The engine decides which side dials. For tests, the engine oci supports both.
static int
choose_door(struct core *core, struct kg_error *err)
{
    const char *door = getenv("KERNELGATE_DOOR");
    if (door && *door && strcmp(door, "tcp") != 0)
        return kg_error_set(err, KG_INVALID, 0, "KERNELGATE_DOOR can only be tcp");
    bool dials = (door && *door) || strcmp(core->config->provisioner, "kubernetes") == 0;
    return dials ? load_link_key(core, err) : 0;
}

static int
start_packages(struct core *core, struct kg_error *err)
{
    const struct packages_settings settings = {
        .sandboxes = &core->sandbox_context,
        .specs = core->specs,
        .dir = core->state.packages,
        .index_url = core->config->pypi_index_url,
        .several_owners = core->several_owners,
    };
    core->packages = packages_new(core->loop, &settings, err);
    return core->packages ? 0 : -1;
}

// What depends on the engine.
static void
choose_sizes(struct core *core)
{
    core->traits = provisioner_traits(core->provisioner);
    core->max_sessions = choose_max_sessions(core->config, &core->traits);
    core->pool_size = choose_pool_size(
        core->config, kernels_fork(core->config, &core->traits, core->default_spec));
}

// libzmq's table of sockets must have room for a default kernel of each kernelspec in as many
// sessions as the settings allow.
static int
reserve_sockets(struct core *core, struct kg_error *err)
{
    int64_t pool_size = core->pool_size.size;
    size_t n_specs = kernelspecs_count(core->specs);
    size_t of_session = n_specs < SESSION_MAX_KERNELS ? n_specs : SESSION_MAX_KERNELS;
    size_t n_kernels = (size_t)core->max_sessions * of_session + (size_t)pool_size;
    size_t most = jupyter_max_kernels();
    if (n_kernels > most)
        return kg_error_set(err, KG_INVALID, 0,
                            "setting max-sessions: %lld sessions of up to %zu kernels and a "
                            "pool-size of %lld are more than the %zu kernels that one gateway can "
                            "connect; at most %zu sessions fit",
                            (long long)core->max_sessions, of_session, (long long)pool_size, most,
                            (most - (size_t)pool_size) / of_session);
    // Further kernels share what is left.
    size_t further = (size_t)core->max_sessions * (SESSION_MAX_KERNELS - 1);
    core->max_further_kernels = further < most - n_kernels ? further : most - n_kernels;
    jupyter_reserve(n_kernels + core->max_further_kernels);
    return 0;
}

// The environment of a kernel of that kernelspec, if the session does not have its own.
static json_t *
kernels_env(const struct core *core, const struct kernelspec *spec)
{
    json_t *env = json_deep_copy(core->kernel_env);
    json_object_update(env, spec->env);
    return env;
}

void
core_list_zygotes(const struct core *core, struct core_zygotes *ret)
{
    size_t n = kernelspecs_count(core->specs);
    ret->specs = kg_calloc(n + 1, sizeof ret->specs[0]);
    ret->envs = kg_calloc(n + 1, sizeof ret->envs[0]);
    ret->n = 0;
    for (size_t i = 0; i < n; i++) {
        const struct kernelspec *spec = kernelspecs_at(core->specs, i);
        if (!spec->zygote_argv || strcmp(core->config->kernel_start, "exec") == 0)
            continue;
        ret->envs[ret->n] = kernels_env(core, spec);
        ret->specs[ret->n] = (struct zygote_spec){
            .kernel = spec->name,
            .argv = spec->zygote_argv,
            .kernel_argv = spec->argv,
            .env = ret->envs[ret->n],
            .late = spec->zygote_late,
            .prepare = spec->zygote_prepare,
            .warmup = spec->warmup_code,
        };
        ret->n++;
    }
}

void
core_free_zygotes(struct core_zygotes *zygotes)
{
    for (size_t i = 0; i < zygotes->n; i++)
        json_decref(zygotes->envs[i]);
    free(zygotes->envs);
    free(zygotes->specs);
}

static int
make_forks(struct core *core, struct kg_error *err)
{
    const char *wanted = core->config->kernel_start;
    if (strcmp(wanted, "exec") == 0)
        return 0;
    if (!core->helper || !provisioner_can_enter(core->provisioner)) {
        if (strcmp(wanted, "fork") == 0)
            return kg_error_set(err, KG_INVALID, 0,
                                "setting kernel-start: no kernel can be forked into the sandboxes "
                                "of this engine or OCI runtime; use auto or exec");
        return 0;
    }
    struct core_zygotes zygotes;
    core_list_zygotes(core, &zygotes);
    const char **names = kg_calloc(zygotes.n + 1, sizeof names[0]);
    for (size_t i = 0; i < zygotes.n; i++)
        names[i] = zygotes.specs[i].kernel;
    core->forks = forks_new(core->loop, core->helper, names, zygotes.n);
    free(names);
    core_free_zygotes(&zygotes);
    return 0;
}

// What is shared by all that stands above the provisioner.
static void
make_contexts(struct core *core)
{
    const struct config *config = core->config;
    const struct executions_settings logs = {
        .max_log_bytes = (size_t)config->max_output_bytes,
        .max_live_bytes = (size_t)config->max_buffered_bytes,
        .max_replay_bytes = REPLAY_BYTES,
        .max_message_bytes = (size_t)config->max_output_bytes + MESSAGE_SLACK,
        .max_waiting_bytes = WAITING_BYTES,
        .default_timeout_ms = config->max_execution_time_s * 1000,
        .max_timeout_ms = config->max_timeout_s * 1000,
        .tool_call_timeout_ms = config->tool_call_timeout_s * 1000,
        .max_tool_calls = config->max_tool_calls,
        .id_suffix = provisioner_replica_id(core->provisioner),
    };
    core->executions = executions_new(core->loop, &logs);
    core->sandbox_context = (struct sandbox_context){
        .loop = core->loop,
        .provisioner = core->provisioner,
        .link_key = core->link_key,
        .egress = core->egress,
        .shares_folders = provisioner_shares_folders(core->provisioner),
        .living = &core->living,
    };
    core->kernel_context = (struct kernel_context){
        .loop = core->loop,
        .executions = core->executions,
        .start_timeout_ms = config->kernel_start_timeout_s * 1000,
        .memory_mb = config->memory_mb,
        .env = core->kernel_env,
        .forks = core->forks,
        .file_url = make_file_url,
        .file_url_arg = core->links,
    };
}

static size_t
count_elsewhere(const char *owner, const void *arg)
{
    const struct core *core = arg;
    return provisioner_claimed_elsewhere(core->provisioner, owner);
}

static void
make_sessions(struct core *core)
{
    const struct config *config = core->config;
    bool forks = forks_have(core->forks, core->default_spec->name);
    const struct sessions_settings settings = {
        .sandboxes = &core->sandbox_context,
        .kernels = &core->kernel_context,
        .specs = core->specs,
        .pooled_spec = core->default_spec,
        .pool_size = core->pool_size.size,
        .pool_bare = core->pool_size.n_bare,
        .pool_max_forks = forks ? get_nprocs() : 0,
        .max_sessions = core->max_sessions,
        .max_sessions_per_owner = config->max_sessions_per_owner,
        .max_sessions_of = core->max_sessions_of,
        .max_memory_of = core->max_memory_of,
        .quota_arg = core->quota_arg,
        .count_elsewhere = provisioner_replica_id(core->provisioner) ? count_elsewhere : NULL,
        .count_elsewhere_arg = core,
        .several_owners = core->several_owners,
        .evict_idle = strcmp(config->evict, "idle") == 0,
        .idle_timeout_s = config->idle_timeout_s,
        .max_lifetime_s = config->max_session_lifetime_s,
        .network = strcmp(config->network, "egress") == 0,
        .http = core->client,
        .fetch_policy = core->policy,
        .max_download_bytes = config->max_upload_bytes,
        .scratch_dir = core->state.dir,
        .packages = core->packages,
        .install_from_code = config->install_from_code,
        .sandbox_start_timeout_ms = SANDBOX_START_TIMEOUT_MS,
        .adopt_timeout_ms = config->max_timeout_s * 1000,
        .max_savepoints = config->max_savepoints,
        .max_tool_result_bytes = (size_t)config->max_tool_result_bytes,
        .upstreams = core->upstreams,
        .max_further_kernels = core->max_further_kernels,
    };
    core->sessions = sessions_new(core->loop, &settings);
    metric_set(METRIC_MAX_SESSIONS, (double)core->max_sessions);
    if (provisioner_replica_id(core->provisioner))
        sessions_set_pool_filling(core->sessions, false); // until this replica leads
    file_links_set_sessions(core->links, core->sessions);
}

static void
make_face_context(struct core *core)
{
    const struct config *config = core->config;
    core->terminals = terminals_new(core->loop);
    const struct ports_settings ports = {
        .loop = core->loop,
        .sessions = core->sessions,
        .links = core->links,
        .domain = config->ports_domain,
        .own_ports = e2b_own_ports,
        .named_in = E2B_SANDBOX_HEADER,
        .token_header = E2B_TRAFFIC_HEADER,
    };
    core->ports = ports_new(&ports);
    core->face = (struct face_context){
        .sessions = core->sessions,
        .executions = core->executions,
        .specs = core->specs,
        .default_spec = core->default_spec,
        .links = core->links,
        .terminals = core->terminals,
        .ports = core->ports,
        .default_timeout_ms = config->max_execution_time_s * 1000,
        .max_timeout_ms = config->max_timeout_s * 1000,
        .max_lifetime_s = config->max_session_lifetime_s,
        .max_code_bytes = (size_t)config->max_code_bytes,
        .max_upload_bytes = (size_t)config->max_upload_bytes,
        .max_output_bytes = (size_t)config->max_output_bytes,
    };
}

// With `auto`, the engine is known when it has been started.
static int
check_kernels(const struct core *core, const char *engine, struct kg_error *err)
{
    const struct engine_kernels kernels = {
        .engine = engine,
        .settings = &core->engine,
        .dir = core->layout.kernels_dir,
        .specs = core->specs,
        .default_spec = core->default_spec,
    };
    return engine_check_kernels(&kernels, err);
}

int
core_prepare(struct core *core, struct kg_error *err)
{
    const struct config *config = core->config;
    const char *root = core->state.root;
    if (layout_find(&core->layout, config, err) < 0)
        return -1;
    core->specs = kernelspecs_load(core->layout.kernelspec_dir, err);
    if (!core->specs)
        return kg_error_set(err, err->code, 0, "setting kernelspec-dir: %s", err->message);
    core->default_spec = kernelspecs_find(core->specs, config->default_kernel, err);
    if (!core->default_spec)
        return kg_error_set(err, err->code, 0, "setting default-kernel: %s", err->message);
    core->links = file_links_new(root, err);
    if (!core->links)
        return -1;
    core->common_packages = common_packages_list(config, root, err);
    if (!core->common_packages)
        return -1;
    if (core_load_servers(core, err) < 0)
        return -1;
    core->kernel_env = kernel_env_make(config, json_array_size(core->common_packages) > 0, err);
    if (!core->kernel_env)
        return -1;
    core->packages_dir = kg_asprintf("%s/packages/shared", root);
    engine_settings_init(&core->engine, config, &core->layout, core->specs, root, core->state.id);
    core->engine.settings.packages_dir = core->packages_dir;
    if (check_kernels(core, config->provisioner, err) < 0)
        return -1;
    return choose_door(core, err);
}

// With a helper the engine `oci` is in its process.
void
core_make_loop(struct core *core)
{
    core->loop = loop_new();
    if (!core->has_link)
        return;
    core->has_link = false;
    core->helper = helper_new(core->loop, &core->link);
    core->engine.settings.helper = core->helper;
    core->engine.settings.engines = engines_with_helper;
    core->engine.settings.state_dir = core->state.dir;
    core->engine.settings.root_dir = core->state.root;
}

int
core_start(struct core *core, struct kg_error *err)
{
    if (start_client(core, err) < 0)
        return -1;
    if (start_packages(core, err) < 0)
        return -1;
    core->provisioner = provisioner_new(core->loop, &core->engine.settings, err);
    if (!core->provisioner)
        return -1;
    choose_sizes(core);
    if (strcmp(core->config->provisioner, "auto") == 0 &&
        check_kernels(core, core->traits.engine, err) < 0)
        return -1;
    if (reserve_sockets(core, err) < 0)
        return -1;
    if (make_forks(core, err) < 0)
        return -1;
    make_contexts(core);
    core_start_servers(core);
    make_sessions(core);
    make_face_context(core);
    if (provisioner_replica_id(core->provisioner))
        file_links_share_key(core->links, core->link_key->secret_key,
                             sizeof core->link_key->secret_key);
    return recover(core, err);
}

static void
on_zygotes_settled(void *arg)
{
    struct core *core = arg;
    sessions_start(core->sessions);
}

// The pool waits for the zygotes, since forked kernels cost less.
static void
start_zygotes(struct core *core)
{
    if (core->forks)
        forks_start(core->forks, on_zygotes_settled, core);
    else
        sessions_start(core->sessions);
}

static void
on_common_packages(const struct kg_error *err, void *arg)
{
    struct core *core = arg;
    KG_AUTO_FREE char *names = json_dumps(core->common_packages, JSON_COMPACT);
    if (err)
        log_warning("the packages of all sessions could not be prepared; sessions keep the set "
                    "before, if there is one",
                    LOG_STR("packages", names), LOG_ERR(err));
    else
        log_info("all sessions have packages", LOG_STR("packages", names));
    start_zygotes(core);
}

// The pool waits for the packages of all sessions: a kernel that has started does not find a folder
// that was not there.
void
core_open(struct core *core)
{
    struct kg_error err = {0};
    if (json_array_size(core->common_packages) == 0) {
        packages_clear_common(core->packages);
        start_zygotes(core);
    } else if (packages_check_available(core->packages, &err) < 0 ||
               packages_prepare_common(core->packages, core->common_packages, on_common_packages,
                                       core, &err) < 0) {
        on_common_packages(&err, core);
    }
}

// ---- End ------------------------------------------------------------------------------------

void
core_stop_zygotes(struct core *core)
{
    if (core->forks)
        forks_stop(core->forks);
}

bool
core_is_idle(const struct core *core)
{
    return provisioner_is_idle(core->provisioner) && !forks_are_stopping(core->forks);
}

void
core_fini(struct core *core)
{
    if (core->sessions)
        sessions_release(core->sessions);
    terminals_free(core->terminals);
    ports_free(core->ports);
    sessions_free(core->sessions);
    core_free_servers(core);
    forks_free(core->forks);
    packages_free(core->packages);
    executions_free(core->executions);
    file_links_free(core->links);
    if (core->link_key)
        explicit_bzero(core->link_key, sizeof *core->link_key);
    free(core->link_key);
    json_decref(core->kernel_env);
    json_decref(core->common_packages);
    provisioner_op_cancel(core->takeover);
    provisioner_free(core->provisioner);
    helper_free(core->helper);
    if (core->has_link) {
        close(core->link.helper);
        close(core->link.starter);
    }
    egress_free(core->egress);
    http_client_free(core->client);
    address_policy_free(core->policy);
    engine_settings_fini(&core->engine);
    loop_free(core->loop);
    kernelspecs_free(core->specs);
    layout_fini(&core->layout);
    free(core->packages_dir);
    state_close(&core->state);
}

void
core_print_failure(const struct kg_error *err, bool is_root)
{
    fprintf(stderr, "kernelgate: %s\n", err->message);
    if (err->code == KG_PROVISIONER_UNAVAILABLE)
        fprintf(
            stderr,
            "kernelgate: %s`kernelgate doctor` with the same flags tries each part, and says what "
            "is missing\n",
            is_root ? "" : "runc and crun make sandboxes for root only: start it with sudo; ");
}
