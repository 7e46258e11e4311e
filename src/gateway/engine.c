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

static bool
needs_environment(const struct kernelspec *spec)
{
    const char *program = json_string_value(json_array_get(spec->argv, 0));
    return program && strncmp(program, ENVIRONMENTS, strlen(ENVIRONMENTS)) == 0;
}

int
engine_check_kernels(const struct engine_settings *engine, const struct layout *layout,
                     const struct kernelspecs *specs, struct kg_error *err)
{
    const struct provisioner_settings *settings = &engine->settings;
    if (strcmp(settings->engine, "oci") != 0 || strcmp(settings->image, "host") != 0 ||
        settings->n_kernel_envs > 0 || access(layout->kernels_dir, F_OK) == 0)
        return 0;
    for (size_t i = 0; i < kernelspecs_count(specs); i++) {
        if (!needs_environment(kernelspecs_at(specs, i)))
            return 0;
    }
    return kg_error_set(err, KG_INVALID, 0,
                        "setting kernels-dir: there is no environment of a kernel in %s; "
                        "kernelspec/*/install makes them",
                        layout->kernels_dir);
}
