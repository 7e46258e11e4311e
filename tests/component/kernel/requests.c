// SPDX-License-Identifier: Apache-2.0
// Requests that are not a cell's: each gets its reply between a busy and an idle status.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "steps.h"

// What an answer function returns; it may be of another type than the request's name says.
typedef json_t *answer_fn(struct message *request);

static json_t *
ok(void)
{
    return json_pack("{s:s}", "status", "ok");
}

static json_t *
failure(const char *name, const char *value)
{
    return json_pack("{s:s, s:s, s:s, s:[]}", "status", "error", "ename", name, "evalue", value,
                     "traceback");
}

static json_t *
answer_kernel_info(struct message *request)
{
    (void)request;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:[s, s], s:[], s:{s:s, s:s, s:s, s:s}}",
                     "status", "ok", "protocol_version", "5.5", "implementation", "script",
                     "implementation_version", "1.0", "banner", "A script of steps", "debugger", 1,
                     "supported_features", "kernel subshells", "debugger", "help_links",
                     "language_info", "name", "script", "version", "1.0", "mimetype", "text/plain",
                     "file_extension", ".txt");
}

static size_t
word_start(const char *code, size_t end)
{
    while (end > 0 && code[end - 1] != ' ' && code[end - 1] != '\n')
        end--;
    return end;
}

static size_t
cursor(const struct message *request)
{
    size_t len = strlen(message_text(request, "code"));
    const json_t *given = json_object_get(request->content, "cursor_pos");
    size_t pos = given ? (size_t)json_integer_value(given) : len;
    return pos < len ? pos : len;
}

static json_t *
answer_complete(struct message *request)
{
    const char *code = message_text(request, "code");
    size_t end = cursor(request), start = word_start(code, end);
    char *prefix = strndup(code + start, end - start);
    json_t *ret =
        json_pack("{s:s, s:o, s:I, s:I, s:{}}", "status", "ok", "matches", step_names(prefix),
                  "cursor_start", (json_int_t)start, "cursor_end", (json_int_t)end, "metadata");
    free(prefix);
    return ret;
}

static json_t *
answer_inspect(struct message *request)
{
    const char *code = message_text(request, "code");
    size_t start = word_start(code, cursor(request));
    char *word = strndup(code + start, strcspn(code + start, " \n"));
    json_t *names = step_names(word);
    const char *first = json_string_value(json_array_get(names, 0));
    bool found = first && strcmp(first, word) == 0;
    json_t *data =
        found ? json_pack("{s:s++}", "text/plain", "The step ", word, ".") : json_object();
    json_decref(names);
    free(word);
    return json_pack("{s:s, s:b, s:o, s:{}}", "status", "ok", "found", found, "data", data,
                     "metadata");
}

// A line that ends with a backslash goes on.
static json_t *
answer_is_complete(struct message *request)
{
    const char *code = message_text(request, "code");
    size_t len = strlen(code);
    bool goes_on = len > 0 && code[len - 1] == '\\';
    return goes_on ? json_pack("{s:s, s:s}", "status", "incomplete", "indent", "  ")
                   : json_pack("{s:s}", "status", "complete");
}

static json_t *
answer_history(struct message *request)
{
    (void)request;
    return json_pack("{s:s, s:o}", "status", "ok", "history", cell_history());
}

// ---- Comms ----------------------------------------------------------------------------------

static json_t *comms;

static json_t *
answer_comm_info(struct message *request)
{
    const json_t *wanted = json_object_get(request->content, "target_name");
    json_t *found = json_object(), *target;
    const char *id;
    json_object_foreach(comms, id, target) {
        if (!wanted || json_is_null(wanted) || json_equal((json_t *)(size_t)wanted, target))
            json_object_set_new(found, id, json_pack("{s:O}", "target_name", target));
    }
    return json_pack("{s:s, s:o}", "status", "ok", "comms", found);
}

static void
reverse(struct frame *frame)
{
    for (size_t i = 0; i < frame->len / 2; i++) {
        char byte = frame->data[i];
        frame->data[i] = frame->data[frame->len - 1 - i];
        frame->data[frame->len - 1 - i] = byte;
    }
}

