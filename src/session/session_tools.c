// SPDX-License-Identifier: Apache-2.0
// Each connection has its requests under way. All calls of a session are paced together: code that
// calls faster waits in its own writes.

#include "session_tools.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "session_files.h"
#include "session_requests.h"
#include "sessions_priv.h"
#include "tool_link.h"
#include "tool_list.h"
#include "upstreams.h"

enum {
    CALLERS_MAX = 96, // connections of a session: more than its agent joins
    CALLS_PER_S = 1000,
    CALLS_AT_ONCE = 256,   // after a while without any
    SERVER_CALLS_MAX = 32, // of a session, under way
    TOOLS_OF_A_CALL = 4,   // listing so many costs as much as a call
    PACE_MS = 10,
    BYTES_OF_ALL = 128 << 20,
    FILE_NAME_MAX = 40, // of a tool, in a file's
};

#define RESULTS_FOLDER "tool-results"

struct tool_caller {
    LIST_ENTRY(tool_caller) entry;
    struct session *session;
    struct tool_link *link;
    LIST_HEAD(, tool_request) requests;
};

struct tool_request {
    LIST_ENTRY(tool_request) entry;
    struct tool_caller *caller;
    int64_t id;
    char *name;                        // of the tool
    struct tool_call *call;            // while it waits; NULL: also if no execution makes it
    struct upstream_call *server_call; // the same, of a server's tool
    bool is_server_call;
    char *text; // its result, while it is written to a file
    char *path;
    struct session_file_op *op;
};

// ---- Life -----------------------------------------------------------------------------------

static void
tool_request_free(struct tool_request *request)
{
    LIST_REMOVE(request, entry);
    tool_call_cancel(request->call);
    upstream_call_cancel(request->server_call);
    request->caller->session->n_server_calls -= request->is_server_call;
    if (request->op)
        session_file_op_cancel(request->op);
    free(request->text);
    free(request->path);
    free(request->name);
    free(request);
}

// Without its link.
static void
tool_caller_free(struct tool_caller *caller)
{
    for (struct tool_request *request; (request = LIST_FIRST(&caller->requests));)
        tool_request_free(request);
    LIST_REMOVE(caller, entry);
    caller->session->n_tool_callers--;
    free(caller);
}

// Takes `answer`.
static void
tool_request_answer(struct tool_request *request, json_t *answer)
{
    struct tool_link *link = request->caller->link;
    int64_t id = request->id;
    tool_request_free(request);
    tool_link_answer(link, id, answer);
}

// ---- The pace -------------------------------------------------------------------------------

static void
refill(struct session *session)
{
    int64_t now_ms = clock_mono_ms();
    session->tool_calls_left += (double)(now_ms - session->tool_calls_ms) * CALLS_PER_S / 1000;
    if (session->tool_calls_left > CALLS_AT_ONCE)
        session->tool_calls_left = CALLS_AT_ONCE;
    session->tool_calls_ms = now_ms;
}

// The execution whose tools the code may call; NULL: none has any.
static struct execution *
find_execution(const struct session *session, const char *name)
{
    struct execution *found = NULL;
    for (size_t i = 0; i < session->n_kernels; i++) {
        const struct kernel *kernel = session->kernels[i]->kernel;
        struct execution *execution = kernel_execution(kernel);
        bool named = strcmp(name, kernel_name(kernel)) == 0;
        if (named)
            return execution && execution_tools(execution) ? execution : NULL;
        if (!execution || !execution_tools(execution))
            continue;
        if (found && !*name)
            return NULL; // it is not known whose it would be
        found = execution;
    }
    return *name ? NULL : found;
}

static bool
must_wait(const struct tool_caller *caller)
{
    const struct execution *execution =
        find_execution(caller->session, tool_link_kernel(caller->link));
    return caller->session->tool_calls_left < 1 ||
           caller->session->n_server_calls >= SERVER_CALLS_MAX ||
           (execution && execution_is_full_of_calls(execution));
}

static void
pace(struct tool_caller *caller)
{
    bool waits = must_wait(caller);
    tool_link_pause(caller->link, waits);
    if (waits && !loop_timer_active(caller->session->tools_pace))
        loop_timer_start(caller->session->tools_pace, PACE_MS);
}

static void
session_on_tools_pace(void *arg)
{
    struct session *session = arg;
    struct tool_caller *caller;
    refill(session);
    LIST_FOREACH(caller, &session->tool_callers, entry)
        pace(caller);
}

// ---- Results --------------------------------------------------------------------------------

