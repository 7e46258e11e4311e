// SPDX-License-Identifier: Apache-2.0
// Parsers of the agent's HTTP answers and of its event lines.
#include "agent_reply.h"

#include <limits.h>
#include <string.h>

#include "link_line.h"

// The code that the agent names, where it goes with the status: what a session's owner is told.
static enum kg_code
code_of_status(int status, const char *name)
{
    enum kg_code named = name ? kg_code_find(name) : KG_N_CODES;

    if (named != KG_N_CODES && kg_code_info(named)->http_status == status && status >= 400 &&
        status < 500)
        return named;

    switch (status) {
    case 400:
        return KG_INVALID;
    case 404:
        return KG_NOT_FOUND;
    case 409:
        return KG_FILE_EXISTS;
    case 413:
        return KG_UPLOAD_TOO_LARGE;
    case 429:
        return KG_SESSION_BUSY;
    case 507:
        return KG_DISK_FULL;
    default:
        return KG_INTERNAL;
    }
}

json_t *
agent_reply_parse(int status, const char *body, size_t len, struct kg_error *err)
{
    json_auto_t *reply = json_loadb(body, len, JSON_REJECT_DUPLICATES, NULL);

    if (status >= 200 && status < 300) {
        if (json_is_object(reply))
            return KG_STEAL(reply);
        (void)kg_error_set(err, KG_INTERNAL, 0, "the agent's answer is no JSON object");
        return NULL;
    }
    char text[160] = "no reason given";
    const json_t *reason = json_object_get(reply, "error");
    if (!reason)
        reason = json_object_get(reply, "detail"); // a problem document, from its router
    if (json_is_string(reason))
        text_sanitise(json_string_value(reason), json_string_length(reason), text, sizeof text);
    const char *name = json_string_value(json_object_get(reply, "code"));
    enum kg_code code = code_of_status(status, name);
    if (name && code != KG_INTERNAL)
        (void)kg_error_set(err, code, 0, "%s", text);
    else
        (void)kg_error_set(err, code, 0, "the agent answered %d: %s", status, text);
    return NULL;
}

int
agent_event_parse(const char *line, size_t len, struct agent_event *ret, struct kg_error *err)
{
    json_auto_t *event = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const char *type, *name;
    json_int_t pid, exit_code, signum;
    int oom;

    if (!event ||
        json_unpack(event, "{s:s, s:s, s:I, s:I, s:I, s:b}", "type", &type, "name", &name, "pid",
                    &pid, "exit_code", &exit_code, "signal", &signum, "oom", &oom) != 0)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event is malformed");
    if (strcmp(type, "kernel_exit") != 0)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event is of no known type");
    if (!link_target_valid(name) || strlen(name) > AGENT_KERNEL_NAME_MAX)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event names no kernel");
    if (pid < 1 || pid > INT_MAX || exit_code < -1 || exit_code > 255 || signum < 0 || signum > 64)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event has numbers out of range");
    *ret = (struct agent_event){
        .pid = (int)pid, .exit_code = (int)exit_code, .signal = (int)signum, .oom = oom != 0};
    memcpy(ret->kernel, name, strlen(name) + 1);
    return 0;
}

static int
parse_command_end(json_t *line, struct sandbox_command_result *ret, struct kg_error *err)
{
    json_int_t exit_code, signum, duration_ms, dropped;
    int timed_out, oom;

    if (json_unpack(line, "{s:I, s:I, s:b, s:b, s:I, s:I}", "exit_code", &exit_code, "signal",
                    &signum, "timed_out", &timed_out, "oom", &oom, "duration_ms", &duration_ms,
                    "dropped_bytes", &dropped) != 0)
        return kg_error_set(err, KG_INTERNAL, 0, "the end of a command is malformed");
    if (exit_code < 0 || exit_code > 255 || signum < 0 || signum > 64 || duration_ms < 0 ||
        dropped < 0)
        return kg_error_set(err, KG_INTERNAL, 0, "the end of a command has numbers out of range");
    *ret = (struct sandbox_command_result){
        .exit_code = (int)exit_code,
        .signal = (int)signum,
        .timed_out = timed_out != 0,
        .oom = oom != 0,
        .duration_ms = duration_ms,
        .dropped_bytes = dropped,
    };
    return 0;
}

int
agent_command_parse(const char *line, size_t len, struct agent_command_line *ret,
                    struct kg_error *err)
{
    json_auto_t *value = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const char *type = json_string_value(json_object_get(value, "type"));
    json_t *text = json_object_get(value, "text");

    *ret = (struct agent_command_line){.is_end = type && strcmp(type, "end") == 0};
    if (ret->is_end)
        return parse_command_end(value, &ret->result, err);
    bool is_stderr = type && strcmp(type, "stderr") == 0;
    if (!type || !json_is_string(text) || (!is_stderr && strcmp(type, "stdout") != 0))
        return kg_error_set(err, KG_INTERNAL, 0, "a command's output is malformed");
    ret->stream = is_stderr ? SANDBOX_STDERR : SANDBOX_STDOUT;
    ret->text = json_incref(text);
    return 0;
}

static void
end_line(struct agent_lines *lines, agent_line_fn fn, void *arg)
{
    if (lines->overlong)
        fn(NULL, 0, arg);
    else
        fn(lines->line.data ? lines->line.data : "", lines->line.len, arg);
    lines->line.len = 0;
    lines->overlong = false;
}

void
agent_lines_feed(struct agent_lines *lines, const char *data, size_t len, agent_line_fn fn,
                 void *arg)
{
    size_t max = lines->max ? lines->max : AGENT_EVENT_LINE_MAX;

    while (len > 0) {
        const char *newline = memchr(data, '\n', len);
        size_t part = newline ? (size_t)(newline - data) : len;
        if (lines->line.len + part > max)
            lines->overlong = true;
        if (!lines->overlong)
            buf_append(&lines->line, data, part);
        if (!newline)
            return;
        end_line(lines, fn, arg);
        data += part + 1;
        len -= part + 1;
    }
}

void
agent_lines_fini(struct agent_lines *lines)
{
    buf_fini(&lines->line);
}
