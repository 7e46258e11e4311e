// SPDX-License-Identifier: Apache-2.0
// Files that come in pieces, so that no large body has to fit into the agent's memory, which is the
// tenant's.
#include <inttypes.h>
#include <string.h>
#include <sys/queue.h>

#include "files.h"
#include "files_api.h"

enum { UPLOADS_MAX = 16, UPLOAD_ID_LEN = 16, ABANDONED_MS = 60 * 1000 };

struct upload {
    TAILQ_ENTRY(upload) link;
    struct uploads *uploads;
    char id[UPLOAD_ID_LEN + 1];
    struct file_write *write;
    struct loop_timer *abandoned; // the gateway has forgotten it
};

struct uploads {
    struct loop *loop;
    TAILQ_HEAD(, upload) list;
    int n;
};

static void
upload_free(struct upload *upload)
{
    TAILQ_REMOVE(&upload->uploads->list, upload, link);
    upload->uploads->n--;
    loop_timer_free(upload->abandoned);
    file_write_free(upload->write);
    free(upload);
}

static void
on_abandoned(void *arg)
{
    upload_free(arg);
}

static struct upload *
find_upload(struct http_request *request, struct agent *agent, struct kg_error *err)
{
    const char *id = http_request_param(request, "id");
    struct upload *upload;

    TAILQ_FOREACH(upload, &agent->uploads->list, link) {
        if (strcmp(upload->id, id) == 0)
            return upload;
    }
    (void)kg_error_set(err, KG_NOT_FOUND, 0, "there is no such upload");
    return NULL;
}

static struct file_write *
begin(struct http_request *request, struct agent *agent, struct kg_error *err)
{
    json_error_t why;
    const char *path;
    json_int_t size;
    int keep;

    json_auto_t *body = http_request_json(request, err);
    if (!body)
        return NULL;
    if (json_unpack_ex(body, &why, 0, "{s:s, s:I, s:b !}", "path", &path, "size", &size, "keep",
                       &keep) != 0) {
        (void)kg_error_set(err, KG_INVALID, 0, "%.150s", why.text);
        return NULL;
    }
    if (agent->uploads->n == UPLOADS_MAX) {
        (void)kg_error_set(err, KG_SESSION_BUSY, 0, "too many uploads at a time");
        return NULL;
    }
    return file_write_begin(agent->settings.data_dir, path, size, keep, err);
}

static void
post_upload(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    struct file_write *write = begin(request, agent, &err);

    if (!write) {
        api_reply_error(request, &err);
        return;
    }
    struct upload *upload = KG_NEW(struct upload);
    upload->uploads = agent->uploads;
    upload->write = write;
    id_random(upload->id, UPLOAD_ID_LEN);
    upload->abandoned = loop_timer_new(agent->loop, on_abandoned, upload);
    loop_timer_start(upload->abandoned, ABANDONED_MS);
    TAILQ_INSERT_TAIL(&agent->uploads->list, upload, link);
    agent->uploads->n++;
    http_reply_json(request, 201, json_pack("{s:s}", "id", upload->id));
}

static void
put_piece(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    struct upload *upload = find_upload(request, agent, &err);
    size_t len;
    const void *data = http_request_body(request, &len);
    const char *offset = http_request_query(request, "offset");

    if (!upload) {
        api_reply_error(request, &err);
        return;
    }
    loop_timer_start(upload->abandoned, ABANDONED_MS);
    if (!offset || strtoll(offset, NULL, 10) != file_write_len(upload->write))
        (void)kg_error_set(&err, KG_INVALID, 0, "a piece is missing");
    else
        (void)!file_write_add(upload->write, data, len, &err);
    if (err.code == KG_OK) {
        http_reply_json(request, 200, json_object());
        return;
    }
    upload_free(upload);
    api_reply_error(request, &err);
}

static void
post_commit(struct http_request *request, void *arg)
{
    struct agent *agent = arg;
    struct kg_error err = {0};
    struct upload *upload = find_upload(request, agent, &err);

    if (!upload) {
        api_reply_error(request, &err);
        return;
    }
    files_api_commit(agent, request, upload->write);
    upload_free(upload);
}

static void
delete_upload(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct upload *upload = find_upload(request, arg, &err);

    if (!upload) {
        api_reply_error(request, &err);
        return;
    }
    upload_free(upload);
    http_reply_json(request, 200, json_object());
}

struct uploads *
uploads_new(struct loop *loop)
{
    struct uploads *uploads = KG_NEW(struct uploads);

    uploads->loop = loop;
    TAILQ_INIT(&uploads->list);
    return uploads;
}

void
uploads_free(struct uploads *uploads)
{
    struct upload *upload;

    if (!uploads)
        return;
    while ((upload = TAILQ_FIRST(&uploads->list)))
        upload_free(upload);
    free(uploads);
}

void
uploads_add_routes(struct agent *agent)
{
    static const struct http_route routes[] = {
        {HTTP_POST, "/uploads", post_upload, HTTP_PUBLIC},
        {HTTP_PUT, "/uploads/{id}", put_piece, HTTP_PUBLIC},
        {HTTP_POST, "/uploads/{id}/commit", post_commit, HTTP_PUBLIC},
        {HTTP_DELETE, "/uploads/{id}", delete_upload, HTTP_PUBLIC},
    };
    http_server_add_routes(agent->api, routes, KG_ARRAY_LEN(routes), agent);
}
