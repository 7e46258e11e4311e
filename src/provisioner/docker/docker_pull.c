// SPDX-License-Identifier: Apache-2.0
// Pulls a missing image.
#include "docker_priv.h"

#include <stdio.h>
#include <string.h>

#define LOG_MS 5000
#define REFUSAL_MAX_BYTES ((size_t)64 << 10)

static void
pull_on_progress(const json_t *line, void *arg)
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
    if (!status || clock_mono_ms() < docker->pull.logged_ms + LOG_MS)
        return;
    docker->pull.logged_ms = clock_mono_ms();
    log_info("pulling the image", LOG_STR("image", docker->image), LOG_STR("layer", layer),
             LOG_STR("status", status), LOG_STR("progress", progress));
}

// A refusal is one document, which may arrive in pieces.
static bool
pull_on_data(int status, const void *data, size_t len, void *arg)
{
    struct docker *docker = arg;
    struct buf *refusal = &docker->pull.lines.rest;
    loop_timer_start(docker->pull.silence, docker->pull.silence_ms);
    if (status < 300)
        return json_lines_feed(&docker->pull.lines, data, len, pull_on_progress, docker);
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

static int
refuse(const struct docker *docker, const char *reason, struct kg_error *err)
{
    return kg_error_set(err, KG_PROVISIONER_UNAVAILABLE, 0,
                        "cannot pull the image %.110s (build it, or set --image to another): %s",
                        docker->image, reason);
}

static void
end_pull(struct docker *docker, const char *reason)
{
    struct kg_error err = {0};
    loop_timer_stop(docker->pull.silence);
    if (reason)
        (void)refuse(docker, reason, &err);
    else
        log_info("pulled the image", LOG_STR("image", docker->image));
    docker->pull.on_done(docker, reason ? &err : NULL);
}

static void
pull_on_done(const struct http_call_result *result, void *arg)
{
    struct docker *docker = arg;
    docker->pull.call = NULL;
    if (!result->err && result->status >= 300)
        take_refusal(docker);
    const char *error = docker->pull.error[0] ? docker->pull.error : NULL;
    end_pull(docker, result->err ? result->err->message : error);
}

static void
pull_on_silence(void *arg)
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

int
docker_pull(struct docker *docker, docker_pulled_fn on_done, struct kg_error *err)
{
    struct docker_pull *pull = &docker->pull;
    struct kg_error why;
    if (pull->call)
        return 0;
    if (!pull->silence)
        pull->silence = loop_timer_new(docker->base.loop, pull_on_silence, docker);
    buf_fini(&pull->lines.rest);
    pull->lines = (struct json_lines){0};
    pull->error[0] = '\0';
    pull->logged_ms = 0;
    pull->on_done = on_done;
    KG_AUTO_FREE char *path = pull_path(docker->image);
    log_info("the image is missing", LOG_STR("image", docker->image));
    pull->call = docker_stream(docker, "POST", path, pull_on_data, pull_on_done, docker, &why);
    if (!pull->call)
        return refuse(docker, why.message, err);
    loop_timer_start(pull->silence, pull->silence_ms);
    return 0;
}

void
docker_pull_fini(struct docker *docker)
{
    if (docker->pull.call)
        http_call_cancel(docker->pull.call);
    loop_timer_free(docker->pull.silence);
    buf_fini(&docker->pull.lines.rest);
}
