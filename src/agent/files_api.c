// SPDX-License-Identifier: Apache-2.0
// Files over HTTP: listing, reading, small writes, deleting.
#include "files_api.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

enum { READ_BYTES = 128 << 10, HIGH_WATERMARK = 512 << 10, LOW_WATERMARK = 128 << 10 };

// ---- Listing --------------------------------------------------------------------------------

// A number of a query; `fallback` where there is none.
static int
query_number(struct http_request *request, const char *name, int64_t fallback, int64_t *ret,
             struct kg_error *err)
{
    const char *text = http_request_query(request, name);
    char *end;

    *ret = fallback;
    if (!text)
        return 0;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (errno || end == text || *end)
        return kg_error_set(err, KG_INVALID, 0, "%s is no number", name);
    return 0;
}

static void
get_files(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    const char *path = http_request_query(request, "path");
    struct kg_error err = {0};
    int64_t limit;

    json_t *listing = NULL;
    if (query_number(request, "limit", FILES_PAGE_MAX, &limit, &err) == 0) {
        limit = limit < 1 || limit > FILES_PAGE_MAX ? FILES_PAGE_MAX : limit;
        listing = files_list(agent->settings.data_dir, path ? path : "",
                             http_request_query(request, "after"), (int)limit, &err);
    }
    if (listing)
        http_reply_json(request, 200, listing);
    else
        api_reply_error(request, &err);
}

// ---- Reading --------------------------------------------------------------------------------

// An answer under way: `left` bytes from `offset` on are still to be sent, exactly.
struct reading {
    struct http_request *request;
    struct loop_timer *begin; // a handler may not cut its own connection
    int fd;
    int64_t offset;
    int64_t left;
};

static void
reading_free(struct reading *reading)
{
    loop_timer_free(reading->begin);
    close(reading->fd);
    free(reading);
}

static void
on_reader_gone(void *arg)
{
    struct reading *reading = arg;
    http_stream_end(reading->request);
    reading_free(reading);
}

static void
read_on(void *arg)
{
    struct reading *reading = arg;
    static char data[READ_BYTES];

    while (reading->left > 0 && http_stream_backlog(reading->request) < HIGH_WATERMARK) {
        size_t len = reading->left < READ_BYTES ? (size_t)reading->left : READ_BYTES;
        ssize_t n = pread(reading->fd, data, len, reading->offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) { // it has shrunk: what was announced cannot be had
            http_stream_abort(reading->request);
            reading_free(reading);
            return;
        }
        http_stream_write(reading->request, data, (size_t)n);
        reading->offset += n;
        reading->left -= n;
    }
    if (reading->left > 0)
        return;
    http_stream_end(reading->request);
    reading_free(reading);
}

static void
add_number_header(struct http_request *request, const char *name, int64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRId64, value);
    http_reply_header(request, name, text);
}

// From the range that is asked for to bytes that there are: `first` -1 means the last `last` ones.
static void
clip_range(int64_t size, int64_t first, int64_t last, struct reading *reading)
{
    if (first < 0) {
        reading->left = last < size ? last : size;
        reading->offset = size - reading->left;
        return;
    }
    if (last < 0 || last >= size)
        last = size - 1;
    reading->offset = first;
    reading->left = first <= last ? last - first + 1 : 0;
}

static void
start_reading(struct loop *loop, struct http_request *request, int fd, const struct stat *st,
              bool is_part, int64_t first, int64_t last)
{
    struct reading *reading = KG_NEW(struct reading);
    char etag[FILE_ETAG_MAX + 1];

    reading->request = request;
    reading->fd = fd;
    reading->left = st->st_size;
    if (is_part)
        clip_range(st->st_size, first, last, reading);
    file_etag(st, etag);
    http_reply_header(request, "ETag", etag);
    add_number_header(request, "X-Kg-Size", st->st_size);
    add_number_header(request, "X-Kg-Mtime-Ms", file_mtime_ms(st));
    add_number_header(request, "X-Kg-Offset", reading->offset);
    add_number_header(request, "X-Kg-Length", reading->left);
    add_number_header(request, "X-Kg-Part", is_part);
    http_request_on_gone(request, on_reader_gone, reading);
    http_stream_start(request, 200, "application/octet-stream");
    http_stream_on_drain(request, LOW_WATERMARK, read_on, reading);
    reading->begin = loop_timer_new(loop, read_on, reading);
    loop_timer_start(reading->begin, 0);
}

static void
get_file(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    struct stat st;
    int64_t first, last;
    char etag[FILE_ETAG_MAX + 1];

    if (query_number(request, "first", 0, &first, &err) != 0 ||
        query_number(request, "last", -1, &last, &err) != 0) {
        api_reply_error(request, &err);
        return;
    }
    int fd = file_open(agent->settings.data_dir, http_request_param(request, "path"), &st, &err);
    if (fd < 0) {
        api_reply_error(request, &err);
        return;
    }
    if (http_request_query(request, "stat")) {
        close(fd);
        http_reply_json(request, 200, file_describe(&st));
        return;
    }
    file_etag(&st, etag);
    const char *wanted = http_request_query(request, "if_etag");
    bool is_part = http_request_query(request, "first") && (!wanted || strcmp(wanted, etag) == 0);
    start_reading(agent->loop, request, fd, &st, is_part, first, last);
}

// ---- Writing and deleting -------------------------------------------------------------------

void
files_api_commit(struct agent *agent, struct http_request *request, struct file_write *write)
{
    struct kg_error err = {0};
    struct stat st;
    bool created;

    if (file_write_commit(write, &st, &created, &err) != 0) {
        api_reply_error(request, &err);
        return;
    }
    changes_own(agent->changes, file_write_path(write), &st);
    json_t *file = file_describe(&st);
    json_object_set_new(file, "created", json_boolean(created));
    http_reply_json(request, 200, file);
}

static void
put_file(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    size_t len;
    const void *data = http_request_body(request, &len);

    KG_AUTO(file_write)
    write = file_write_begin(agent->settings.data_dir, http_request_param(request, "path"), 0,
                             http_request_query(request, "keep") != NULL, &err);
    if (!write || file_write_add(write, data, len, &err) != 0)
        api_reply_error(request, &err);
    else
        files_api_commit(agent, request, write);
}

static void
delete_file(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};

    if (file_delete(agent->settings.data_dir, http_request_param(request, "path"), &err) != 0)
        api_reply_error(request, &err);
    else
        http_reply_json(request, 200, json_object());
}

void
files_api_add_routes(struct agent *agent)
{
    static const struct http_route routes[] = {
        {HTTP_GET, "/files", get_files, HTTP_PUBLIC},
        {HTTP_GET, "/files/{path...}", get_file, HTTP_PUBLIC},
        {HTTP_PUT, "/files/{path...}", put_file, HTTP_PUBLIC},
        {HTTP_DELETE, "/files/{path...}", delete_file, HTTP_PUBLIC},
    };
    http_server_add_routes(agent->api, routes, KG_ARRAY_LEN(routes), agent);
    uploads_add_routes(agent);
}
