// SPDX-License-Identifier: Apache-2.0
// Each connection has its requests under way. All calls of a session are paced together: code that
// calls faster, or takes more of the loop's time, waits in its own writes. Calls beyond those that
// an execution may have waiting are queued here: the cancels behind them are heard. So are those
// before which the code has printed something that is still on its way.

#include "session_tools.h"

#include <string.h>
#include <unistd.h>

#include "session_requests.h"
#include "session_tool_request_priv.h"
#include "sessions_priv.h"
#include "tool_link.h"
#include "tool_list.h"
#include "tool_results.h"
#include "upstreams.h"

enum {
    CALLERS_MAX = 96, // connections of a session: more than its agent joins
    CALLS_PER_S = 1000,
    CALLS_AT_ONCE = 256,   // after a while without any
    CALLS_PER_MS = 5,      // that the loop works for code: no more than a fifth of its time
    SERVER_CALLS_MAX = 32, // of a session, under way
    TOOLS_OF_A_CALL = 4,   // of servers: listing so many costs as much as a call
    QUEUED_MAX = 1024,     // beyond that, the session's code waits in its own writes
    PACE_MS = 10,
    OUTPUT_TICK_MS = 1,
    OUTPUT_MS = 100, // how long a call waits for the output before it
    BYTES_OF_ALL = 128 << 20,
};

// ---- Whose tools code may call --------------------------------------------------------------

// The kernel whose execution's tools the code may call; NULL: none has any.
static const struct kernel *
caller_kernel(const struct tool_caller *caller)
{
    const struct session *session = caller->session;
    const char *name = tool_link_kernel(caller->link);
    const struct kernel *found = NULL;
    for (size_t i = 0; i < session->n_kernels; i++) {
        const struct kernel *kernel = session->kernels[i]->kernel;
        const struct execution *execution = kernel_execution(kernel);
        bool has_tools = execution && execution_tools(execution);
        if (strcmp(name, kernel_name(kernel)) == 0)
            return has_tools ? kernel : NULL;
        if (!has_tools)
            continue;
        if (found && !*name)
            return NULL; // it is not known whose it would be
        found = kernel;
    }
    return *name ? NULL : found;
}

static struct execution *
caller_execution(const struct tool_caller *caller)
{
    const struct kernel *kernel = caller_kernel(caller);
    return kernel ? kernel_execution(kernel) : NULL;
}

// Whether it is one of a server: a tool of the client's of that name comes first.
static bool
is_servers(const struct session *session, const struct execution *execution, const char *name)
{
    const struct upstreams *upstreams = session->sessions->settings.upstreams;
    bool is_clients = execution && tool_list_has(execution_tools(execution), name);
    return upstreams && !is_clients && upstreams_have(upstreams, session->owner, name);
}

// ---- Starting calls -------------------------------------------------------------------------

static bool
waits_for_room(const struct tool_request *request)
{
    const struct session *session = request->caller->session;
    const struct execution *execution = caller_execution(request->caller);
    if (is_servers(session, execution, request->name))
        return session->n_server_calls >= SERVER_CALLS_MAX;
    return execution && execution_is_full_of_calls(execution);
}

// What code prints takes another way than its calls. A kernel that never completes a message delays
// them only for a moment.
static bool
waits_for_output(const struct tool_request *request)
{
    const struct kernel *kernel = caller_kernel(request->caller);
    return kernel && *tool_link_kernel(request->caller->link) &&
           clock_mono_ms() < request->came_ms + OUTPUT_MS && kernel_has_unread_output(kernel);
}

// The calls of one kernel keep their order.
static bool
waits_behind(const struct tool_request *request)
{
    const struct tool_request *other;
    TAILQ_FOREACH(other, &request->caller->session->tools_queued, queued) {
        if (strcmp(tool_link_kernel(other->caller->link),
                   tool_link_kernel(request->caller->link)) == 0)
            return true;
    }
    return false;
}

// Calls the tool, or refuses the request.
static void
tool_request_start(struct tool_request *request, const json_t *arguments)
{
    struct execution *execution = caller_execution(request->caller);
    struct kg_error err = {0};
    bool started = false;
    if (is_servers(request->caller->session, execution, request->name))
        started = tool_request_call_server(request, arguments, &err) == 0;
    else if (execution)
        request->call = execution_call_tool(execution, request->name, arguments,
                                            tool_request_on_result, request, &err);
    else
        kg_error_set(&err, KG_NOT_FOUND, 0,
                     "there is no tool \"%.60s\": no code that has tools runs now", request->name);
    if (!started && !request->call)
        tool_request_refuse(request, &err);
}

static void
tool_request_queue(struct tool_request *request, const json_t *arguments)
{
    struct session *session = request->caller->session;
    struct kg_error err = {0};
    char *text = json_dumps(arguments, JSON_COMPACT | JSON_ENCODE_ANY);
    size_t len = text ? strlen(text) : 0;
    if (!budget_hold_has_room(&request->hold, len)) {
        free(text);
        kg_error_set(&err, KG_SESSION_BUSY, 0,
                     "calls of tools take too much memory already; try again later");
        tool_request_refuse(request, &err);
        return;
    }
    budget_hold_set(&request->hold, len);
    request->arguments = text ? text : kg_strdup("null");
    TAILQ_INSERT_TAIL(&session->tools_queued, request, queued);
    session->n_tools_queued++;
}

