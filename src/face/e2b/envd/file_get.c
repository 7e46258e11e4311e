// SPDX-License-Identifier: Apache-2.0
// GET /files: the content of a file.
#include "envd_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "link_walk.h"
#include "metrics.h"
#include "pace.h"
#include "session_files.h"

enum {
    HIGH_WATERMARK = 512 << 10, // bytes queued for the client: above it the agent is paused
    LOW_WATERMARK = 128 << 10,
    TICK_MS = 15 * 1000,
    MAX_STALLED = 4, // ticks in a row in which the client reads nothing
};

struct file_get {
    struct http_request *request;
    const struct envd *envd;
    struct envd_path path;
    struct session_file_op *op;
    struct link_walk *walk; // the second try, after one that has found a link
    bool walked;
    struct http_pace *pace;
    bool begun;
    bool paused;
};

static void
file_get_free(void *arg)
{
    struct file_get *self = arg;
    session_file_op_cancel(self->op);
    link_walk_cancel(self->walk);
    envd_path_fini(&self->path);
    http_pace_free(self->pace);
    free(self);
}

static bool
file_get_waits(const void *arg)
{
    const struct file_get *self = arg;
    return self->paused;
}

static void
file_get_on_slow(void *arg)
{
    const struct file_get *self = arg;
    http_stream_abort(self->request);
}

static void
file_get_on_drained(void *arg)
{
    struct file_get *self = arg;
    self->paused = false;
    session_file_pause(self->op, false);
}

static void
file_get_on_head(const struct session_file *file, bool is_part, int64_t offset, int64_t length,
                 void *arg)
{
    (void)is_part;
    (void)offset;
    struct file_get *self = arg;
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, length);
    http_reply_header(self->request, "Content-Length", text);
    http_reply_header(self->request, "Content-Disposition", "attachment");
    http_reply_header(self->request, "Content-Security-Policy", "sandbox; default-src 'none'");
    self->begun = true;
    http_stream_start(self->request, 200, file->mime);
    if (http_request_method(self->request) == HTTP_HEAD) {
        http_stream_end(self->request);
        return;
    }
    http_stream_on_drain(self->request, LOW_WATERMARK, file_get_on_drained, self);
    http_pace_start(self->pace);
}

static void
file_get_on_data(const void *data, size_t len, void *arg)
{
    struct file_get *self = arg;
    http_stream_write(self->request, data, len);
    metric_add(METRIC_FILE_BYTES, (double)len, "out");
    if (self->paused || http_stream_backlog(self->request) < HIGH_WATERMARK)
        return;
    self->paused = true;
    session_file_pause(self->op, true);
}

static void file_get_start(struct file_get *self, const char *path);

static void
file_get_on_walked(const char *found, const struct kg_error *err, void *arg)
{
    struct file_get *self = arg;
    self->walk = NULL;
    if (found)
        file_get_start(self, found);
    else
        http_reply_error(self->request, err);
}

// There may be a link on the way. True: it is followed.
static bool
file_get_walks(struct file_get *self, const struct kg_error *err)
{
    struct kg_error none;
    if (self->begun || self->walked || !err || err->code != KG_INVALID_PATH)
        return false;
    self->walked = true;
    struct session *session = envd_sandbox(self->request, self->envd, &none);
    if (session)
        self->walk = link_walk_start(session, &self->path, true, file_get_on_walked, self);
    return self->walk != NULL;
}

static void
file_get_on_end(const struct kg_error *err, void *arg)
{
    struct file_get *self = arg;
    self->op = NULL;
    if (file_get_walks(self, err))
        return;
    if (!self->begun)
        http_reply_error(self->request, err);
    else if (err)
        http_stream_abort(self->request);
    else
        http_stream_end(self->request);
}

static void
file_get_start(struct file_get *self, const char *path)
{
    static const struct session_file_events events = {
        .on_head = file_get_on_head, .on_data = file_get_on_data, .on_end = file_get_on_end};
    struct kg_error err = {0};
    struct session *session = envd_sandbox(self->request, self->envd, &err);
    if (session)
        self->op = session_file_get(session, path, &SESSION_FILE_WHOLE, &events, self, &err);
    if (!self->op)
        http_reply_error(self->request, &err);
}

void
handle_envd_file_get(struct http_request *request, void *arg)
{
    const struct envd *envd = arg;
    struct kg_error err = {0};
    struct file_get *self = KG_NEW(struct file_get);
    self->request = request;
    self->envd = envd;
    self->pace = http_pace_new(e2b_loop(envd->e2b), request,
                               &(const struct http_pace_rule){.tick_ms = TICK_MS,
                                                              .max_ticks = MAX_STALLED,
                                                              .min_bytes = 1,
                                                              .counts = file_get_waits,
                                                              .on_slow = file_get_on_slow},
                               self);
    http_request_own(request, self, file_get_free);
    if (envd_query_path(request, &self->path, &err) == 0)
        file_get_start(self, self->path.session);
    else
        http_reply_error(request, &err);
}
