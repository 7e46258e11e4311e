// SPDX-License-Identifier: Apache-2.0
// GET …/files/download: a file, a range of its bytes, or some of its lines.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "metrics.h"
#include "opensandbox_priv.h"
#include "pace.h"
#include "range.h"
#include "session_files.h"

enum {
    HIGH_WATERMARK = 512 << 10, // bytes queued for the client: above it the agent is paused
    LOW_WATERMARK = 128 << 10,
    STALLED_TICK_MS = 15 * 1000,
    STALLED_TICKS = 4,
    LINES_FILE_MAX = 16 << 20, // of a file whose lines are asked for
};

struct download {
    struct http_request *request;
    const struct opensandbox *self;
    struct session_file_op *op;
    struct http_pace *pace;
    bool begun;
    bool paused;
    int64_t first_line, n_lines; // of some lines; 0: all
};

static void
download_free(void *arg)
{
    struct download *download = arg;
    session_file_op_cancel(download->op);
    http_pace_free(download->pace);
    free(download);
}

// ---- Bytes ----------------------------------------------------------------------------------

static void
begin(struct download *download, const struct session_file *file, bool is_part, int64_t offset,
      int64_t length)
{
    char text[80];
    struct http_request *request = download->request;
    snprintf(text, sizeof text, "%" PRId64, length);
    http_reply_header(request, "Content-Length", text);
    http_reply_header(request, "Content-Disposition", "attachment");
    if (is_part) {
        snprintf(text, sizeof text, "bytes %" PRId64 "-%" PRId64 "/%" PRId64, offset,
                 offset + length - 1, file->size);
        http_reply_header(request, "Content-Range", text);
    }
    download->begun = true;
    http_stream_start(request, is_part ? 206 : 200, "application/octet-stream");
}

static void
on_drained(void *arg)
{
    struct download *download = arg;
    download->paused = false;
    session_file_pause(download->op, false);
}

static void
on_head(const struct session_file *file, bool is_part, int64_t offset, int64_t length, void *arg)
{
    struct download *download = arg;
    struct http_request *request = download->request;
    struct kg_error err = {0};
    size_t max = download->self->settings.face->max_upload_bytes;
    if (is_part && length == 0) {
        http_reply_json(request, 416,
                        json_pack("{s:s, s:s}", "code", "INVALID_RANGE", "message",
                                  "Range: it is behind the end of the file"));
        return;
    }
    if (length > (int64_t)max) {
        kg_error_set(&err, KG_ARTIFACT_TOO_LARGE, 0,
                     "the file is %" PRId64 " bytes; the limit is %zu: request ranges", length,
                     max);
        http_reply_error(request, &err);
        return;
    }
    begin(download, file, is_part, offset, length);
    if (http_request_method(request) == HTTP_HEAD) {
        http_stream_end(request);
        return;
    }
    http_stream_on_drain(request, LOW_WATERMARK, on_drained, download);
    http_pace_start(download->pace);
}

static void
on_data(const void *data, size_t len, void *arg)
{
    struct download *download = arg;
    http_stream_write(download->request, data, len);
    metric_add(METRIC_FILE_BYTES, (double)len, "out");
    if (download->paused || http_stream_backlog(download->request) < HIGH_WATERMARK)
        return;
    download->paused = true;
    session_file_pause(download->op, true);
}

static void
on_end(const struct kg_error *err, void *arg)
{
    struct download *download = arg;
    download->op = NULL;
    if (!download->begun)
        http_reply_error(download->request, err);
    else if (err)
        http_stream_abort(download->request);
    else
        http_stream_end(download->request);
}

// While the agent is paused, nothing is written.
static bool
waits_for_client(const void *arg)
{
    const struct download *download = arg;
    return download->paused;
}

static void
on_stalled(void *arg)
{
    const struct download *download = arg;
    http_stream_abort(download->request);
}

static int
get_bytes(struct download *download, struct session *session, const char *path,
          struct kg_error *err)
{
    static const struct session_file_events events = {
        .on_head = on_head, .on_data = on_data, .on_end = on_end};
    static const struct http_pace_rule rule = {
        .tick_ms = STALLED_TICK_MS,
        .max_ticks = STALLED_TICKS,
        .min_bytes = 1,
        .counts = waits_for_client,
        .on_slow = on_stalled,
    };
    struct session_file_range range = SESSION_FILE_WHOLE;
    const char *text = http_request_header(download->request, "Range");
    if (text && !range_parse(text, &range))
        range = SESSION_FILE_WHOLE;
    download->pace =
        http_pace_new(download->self->settings.loop, download->request, &rule, download);
    download->op = session_file_get(session, path, &range, &events, download, err);
    return download->op ? 0 : -1;
}

// ---- Lines ----------------------------------------------------------------------------------

static const char *
line_end(const char *at, const char *end)
{
    const char *found = memchr(at, '\n', (size_t)(end - at));
    return found ? found + 1 : end;
}

static void
on_file(const struct session_file *file, const void *data, size_t len, const struct kg_error *err,
        void *arg)
{
    struct download *download = arg;
    download->op = NULL;
    if (!file) {
        http_reply_error(download->request, err);
        return;
    }
    const char *at = data, *end = at + len;
    for (int64_t line = 1; line < download->first_line && at < end; line++)
        at = line_end(at, end);
    const char *last = at;
    for (int64_t n = 0; (n < download->n_lines || !download->n_lines) && last < end; n++)
        last = line_end(last, end);
    http_reply(download->request, 200, "text/plain; charset=utf-8", at, (size_t)(last - at));
}

static int
take_lines(struct download *download, bool *ret, struct kg_error *err)
{
    const char *offset = http_request_query(download->request, "offset");
    const char *limit = http_request_query(download->request, "limit");
    *ret = offset || limit;
    if (*ret && http_request_header(download->request, "Range"))
        return kg_error_set(err, KG_INVALID, 0, "offset and limit exclude Range");
    if (parse_number(offset, "offset", 1, INT32_MAX, &download->first_line, err) < 0 ||
        parse_number(limit, "limit", 0, INT32_MAX, &download->n_lines, err) < 0)
        return -1;
    if ((offset && download->first_line < 1) || (limit && download->n_lines < 1))
        return kg_error_set(err, KG_INVALID, 0, "offset and limit begin with 1");
    return 0;
}

// ---- The request ----------------------------------------------------------------------------

static int
start(struct download *download, struct kg_error *err)
{
    bool lines;
    const char *wanted = http_request_query(download->request, "path");
    if (!wanted)
        return kg_error_set(err, KG_INVALID, 0, "path is missing: that of a file");
    KG_AUTO_FREE char *path = sandbox_path(wanted, false, err);
    struct session *session = path ? sandbox_of(download->request, download->self, err) : NULL;
    if (!session || take_lines(download, &lines, err) < 0)
        return -1;
    if (!lines)
        return get_bytes(download, session, path, err);
    download->op = session_file_read(session, path, LINES_FILE_MAX, on_file, download, err);
    return download->op ? 0 : -1;
}

void
handle_os_file_download(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct download *download = KG_NEW(struct download);
    *download = (struct download){.request = request, .self = arg};
    http_request_own(request, download, download_free);
    if (start(download, &err) < 0)
        http_reply_error(request, &err);
}