// Starts those that need not wait any more; those of another kernel do not wait for them. Returns
// whether one waits for output.
static bool
start_queued(struct session *session)
{
    bool for_output = false;
    struct tool_request *next;
    for (struct tool_request *request = TAILQ_FIRST(&session->tools_queued); request;
         request = next) {
        next = TAILQ_NEXT(request, queued);
        bool waits = waits_for_output(request);
        for_output |= waits;
        if (waits || waits_for_room(request))
            continue;
        json_auto_t *arguments = json_loads(request->arguments, JSON_DECODE_ANY, NULL);
        tool_request_leave_queue(request);
        tool_request_start(request, arguments);
    }
    return for_output;
}

// ---- The pace -------------------------------------------------------------------------------

static void
refill_calls(struct session *session)
{
    int64_t now_ms = clock_mono_ms();
    session->tool_calls_left += (double)(now_ms - session->tool_calls_ms) * CALLS_PER_S / 1000;
    if (session->tool_calls_left > CALLS_AT_ONCE)
        session->tool_calls_left = CALLS_AT_ONCE;
    session->tool_calls_ms = now_ms;
}

static void
caller_pace(struct tool_caller *caller)
{
    struct session *session = caller->session;
    bool waits = session->tool_calls_left < 1 || session->n_tools_queued >= QUEUED_MAX;
    tool_link_pause(caller->link, waits);
    if ((waits || session->n_tools_queued > 0) && !loop_timer_active(session->tools_pace))
        loop_timer_start(session->tools_pace, PACE_MS);
}

static void
session_on_tools_pace(void *arg)
{
    struct session *session = arg;
    struct tool_caller *caller;
    if (start_queued(session))
        loop_timer_start(session->tools_pace, OUTPUT_TICK_MS);
    refill_calls(session);
    LIST_FOREACH(caller, &session->tool_callers, entry)
        caller_pace(caller);
}

static void
caller_on_work(struct tool_link *link, int64_t us, void *arg)
{
    struct tool_caller *caller = arg;
    (void)link;
    refill_calls(caller->session);
    caller->session->tool_calls_left -= (double)us * CALLS_PER_MS / 1000;
    caller_pace(caller);
}

// ---- Requests -------------------------------------------------------------------------------

// `server`: NULL: all tools; "": those of the client, and which servers there are.
static void
caller_on_list(struct tool_link *link, int64_t id, const char *server, void *arg)
{
    struct tool_caller *caller = arg;
    struct session *session = caller->session;
    const struct upstreams *upstreams = session->sessions->settings.upstreams;
    const struct execution *execution = caller_execution(caller);
    json_t *tools = json_array();
    refill_calls(session);
    session->tool_calls_left -= 1;
    if (execution && (!server || !*server))
        json_array_extend(tools,
                          (json_t *)(uintptr_t)tool_list_describe(execution_tools(execution)));
    if (upstreams && (!server || *server)) {
        json_auto_t *of_servers = upstreams_list_tools(upstreams, session->owner, server);
        json_array_extend(tools, of_servers);
        session->tool_calls_left -= (double)json_array_size(of_servers) / TOOLS_OF_A_CALL;
    }
    json_t *servers = upstreams ? upstreams_list_servers(upstreams, session->owner) : json_array();
    tool_link_answer(link, id, json_pack("{s:o, s:o}", "tools", tools, "servers", servers));
    caller_pace(caller);
}

static void
caller_on_call(struct tool_link *link, int64_t id, const char *name, const json_t *arguments,
               void *arg)
{
    struct tool_caller *caller = arg;
    struct session *session = caller->session;
    (void)link;
    struct tool_request *request = tool_request_new(caller, id, name);
    refill_calls(session);
    session->tool_calls_left -= 1;
    bool for_output = waits_for_output(request);
    if (for_output)
        loop_timer_start(session->tools_pace, OUTPUT_TICK_MS);
    if (for_output || waits_for_room(request) || waits_behind(request))
        tool_request_queue(request, arguments);
    else
        tool_request_start(request, arguments);
    caller_pace(caller);
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
                                                   .on_work = caller_on_work,
                                                   .on_end = caller_on_end};
    struct sessions *sessions = session->sessions;
    if (session->n_tool_callers >= CALLERS_MAX || session->state == SESSION_ENDING) {
        close(fd);
        return;
    }
    if (!session->tools_pace) {
        session->tools_pace = loop_timer_new(sessions->loop, session_on_tools_pace, session);
        session->tool_calls_left = CALLS_AT_ONCE;
        session->tool_calls_ms = clock_mono_ms();
        TAILQ_INIT(&session->tools_queued);
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
