// SPDX-License-Identifier: Apache-2.0
// Requests of code, each answered by one call of the agent after the other, with the lines that
// have come meanwhile.

#include "session_requests.h"

#include <string.h>

#include "session_packages.h"
#include "sessions_priv.h"

enum {
    // Twice what an agent passes on at a time: it may hear the last answer of a request, and pass
    // on
    // the next one, before the end of that answer is known here.
    REQUESTS_MAX = 8,
    UNSENT_MAX = 64 * 1024, // bytes of text that wait for one request
};

struct code_request {
    LIST_ENTRY(code_request) link;
    struct session *session;
    int64_t id;
    struct session_install *install; // NULL: it has ended
    json_t *lines;                   // that wait to be sent
    size_t n_bytes;                  // of their text
    bool last;                       // no more lines come
    bool last_sent;
    struct sandbox_call *call; // an answer under way, or NULL
};

static void
code_request_free(struct code_request *request)
{
    LIST_REMOVE(request, link);
    session_install_leave(request->install);
    sandbox_call_cancel(request->call);
    json_decref(request->lines);
    free(request);
}

// ---- Answers --------------------------------------------------------------------------------

static void code_request_send(struct code_request *request);

static void
code_request_on_sent(const json_t *result, const struct kg_error *err, void *arg)
{
    struct code_request *request = arg;
    request->call = NULL;
    bool gone = err || json_is_true(json_object_get(result, "gone"));
    if (gone || request->last_sent)
        code_request_free(request);
    else
        code_request_send(request);
}

// Sends what there is, unless an answer is under way. The request may be freed.
static void
code_request_send(struct code_request *request)
{
    struct kg_error err;
    if (request->call || (json_array_size(request->lines) == 0 && !request->last))
        return;
    request->call = sandbox_answer(request->session->sandbox, request->id, request->lines,
                                   request->last, code_request_on_sent, request, &err);
    if (!request->call) {
        code_request_free(request);
        return;
    }
    json_array_clear(request->lines);
    request->n_bytes = 0;
    request->last_sent = request->last;
}

// Takes the reference of the last line.
static void
code_request_finish(struct code_request *request, json_t *line)
{
    request->install = NULL;
    request->last = true;
    json_array_append_new(request->lines, line);
    code_request_send(request);
}

static void
code_request_fail(struct code_request *request, const struct kg_error *err)
{
    code_request_finish(request, json_pack("{s:s, s:s, s:s}", "type", "error", "message",
                                           err->message, "code", kg_code_info(err->code)->name));
}

// ---- Packages -------------------------------------------------------------------------------

// pip's words are for people: what an agent does not take in time is left out.
static void
code_request_on_line(const json_t *line, void *arg)
{
    struct code_request *request = arg;
    size_t len = json_string_length(json_object_get(line, "text"));
    if (request->n_bytes > 0 && request->n_bytes + len > UNSENT_MAX)
        return;
    request->n_bytes += len;
    json_array_append_new(request->lines, json_copy((json_t *)(uintptr_t)line));
    code_request_send(request);
}

static void
code_request_on_installed(const json_t *result, const struct kg_error *err, void *arg)
{
    struct code_request *request = arg;
    if (!result) {
        code_request_fail(request, err);
        return;
    }
    json_t *line = json_copy((json_t *)(uintptr_t)result);
    json_object_set_new(line, "type", json_string("result"));
    code_request_finish(request, line);
}

bool
session_is_attended(const struct session *session)
{
    for (size_t i = 0; i < session->n_kernels; i++) {
        if (kernel_is_busy(session->kernels[i]->kernel))
            return true;
    }
    return !TAILQ_EMPTY(&session->clients) || session_commands_attended(session);
}

// Says how else packages are to be had.
static int
refuse_packages(const struct session *session, const char *why, struct kg_error *err)
{
    return kg_error_set(err, KG_INVALID, 0,
                        "%s. Packages are installed by POST /api/v1/sessions/%s/packages or the "
                        "tool install_packages (MCP); or ask the administrator",
                        why, session->id);
}

static int
start_install(struct code_request *request, const json_t *params, struct kg_error *err)
{
    static const struct session_install_events events = {.on_line = code_request_on_line,
                                                         .on_end = code_request_on_installed};
    struct session *session = request->session;
    if (!session->sessions->settings.install_from_code)
        return refuse_packages(session, "code may not install packages (install-from-code)", err);
    if (!session_is_attended(session))
        return kg_error_set(err, KG_INVALID, 0,
                            "packages are installed while a cell or a command of the session runs, "
                            "and none does");
    if (json_object_size(params) != 1 || !json_object_get(params, "packages"))
        return kg_error_set(err, KG_INVALID, 0, "the parameters must be {\"packages\": [...]}");
    request->install =
        session_install_start(session, json_object_get(params, "packages"), &events, request, err);
    return request->install ? 0 : -1;
}

// ---- Requests -------------------------------------------------------------------------------

static struct code_request *
code_request_find(const struct session *session, int64_t id)
{
    struct code_request *request;
    LIST_FOREACH(request, &session->requests, link) {
        if (request->id == id)
            return request;
    }
    return NULL;
}

// The agent keeps a place for it until it has an answer.
static void
code_request_withdraw(struct code_request *request)
{
    if (!request || request->last)
        return;
    session_install_leave(KG_STEAL(request->install));
    json_array_clear(request->lines);
    request->last = true;
    code_request_send(request);
}

static struct code_request *
code_request_new(struct session *session, int64_t id)
{
    struct code_request *request = KG_NEW(struct code_request);
    request->session = session;
    request->id = id;
    request->lines = json_array();
    LIST_INSERT_HEAD(&session->requests, request, link);
    return request;
}

bool
session_requests_take(struct session *session, const struct sandbox_request *asked)
{
    struct kg_error err = {0};
    const struct code_request *other;
    size_t n = 0;
    if (!asked->method) {
        code_request_withdraw(code_request_find(session, asked->id));
        return true;
    }
    LIST_FOREACH(other, &session->requests, link)
        n++;
    if (n >= REQUESTS_MAX || code_request_find(session, asked->id))
        return false;
    struct code_request *request = code_request_new(session, asked->id);
    int result = strcmp(asked->method, "packages") == 0
                     ? start_install(request, asked->params, &err)
                     : kg_error_set(&err, KG_INVALID, 0, "unknown method %.40s", asked->method);
    if (result < 0)
        code_request_fail(request, &err);
    return true;
}

void
session_requests_end(struct session *session)
{
    for (struct code_request *request; (request = LIST_FIRST(&session->requests));)
        code_request_free(request);
}