// The target "echo" answers with the data, the buffers' lengths, and the buffers backwards.
static void
echo(struct message *message)
{
    json_t *lengths = json_array(), *data = json_object_get(message->content, "data");
    for (size_t i = 0; i < message->n_buffers; i++) {
        json_array_append_new(lengths, json_integer((json_int_t)message->buffers[i].len));
        reverse(&message->buffers[i]);
    }
    wire_next.buffers = message->buffers;
    wire_next.n_buffers = message->n_buffers;
    wire_send(message, IOPUB, "comm_msg",
              json_pack("{s:s, s:{s:o, s:O}}", "comm_id", message_text(message, "comm_id"), "data",
                        "lengths", lengths, "echo", data ? data : json_null()));
}

static void
handle_comm(struct message *message, const char *type)
{
    const char *id = message_text(message, "comm_id");
    if (!comms)
        comms = json_object();
    if (strcmp(type, "comm_close") == 0) {
        json_object_del(comms, id);
        return;
    }
    if (strcmp(type, "comm_open") == 0 &&
        strcmp(message_text(message, "target_name"), "echo") != 0) {
        wire_send(message, IOPUB, "comm_close", json_pack("{s:s, s:{}}", "comm_id", id, "data"));
        return;
    }
    if (strcmp(type, "comm_open") == 0)
        json_object_set(comms, id, json_object_get(message->content, "target_name"));
    echo(message);
}

// ---- Control --------------------------------------------------------------------------------

static json_t *
answer_interrupt(struct message *request)
{
    (void)request;
    loop_interrupt();
    return ok();
}

static json_t *
answer_shutdown(struct message *request)
{
    loop_end(0);
    return json_pack("{s:s, s:b}", "status", "ok", "restart",
                     json_is_true(json_object_get(request->content, "restart")));
}

static json_t *
answer_create_subshell(struct message *request)
{
    (void)request;
    const char *id = shell_add();
    return id ? json_pack("{s:s, s:s}", "status", "ok", "subshell_id", id)
              : failure("RuntimeError", "too many subshells");
}

static json_t *
answer_delete_subshell(struct message *request)
{
    return shell_remove(message_text(request, "subshell_id"))
               ? ok()
               : failure("RuntimeError", "there is no such subshell");
}

static json_t *
answer_list_subshell(struct message *request)
{
    (void)request;
    return json_pack("{s:s, s:o}", "status", "ok", "subshell_id", shell_list());
}

// The Debug Adapter Protocol's response, with what was asked as its body.
static json_t *
answer_debug(struct message *request)
{
    static int sent;
    json_t *seq = json_object_get(request->content, "seq");
    json_t *arguments = json_object_get(request->content, "arguments");
    return json_pack("{s:s, s:i, s:O, s:b, s:s, s:{s:O}}", "type", "response", "seq", ++sent,
                     "request_seq", seq ? seq : json_null(), "success", 1, "command",
                     message_text(request, "command"), "body", "arguments",
                     arguments ? arguments : json_null());
}

// ---- All ------------------------------------------------------------------------------------

static const struct {
    const char *name;
    answer_fn *fn;
} answers[] = {
    {"kernel_info", answer_kernel_info},
    {"complete", answer_complete},
    {"inspect", answer_inspect},
    {"is_complete", answer_is_complete},
    {"history", answer_history},
    {"comm_info", answer_comm_info},
    {"interrupt", answer_interrupt},
    {"shutdown", answer_shutdown},
    {"create_subshell", answer_create_subshell},
    {"delete_subshell", answer_delete_subshell},
    {"list_subshell", answer_list_subshell},
    {"debug", answer_debug},
};

static void
answer(struct message *request, const char *type)
{
    char name[64];
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        snprintf(name, sizeof name, "%s_request", answers[i].name);
        if (strcmp(type, name) != 0)
            continue;
        snprintf(name, sizeof name, "%s_reply", answers[i].name);
        wire_send(request, request->channel, name, answers[i].fn(request));
        return;
    }
    fprintf(stderr, "a request of an unknown type: %s\n", type); // as ipykernel does
}

void
request_handle(struct message *request)
{
    const char *type = message_type(request);
    cell_say_state(request, "busy");
    if (strncmp(type, "comm_", 5) == 0 && !strstr(type, "_request"))
        handle_comm(request, type);
    else
        answer(request, type);
    cell_say_state(request, "idle");
}
