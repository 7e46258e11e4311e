// SPDX-License-Identifier: Apache-2.0
// POST execute_sync: the same lines, gathered into one answer. What would make the answer too large
// is left out and counted, as for a reader that is too slow.

#include <string.h>

#include "api_priv.h"
#include "metrics.h"

// Lists of JSON text, without their brackets: lines are never made into values, which may take
// eighty times their text, and what a kernel wrote goes out as it wrote it.
struct gathering {
    struct http_request *request;
    struct subscription *subscription;
    size_t max_bytes;
    size_t bytes;
    size_t dropped_bytes;
    int64_t dropped_messages;
    struct buf texts;
    struct buf images;
    struct buf errors;
    struct buf outputs;
    json_t *done;
};

static void
gathering_free(struct gathering *gathering)
{
    subscription_free(gathering->subscription);
    buf_fini(&gathering->texts);
    buf_fini(&gathering->images);
    buf_fini(&gathering->errors);
    buf_fini(&gathering->outputs);
    json_decref(gathering->done);
    free(gathering);
}

static void
append_value(struct buf *list, const char *text, size_t len)
{
    if (list->len > 0)
        buf_append_str(list, ",");
    buf_append(list, text, len);
}

static void
append_member(struct buf *list, const char *line, size_t len, const char *name)
{
    size_t value_len;
    const char *value = json_member(line, len, name, &value_len);
    if (value)
        append_value(list, value, value_len);
}

static bool
is_type(const char *line, size_t len, const char *quoted)
{
    size_t type_len;
    const char *type = json_member(line, len, "type", &type_len);
    return type && type_len == strlen(quoted) && memcmp(type, quoted, type_len) == 0;
}

// Of an error line, which has all of its members.
static void
append_error(struct buf *list, const char *line, size_t len)
{
    size_t error_len, traceback_len;
    const char *error = json_member(line, len, "error", &error_len);
    const char *traceback = json_member(line, len, "traceback", &traceback_len);
    append_value(list, "{\"error\":", strlen("{\"error\":"));
    buf_append(list, error, error_len);
    buf_append_str(list, ",\"traceback\":");
    buf_append(list, traceback, traceback_len);
    buf_append_str(list, "}");
}

static void
append_dropped(struct gathering *gathering)
{
    if (gathering->dropped_messages == 0)
        return;
    metric_add(METRIC_OUTPUT_DROPPED_LINES, (double)gathering->dropped_messages);
    metric_add(METRIC_OUTPUT_DROPPED_BYTES, (double)gathering->dropped_bytes);
    KG_AUTO_BUF line = {0};
    buf_printf(&line, "{\"type\":\"dropped\",\"bytes\":%zu,\"messages\":%lld}",
               gathering->dropped_bytes, (long long)gathering->dropped_messages);
    append_value(&gathering->outputs, line.data, line.len);
}

static void
gather(struct gathering *gathering, const char *line, size_t len)
{
    if (is_type(line, len, "\"done\"")) {
        gathering->done = json_loadb(line, len, 0, NULL);
        append_dropped(gathering);
    } else if (gathering->bytes + len > gathering->max_bytes) {
        gathering->dropped_bytes += len;
        gathering->dropped_messages++;
        return;
    }
    gathering->bytes += len;
    append_value(&gathering->outputs, line, len);
    append_member(&gathering->texts, line, len, "text");
    append_member(&gathering->images, line, len, "image");
    if (is_type(line, len, "\"error\""))
        append_error(&gathering->errors, line, len);
}

static void
append_list(struct buf *answer, const char *name, struct buf *list)
{
    buf_printf(answer, "\"%s\":[", name);
    buf_append(answer, list->data ? list->data : "", list->len);
    buf_append_str(answer, "],");
    buf_fini(list);
}

// The envelope, and in it the lists and what `done` says.
static void
answer(struct gathering *gathering)
{
    KG_AUTO_BUF text = {0};
    json_object_del(gathering->done, "type");
    json_object_del(gathering->done, "seq");
    KG_AUTO_FREE char *done = json_dumps(gathering->done, JSON_COMPACT | JSON_REAL_PRECISION(15));
    buf_append_str(&text, "{\"resultCode\":0,\"resultMsg\":\"success\",\"data\":{");
    append_list(&text, "texts", &gathering->texts);
    append_list(&text, "images", &gathering->images);
    append_list(&text, "errors", &gathering->errors);
    append_list(&text, "outputs", &gathering->outputs);
    buf_append_str(&text, done + 1); // its members, and the brace
    buf_append_str(&text, "}");
    size_t len = text.len;
    http_reply_take(gathering->request, 200, "application/json", buf_take(&text), len);
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
    gathering->subscription = execution_subscribe(execution, 0, on_lines, gathering);
    http_request_on_gone(request, on_client_gone, gathering);
    on_lines(gathering);
}

void
handle_execute_sync(struct http_request *request, void *arg)
{
    execute_start(request, arg, start_gathering);
}
