// SPDX-License-Identifier: Apache-2.0
// POST execute_sync, and POST executions/{id}/tool_results that waits: the lines of an execution as
// one answer, when it has ended, or when its calls of tools wait and it has printed nothing for
// QUIET_MS, or goes on printing for LATE_MS. Lines beyond the size limit are dropped and counted,
// as for a slow reader. Lines are held in the log until the answer is written, which happens on a
// worker if it is large.

#include <string.h>

#include "api_priv.h"
#include "metrics.h"

enum { LARGE_ANSWER = 64 << 10, QUIET_MS = 50, LATE_MS = 1000 };

// A line of the log, or (`held` NULL) a copy.
struct gathered_line {
    char *text;
    size_t len;
    void *held;
};

// Lists of JSON text, without their brackets. Lines are not parsed into values, which could take
// eighty times the memory, so they reach the client as the kernel wrote them.
struct answer {
    struct buf texts;
    struct buf images;
    struct buf errors;
    struct buf outputs;
    struct buf text; // the answer
};

// While `work` runs, only the worker touches the lines and the answer.
struct gathering {
    struct http_request *request;
    struct loop *loop;
    struct subscription *subscription;
    struct execution *execution; // the subscription's
    struct loop_timer *quiet;    // since the last line; runs while calls may wait
    struct loop_timer *late;     // the same, since a line that came before
    json_t *calls;               // that wait; NULL: the last line is `done`
    struct gathered_line *lines;
    size_t n_lines;
    size_t max_bytes;
    size_t bytes;
    size_t dropped_bytes;
    int64_t dropped_messages;
    struct answer answer;
    struct loop_work *work;
};

static void
gathering_free(void *arg)
{
    struct gathering *gathering = arg;
    loop_timer_free(gathering->quiet);
    loop_timer_free(gathering->late);
    json_decref(gathering->calls);
    for (size_t i = 0; i < gathering->n_lines; i++) {
        struct gathered_line *line = &gathering->lines[i];
        if (line->held)
            subscription_release(line->held);
        else
            free(line->text);
    }
    free(gathering->lines);
    buf_fini(&gathering->answer.texts);
    buf_fini(&gathering->answer.images);
    buf_fini(&gathering->answer.errors);
    buf_fini(&gathering->answer.outputs);
    buf_fini(&gathering->answer.text);
    free(gathering);
}

// ---- The answer, on a worker where it is large ----------------------------------------------

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

// `line` is an error line, which always has these members.
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
    KG_AUTO_BUF line = {0};
    buf_printf(&line, "{\"type\":\"dropped\",\"bytes\":%zu,\"messages\":%lld}",
               gathering->dropped_bytes, (long long)gathering->dropped_messages);
    append_value(&gathering->answer.outputs, line.data, line.len);
}

static void
append_line(struct answer *answer, const char *line, size_t len)
{
    append_value(&answer->outputs, line, len);
    append_member(&answer->texts, line, len, "text");
    append_member(&answer->images, line, len, "image");
    if (is_type(line, len, "\"error\""))
        append_error(&answer->errors, line, len);
}

static void
append_list(struct buf *answer, const char *name, struct buf *list)
{
    buf_printf(answer, "\"%s\":[", name);
    buf_append(answer, list->data ? list->data : "", list->len);
    buf_append_str(answer, "],");
    buf_fini(list);
}

// Writes the envelope with the lists and the members of `end`, the last line or what takes its
// place.
static void
write_envelope(struct answer *answer, const json_t *end)
{
    KG_AUTO_FREE char *members = json_dumps(end, JSON_COMPACT | JSON_REAL_PRECISION(15));
    struct buf *text = &answer->text;
    buf_append_str(text, "{\"resultCode\":0,\"resultMsg\":\"success\",\"data\":{");
    append_list(text, "texts", &answer->texts);
    append_list(text, "images", &answer->images);
    append_list(text, "errors", &answer->errors);
    append_list(text, "outputs", &answer->outputs);
    buf_append_str(text, members + 1); // without its `{`, with its `}`
    buf_append_str(text, "}");
}

static json_t *
parse_done(const struct gathering *gathering)
{
    const struct gathered_line *last = &gathering->lines[gathering->n_lines - 1];
    json_t *done = json_loadb(last->text, last->len, 0, NULL);
    json_object_del(done, "type");
    json_object_del(done, "seq");
    return done;
}

static void
gathering_write(void *arg)
{
    struct gathering *gathering = arg;
    for (size_t i = 0; i < gathering->n_lines; i++) {
        const struct gathered_line *line = &gathering->lines[i];
        if (i == gathering->n_lines - 1)
            append_dropped(gathering);
        append_line(&gathering->answer, line->text, line->len);
    }
    json_auto_t *end = gathering->calls ? json_incref(gathering->calls) : parse_done(gathering);
    write_envelope(&gathering->answer, end);
}

