// SPDX-License-Identifier: Apache-2.0
// The files.* methods: listing, reading, writing, appending, deleting.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent_priv.h"
#include "files.h"
#include "walk.h"

int
params_failed(const json_error_t *why, struct kg_error *err)
{
    return kg_error_set(err, KG_INVALID, 0, "%.150s", why->text);
}

// ---- Listing --------------------------------------------------------------------------------

void
files_list_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_error_t why;
    struct file_place place;
    struct walk_query query = {0};
    const char *path = "";
    int limit = FILES_PAGE_MAX, details = 0, shallow = 0;
    json_t *listing = NULL;

    if (json_unpack_ex(request_params(request), &why, 0, "{s?s, s?s, s?i, s?b, s?b !}", "path",
                       &path, "after", &query.after, "limit", &limit, "details", &details,
                       "shallow", &shallow) != 0) {
        (void)params_failed(&why, &err);
    } else if (file_place_find(agent, path, &place, &err) == 0) {
        query.path = place.path;
        query.shallow = shallow != 0;
        query.whole = file_place_is_whole(agent, &place);
        limit = limit < 1 || limit > FILES_PAGE_MAX ? FILES_PAGE_MAX : limit;
        listing = files_list(place.root, &query, limit, details != 0, &err);
    }
    request_end(request, listing, &err);
}

void
files_describe_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_error_t why;
    struct file_place place;
    struct stat st;
    const char *path;
    KG_AUTO_FD fd = -1;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s !}", "path", &path) != 0)
        (void)params_failed(&why, &err);
    else if (file_place_find(agent, path, &place, &err) == 0)
        fd = file_open(place.root, place.path, &st, &err);
    request_end(request, fd >= 0 ? file_describe(&st) : NULL, &err);
}

// ---- Reading --------------------------------------------------------------------------------

// An answer under way: `left` bytes from `offset` on are still to be sent, exactly.
struct reading {
    struct request *request;
    int fd;
    int64_t offset;
    int64_t left;
};

static void
reading_free(struct reading *reading)
{
    close(reading->fd);
    free(reading);
}

static void
reading_fail(struct reading *reading, const char *why)
{
    struct kg_error err;

    (void)kg_error_set(&err, KG_INTERNAL, 0, "%s", why);
    request_fail(reading->request, &err);
    reading_free(reading);
}

static void
on_reader_gone(void *arg)
{
    reading_fail(arg, "the reader has left");
}

// One part a turn of the loop.
static void
read_on(void *arg)
{
    static char data[FRAME_DATA_MAX];
    struct reading *reading = arg;
    size_t len = reading->left < (int64_t)sizeof data ? (size_t)reading->left : sizeof data;

    ssize_t n = len > 0 ? pread(reading->fd, data, len, reading->offset) : 0;
    if (n < 0 || (n == 0 && len > 0)) {
        reading_fail(reading, "the file has shrunk while it was read");
        return;
    }
    if (n > 0)
        request_send(reading->request, data, (size_t)n);
    reading->offset += n;
    reading->left -= n;
    if (reading->left > 0) {
        request_want_room(reading->request);
        return;
    }
    request_reply(reading->request, json_object());
    reading_free(reading);
}

// What of the range that is asked for is there: `first` -1 means the last `last` bytes.
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

static int
open_reading(const struct agent *agent, json_t *params, struct reading *reading, json_t **ret_head,
             struct kg_error *err)
{
    json_error_t why;
    const char *path, *if_etag = NULL;
    json_t *has_first = json_object_get(params, "first");
    json_int_t first = 0, last = -1;
    char etag[FILE_ETAG_MAX + 1];
    struct file_place place;
    struct stat st;

    if (json_unpack_ex(params, &why, 0, "{s:s, s?I, s?I, s?s !}", "path", &path, "first", &first,
                       "last", &last, "if_etag", &if_etag) != 0)
        return params_failed(&why, err);
    if (file_place_find(agent, path, &place, err) != 0)
        return -1;
    reading->fd = file_open(place.root, place.path, &st, err);
    if (reading->fd < 0)
        return -1;
    file_etag(&st, etag);
    bool is_part = has_first && (!if_etag || strcmp(if_etag, etag) == 0);
    reading->left = st.st_size;
    if (is_part)
        clip_range(st.st_size, first, last, reading);
    *ret_head = file_describe(&st);
    json_object_update_new(*ret_head,
                           json_pack("{s:I, s:I, s:b}", "offset", (json_int_t)reading->offset,
                                     "length", (json_int_t)reading->left, "part", is_part));
    return 0;
}

void
files_read_call(struct request *request, void *arg)
{
    struct reading *reading = KG_NEW(struct reading);
    struct kg_error err = {0};
    json_t *head = NULL;

    if (open_reading(arg, request_params(request), reading, &head, &err) != 0) {
        free(reading);
        request_fail(request, &err);
        return;
    }
    reading->request = request;
    request_on_gone(request, on_reader_gone, reading);
    request_on_room(request, read_on, reading);
    request_begin(request, head);
    read_on(reading);
}

