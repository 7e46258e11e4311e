// SPDX-License-Identifier: Apache-2.0
// From the configuration to the provisioner's settings.

#include <string.h>
#include <unistd.h>

#include "gateway.h"

// Where sandboxes see the kernels' environments.
#define ENVIRONMENTS "/opt/kernelgate/"

enum { TMP_MB = 64 };

static const struct provisioner_engine *const engines[] = {&provisioner_oci, &provisioner_docker,
                                                           &provisioner_kubernetes, NULL};

const struct provisioner_engine *const engines_with_helper[] = {
    &provisioner_helped, &provisioner_docker, &provisioner_kubernetes, NULL};

void
engine_settings_init(struct engine_settings *engine, const struct config *config,
                     const struct layout *layout, const struct kernelspecs *specs,
                     const char *state_dir, const char *gateway_id)
{
    size_t n = kernelspecs_count(specs);
    engine->envs = kg_calloc(n, sizeof engine->envs[0]);
    engine->env_dirs = kg_calloc(n + 1, sizeof engine->env_dirs[0]);
    size_t n_envs = 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = kernelspecs_at(specs, i)->name;
        KG_AUTO_FREE char *dir = kg_asprintf("%s/%s", layout->kernels_dir, name);
        if (access(dir, F_OK) < 0)
            continue; // a kernelspec whose kernel is in the image
        engine->env_dirs[n_envs] = KG_STEAL(dir);
        engine->envs[n_envs] =
            (struct provisioner_kernel_env){.name = name, .host_dir = engine->env_dirs[n_envs]};
        n_envs++;
    }
    engine->settings = (struct provisioner_settings){
        .engines = engines,
        .engine = config->provisioner,
        .state_dir = state_dir,
        .gateway_id = gateway_id,
        .image = config->image,
        .oci_runtime = config->oci_runtime,
        .docker_host = config->docker_host,
        .kubernetes = {.kubeconfig = config->kubeconfig,
                       .pod_template = config->kubernetes_pod_template,
                       .server = config->kubernetes_server,
                       .ca_file = config->kubernetes_ca_file,
                       .token_file = config->kubernetes_token_file,
                       .certificate_file = config->kubernetes_certificate_file,
                       .key_file = config->kubernetes_key_file,
                       .namespace = config->kubernetes_namespace,
                       .agent_image = config->kubernetes_agent_image,
                       .installation = config->kubernetes_installation,
                       .replica_address = config->kubernetes_replica_address,
                       .unenforced_network = config->unenforced_network},
        .agent_path = layout->agent,
        .limits = {.memory_mb = config->memory_mb,
                   .disk_mb = config->disk_mb,
                   .tmp_mb = TMP_MB,
                   .cpus = config->cpus,
                   .pids = (int)config->pids},
        .kernel_envs = engine->envs,
        .n_kernel_envs = n_envs,
        .max_sessions = config->max_sessions,
    };
}

void
engine_settings_fini(struct engine_settings *engine)
{
    for (char **dir = engine->env_dirs; dir && *dir; dir++)
        free(*dir);
    free(engine->env_dirs);
    free(engine->envs);
}

// The name of the environment that the kernel's program is in, and its length; NULL: in none.
static const char *
environment_of(const struct kernelspec *spec, size_t *ret_len)
{
    const char *program = json_string_value(json_array_get(spec->argv, 0));
    if (!program || strncmp(program, ENVIRONMENTS, strlen(ENVIRONMENTS)) != 0)
        return NULL;
    const char *name = program + strlen(ENVIRONMENTS);
    *ret_len = strcspn(name, "/");
    return name;
}

bool
engine_has_program(const struct provisioner_settings *settings, const struct kernelspec *spec)
{
    size_t len;
    const char *name = environment_of(spec, &len);
    for (size_t i = 0; name && i < settings->n_kernel_envs; i++) {
        const char *each = settings->kernel_envs[i].name;
        if (strlen(each) == len && strncmp(each, name, len) == 0)
            return true;
    }
    return !name;
}

int
engine_check_kernels(const struct engine_kernels *kernels, struct kg_error *err)
{
    const struct provisioner_settings *settings = &kernels->settings->settings;
    if (strcmp(kernels->engine, "oci") != 0 || strcmp(settings->image, "host") != 0)
        return 0;
    for (size_t i = 0; i < kernelspecs_count(kernels->specs); i++) {
        const struct kernelspec *spec = kernelspecs_at(kernels->specs, i);
        if (engine_has_program(settings, spec))
            continue;
        if (spec == kernels->default_spec)
            return kg_error_set(
                err, KG_INVALID, 0,
                "setting kernels-dir: the kernel %.40s has no environment in %.110s; "
                "script/setup makes it, or choose another default-kernel",
                spec->name, kernels->dir);
        log_warning("a kernel has no environment, and cannot start: script/setup makes it",
                    LOG_STR("kernel", spec->name), LOG_STR("folder", kernels->dir));
    }
    return 0;
}
