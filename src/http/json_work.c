// SPDX-License-Identifier: Apache-2.0
// JSON bodies: checking and parsing them, for large ones on a worker.

#include <string.h>

#include "http_priv.h"

static int
json_check(const char *body, size_t len, size_t max_value_bytes, struct kg_error *err)
{
    struct json_weight weight = json_weigh(body, len);
    if (weight.depth > HTTP_JSON_DEPTH_MAX)
        return kg_error_set(err, KG_INVALID, 0, "the JSON nests more than %d levels deep",
                            HTTP_JSON_DEPTH_MAX);
    if (weight.bytes > max_value_bytes)
        return kg_error_set(err, KG_INVALID, 0,
                            "the JSON has too many values: they would take %zu MiB of memory, and "
                            "the limit is %zu MiB; send large data as a file",
                            weight.bytes >> 20, max_value_bytes >> 20);
    return 0;
}

json_t *
http_json_parse_within(const char *body, size_t len, size_t max_value_bytes, bool *ret_beyond,
                       struct kg_error *err)
{
    json_error_t error;
    *ret_beyond = false;
    json_t *value = NULL;
    if (len == 0)
        kg_error_set(err, KG_INVALID, 0, "the body is empty, JSON was expected");
    else if (memchr(body, '\0', len)) // which jansson overlooks behind a number
        kg_error_set(err, KG_INVALID, 0, "the body is not valid JSON: it has a NUL byte");
    else if (json_check(body, len, max_value_bytes, err) < 0)
        *ret_beyond = true;
    else if (!(value = json_loadb(body, len, JSON_REJECT_DUPLICATES, &error)))
        kg_error_set(err, KG_INVALID, 0, "the body is not valid JSON: line %d, column %d: %s",
                     error.line, error.column, error.text);
    return value;
}

json_t *
http_json_parse(const char *body, size_t len, struct kg_error *err)
{
    bool beyond;
    return http_json_parse_within(body, len, HTTP_JSON_VALUE_BYTES_MAX, &beyond, err);
}

// ---- Bodies ---------------------------------------------------------------------------------

// An evbuffer of its own, to which the body's memory moves without a copy.
struct http_body {
    struct evbuffer *bytes;
};

struct http_body *
http_request_take_body(struct http_request *request)
{
    struct http_body *body = KG_NEW(struct http_body);
    body->bytes = evbuffer_new();
    if (!body->bytes ||
        evbuffer_add_buffer(body->bytes, evhttp_request_get_input_buffer(request->ev)))
        abort();
    request->taken_len = http_body_len(body);
    return body;
}

void
http_request_body_done(struct http_request *request)
{
    if (request->conn)
        intake_give(request->conn, request->taken_len);
    request->taken_len = 0;
}

size_t
http_body_len(const struct http_body *body)
{
    return evbuffer_get_length(body->bytes);
}

char *
http_body_text(struct http_body *body, size_t *ret_len)
{
    size_t len = evbuffer_get_length(body->bytes);
    char *text = kg_realloc(NULL, len + 1); // bounded by the server
    evbuffer_remove(body->bytes, text, len);
    text[len] = '\0';
    *ret_len = len;
    http_body_free(body);
    return text;
}

void
http_body_free(struct http_body *body)
{
    if (!body)
        return;
    evbuffer_free(body->bytes);
    free(body);
}

// ---- On a worker ----------------------------------------------------------------------------

// Belongs to the worker while the work runs.
struct body_read {
    struct http_request *request;
    const struct http_body_reader *reader;
    void *job;
    struct http_body *body;
    struct loop_work *work;
};

static void
body_read_run(void *arg)
{
    struct body_read *read = arg;
    size_t len;
    KG_AUTO_FREE char *text = http_body_text(KG_STEAL(read->body), &len);
    read->reader->read(text, len, read->job);
}

static void
body_read_discard(void *arg)
{
    struct body_read *read = arg;
    http_body_free(read->body);
    read->reader->discard(read->job);
    free(read);
}

static void
body_read_on_gone(void *arg)
{
    struct body_read *read = arg;
    struct http_request *request = read->request;
    loop_work_cancel(read->work, body_read_discard);
    http_request_abandon(request);
}

static void
body_read_done(void *arg)
{
    KG_AUTO_FREE struct body_read *read = arg;
    http_request_on_gone(read->request, NULL, NULL);
    http_request_body_done(read->request);
    read->reader->done(read->request, read->job);
}

void
http_request_read_body(struct http_request *request, const struct http_body_reader *reader,
                       void *job)
{
    struct body_read *read = KG_NEW(struct body_read);
    read->request = request;
    read->reader = reader;
    read->job = job;
    read->body = http_request_take_body(request);
    if (http_body_len(read->body) <= HTTP_JSON_INLINE_MAX) {
        body_read_run(read);
        body_read_done(read);
        return;
    }
    read->work = loop_work_start(request->conn->server->loop, loop_lane_of(request->owner),
                                 body_read_run, body_read_done, read);
    http_request_on_gone(request, body_read_on_gone, read);
}

// ---- Before the handler ---------------------------------------------------------------------

struct http_json_work {
    json_t *value;
    struct kg_error err;
};

static void
json_work_read(const char *text, size_t len, void *arg)
{
    struct http_json_work *job = arg;
    bool beyond;
    job->value =
        http_json_parse_within(text, len, HTTP_JSON_BODY_VALUE_BYTES_MAX, &beyond, &job->err);
}

static void
json_work_free(void *arg)
{
    struct http_json_work *job = arg;
    if (!job)
        return;
    json_decref(job->value);
    free(job);
}

static void
json_work_done(struct http_request *request, void *job)
{
    request->json = job;
    request_call_handler(request);
}

bool
json_work_start(struct http_request *request)
{
    static const struct http_body_reader reader = {json_work_read, json_work_done, json_work_free};
    size_t len = http_request_body_len(request);
    if (!(request->flags & HTTP_JSON_BODY) || len <= HTTP_JSON_INLINE_MAX)
        return false;
    request->json_len = len;
    http_request_read_body(request, &reader, KG_NEW(struct http_json_work));
    return true;
}

void
json_work_end(struct http_request *request)
{
    json_work_free(KG_STEAL(request->json));
}

json_t *
http_request_json(struct http_request *request, struct kg_error *err)
{
    struct http_json_work *job = request->json;
    if (!job) {
        size_t len;
        const char *body = http_request_body(request, &len);
        return http_json_parse(body, len, err);
    }
    if (err && !job->value)
        *err = job->err;
    return KG_STEAL(job->value);
}
