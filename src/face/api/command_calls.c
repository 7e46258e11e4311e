// SPDX-License-Identifier: Apache-2.0
// The resources …/sessions/{id}/commands and …/commands/{command}: what concerns commands that were
// started.

#include "command_calls_priv.h"

#include <string.h>

#include "api_priv.h"
#include "session.h"
#include "session_commands.h"

// A request that waits for a call of the agent.
struct command_call {
    struct http_request *request;
    struct sandbox_call *call;
    struct sandbox *sandbox; // the session's, while a call is under way
    char session_id[SESSION_MAX_ID_LEN + 1];
    char id[SANDBOX_COMMAND_ID_MAX + 1];
    bool ends_input; // after this
};

static void
command_call_free(void *arg)
{
    struct command_call *self = arg;
    sandbox_call_cancel(self->call);
    free(self);
}

int
command_id_check(const char *id, struct kg_error *err)
{
    if (sandbox_command_id_valid(id))
        return 0;
    return kg_error_set(err, KG_NOT_FOUND, 0, "no command %.40s", id);
}

// `id`: of the command, or NULL. On failure the error is still to be answered.
static struct command_call *
command_call_new(struct http_request *request, struct session *session, const char *id,
                 struct kg_error *err)
{
    struct sandbox *sandbox = session_commands_sandbox(session, err);
    if (!sandbox || (id && command_id_check(id, err) < 0))
        return NULL;
    struct command_call *self = KG_NEW(struct command_call);
    self->request = request;
    self->sandbox = sandbox;
    memcpy(self->session_id, session_id(session), strlen(session_id(session)));
    if (id)
        memcpy(self->id, id, strlen(id));
    http_request_own(request, self, command_call_free);
    return self;
}

// The same for the command that the path names.
static struct command_call *
call_of_path(struct http_request *request, const struct api_context *context, struct kg_error *err)
{
    struct session *session = api_session(request, context, err);
    return session ? command_call_new(request, session, http_request_param(request, "command"), err)
                   : NULL;
}

// The last that a handler does: waits for its call, or answers why there is none.
static void
command_call_wait(struct http_request *request, const struct command_call *self,
                  const struct kg_error *err)
{
    if (!self || !self->call)
        http_reply_error(request, err);
}

// ---- Looking --------------------------------------------------------------------------------

// As clients see it, a new reference.
static json_t *
describe_command(const json_t *info)
{
    char started[CLOCK_RFC3339_LEN];
    const json_t *exit_code = json_object_get(info, "exit_code");
    int signum = (int)json_integer_value(json_object_get(info, "signal"));
    json_int_t age_ms = json_integer_value(json_object_get(info, "age_ms"));
    clock_format_rfc3339(clock_wall_ms() - age_ms, started);
    json_t *ret = json_pack(
        "{s:O, s:O, s:O, s:O, s:O, s:O, s:s, s:O, s:s}", "command_id", json_object_get(info, "id"),
        "command", json_object_get(info, "command"), "cwd", json_object_get(info, "cwd"), "pid",
        json_object_get(info, "pid"), "terminal", json_object_get(info, "terminal"), "running",
        json_object_get(info, "running"), "started_at", started, "clients",
        json_object_get(info, "readers"), "on_disconnect",
        json_is_true(json_object_get(info, "keep")) ? "continue" : "kill");
    if (exit_code)
        json_object_set(ret, "exit_code", (json_t *)(uintptr_t)exit_code);
    if (signum)
        json_object_set_new(ret, "signal", api_signal_name(signum));
    return ret;
}

// The list in the result, a new reference; NULL: the error was answered.
static json_t *
take_list(struct command_call *self, const json_t *result, const struct kg_error *err)
{
    struct kg_error why = {0};
    self->call = NULL;
    json_t *list = result ? sandbox_command_list_parse(result, &why) : NULL;
    if (!list)
        http_reply_error(self->request, result ? &why : err);
    return list;
}

static void
list_on_result(const json_t *result, const struct kg_error *err, void *arg)
{
    struct command_call *self = arg;
    const json_t *info;
    size_t i;
    json_auto_t *list = take_list(self, result, err);
    if (!list)
        return;
    json_t *commands = json_array();
    json_array_foreach(list, i, info)
        json_array_append_new(commands, describe_command(info));
    http_reply_json(self->request, 200, json_pack("{s:o}", "commands", commands));
}

void
handle_command_list(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct session *session = api_session(request, arg, &err);
    struct command_call *self = session ? command_call_new(request, session, NULL, &err) : NULL;
    if (self)
        self->call = sandbox_command_list(self->sandbox, list_on_result, self, &err);
    command_call_wait(request, self, &err);
}

static void
show_on_result(const json_t *result, const struct kg_error *err, void *arg)
{
    struct command_call *self = arg;
    struct kg_error none = {0};
    const json_t *info;
    size_t i;
    json_auto_t *list = take_list(self, result, err);
    if (!list)
        return;
    json_array_foreach(list, i, info) {
        if (strcmp(json_string_value(json_object_get(info, "id")), self->id) == 0) {
            http_reply_json(self->request, 200, describe_command(info));
            return;
        }
    }
    (void)kg_error_set(&none, KG_NOT_FOUND, 0, "no command %s", self->id);
    http_reply_error(self->request, &none);
}

