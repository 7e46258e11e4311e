// SPDX-License-Identifier: Apache-2.0
// Bodies in gzip that are decoded before their handler is called: on a worker, since a small body
// may become a large one.

#include "http_priv.h"

// While the work runs, only the worker touches it.
struct decoding {
    struct http_request *request;
    decoded_fn then;
    struct evbuffer *from;
    struct evbuffer *to;
    size_t from_len;
    size_t max;
    struct kg_error err;
    struct loop_work *work;
};

static void
decoding_free(void *arg)
{
    struct decoding *decoding = arg;
    evbuffer_free(decoding->from);
    evbuffer_free(decoding->to);
    free(decoding);
}

static int
decode(struct evbuffer *from, struct evbuffer *to, size_t max, struct kg_error *err)
{
    char piece[16 << 10];
    struct gunzip *gunzip = gunzip_new();
    size_t n = 0;
    int result;
    while ((result = gunzip_take(gunzip, from, piece, sizeof piece, &n, err)) == 0 && n > 0) {
        evbuffer_add(to, piece, n);
        if (evbuffer_get_length(to) > max) {
            result = kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0,
                                  "the body is too large: at most %zu bytes are allowed here, "
                                  "after it is decoded",
                                  max);
            break;
        }
    }
    if (result == 0 && !gunzip_is_between(gunzip))
        result = gunzip_cut(err);
    gunzip_free(gunzip);
    return result;
}

static void
decoding_run(void *arg)
{
    struct decoding *decoding = arg;
    (void)!decode(decoding->from, decoding->to, decoding->max, &decoding->err);
}

static void
decoding_cancel(void *arg)
{
    const struct decoding *decoding = arg;
    loop_work_cancel(decoding->work, decoding_free);
}

// Meanwhile the token's session may have ended, and there may be another one of its name.
static void
decoding_done(void *arg)
{
    struct decoding *decoding = arg;
    struct http_request *request = decoding->request;
    struct kg_error err = decoding->err;
    http_request_disown(request);
    intake_change(request->conn, decoding->from_len, evbuffer_get_length(decoding->to));
    if (!err.code && evbuffer_add_buffer(request->body, decoding->to))
        abort();
    decoded_fn then = decoding->then;
    decoding_free(decoding);
    if (err.code || http_request_check_token(request, &err) < 0)
        http_reply_error(request, &err);
    else
        then(request);
}

bool
decode_start(struct http_request *request, decoded_fn then)
{
    size_t len = evbuffer_get_length(request->body);
    if (!request->body_is_coded || request->body_is_streamed || len == 0)
        return false;
    struct decoding *decoding = KG_NEW(struct decoding);
    *decoding = (struct decoding){.request = request,
                                  .then = then,
                                  .from = evbuffer_new(),
                                  .to = evbuffer_new(),
                                  .from_len = len,
                                  .max = request->max_body};
    if (!decoding->from || !decoding->to || evbuffer_add_buffer(decoding->from, request->body))
        abort();
    request->body_is_coded = false;
    http_request_own(request, decoding, decoding_cancel);
    decoding->work = loop_work_start(request->server->loop, loop_lane_of(request->owner),
                                     decoding_run, decoding_done, decoding);
    return true;
}
