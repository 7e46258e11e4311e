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
                            "the JSON has too many values: they would take %zu MiB of memory, at "
                            "most %zu are taken; send large data as a file",
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

// ---- Before the handler ---------------------------------------------------------------------

// Belongs to the worker until it is done.
struct http_json_work {
    struct http_request *request;
    struct loop_work *work;
    struct http_body *body;
    json_t *value;
    struct kg_error err;
};

static void
json_work_run(void *arg)
{
    struct http_json_work *job = arg;
    size_t len;
    KG_AUTO_FREE char *text = http_body_text(KG_STEAL(job->body), &len);
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
    http_body_free(job->body);
    free(job);
}

static void
json_work_on_gone(void *arg)
{
    struct http_request *request = arg;
    loop_work_cancel(request->json->work, json_work_free);
    request->json = NULL;
    http_request_abandon(request);
}

static void
json_work_done(void *arg)
{
    struct http_json_work *job = arg;
    job->work = NULL;
    http_request_on_gone(job->request, NULL, NULL);
    http_request_body_done(job->request);
    request_call_handler(job->request);
}

bool
json_work_start(struct http_request *request)
{
    size_t len = http_request_body_len(request);
    if (!(request->flags & HTTP_JSON_BODY) || len <= HTTP_JSON_INLINE_MAX)
        return false;
    struct http_json_work *job = KG_NEW(struct http_json_work);
    job->request = request;
    job->body = http_request_take_body(request);
    request->json = job;
    request->json_len = len;
    job->work = loop_work_start(request->conn->server->loop, loop_lane_of(request->owner),
                                json_work_run, json_work_done, job);
    http_request_on_gone(request, json_work_on_gone, request);
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