void
handle_command_show(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct command_call *self = call_of_path(request, arg, &err);
    if (self)
        self->call = sandbox_command_list(self->sandbox, show_on_result, self, &err);
    command_call_wait(request, self, &err);
}

// ---- Starting in the background --------------------------------------------------------------

static void
detach_on_result(const json_t *result, const struct kg_error *err, void *arg)
{
    struct command_call *self = arg;
    struct sandbox_command_start start;
    struct kg_error why = {0};
    self->call = NULL;
    if (!result || sandbox_command_detach_parse(result, &start, &why) < 0) {
        http_reply_error(self->request, result ? &why : err);
        return;
    }
    http_reply_header(self->request, "X-Session-Id", self->session_id);
    http_reply_header(self->request, "X-Command-Id", start.id);
    http_reply_json(self->request, 201,
                    json_pack("{s:s, s:i, s:s}", "command_id", start.id, "pid", start.pid,
                              "session_id", self->session_id));
}

int
command_call_detach(struct http_request *request, struct session *session,
                    const struct sandbox_command_spec *spec, struct kg_error *err)
{
    struct command_call *self = command_call_new(request, session, NULL, err);
    if (!self)
        return -1;
    self->call = session_command_detach(session, spec, detach_on_result, self, err);
    return self->call ? 0 : -1;
}

// ---- Input and signals -----------------------------------------------------------------------

static void
done_on_result(const json_t *result, const struct kg_error *err, void *arg)
{
    struct command_call *self = arg;
    self->call = NULL;
    if (result)
        reply_message(self->request, NULL, "Done");
    else
        http_reply_error(self->request, err);
}

static void
input_on_result(const json_t *result, const struct kg_error *err, void *arg)
{
    struct command_call *self = arg;
    struct kg_error why = {0};
    if (!result || !self->ends_input) {
        done_on_result(result, err, arg);
        return;
    }
    // Its sandbox is there: a call of it has just succeeded.
    self->call = sandbox_command_close_input(self->sandbox, self->id, done_on_result, self, &why);
    command_call_wait(self->request, self, &why);
}

static int
take_end(struct http_request *request, bool *ret, struct kg_error *err)
{
    const char *text = http_request_query(request, "end");
    *ret = text && strcmp(text, "1") == 0;
    if (text && !*ret && strcmp(text, "0") != 0)
        return kg_error_set(err, KG_INVALID, 0, "end must be 0 or 1");
    return 0;
}

static int
give_input(struct http_request *request, const struct api_context *context, struct kg_error *err)
{
    size_t len;
    bool ends;
    struct command_call *self = call_of_path(request, context, err);
    if (!self || take_end(request, &ends, err) < 0)
        return -1;
    self->ends_input = ends;
    const void *data = http_request_body(request, &len);
    if (len > SANDBOX_COMMAND_INPUT_MAX)
        return kg_error_set(err, KG_UPLOAD_TOO_LARGE, 0, "the input is %zu bytes; the limit is %d",
                            len, SANDBOX_COMMAND_INPUT_MAX);
    if (len == 0 && ends)
        self->call =
            sandbox_command_close_input(self->sandbox, self->id, done_on_result, self, err);
    else
        self->call =
            sandbox_command_input(self->sandbox, self->id, data, len, input_on_result, self, err);
    return self->call ? 0 : -1;
}

void
handle_command_input(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    if (give_input(request, arg, &err) < 0)
        http_reply_error(request, &err);
}

// What a handler does with its JSON body. Starts the call of `self`.
typedef void (*command_call_fn)(struct command_call *self, const json_t *body,
                                struct kg_error *err);

static void
call_with_body(struct http_request *request, const struct api_context *context, command_call_fn fn)
{
    struct kg_error err = {0};
    json_auto_t *body = http_request_json(request, &err);
    struct command_call *self = body ? call_of_path(request, context, &err) : NULL;
    if (self)
        fn(self, body, &err);
    command_call_wait(request, self, &err);
}

static void
send_signal(struct command_call *self, const json_t *body, struct kg_error *err)
{
    const char *name;
    if (signal_body_parse(body, &name, err) < 0)
        return;
    self->call = sandbox_command_signal(self->sandbox, self->id, name, done_on_result, self, err);
}

void
handle_command_signal(struct http_request *request, void *arg)
{
    call_with_body(request, arg, send_signal);
}

static void
resize(struct command_call *self, const json_t *body, struct kg_error *err)
{
    int cols, rows;
    if (terminal_size_parse(body, &cols, &rows, err) < 0)
        return;
    self->call =
        sandbox_command_resize(self->sandbox, self->id, cols, rows, done_on_result, self, err);
}

void
handle_command_resize(struct http_request *request, void *arg)
{
    call_with_body(request, arg, resize);
}

void
handle_command_end(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct command_call *self = call_of_path(request, arg, &err);
    if (self)
        self->call =
            sandbox_command_signal(self->sandbox, self->id, "TERM", done_on_result, self, &err);
    command_call_wait(request, self, &err);
}
