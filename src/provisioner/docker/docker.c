// SPDX-License-Identifier: Apache-2.0
// The engine "docker": its settings and its vtable.
#include "docker_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define PULL_SILENCE_MS 120000 // unpacking a large layer is silent, too

// Identifies the state folder independently of its path.
static int
identify_folder(struct docker *docker, struct kg_error *err)
{
    struct stat st;
    if (stat(docker->base.root_dir, &st) < 0)
        return kg_error_set(err, KG_INTERNAL, errno, "cannot find %s", docker->base.state_dir);
    docker->folder = kg_asprintf("%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return 0;
}

struct docker *
docker_open(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    KG_AUTO(docker) docker = KG_NEW(struct docker);
    docker->http = http_client_new(loop);
    docker->limits = settings->limits;
    docker->pull.silence_ms = PULL_SILENCE_MS;
    docker->packages_dir = settings->packages_dir ? kg_strdup(settings->packages_dir) : NULL;
    docker->image =
        kg_strdup(strcmp(settings->image, "host") == 0 ? DOCKER_IMAGE : settings->image);
    if (provisioner_init(&docker->base, &provisioner_docker, loop, settings, err) < 0 ||
        identify_folder(docker, err) < 0 ||
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
    free(docker->seccomp);
    free(docker->folder);
    free(docker);
}

static struct provisioner *
engine_create(struct loop *loop, const struct provisioner_settings *settings, struct kg_error *err)
{
    // The Engine mounts by the paths of its own machine.
    if (strncmp(settings->state_dir, "/proc/self/", strlen("/proc/self/")) == 0) {
        (void)kg_error_set(err, KG_INVALID, 0,
                           "the gateway's user cannot reach the state folder %.100s: set state-dir "
                           "to one whose parents all users may pass through",
                           settings->root_dir);
        return NULL;
    }
    KG_AUTO(docker) docker = docker_open(loop, settings, err);
    if (!docker || docker_trial(docker, err) < 0 ||
        docker_write_files(docker, settings->agent_path, err) < 0)
        return NULL;
    log_info("sandboxes are made by docker", LOG_STR("host", docker->host),
             LOG_STR("image", docker->image));
    return &KG_STEAL(docker)->base;
}

static bool
engine_doctor(const struct provisioner_settings *settings, provisioner_finding_fn fn, void *arg,
              struct provisioner_traits *ret)
{
    (void)ret;
    struct kg_error err = {0};
    KG_AUTO(loop) loop = loop_new();
    KG_AUTO(docker) docker = docker_open(loop, settings, &err);
    if (docker)
        return docker_doctor(docker, settings->agent_path, fn, arg);
    fn("docker: settings", false, err.message, arg);
    return false;
}

static void
engine_free(struct provisioner *provisioner)
{
    docker_close((struct docker *)provisioner);
}

const struct provisioner_engine provisioner_docker = {
    .name = "docker",
    .is_on_this_machine = true,
    .create = engine_create,
    .free = engine_free,
    .doctor = engine_doctor,
    .op_size = sizeof(struct docker_op),
    .op_start = docker_op_start,
    .op_cancelled = docker_op_cancelled,
    .op_explain = docker_op_explain,
    .op_fini = docker_op_fini,
};
