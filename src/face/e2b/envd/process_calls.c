// SPDX-License-Identifier: Apache-2.0
// Process.List, Update, SendSignal and CloseStdin.
#include "envd_priv.h"

#include <string.h>

#include "message.h"
#include "session_commands.h"

// A call that looks for its command, and then does something with it.
struct process_call {
    struct http_request *request;
    struct sandbox *sandbox; // the session's, while a call is under way
    struct process_search *search;
    struct sandbox_call *call;
    // Starts the call about the command that was found; NULL with `err` where there is none.
    struct sandbox_call *(*act)(struct process_call *self, const struct process_found *found,
                                struct kg_error *err);
    const char *signal;
    int64_t cols, rows;
};

static void
process_call_free(void *arg)
{
    struct process_call *self = arg;
    process_search_cancel(self->search);
    sandbox_call_cancel(self->call);
    free(self);
}

// A new one with its session; NULL with `err`.
static struct process_call *
process_call_new(struct http_request *request, const struct envd *envd,
                 struct session **ret_session, struct kg_error *err)
{
    *ret_session = envd_sandbox(request, envd, err);
    struct sandbox *sandbox = *ret_session ? session_commands_sandbox(*ret_session, err) : NULL;
    if (!sandbox)
        return NULL;
    struct process_call *self = KG_NEW(struct process_call);
    self->request = request;
    self->sandbox = sandbox;
    http_request_own(request, self, process_call_free);
    return self;
}

// What a call does with the rest of its message.
typedef int (*process_call_parse)(struct process_call *self, const json_t *message,
                                  struct kg_error *err);

static void
process_call_on_done(const json_t *result, const struct kg_error *err, void *arg)
{
    struct process_call *self = arg;
    self->call = NULL;
    if (result)
        connect_reply(self->request, json_object());
    else
        http_reply_error(self->request, err);
}

static void
process_call_on_found(const struct process_found *found, const struct kg_error *err, void *arg)
{
    struct process_call *self = arg;
    struct kg_error own = {0};
    self->search = NULL;
    if (found)
        self->call = self->act(self, found, &own);
    if (!self->call)
        http_reply_error(self->request, found ? &own : err);
}

static void
process_call_start(struct http_request *request, const struct envd *envd, process_call_parse parse,
                   struct sandbox_call *(*act)(struct process_call *, const struct process_found *,
                                               struct kg_error *))
{
    struct kg_error err = {0};
    struct process_selector selector;
    struct session *session;
    json_auto_t *message = connect_unary_message(request);
    if (!message)
        return;
    struct process_call *self = process_call_new(request, envd, &session, &err);
    if (self && process_selector_parse(message, &selector, &err) == 0 &&
        (!parse || parse(self, message, &err) == 0)) {
        self->act = act;
        self->search =
            process_search_start(session, &selector, false, process_call_on_found, self, &err);
    }
    if (!self || !self->search)
        http_reply_error(request, &err);
}

// ---- Signals --------------------------------------------------------------------------------

static int
signal_parse(struct process_call *self, const json_t *message, struct kg_error *err)
{
    enum { NUMBER_TERM = 15, NUMBER_KILL = 9 }; // of the enumeration
    const json_t *value = message_field(message, "signal");
    const char *name = json_string_value(value);
    json_int_t number = json_integer_value(value);
    if (number == NUMBER_TERM || (name && strcmp(name, "SIGNAL_SIGTERM") == 0))
        self->signal = "TERM";
    else if (number == NUMBER_KILL || (name && strcmp(name, "SIGNAL_SIGKILL") == 0))
        self->signal = "KILL";
    else
        return kg_error_set(err, KG_INVALID, 0, "signal must be SIGNAL_SIGTERM or SIGNAL_SIGKILL");
    return 0;
}

static struct sandbox_call *
signal_act(struct process_call *self, const struct process_found *found, struct kg_error *err)
{
    return sandbox_command_signal(self->sandbox, found->id, self->signal, process_call_on_done,
                                  self, err);
}

void
handle_process_signal(struct http_request *request, void *arg)
{
    process_call_start(request, arg, signal_parse, signal_act);
}

// ---- Terminals and input --------------------------------------------------------------------

static int
update_parse(struct process_call *self, const json_t *message, struct kg_error *err)
{
    if (process_size_parse(message, &self->cols, &self->rows, err) < 0)
        return -1;
    return self->cols ? 0 : kg_error_set(err, KG_INVALID, 0, "pty is missing");
}

static struct sandbox_call *
update_act(struct process_call *self, const struct process_found *found, struct kg_error *err)
{
    return sandbox_command_resize(self->sandbox, found->id, (int)self->cols, (int)self->rows,
                                  process_call_on_done, self, err);
}

void
handle_process_update(struct http_request *request, void *arg)
{
    process_call_start(request, arg, update_parse, update_act);
}

static struct sandbox_call *
close_act(struct process_call *self, const struct process_found *found, struct kg_error *err)
{
    if (process_input_check(found, false, err) < 0)
        return NULL;
    return sandbox_command_close_input(self->sandbox, found->id, process_call_on_done, self, err);
}

void
handle_process_close_stdin(struct http_request *request, void *arg)
{
    process_call_start(request, arg, NULL, close_act);
}

// ---- The list -------------------------------------------------------------------------------

// The words of a command, as a client would start it.
static json_t *
words_of(const json_t *info)
{
    json_t *argv = json_object_get(info, "argv");
    const char *command = json_string_value(json_object_get(info, "command"));
    if (argv)
        return json_incref(argv);
    if (!*command)
        return json_pack("[s, s, s]", "/bin/bash", "-i", "-l");
    return json_pack("[s, s, s, s]", "/bin/bash", "-l", "-c", command);
}

static json_t *
describe_process(const json_t *info)
{
    json_t *words = words_of(info);
    json_t *cmd = json_incref(json_array_get(words, 0));
    json_t *note = json_object_get(info, "note");
    json_array_remove(words, 0);
    json_t *process =
        json_pack("{s:{s:o, s:o, s:{}, s:O}, s:O}", "config", "cmd", cmd, "args", words, "envs",
                  "cwd", json_object_get(info, "cwd"), "pid", json_object_get(info, "pid"));
    if (note)
        json_object_set(process, "tag", note);
    return process;
}

static void
list_on_result(const json_t *result, const struct kg_error *call_err, void *arg)
{
    struct process_call *self = arg;
    struct kg_error err = {0};
    const json_t *info;
    size_t i;
    self->call = NULL;
    json_auto_t *list = result ? sandbox_command_list_parse(result, &err) : NULL;
    if (!list) {
        http_reply_error(self->request, result ? &err : call_err);
        return;
    }
    json_t *processes = json_array();
    json_array_foreach(list, i, info) {
        if (json_is_true(json_object_get(info, "running")))
            json_array_append_new(processes, describe_process(info));
    }
    connect_reply(self->request, json_pack("{s:o}", "processes", processes));
}

void
handle_process_list(struct http_request *request, void *arg)
{
    struct kg_error err = {0};
    struct session *session;
    json_auto_t *message = connect_unary_message(request);
    if (!message)
        return;
    struct process_call *self = process_call_new(request, arg, &session, &err);
    if (self)
        self->call = sandbox_command_list(self->sandbox, list_on_result, self, &err);
    if (!self || !self->call)
        http_reply_error(request, &err);
}
