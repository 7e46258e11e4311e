// SPDX-License-Identifier: Apache-2.0
// GET executions/{id}, which joins or replays an execution, POST executions/{id}/interrupt and
// …/input, and GET sessions/{id}/executions, which lists them.

#include <errno.h>

#include "api_priv.h"
#include "session.h"

static struct execution *
find(struct http_request *request, const struct api_context *context, struct kg_error *err)
{
    return executions_find(context->face->executions, http_request_param(request, "id"),
                           http_request_owner(request), err);
}

static int
parse_after(const char *text, int64_t *ret, struct kg_error *err)
{
    *ret = 0;
    if (!text)
        return 0;
    char *end = NULL;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || *ret < 0)
        return kg_error_set(err, KG_INVALID, 0, "after must be a line's seq, or 0");
    return 0;
}

void
handle_execution_join(struct http_request *request, void *arg)
{
    struct api_context *context = arg;
    struct kg_error err = {0};
    int64_t after;
    struct execution *execution = find(request, context, &err);
    if (!execution || parse_after(http_request_query(request, "after"), &after, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    http_reply_header(request, "X-Execution-Id", execution_id(execution));
    http_reply_header(request, "X-Session-Id", execution_session_id(execution));
    execution_stream_start(request, context, execution, after);
}

void
handle_execution_interrupt(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct execution *execution = find(request, arg, &err);
    if (!execution) {
        http_reply_error(request, &err);
        return;
    }
    bool done = execution_state(execution) == EXECUTION_DONE;
    bool interrupted = execution_interrupt(execution);
    reply_message(request, json_pack("{s:b}", "interrupted", interrupted), "Execution %s %s",
                  execution_id(execution),
                  interrupted ? "interrupted"
                  : done      ? "has ended already"
                              : "cannot be interrupted");
}

void
handle_execution_input(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    const char *value;
    json_auto_t *body = http_request_json(request, &err);
    struct execution *execution = body ? find(request, arg, &err) : NULL;
    if (!execution || execution_input_body_parse(body, &value, &err) < 0 ||
        execution_give_input(execution, value, &err) < 0) {
        http_reply_error(request, &err);
        return;
    }
    reply_message(request, NULL, "Execution %s got its input", execution_id(execution));
}

void
handle_execution_list(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    const struct session *session = api_find_session(request, context);
    if (session)
        http_reply_json(request, 200,
                        executions_describe(context->face->executions, http_request_owner(request),
                                            session_id(session)));
}
