// SPDX-License-Identifier: Apache-2.0
// Makes JSON strings of the bytes of files, and decodes base64; large ones on a worker.

#include <sodium.h>
#include <string.h>

#include "tools_priv.h"

enum { LARGE_BYTES = 64 << 10 };

struct bytes_work {
    struct job *job; // not for the worker
    struct loop_work *work;
    struct buf in;
    bool decodes;
    bool wants_text;
    void (*on_string)(struct job *job, json_t *string, bool is_text);
    job_fn on_decoded;
    // The result.
    struct buf out;
    json_t *string;
    bool is_text;
    bool failed;
};

static json_t *
base64_string(const struct buf *data)
{
    size_t size = sodium_base64_encoded_len(data->len, sodium_base64_VARIANT_ORIGINAL);
    KG_AUTO_FREE char *text = kg_calloc(1, size);
    sodium_bin2base64(text, size, (const unsigned char *)data->data, data->len,
                      sodium_base64_VARIANT_ORIGINAL);
    return json_stringn_nocheck(text, size - 1);
}

static int
decode(const struct buf *text, struct buf *ret)
{
    size_t n = 0, max = text->len / 4 * 3 + 3;
    char *to = buf_reserve(ret, max);
    if (sodium_base642bin((unsigned char *)to, max, text->data, text->len, " \r\n\t", &n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) < 0)
        return -1;
    to[n] = '\0';
    ret->len += n;
    return 0;
}

static void
bytes_run(void *arg)
{
    struct bytes_work *bytes = arg;
    const struct buf *in = &bytes->in;
    if (bytes->decodes) {
        bytes->failed = decode(in, &bytes->out) < 0;
        return;
    }
    bytes->is_text = bytes->wants_text && text_is_readable(in->data, in->len);
    bytes->string = bytes->is_text ? json_stringn_nocheck(in->data, in->len) : base64_string(in);
}

static void
bytes_free(void *arg)
{
    struct bytes_work *bytes = arg;
    buf_fini(&bytes->in);
    buf_fini(&bytes->out);
    json_decref(bytes->string);
    free(bytes);
}

static void
bytes_cancel(void *arg)
{
    struct bytes_work *bytes = arg;
    loop_work_cancel(bytes->work, bytes_free);
}

static void
bytes_done(void *arg)
{
    struct bytes_work *bytes = arg;
    struct job *job = bytes->job;
    struct kg_error err = {0};
    job->work = NULL;
    if (bytes->failed) {
        kg_error_set(&err, KG_INVALID_CONTENT, 0, "content: not valid base64");
        job_fail(job, &err);
    } else if (bytes->decodes) {
        buf_fini(&job->file.data);
        job->file.data = bytes->out;
        bytes->out = (struct buf){0};
        bytes->on_decoded(job);
    } else {
        bytes->on_string(job, KG_STEAL(bytes->string), bytes->is_text);
    }
    bytes_free(bytes);
}

// Takes `bytes`.
static void
bytes_start(struct job *job, struct bytes_work *bytes, const void *data, size_t len)
{
    bytes->job = job;
    buf_append(&bytes->in, data, len);
    if (len <= LARGE_BYTES) {
        bytes_run(bytes);
        bytes_done(bytes);
        return;
    }
    job->work = bytes;
    job->cancel_work = bytes_cancel;
    bytes->work =
        loop_work_start(job->tools->settings.loop, loop_lane_of(mcp_call_owner(job->call)),
                        bytes_run, bytes_done, bytes);
}

void
job_bytes_as_string(struct job *job, const void *data, size_t len, bool wants_text,
                    void (*fn)(struct job *job, json_t *string, bool is_text))
{
    struct bytes_work *bytes = KG_NEW(struct bytes_work);
    bytes->wants_text = wants_text;
    bytes->on_string = fn;
    bytes_start(job, bytes, data, len);
}

void
job_decode_base64(struct job *job, const char *text, job_fn fn)
{
    struct bytes_work *bytes = KG_NEW(struct bytes_work);
    bytes->decodes = true;
    bytes->on_decoded = fn;
    bytes_start(job, bytes, text, strlen(text));
}
