// SPDX-License-Identifier: Apache-2.0
// GET and HEAD of a file, by its session's owner or by a signed link. The content is untrusted:
// headers make browsers treat it as an origin of its own and run no script in it.

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api_priv.h"
#include "file_links.h"
#include "metrics.h"
#include "range.h"
#include "session_files.h"
#include "sessions.h"

enum {
    HIGH_WATERMARK = 512 << 10, // bytes queued for the client: above it the agent is paused
    LOW_WATERMARK = 128 << 10,
    IF_ETAG_MAX = 200,
};

struct download {
    struct http_request *request;
    struct api_context *context;
    struct session_file_op *op;
    struct stream_watch *watch;
    bool begun;
    bool paused;
};

static void
download_free(void *arg)
{
    struct download *download = arg;
    session_file_op_cancel(download->op);
    stream_watch_free(download->watch);
    free(download);
}

// ---- The head -------------------------------------------------------------------------------

static void
add_last_modified(struct http_request *request, int64_t mtime_ms)
{
    char text[40];
    time_t seconds = (time_t)(mtime_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
    http_reply_header(request, "Last-Modified", text);
}

// A file that a tenant wrote runs no script, loads nothing from elsewhere, and is in nobody's
// frame.
#define FILE_POLICY                                                                                \
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; "               \
    "media-src 'self' data:; font-src data:; frame-ancestors 'none'"

static void
add_headers(struct http_request *request, const struct session_file *file)
{
    http_reply_header(request, "ETag", file->etag);
    http_reply_header(request, "Accept-Ranges", "bytes");
    http_reply_header(request, "Content-Disposition", "inline");
    http_reply_header(request, "Content-Security-Policy", FILE_POLICY);
    http_reply_header(request, "Referrer-Policy", "no-referrer");
    http_reply_header(request, "Cross-Origin-Resource-Policy", "same-origin");
    add_last_modified(request, file->mtime_ms);
}

static void
reply_not_modified(struct http_request *request, const struct session_file *file)
{
    add_headers(request, file);
    http_reply(request, 304, NULL, NULL, 0);
}

static void
reply_unsatisfiable(struct http_request *request, const struct session_file *file)
{
    char range[40];
    snprintf(range, sizeof range, "bytes */%" PRId64, file->size);
    add_headers(request, file);
    http_reply_header(request, "Content-Range", range);
    http_reply(request, 416, NULL, NULL, 0);
}

static void
begin(struct download *download, const struct session_file *file, bool is_part, int64_t offset,
      int64_t length)
{
    char text[80];
    struct http_request *request = download->request;
    add_headers(request, file);
    snprintf(text, sizeof text, "%" PRId64, length);
    http_reply_header(request, "Content-Length", text);
    if (is_part) {
        snprintf(text, sizeof text, "bytes %" PRId64 "-%" PRId64 "/%" PRId64, offset,
                 offset + length - 1, file->size);
        http_reply_header(request, "Content-Range", text);
    }
    download->begun = true;
    http_stream_start(request, is_part ? 206 : 200, file->mime);
}

// ---- The bytes ------------------------------------------------------------------------------

static void
download_on_drained(void *arg)
{
    struct download *download = arg;
    download->paused = false;
    session_file_pause(download->op, false);
}

static void
download_on_head(const struct session_file *file, bool is_part, int64_t offset, int64_t length,
                 void *arg)
{
    struct download *download = arg;
    struct http_request *request = download->request;
    const char *known = http_request_header(request, "If-None-Match");
    if (known && http_etag_list_has(known, file->etag)) {
        reply_not_modified(request, file);
        return;
    }
    if (is_part && length == 0) {
        reply_unsatisfiable(request, file);
        return;
    }
    if (length > (int64_t)download->context->face->max_upload_bytes) {
        struct kg_error err;
        kg_error_set(&err, KG_ARTIFACT_TOO_LARGE, 0,
                     "the file is %" PRId64 " bytes; the limit is %zu: request ranges", length,
                     download->context->face->max_upload_bytes);
        http_reply_error(request, &err);
        return;
    }
    begin(download, file, is_part, offset, length);
    if (http_request_method(request) == HTTP_HEAD) {
        http_stream_end(request);
        return;
    }
    http_stream_on_drain(request, LOW_WATERMARK, download_on_drained, download);
    stream_watch_start(download->watch);
}

static void
download_on_data(const void *data, size_t len, void *arg)
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
download_on_end(const struct kg_error *err, void *arg)
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
download_on_stalled(void *arg)
{
    const struct download *download = arg;
    http_stream_abort(download->request);
}

static struct session_file_range
wanted_range(struct http_request *request)
{
    struct session_file_range range = SESSION_FILE_WHOLE;
    const char *text = http_request_header(request, "Range");
    const char *if_range = http_request_header(request, "If-Range");
    if (!text || (if_range && strlen(if_range) > IF_ETAG_MAX) || !range_parse(text, &range))
        return SESSION_FILE_WHOLE;
    range.if_etag = if_range; // a date never matches an ETag: the whole file is sent
    return range;
}

static void
file_download_start(struct http_request *request, struct api_context *context,
                    struct session *session, const char *path)
{
    static const struct session_file_events events = {
        .on_head = download_on_head, .on_data = download_on_data, .on_end = download_on_end};
    struct kg_error err = {0};
    const struct session_file_range range = wanted_range(request);
    struct download *download = KG_NEW(struct download);
    download->request = request;
    download->context = context;
    download->watch = stream_watch_new(&(const struct stream_watch_settings){
        .loop = context->loop,
        .request = request,
        .tick_ms = STREAM_TICK_MS,
        .on_stalled = download_on_stalled,
        .waits_for_client = waits_for_client,
        .arg = download,
    });
    http_request_own(request, download, download_free);
    download->op = session_file_get(session, path, &range, &events, download, &err);
    if (!download->op)
        http_reply_error(request, &err);
}

// ---- Access ---------------------------------------------------------------------------------

void
handle_file_get(struct http_request *request, void *arg)
{
    struct session *session = api_find_session(request, arg);
    if (!session)
        return;
    struct kg_error err = {0};
    bool is_stat;
    int result = api_query_flag(request, "stat", false, &is_stat, &err);
    enum api_path_kind kind = is_stat ? API_PATH_FOLDER : API_PATH_FILE;
    KG_AUTO_FREE char *path =
        result == 0 ? api_file_path(request, http_request_param(request, "path"), kind, &err)
                    : NULL;
    if (!path)
        http_reply_error(request, &err);
    else if (is_stat)
        file_show_start(request, arg, session, path);
    else
        file_download_start(request, arg, session, path);
}

// The owner that a link names, if its signature is valid.
static const char *
linked_owner(const struct http_request *request, const struct api_context *context,
             const char *path)
{
    const char *owner = http_request_query(request, "owner");
    const char *expires = http_request_query(request, "expires");
    const char *signature = http_request_query(request, "signature");
    if (!owner || !expires || !signature)
        return NULL;
    bool good = file_links_check(context->face->links, owner, http_request_param(request, "id"),
                                 path, expires, signature);
    return good ? owner : NULL;
}

void
handle_file_link(struct http_request *request, void *arg)
{
    struct api_context *context = arg;
    struct kg_error err = {0};
    // A path that is not valid was not signed.
    KG_AUTO_FREE char *path =
        api_file_path(request, http_request_param(request, "path"), API_PATH_FILE, &err);
    // The owner's API key works as well.
    const char *owner = path ? linked_owner(request, context, path) : NULL;
    if (!owner)
        owner = http_request_owner(request);
    struct session *session = NULL;
    if (!owner)
        kg_error_set(&err, KG_FORBIDDEN_LINK, 0,
                     "the link has expired, its session has ended, or its signature is invalid");
    else if (http_server_admit(http_request_server(request), owner, &err) == 0)
        session =
            sessions_find(context->face->sessions, owner, http_request_param(request, "id"), &err);
    if (session && path)
        file_download_start(request, context, session, path);
    else
        http_reply_error(request, &err);
}