// ---- Writing and deleting -------------------------------------------------------------------

// Bytes of files.append, which adds them in one turn of the loop.
enum { APPEND_MAX = 16 << 20 };

// A file whose bytes come as the request's body: each part is written as it comes, since the
// agent's memory is the tenant's.
struct writing {
    struct agent *agent;
    struct request *request;
    struct file_write *write;
    const char *root;   // that its path is below
    int64_t append_max; // of a file that gets more; -1: it is replaced
};

static void
writing_end(struct writing *writing, json_t *result, const struct kg_error *err)
{
    request_end(writing->request, result, err);
    file_write_free(writing->write);
    free(writing);
}

static void
on_writer_gone(void *arg)
{
    struct kg_error err;

    (void)kg_error_set(&err, KG_INTERNAL, 0, "the writer has left");
    writing_end(arg, NULL, &err);
}

// Puts the file in its place, or appends it. NULL: that failed.
static json_t *
place(const struct writing *writing, struct kg_error *err)
{
    bool appends = writing->append_max >= 0, created;
    struct file_write *write = writing->write;
    struct stat st;

    int placed = appends ? file_write_append(write, writing->append_max, &st, &created, err)
                         : file_write_commit(write, &st, &created, err) + 1;
    if (appends && placed == 0)
        return json_pack("{s:b}", "appended", 0);
    if (placed != 1)
        return NULL;
    const char *own = file_place_in_data(writing->agent, writing->root, file_write_path(write));
    if (own)
        changes_own(writing->agent->changes, own, &st);
    json_t *file = file_describe(&st);
    json_object_set_new(file, "created", json_boolean(created));
    if (appends)
        json_object_set_new(file, "appended", json_true());
    return file;
}

static void
commit(struct writing *writing)
{
    struct kg_error err = {0};
    json_t *file = place(writing, &err);

    writing_end(writing, file, &err);
}

static void
on_body(struct request *request, const void *data, size_t len, void *arg)
{
    struct writing *writing = arg;
    struct kg_error err = {0};

    if (file_write_add(writing->write, data, len, &err) != 0)
        writing_end(writing, NULL, &err);
    else if (file_write_len(writing->write) == request_body_len(request))
        commit(writing);
}

// Takes `write`.
static void
writing_start(struct agent *agent, struct request *request, struct file_write *write,
              const char *root, int64_t append_max)
{
    struct writing *writing = KG_NEW(struct writing);
    *writing = (struct writing){agent, request, write, root, append_max};
    request_on_gone(request, on_writer_gone, writing);
    request_on_body(request, on_body, writing);
    if (request_body_len(request) == 0)
        commit(writing);
}

void
files_write_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    json_error_t why;
    struct file_place place;
    const char *path;
    int keep, own = 0;
    struct file_write *write = NULL;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s:b, s?b !}", "path", &path, "keep",
                       &keep, "own", &own) != 0)
        (void)params_failed(&why, &err);
    else if (file_place_find(agent, path, &place, &err) == 0)
        write = file_write_begin(place.root, place.path, request_body_len(request),
                                 (keep ? FILE_KEEP : 0) | (own ? FILE_OWN : 0), &err);
    if (write)
        writing_start(agent, request, write, place.root, -1);
    else
        request_fail(request, &err);
}

void
files_append_call(struct request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    int64_t len = request_body_len(request);
    json_error_t why;
    json_int_t max = -1;
    struct file_place place;
    const char *path;
    struct file_write *write = NULL;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s:I !}", "path", &path, "max",
                       &max) != 0)
        (void)params_failed(&why, &err);
    else if (max < 0 || len > APPEND_MAX)
        (void)kg_error_set(&err, KG_INVALID, 0, "max is below 0, or there are more than %d bytes",
                           APPEND_MAX);
    else if (file_place_find(agent, path, &place, &err) == 0)
        write = file_write_begin(place.root, place.path, len, FILE_NO_FOLDERS, &err);
    if (write)
        writing_start(agent, request, write, place.root, max);
    else
        request_fail(request, &err);
}

void
files_delete_call(struct request *request, void *arg)
{
    const struct agent *agent = arg;
    struct kg_error err = {0};
    json_error_t why;
    struct file_place place;
    const char *path;
    int own = 0;

    if (json_unpack_ex(request_params(request), &why, 0, "{s:s, s?b !}", "path", &path, "own",
                       &own) != 0)
        (void)params_failed(&why, &err);
    else if (file_place_find(agent, path, &place, &err) == 0 &&
             file_delete(place.root, place.path, own, &err) == 0) {
        request_reply(request, json_object());
        return;
    }
    request_fail(request, &err);
}
