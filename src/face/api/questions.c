// SPDX-License-Identifier: Apache-2.0
// POST sessions/{id}/complete and …/inspect: what a kernel knows of code that is being written.

#include "api_priv.h"
#include "session.h"
#include "session_kernels.h"

enum { ANSWER_MS = 5000, MATCHES_MAX = 500, TEXT_MAX = 256 << 10 };

struct question {
    struct http_request *request;
    json_t *(*answer)(const json_t *content);
    struct kernel_question *asked;
};

static void
question_free(void *arg)
{
    struct question *self = arg;
    kernel_question_cancel(self->asked);
    free(self);
}

// What is not as the protocol says it ("Completion") is left out.
static json_t *
answer_of_completion(const json_t *content)
{
    json_t *matches = json_array(), *types = json_array();
    const json_t *metadata = json_object_get(content, "metadata");
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(content, "matches"), i, each) {
        if (json_is_string(each) && json_array_size(matches) < MATCHES_MAX)
            json_array_append(matches, each);
    }
    json_array_foreach(json_object_get(metadata, "_jupyter_types_experimental"), i, each) {
        const json_t *text = json_object_get(each, "text"), *type = json_object_get(each, "type");
        if (json_is_string(text) && json_is_string(type) && json_array_size(types) < MATCHES_MAX)
            json_array_append_new(types, json_pack("{s:O, s:O}", "text", text, "type", type));
    }
    return json_pack("{s:o, s:o, s:I, s:I}", "matches", matches, "types", types, "cursor_start",
                     (json_int_t)json_integer_value(json_object_get(content, "cursor_start")),
                     "cursor_end",
                     (json_int_t)json_integer_value(json_object_get(content, "cursor_end")));
}

static json_t *
answer_of_inspection(const json_t *content)
{
    json_t *data = json_object();
    const char *kind;
    json_t *value;
    json_object_foreach(json_object_get(content, "data"), kind, value) {
        if (json_is_string(value) && json_string_length(value) <= TEXT_MAX)
            json_object_set(data, kind, value);
    }
    return json_pack("{s:b, s:o}", "found", json_is_true(json_object_get(content, "found")), "data",
                     data);
}

static void
question_on_answer(const json_t *content, const struct kg_error *err, void *arg)
{
    struct question *self = arg;
    self->asked = NULL;
    if (err)
        http_reply_error(self->request, err);
    else
        http_reply_json(self->request, 200, self->answer(content));
}

static void
ask(struct http_request *request, const struct api_context *context, const char *msg_type,
    json_t *(*answer)(const json_t *content))
{
    struct kg_error err = {0};
    struct question_body body;
    struct session *session = api_find_session(request, context);
    if (!session)
        return;
    json_auto_t *root = http_request_json(request, &err);
    struct kernel *kernel = NULL;
    if (root && question_body_parse(context, root, &body, &err) == 0)
        kernel = api_kernel_of(session, body.spec, body.branch, &err);
    if (!kernel) {
        http_reply_error(request, &err);
        return;
    }
    struct question *self = KG_NEW(struct question);
    self->request = request;
    self->answer = answer;
    http_request_own(request, self, question_free);
    json_t *content =
        json_pack("{s:s, s:I, s:I}", "code", body.code, "cursor_pos", (json_int_t)body.cursor_pos,
                  "detail_level", (json_int_t)body.detail_level);
    self->asked = kernel_ask(kernel, msg_type, content, ANSWER_MS, question_on_answer, self, &err);
    if (self->asked)
        session_touch(session);
    else
        http_reply_error(request, &err);
}

void
handle_session_complete(struct http_request *request, void *arg)
{
    ask(request, arg, "complete_request", answer_of_completion);
}

void
handle_session_inspect(struct http_request *request, void *arg)
{
    ask(request, arg, "inspect_request", answer_of_inspection);
}
