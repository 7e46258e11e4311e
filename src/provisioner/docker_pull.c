// SPDX-License-Identifier: Apache-2.0
// Pulls a missing image: one pull for all operations that wait for it.
#include "docker_priv.h"

#include <stdio.h>
#include <string.h>

#define TELL_MS 5000
#define REFUSAL_MAX_BYTES ((size_t)64 << 10)

static void
on_progress(const json_t *line, void *arg)
{
    struct docker *docker = arg;
    const json_t *detail = json_object_get(line, "errorDetail");
    const char *old_error = json_string_value(json_object_get(line, "error"));
    const char *error = json_string_value(json_object_get(detail, "message"));
    const char *status = json_string_value(json_object_get(line, "status"));
    const char *layer = json_string_value(json_object_get(line, "id"));
    const char *progress = json_string_value(json_object_get(line, "progress"));
    if (error || old_error)
        snprintf(docker->pull.error, sizeof docker->pull.error, "%s", error ? error : old_error);
    if (!status || clock_mono_ms() < docker->pull.told_ms + TELL_MS)
        return;
    docker->pull.told_ms = clock_mono_ms();
    log_info("pulling the image", LOG_STR("image", docker->image), LOG_STR("layer", layer),
             LOG_STR("status", status), LOG_STR("progress", progress));
}

// A refusal is one document, which may arrive in pieces.
static bool
on_data(int status, const void *data, size_t len, void *arg)
{
    struct docker *docker = arg;
    struct buf *refusal = &docker->pull.lines.rest;
    loop_timer_start(docker->pull.silence, docker->pull.silence_ms);
    if (status < 300)
        return docker_lines_feed(&docker->pull.lines, data, len, on_progress, docker);
    buf_append(refusal, data, len);
    return refusal->len <= REFUSAL_MAX_BYTES;
}

static void
take_refusal(struct docker *docker)
{
    const struct buf *refusal = &docker->pull.lines.rest;
    json_auto_t *body = json_loadb(refusal->len ? refusal->data : "", refusal->len, 0, NULL);
    const char *message = json_string_value(json_object_get(body, "message"));
    snprintf(docker->pull.error, sizeof docker->pull.error, "%s",
             message ? message : "the engine refused it");
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
                     "cannot pull the image %.110s (build it, or set --image to another): %s",
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
    loop_timer_stop(docker->pull.silence);
    if (!result->err && result->status >= 300)
        take_refusal(docker);
    const char *error = docker->pull.error[0] ? docker->pull.error : NULL;
    end_pull(docker, result->err ? result->err->message : error);
}

static void
on_silence(void *arg)
{
    struct docker *docker = arg;
    http_call_cancel(KG_STEAL(docker->pull.call));
    end_pull(docker, "the engine has reported no progress for a while");
}

// A name without a tag or digest would pull all tags.
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
    struct docker_pull *pull = &docker->pull;
    struct kg_error err = {0};
    op->pulling = true;
    if (pull->call)
        return;
    if (!pull->silence)
        pull->silence = loop_timer_new(docker->base.loop, on_silence, docker);
    buf_fini(&pull->lines.rest);
    pull->lines = (struct docker_lines){0};
    pull->error[0] = '\0';
    pull->told_ms = 0;
    KG_AUTO_FREE char *path = pull_path(docker->image);
    log_info("the image is missing", LOG_STR("image", docker->image));
    loop_timer_start(pull->silence, pull->silence_ms);
    pull->call = docker_stream(docker, "POST", path, on_data, on_done, docker, &err);
    if (!pull->call) {
        loop_timer_stop(pull->silence);
        end_pull(docker, err.message);
    }
}

void
docker_pull_fini(struct docker *docker)
{
    if (docker->pull.call)
        http_call_cancel(docker->pull.call);
    loop_timer_free(docker->pull.silence);
    buf_fini(&docker->pull.lines.rest);
}
