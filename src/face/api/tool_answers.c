// SPDX-License-Identifier: Apache-2.0
// POST executions/{id}/tool_results. The body may be large: a worker reads it, and makes the texts
// that the code gets.

#include "api_priv.h"
#include "tool_results.h"

// While a worker reads the body, only the worker touches this.
struct answers {
    struct api_context *context;
    struct tool_results *results; // NULL: the body was refused with `err`
    bool wait;
    struct kg_error err;
};

static void
answers_free(void *arg)
{
    struct answers *answers = arg;
    tool_results_free(answers->results);
    free(answers);
}

static void
answers_read(const char *text, size_t len, void *arg)
{
    struct answers *answers = arg;
    struct tool_results_body body;
    json_auto_t *root = http_json_parse(text, len, &answers->err);
    if (!root || tool_results_body_parse(root, &body, &answers->err) < 0)
        return;
    answers->wait = body.wait;
    answers->results = tool_results_new(body.results, &answers->err);
}

// Meanwhile the token's session may have ended, and there may be another one of its name.
static void
answers_give(struct http_request *request, void *arg)
{
    struct answers *answers = arg;
    struct api_context *context = answers->context;
    struct kg_error err = answers->err;
    KG_AUTO(execution) execution = NULL;
    if (answers->results && http_request_check_token(request, &err) == 0)
        execution = executions_find(context->face->executions, http_request_param(request, "id"),
                                    http_request_owner(request), &err);
    if (execution)
        execution_ref(execution);
    size_t n = answers->results ? tool_results_count(answers->results) : 0;
    bool wait = answers->wait;
    bool given = execution && execution_give_results(execution, answers->results, &err) == 0;
    answers_free(answers);
    if (!given)
        http_reply_error(request, &err);
    else if (wait)
        execution_gather_start(request, context, execution);
    else
        reply_message(request, NULL, "Execution %s got %zu results", execution_id(execution), n);
}

void
handle_tool_results(struct http_request *request, void *arg)
{
    static const struct http_body_reader reader = {answers_read, answers_give, answers_free};
    struct answers *answers = KG_NEW(struct answers);
    answers->context = arg;
    http_request_read_body(request, &reader, answers);
}