// ---- The lines ------------------------------------------------------------------------------

static void
gathering_reply(void *arg)
{
    struct gathering *gathering = arg;
    struct http_request *request = gathering->request;
    size_t len = gathering->answer.text.len;
    gathering->work = NULL;
    subscription_free(KG_STEAL(gathering->subscription));
    if (gathering->dropped_messages > 0) {
        metric_add(METRIC_OUTPUT_DROPPED_LINES, (double)gathering->dropped_messages);
        metric_add(METRIC_OUTPUT_DROPPED_BYTES, (double)gathering->dropped_bytes);
    }
    http_reply_take(request, 200, "application/json", buf_take(&gathering->answer.text), len);
}

static void
gathering_keep(struct gathering *gathering, const char *text, size_t len)
{
    enum { GROW = 256 };
    if (gathering->n_lines % GROW == 0)
        gathering->lines =
            kg_realloc(gathering->lines, (gathering->n_lines + GROW) * sizeof gathering->lines[0]);
    void *held = subscription_hold(gathering->subscription);
    gathering->lines[gathering->n_lines++] = (struct gathered_line){
        .text = held ? (char *)(uintptr_t)text : kg_strndup(text, len),
        .len = len,
        .held = held,
    };
    gathering->bytes += len;
}

// There are no more lines for this answer.
static void
gathering_finish(struct gathering *gathering)
{
    execution_set_gathered_seq(gathering->execution, subscription_seq(gathering->subscription));
    if (gathering->bytes > LARGE_ANSWER) {
        gathering->work =
            loop_work_start(gathering->loop, loop_lane_of(http_request_owner(gathering->request)),
                            gathering_write, gathering_reply, gathering);
        return;
    }
    gathering_write(gathering);
    gathering_reply(gathering);
}

// Answers if calls wait.
static void
gathering_on_pause(void *arg)
{
    struct gathering *gathering = arg;
    json_auto_t *calls = execution_waiting_calls(gathering->execution);
    size_t i;
    json_t *call;
    if (json_array_size(calls) == 0 || gathering->work || gathering->calls)
        return;
    json_array_foreach(calls, i, call)
        json_object_del(call, "seq");
    gathering->calls = json_pack("{s:s, s:s, s:s, s:O}", "status", "tool_calls", "execution_id",
                                 execution_id(gathering->execution), "session_id",
                                 execution_session_id(gathering->execution), "tool_calls", calls);
    gathering_finish(gathering);
}

static void
gathering_watch_calls(struct gathering *gathering)
{
    loop_timer_start(gathering->quiet, QUIET_MS);
    if (!loop_timer_active(gathering->late))
        loop_timer_start(gathering->late, LATE_MS);
}

static void
gathering_on_lines(void *arg)
{
    struct gathering *gathering = arg;
    size_t len;
    if (gathering->work || gathering->calls)
        return; // it is being answered
    for (const char *line; (line = subscription_next(gathering->subscription, &len));) {
        if (gathering->bytes + len > gathering->max_bytes && !is_type(line, len, "\"done\"")) {
            gathering->dropped_bytes += len;
            gathering->dropped_messages++;
        } else {
            gathering_keep(gathering, line, len);
        }
    }
    if (subscription_finished(gathering->subscription))
        gathering_finish(gathering);
    else if (execution_tools(gathering->execution))
        gathering_watch_calls(gathering);
}

// If there is no answer yet, the client has left.
static void
gathering_end(void *arg)
{
    struct gathering *gathering = arg;
    if (gathering->subscription)
        subscription_abandon(KG_STEAL(gathering->subscription));
    if (gathering->work)
        loop_work_cancel(gathering->work, gathering_free);
    else
        gathering_free(gathering);
}

void
execution_gather_start(struct http_request *request, struct api_context *context,
                       struct execution *execution)
{
    struct gathering *gathering = KG_NEW(struct gathering);
    int64_t after = execution_gathered_seq(execution);
    gathering->request = request;
    gathering->execution = execution;
    gathering->quiet = loop_timer_new(context->loop, gathering_on_pause, gathering);
    gathering->late = loop_timer_new(context->loop, gathering_on_pause, gathering);
    gathering->loop = context->loop;
    gathering->max_bytes = context->face->max_output_bytes;
    gathering->subscription = execution_subscribe(execution, after, gathering_on_lines, gathering);
    http_request_own(request, gathering, gathering_end);
    gathering_on_lines(gathering);
}

void
handle_execute_sync(struct http_request *request, void *arg)
{
    execute_start(request, arg, execution_gather_start);
}
