// SPDX-License-Identifier: Apache-2.0
// The engine "docker": its settings and its vtable.
#include "docker_priv.h"

#include <string.h>

#define AGENT_MAX_BYTES ((size_t)64 << 20)

// The engine mounts what is at a path of its own machine. Where the gateway is in a container, the
// one folder whose path is the same in both is the state folder.
int
docker_copy_agent(struct docker *docker, const char *agent_path, struct kg_error *err)
{
    KG_AUTO_BUF agent = {0};
    docker->agent_path = kg_asprintf("%s/agent", docker->base.state_dir);
    if (file_read(agent_path, AGENT_MAX_BYTES, &agent, err) < 0)
        return -1;
    return file_write_atomic(docker->agent_path, agent.data, agent.len, 0755, err);
}

struct docker *
docker_open(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    KG_AUTO(docker) docker = KG_NEW(struct docker);
    docker->http = http_client_new(loop);
    docker->limits = settings->limits;
    docker->packages_dir = settings->packages_dir ? kg_strdup(settings->packages_dir) : NULL;
    docker->image = kg_strdup(strcmp(settings->image, "host") ? settings->image : DOCKER_IMAGE);
    if (provisioner_init(&docker->base, &provisioner_docker, loop, settings, err) < 0 ||
        docker_parse_host(docker, settings->docker_host, err) < 0)
        return NULL;
    return KG_STEAL(docker);
}

void
docker_close(struct docker *docker)
{
    if (!docker)
        return;
    docker_monitor_fini(docker);
    docker_pull_fini(docker);
    provisioner_fini(&docker->base);
    http_client_free(docker->http);
    free(docker->host);
    free(docker->socket_path);
    free(docker->url);
    free(docker->image);
    free(docker->agent_path);
    free(docker->packages_dir);
    free(docker);
}

static struct provisioner *
engine_create(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    KG_AUTO(docker) docker = docker_open(loop, settings, err);
    if (!docker || docker_trial(docker, err) < 0 ||
        docker_copy_agent(docker, settings->agent_path, err) < 0)
        return NULL;
    log_info("sandboxes are made by docker", LOG_STR("host", docker->host),
             LOG_STR("image", docker->image));
    return &KG_STEAL(docker)->base;
}

static void
engine_free(struct provisioner *provisioner)
{
    docker_close((struct docker *)provisioner);
}

const struct provisioner_engine provisioner_docker = {
    .name = "docker",
    .create = engine_create,
    .free = engine_free,
    .doctor = docker_doctor,
    .claim = folder_claim,
    .op_size = sizeof(struct docker_op),
    .op_start = docker_op_start,
    .op_cancelled = docker_op_cancelled,
    .op_fini = docker_op_fini,
};
