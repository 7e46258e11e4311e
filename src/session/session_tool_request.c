// SPDX-License-Identifier: Apache-2.0
// How a call of code's ends: with an answer on its connection, or with that of the connection.

#include "session_tool_request_priv.h"

#include <stdio.h>
#include <string.h>

#include "session_files.h"
#include "sessions_priv.h"
#include "tool_link.h"
#include "tool_results.h"
#include "upstreams.h"

enum { FILE_NAME_MAX = 40 }; // of a tool, in a file's name

#define RESULTS_FOLDER "tool-results"

// ---- Life -----------------------------------------------------------------------------------

struct tool_request *
tool_request_new(struct tool_caller *caller, int64_t id, const char *name)
{
    struct session *session = caller->session;
    struct tool_request *request = KG_NEW(struct tool_request);
    request->caller = caller;
    request->id = id;
    request->name = kg_strdup(name);
    request->came_ms = clock_mono_ms();
    budget_hold_start(&request->hold, &session->sessions->tool_bytes, session->owner);
    LIST_INSERT_HEAD(&caller->requests, request, entry);
    return request;
}

void
tool_request_leave_queue(struct tool_request *request)
{
    struct session *session = request->caller->session;
    TAILQ_REMOVE(&session->tools_queued, request, queued);
    session->n_tools_queued--;
    budget_hold_set(&request->hold, 0);
    free(KG_STEAL(request->arguments));
}

void
tool_request_free(struct tool_request *request)
{
    LIST_REMOVE(request, entry);
    if (request->arguments)
        tool_request_leave_queue(request);
    tool_call_cancel(KG_STEAL(request->call));
    upstream_call_cancel(request->server_call);
    request->caller->session->n_server_calls -= request->is_server_call;
    if (request->op)
        session_file_op_cancel(request->op);
    budget_hold_end(&request->hold);
    free(request->text);
    free(request->path);
    free(request->name);
    free(request);
}

// ---- Answers --------------------------------------------------------------------------------

void
tool_request_answer(struct tool_request *request, json_t *answer)
{
    struct tool_link *link = request->caller->link;
    int64_t id = request->id;
    tool_request_free(request);
    tool_link_answer(link, id, answer);
}

void
tool_request_refuse(struct tool_request *request, const struct kg_error *err)
{
    struct tool_link *link = request->caller->link;
    int64_t id = request->id;
    tool_request_free(request);
    tool_link_refuse(link, id, err);
}

static void
on_result_written(const struct session_file *file, bool created, const struct kg_error *err,
                  void *arg)
{
    struct tool_request *request = arg;
    (void)file;
    (void)created;
    request->op = NULL;
    if (err) {
        struct kg_error why;
        (void)kg_error_set(&why, err->code, 0,
                           "the result of %.60s is too large for a value, and could not be written "
                           "to a file: %s",
                           request->name, err->message);
        tool_request_refuse(request, &why);
        return;
    }
    KG_AUTO_FREE char *path = kg_asprintf("/mnt/data/%s", request->path);
    tool_request_answer(request, json_pack("{s:s}", "file", path));
}

// A result that is too large for a value becomes a file.
static void
write_result(struct tool_request *request, const struct tool_result *result)
{
    struct kg_error err = {0};
    char name[FILE_NAME_MAX + 1];
    char random[9] = "";
    snprintf(name, sizeof name, "%s", request->name);
    for (char *c = name; *c; c++) {
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *c))
            *c = '_';
    }
    id_random(random, sizeof random - 1);
    request->path = kg_asprintf(RESULTS_FOLDER "/%s-%s.json", name, random);
    if (!budget_hold_has_room(&request->hold, result->len)) {
        kg_error_set(&err, KG_SESSION_BUSY, 0, "results of tools take too much memory already");
        on_result_written(NULL, false, &err, request);
        return;
    }
    budget_hold_set(&request->hold, result->len);
    request->text = kg_strndup(result->json, result->len);
    const struct session_file_source source = {.data = request->text, .len = result->len};
    request->op = session_file_put(request->caller->session, request->path, &source, false,
                                   on_result_written, request, &err);
    if (!request->op)
        on_result_written(NULL, false, &err, request);
}

void
tool_request_on_result(const struct tool_result *result, void *arg)
{
    struct tool_request *request = arg;
    struct session *session = request->caller->session;
    struct tool_link *link = request->caller->link;
    int64_t id = request->id;
    request->call = NULL;
    if (session->n_tools_queued > 0)
        loop_timer_start(session->tools_pace, 0); // there is room for another one
    if (!result->json) {
        tool_request_answer(request,
                            json_pack("{s:s, s:s}", "error", result->error, "code", result->code));
    } else if (result->len > session->sessions->settings.max_tool_result_bytes) {
        write_result(request, result);
    } else {
        tool_request_free(request);
        tool_link_give(link, id, result->json, result->len);
    }
}