static void
on_result_written(const struct session_file *file, bool created, const struct kg_error *err,
                  void *arg)
{
    struct tool_request *request = arg;
    (void)file;
    (void)created;
    request->op = NULL;
    if (err) {
        KG_AUTO_FREE char *why =
            kg_asprintf("the result of %s is too large for a value, and could not be written to a "
                        "file: %s",
                        request->name, err->message);
        tool_request_answer(
            request, json_pack("{s:s, s:s}", "error", why, "code", kg_code_info(err->code)->name));
        return;
    }
    KG_AUTO_FREE char *path = kg_asprintf("/mnt/data/%s", request->path);
    tool_request_answer(request, json_pack("{s:s}", "file", path));
}

// A result that is too large for a value becomes a file. `text` is taken.
static void
write_result(struct tool_request *request, char *text)
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
    request->text = text;
    request->path = kg_asprintf(RESULTS_FOLDER "/%s-%s.json", name, random);
    const struct session_file_source source = {.data = text, .len = strlen(text)};
    request->op = session_file_put(request->caller->session, request->path, &source, false,
                                   on_result_written, request, &err);
    if (!request->op)
        on_result_written(NULL, false, &err, request);
}

static void
on_result(const struct tool_result *result, void *arg)
{
    struct tool_request *request = arg;
    size_t max = request->caller->session->sessions->settings.max_tool_result_bytes;
    request->call = NULL;
    if (!result->value) {
        tool_request_answer(request,
                            json_pack("{s:s, s:s}", "error", result->error, "code", result->code));
        return;
    }
    char *text = result->text ? kg_strdup(result->text)
                              : json_dumps(result->value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (strlen(text) > max) {
        write_result(request, text);
        return;
    }
    free(text);
    tool_request_answer(request, json_pack("{s:O}", "result", result->value));
}

// ---- Tools of MCP servers -------------------------------------------------------------------

static void
on_server_result(const struct upstream_result *result, void *arg)
{
    struct tool_request *request = arg;
    struct tool_call *call = KG_STEAL(request->call);
    const struct tool_result same = {
        .value = result->value, .text = result->text, .error = result->error, .code = result->code};
    size_t bytes = !call           ? 0
                   : result->error ? strlen(result->error)
                   : result->text
                       ? strlen(result->text)
                       : json_dumpb(result->value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    request->server_call = NULL;
    if (call)
        tool_call_end(call, result->status, bytes);
    on_result(&same, request);
}

// The execution that has made the call has ended before.
static void
on_server_call_stopped(const struct tool_result *result, void *arg)
{
    struct tool_request *request = arg;
    request->call = NULL;
    upstream_call_cancel(KG_STEAL(request->server_call));
    tool_request_answer(request,
                        json_pack("{s:s, s:s}", "error", result->error, "code", result->code));
}

// The execution of the kernel from which the process descends, whether or not it has tools.
static struct execution *
find_running(const struct session *session, const char *name)
{
    for (size_t i = 0; *name && i < session->n_kernels; i++) {
        const struct kernel *kernel = session->kernels[i]->kernel;
        if (strcmp(name, kernel_name(kernel)) == 0)
            return kernel_execution(kernel);
    }
    return NULL;
}

static int
call_server(struct tool_request *request, const json_t *arguments, struct kg_error *err)
{
    struct session *session = request->caller->session;
    struct execution *execution = find_running(session, tool_link_kernel(request->caller->link));
    const struct upstream_call_spec spec = {
        .owner = session->owner,
        .session = session,
        .session_id = session->id,
        .name = request->name,
        .arguments = arguments,
    };
    if (!session_is_attended(session))
        return kg_error_set(err, KG_INVALID, 0,
                            "tools are called while a cell or a command of the session runs, and "
                            "none does");
    request->server_call = upstream_call_start(session->sessions->settings.upstreams, &spec,
                                               on_server_result, request, err);
    if (!request->server_call)
        return -1;
    request->is_server_call = true;
    session->n_server_calls++;
    KG_AUTO_FREE char *server = kg_strndup(request->name, strcspn(request->name, "."));
    if (execution)
        request->call = execution_begin_call(execution, server, request->name,
                                             on_server_call_stopped, request, err);
    return execution && !request->call ? -1 : 0;
}

// Whether it is one of a server: a tool of the client's of that name comes first.
static bool
is_servers(const struct session *session, const struct execution *execution, const char *name)
{
    const struct upstreams *upstreams = session->sessions->settings.upstreams;
    bool is_clients = execution && tool_list_has(execution_tools(execution), name);
    return upstreams && !is_clients && upstreams_have(upstreams, session->owner, name);
}

// ---- Requests -------------------------------------------------------------------------------

// `server`: NULL: all tools; "": those of the client, and which servers there are.
static void
caller_on_list(struct tool_link *link, int64_t id, const char *server, void *arg)
{
    struct tool_caller *caller = arg;
    struct session *session = caller->session;
    const struct upstreams *upstreams = session->sessions->settings.upstreams;
    const struct execution *execution = find_execution(session, tool_link_kernel(link));
    json_t *tools = json_array();
    refill(session);
    if (execution && (!server || !*server))
        json_array_extend(tools,
                          (json_t *)(uintptr_t)tool_list_describe(execution_tools(execution)));
    if (upstreams && (!server || *server)) {
        json_auto_t *of_servers = upstreams_list_tools(upstreams, session->owner, server);
        json_array_extend(tools, of_servers);
    }
    json_t *servers = upstreams ? upstreams_list_servers(upstreams, session->owner) : json_array();
    session->tool_calls_left -= 1 + (double)json_array_size(tools) / TOOLS_OF_A_CALL;
    tool_link_answer(link, id, json_pack("{s:o, s:o}", "tools", tools, "servers", servers));
    pace(caller);
}

static void
caller_on_call(struct tool_link *link, int64_t id, const char *name, const json_t *arguments,
               void *arg)
{
    struct tool_caller *caller = arg;
    struct session *session = caller->session;
    struct kg_error err = {0};
    struct execution *execution = find_execution(session, tool_link_kernel(link));
    bool of_server = is_servers(session, execution, name);
    refill(session);
    session->tool_calls_left -= 1;
    if (!execution && !of_server) {
        kg_error_set(&err, KG_NOT_FOUND, 0,
                     "there is no tool \"%.60s\": no code that has tools runs now", name);
        tool_link_refuse(link, id, &err);
        pace(caller);
        return;
    }
    struct tool_request *request = KG_NEW(struct tool_request);
    request->caller = caller;
    request->id = id;
    request->name = kg_strdup(name);
    LIST_INSERT_HEAD(&caller->requests, request, entry);
    if (!of_server)
        request->call = execution_call_tool(execution, name, arguments, on_result, request, &err);
    if (of_server ? call_server(request, arguments, &err) < 0 : !request->call) {
        tool_request_free(request);
        tool_link_refuse(link, id, &err);
    }
    pace(caller);
}

static void
caller_on_cancel(struct tool_link *link, int64_t id, void *arg)
{
    const struct tool_caller *caller = arg;
    struct tool_request *request;
    (void)link;
    LIST_FOREACH(request, &caller->requests, entry) {
        if (request->id == id)
            break;
    }
    if (request)
        tool_request_free(request);
}

static void
caller_on_end(struct tool_link *link, void *arg)
{
    (void)link;
    tool_caller_free(arg);
}

void
session_tools_take(struct session *session, int fd)
{
    static const struct tool_link_events events = {.on_list = caller_on_list,
                                                   .on_call = caller_on_call,
                                                   .on_cancel = caller_on_cancel,
                                                   .on_end = caller_on_end};
    struct sessions *sessions = session->sessions;
    if (session->n_tool_callers >= CALLERS_MAX) {
        close(fd);
        return;
    }
    if (!session->tools_pace) {
        session->tools_pace = loop_timer_new(sessions->loop, session_on_tools_pace, session);
        session->tool_calls_left = CALLS_AT_ONCE;
        session->tool_calls_ms = clock_mono_ms();
    }
    struct tool_caller *caller = KG_NEW(struct tool_caller);
    caller->session = session;
    LIST_INIT(&caller->requests);
    LIST_INSERT_HEAD(&session->tool_callers, caller, entry);
    session->n_tool_callers++;
    caller->link =
        tool_link_new(sessions->loop, fd, &sessions->tool_bytes, session->owner, &events, caller);
}

void
session_tools_end(struct session *session)
{
    for (struct tool_caller *caller; (caller = LIST_FIRST(&session->tool_callers));) {
        tool_link_free(caller->link);
        tool_caller_free(caller);
    }
    loop_timer_free(KG_STEAL(session->tools_pace));
    upstreams_end_session(session->sessions->settings.upstreams, session);
}

void
sessions_tools_init(struct sessions *sessions)
{
    budget_init(&sessions->tool_bytes, "tool_call_bytes", BYTES_OF_ALL, BYTES_OF_ALL);
    budget_set_several_owners(&sessions->tool_bytes, sessions->settings.several_owners);
}

void
sessions_tools_fini(struct sessions *sessions)
{
    budget_fini(&sessions->tool_bytes);
}
