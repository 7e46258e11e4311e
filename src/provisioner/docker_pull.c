// SPDX-License-Identifier: Apache-2.0
// The image, where the engine does not have it: one pull, for all who wait.
#include "docker_priv.h"

#include <stdio.h>
#include <string.h>

#define TELL_MS 5000

static void
on_progress(const json_t *line, void *arg)
{
    struct docker *docker = arg;
    const char *error = json_string_value(json_object_get(line, "error"));
    const char *status = json_string_value(json_object_get(line, "status"));
    const char *layer = json_string_value(json_object_get(line, "id"));
    const char *progress = json_string_value(json_object_get(line, "progress"));
    if (error)
        snprintf(docker->pull.error, sizeof docker->pull.error, "%s", error);
    if (!status || clock_mono_ms() < docker->pull.told_ms + TELL_MS)
        return;
    docker->pull.told_ms = clock_mono_ms();
    log_info("pulling the image", LOG_STR("image", docker->image), LOG_STR("layer", layer),
             LOG_STR("status", status), LOG_STR("progress", progress));
}

static bool
on_data(int status, const void *data, size_t len, void *arg)
{
    struct docker *docker = arg;
    if (status < 300)
        return docker_lines_feed(&docker->pull.lines, data, len, on_progress, docker);
    json_auto_t *body = json_loadb(data, len, 0, NULL);
    const char *message = json_string_value(json_object_get(body, "message"));
    snprintf(docker->pull.error, sizeof docker->pull.error, "%s",
             message ? message : "the engine refuses");
    return true;
}

static struct docker_op *
find_waiting(const struct docker *docker)
{
    struct provisioner_op *op;
    TAILQ_FOREACH(op, &docker->base.ops, next) {
        if (((struct docker_op *)op)->pulling)
            return (struct docker_op *)op;
    }
    return NULL;
}

static void
end_pull(struct docker *docker, const char *reason)
{
    struct kg_error err = {0};
    if (reason)
        kg_error_set(&err, KG_PROVISIONER_UNAVAILABLE, 0,
                     "the image %.60s is missing and cannot be pulled; build it or name another "
                     "with --image: %.110s",
                     docker->image, reason);
    else
        log_info("pulled the image", LOG_STR("image", docker->image));
    for (struct docker_op *op; (op = find_waiting(docker));)
        docker_op_pulled(op, reason ? &err : NULL);
}

static void
on_done(const struct http_call_result *result, void *arg)
{
    struct docker *docker = arg;
    docker->pull.call = NULL;
    const char *error = docker->pull.error[0] ? docker->pull.error : NULL;
    end_pull(docker, result->err ? result->err->message : error);
}

// A name without a tag or digest would have all tags pulled.
static char *
pull_path(const char *image)
{
    const char *slash = strrchr(image, '/');
    const char *last = slash ? slash + 1 : image;
    bool tagged = strpbrk(last, ":@") != NULL;
    KG_AUTO_FREE char *escaped = docker_escape(image);
    return kg_asprintf("/images/create?fromImage=%s%s", escaped, tagged ? "" : "&tag=latest");
}

void
docker_pull_wait(struct docker_op *op)
{
    struct docker *docker = docker_of(&op->base);
    struct kg_error err;
    op->pulling = true;
    if (docker->pull.call)
        return;
    docker_pull_fini(docker);
    docker->pull = (struct docker_pull){0};
    KG_AUTO_FREE char *path = pull_path(docker->image);
    log_info("the image is missing", LOG_STR("image", docker->image));
    docker->pull.call = docker_stream(docker, "POST", path, on_data, on_done, docker, &err);
    if (!docker->pull.call)
        end_pull(docker, err.message);
}

void
docker_pull_fini(struct docker *docker)
{
    if (docker->pull.call)
        http_call_cancel(docker->pull.call);
    buf_fini(&docker->pull.lines.rest);
}
