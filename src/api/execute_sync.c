// SPDX-License-Identifier: Apache-2.0
// POST execute_sync: the same lines, gathered into one answer. What would make the answer too large
// is left out and counted, as for a reader that is too slow.

#include <string.h>

#include "api_priv.h"
#include "metrics.h"

// What a line costs as JSON values, beside its text.
enum { LINE_OVERHEAD = 512 };

struct gathering {
    struct http_request *request;
    struct subscription *subscription;
    size_t max_bytes;
    size_t bytes;
    size_t dropped_bytes;
    int64_t dropped_messages;
    json_t *texts;
    json_t *images;
    json_t *errors;
    json_t *outputs;
    json_t *done;
};

static void
gathering_free(struct gathering *gathering)
{
    subscription_free(gathering->subscription);
    json_decref(gathering->texts);
    json_decref(gathering->images);
    json_decref(gathering->errors);
    json_decref(gathering->outputs);
    json_decref(gathering->done);
    free(gathering);
}

static void
append_member(json_t *list, const json_t *line, const char *name)
{
    json_t *value = json_object_get(line, name);
    if (value)
        json_array_append(list, value);
}

static void
gather(struct gathering *gathering, const char *text, size_t len)
{
    json_auto_t *line = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    const char *type = json_string_value(json_object_get(line, "type"));
    if (!type)
        return;
    bool is_done = strcmp(type, "done") == 0;
    if (is_done)
        gathering->done = json_incref(line);
    else if (gathering->bytes + len + LINE_OVERHEAD > gathering->max_bytes) {
        gathering->dropped_bytes += len;
        gathering->dropped_messages++;
        return;
    }
    gathering->bytes += len + LINE_OVERHEAD;
    json_array_append(gathering->outputs, line);
    append_member(gathering->texts, line, "text");
    append_member(gathering->images, line, "image");
    if (strcmp(type, "error") == 0)
        json_array_append_new(gathering->errors,
                              json_pack("{s:O, s:O}", "error", json_object_get(line, "error"),
                                        "traceback", json_object_get(line, "traceback")));
}

static void
answer(struct gathering *gathering)
{
    if (gathering->dropped_messages > 0) {
        metric_add(METRIC_OUTPUT_DROPPED_LINES, (double)gathering->dropped_messages);
        metric_add(METRIC_OUTPUT_DROPPED_BYTES, (double)gathering->dropped_bytes);
        json_t *dropped = json_pack("{s:s, s:I, s:I}", "type", "dropped", "bytes",
                                    (json_int_t)gathering->dropped_bytes, "messages",
                                    (json_int_t)gathering->dropped_messages);
        size_t last = json_array_size(gathering->outputs) - 1;
        json_array_insert_new(gathering->outputs, last, dropped);
    }
    json_t *data =
        json_pack("{s:O, s:O, s:O, s:O}", "texts", gathering->texts, "images", gathering->images,
                  "errors", gathering->errors, "outputs", gathering->outputs);
    json_t *done = json_copy(gathering->done);
    json_object_del(done, "type");
    json_object_del(done, "seq");
    json_object_update(data, done);
    json_decref(done);
    reply_envelope(gathering->request, data);
}

static void
on_lines(void *arg)
{
    struct gathering *gathering = arg;
    size_t len;
    for (const char *line; (line = subscription_next(gathering->subscription, &len));)
        gather(gathering, line, len);
    if (!subscription_finished(gathering->subscription))
        return;
    answer(gathering);
    gathering_free(gathering);
}

static void
on_client_gone(void *arg)
{
    struct gathering *gathering = arg;
    subscription_abandon(KG_STEAL(gathering->subscription));
    http_request_abandon(gathering->request);
    gathering_free(gathering);
}

static void
start_gathering(struct http_request *request, struct api_context *context,
                struct execution *execution)
{
    struct gathering *gathering = KG_NEW(struct gathering);
    gathering->request = request;
    gathering->max_bytes = context->max_output_bytes;
    gathering->texts = json_array();
    gathering->images = json_array();
    gathering->errors = json_array();
    gathering->outputs = json_array();
    gathering->subscription = execution_subscribe(execution, 0, on_lines, gathering);
    http_request_on_gone(request, on_client_gone, gathering);
    on_lines(gathering);
}

void
handle_execute_sync(struct http_request *request, void *arg)
{
    execute_start(request, arg, start_gathering);
}
