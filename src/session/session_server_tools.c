// SPDX-License-Identifier: Apache-2.0
// Calls of tools that MCP servers answer. The execution of the kernel that makes one counts it, and
// shows it to its client.

#include <string.h>

#include "session_requests.h"
#include "session_tool_request_priv.h"
#include "sessions_priv.h"
#include "tool_link.h"
#include "tool_results.h"
#include "upstreams.h"

static void
on_server_result(const struct upstream_result *result, void *arg)
{
    struct tool_request *request = arg;
    struct tool_call *call = KG_STEAL(request->call);
    KG_AUTO_FREE char *made = result->value && !result->text
                                  ? json_dumps(result->value, JSON_COMPACT | JSON_ENCODE_ANY)
                                  : NULL;
    const char *text = result->text ? result->text : made;
    const struct tool_result same = {.json = result->value ? text : NULL,
                                     .len = result->value ? strlen(text) : 0,
                                     .error = result->error,
                                     .code = result->code};
    request->server_call = NULL;
    if (call)
        tool_call_end(call, result->status, result->error ? strlen(result->error) : same.len);
    tool_request_on_result(&same, request);
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
session_find_running(const struct session *session, const char *name)
{
    for (size_t i = 0; *name && i < session->n_kernels; i++) {
        const struct kernel *kernel = session->kernels[i]->kernel;
        if (strcmp(name, kernel_name(kernel)) == 0)
            return kernel_execution(kernel);
    }
    return NULL;
}

int
tool_request_call_server(struct tool_request *request, const json_t *arguments,
                         struct kg_error *err)
{
    struct session *session = request->caller->session;
    struct execution *execution =
        session_find_running(session, tool_link_kernel(request->caller->link));
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
