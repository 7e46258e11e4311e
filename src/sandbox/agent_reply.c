// SPDX-License-Identifier: Apache-2.0
// Parsers of an agent's answers and events.
#include "agent_reply.h"

#include <limits.h>
#include <string.h>

#include "link_line.h"
#include "sandbox.h"

// Far more than any truthful agent sends, and little for a gateway.
enum { WEIGHT_MAX = 8 << 20, DEPTH_MAX = 16 };

json_t *
agent_object_parse(const char *text, size_t len, struct kg_error *err)
{
    const struct json_weight weight = json_weigh(text, len);

    if (weight.depth <= DEPTH_MAX && weight.bytes <= WEIGHT_MAX) {
        json_auto_t *object = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_object(object))
            return KG_STEAL(object);
    }
    (void)kg_error_set(err, KG_INTERNAL, 0, "the agent's answer is not a JSON object");
    return NULL;
}

// What an agent may say of a call. Anything else would speak for the gateway: of keys, sessions or
// limits.
static enum kg_code
code_of(const char *name)
{
    static const enum kg_code sayable[] = {KG_INVALID,     KG_INVALID_PATH,   KG_NOT_FOUND,
                                           KG_FILE_EXISTS, KG_COMMAND_EXISTS, KG_SESSION_BUSY,
                                           KG_DISK_FULL};
    enum kg_code code = name ? kg_code_find(name) : KG_N_CODES;

    for (size_t i = 0; i < KG_ARRAY_LEN(sayable); i++)
        if (sayable[i] == code)
            return code;
    return KG_INTERNAL;
}

void
agent_error_parse(const char *text, size_t len, struct kg_error *err)
{
    char reason[sizeof err->message - 32] = "";
    json_auto_t *error = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *said = json_object_get(error, "error");
    enum kg_code code = code_of(json_string_value(json_object_get(error, "code")));

    if (json_is_string(said))
        utf8_printable(json_string_value(said), json_string_length(said), reason, sizeof reason);
    (void)kg_error_set(err, code, 0, "%s%s", code == KG_INTERNAL ? "the agent failed: " : "",
                       reason[0] ? reason : "no reason given");
}

// Into `ret`, which has room for AGENT_KERNEL_NAME_MAX bytes.
static int
kernel_name_parse(const char *name, char *ret, struct kg_error *err)
{
    if (!link_target_valid(name) || strlen(name) > AGENT_KERNEL_NAME_MAX)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event has an invalid kernel name");
    memcpy(ret, name, strlen(name) + 1);
    return 0;
}

static int
kernel_exit_parse(json_t *event, struct agent_event *ret, struct kg_error *err)
{
    const char *name;
    json_int_t pid, exit_code, signum;
    int oom;

    if (json_unpack(event, "{s:s, s:I, s:I, s:I, s:b}", "name", &name, "pid", &pid, "exit_code",
                    &exit_code, "signal", &signum, "oom", &oom) != 0)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event is malformed");
    if (pid < 1 || pid > INT_MAX || exit_code < -1 || exit_code > 255 || signum < 0 || signum > 64)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event has numbers out of range");
    *ret = (struct agent_event){.type = AGENT_KERNEL_EXIT,
                                .pid = (int)pid,
                                .exit_code = (int)exit_code,
                                .signal = (int)signum,
                                .oom = oom != 0};
    return kernel_name_parse(name, ret->kernel, err);
}

static int
memory_parse(json_t *event, struct agent_event *ret, struct kg_error *err)
{
    const json_int_t max = INT64_C(1) << 53; // a number that every JSON reader takes
    json_int_t bytes;

    if (json_unpack(event, "{s:I}", "bytes", &bytes) != 0)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event is malformed");
    if (bytes < 0 || bytes > max)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event has numbers out of range");
    *ret = (struct agent_event){.type = AGENT_MEMORY, .memory_bytes = bytes};
    return 0;
}

static int
kernel_memory_parse(json_t *event, struct agent_event *ret, struct kg_error *err)
{
    const char *name = json_string_value(json_object_get(event, "name"));

    if (!name)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event is malformed");
    if (memory_parse(event, ret, err) != 0)
        return -1;
    ret->type = AGENT_KERNEL_MEMORY;
    return kernel_name_parse(name, ret->kernel, err);
}

static int
commands_parse(json_t *event, struct agent_event *ret, struct kg_error *err)
{
    enum { MAX = 1000 }; // more than an agent lets run
    json_int_t running, terminals;
    int working;

    if (json_unpack(event, "{s:I, s:I, s:b}", "running", &running, "terminals", &terminals,
                    "working", &working) != 0)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event is malformed");
    if (running < 0 || running > MAX || terminals < 0 || terminals > MAX)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event has numbers out of range");
    *ret = (struct agent_event){.type = AGENT_COMMANDS,
                                .n_commands = (int)running,
                                .n_terminals = (int)terminals,
                                .working = working != 0};
    return 0;
}

static bool
method_is_valid(const char *method)
{
    size_t len = strlen(method);

    return len >= 1 && len <= AGENT_METHOD_MAX &&
           strspn(method, "abcdefghijklmnopqrstuvwxyz_.") == len;
}

static int
request_parse(json_t *event, struct agent_event *ret, struct kg_error *err)
{
    const char *method;
    json_int_t id;
    json_t *params;

    if (json_unpack(event, "{s:I, s:s, s:o}", "id", &id, "method", &method, "params", &params) !=
            0 ||
        !json_is_object(params) || !method_is_valid(method))
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event is malformed");
    if (id < 1)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event has numbers out of range");
    *ret = (struct agent_event){
        .type = AGENT_REQUEST, .request_id = id, .params = json_incref(params)};
    memcpy(ret->method, method, strlen(method) + 1);
    return 0;
}

static int
request_end_parse(json_t *event, struct agent_event *ret, struct kg_error *err)
{
    json_int_t id;

    if (json_unpack(event, "{s:I}", "id", &id) != 0 || id < 1)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event is malformed");
    *ret = (struct agent_event){.type = AGENT_REQUEST_END, .request_id = id};
    return 0;
}

int
agent_event_parse(const char *text, size_t len, struct agent_event *ret, struct kg_error *err)
{
    json_auto_t *event = agent_object_parse(text, len, err);
    const char *type = json_string_value(json_object_get(event, "type"));

    if (!type)
        return kg_error_set(err, KG_INTERNAL, 0, "an agent's event is malformed");
    if (strcmp(type, "kernel_exit") == 0)
        return kernel_exit_parse(event, ret, err);
    if (strcmp(type, "memory") == 0)
        return memory_parse(event, ret, err);
    if (strcmp(type, "kernel_memory") == 0)
        return kernel_memory_parse(event, ret, err);
    if (strcmp(type, "commands") == 0)
        return commands_parse(event, ret, err);
    if (strcmp(type, "request") == 0 && len <= AGENT_REQUEST_MAX)
        return request_parse(event, ret, err);
    if (strcmp(type, "request_end") == 0)
        return request_end_parse(event, ret, err);
    return kg_error_set(err, KG_INTERNAL, 0,
                        "an agent's event has an unknown type, or is too long");
}

int
agent_command_end_parse(const json_t *result, struct sandbox_command_result *ret,
                        struct kg_error *err)
{
    json_int_t exit_code, signum, duration_ms, dropped;
    int timed_out, oom;

    if (json_unpack((json_t *)(uintptr_t)result, "{s:I, s:I, s:b, s:b, s:I, s:I}", "exit_code",
                    &exit_code, "signal", &signum, "timed_out", &timed_out, "oom", &oom,
                    "duration_ms", &duration_ms, "dropped_bytes", &dropped) != 0)
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

static bool
is_utf8(const char *text, size_t len)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + len;

    for (size_t n; at < end; at += n) {
        n = utf8_valid_len(at, end);
        if (n == 0)
            return false;
    }
    return true;
}

int
agent_command_start_parse(const json_t *head, struct sandbox_command_start *ret,
                          struct kg_error *err)
{
    const char *id = "";
    json_int_t pid = 0, dropped = 0, kept = -1;
    int terminal = 0, running = 1;

    if (json_unpack((json_t *)(uintptr_t)head, "{s?s, s?I, s?b, s?b, s?I, s?I}", "id", &id, "pid",
                    &pid, "terminal", &terminal, "running", &running, "dropped_bytes", &dropped,
                    "kept_bytes", &kept) != 0)
        return kg_error_set(err, KG_INTERNAL, 0, "the start of a command is malformed");
    if ((*id && !sandbox_command_id_valid(id)) || pid < 0 || pid > INT_MAX || dropped < 0 ||
        kept < -1)
        return kg_error_set(err, KG_INTERNAL, 0, "the start of a command has values out of range");
    *ret = (struct sandbox_command_start){.id = id,
                                          .pid = (int)pid,
                                          .terminal = terminal != 0,
                                          .running = running != 0,
                                          .dropped_bytes = dropped,
                                          .kept_bytes = kept};
    return 0;
}

static int
missed_parse(const char *digits, size_t len, int64_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < len; i++) {
        if (digits[i] < '0' || digits[i] > '9' || i >= 18)
            return -1;
        *ret = *ret * 10 + (digits[i] - '0');
    }
    return len > 0 ? 0 : -1;
}

int
agent_output_parse(const char *data, size_t len, struct agent_output *ret, struct kg_error *err)
{
    bool sound = false;

    *ret = (struct agent_output){0};
    if (len >= 2 && data[0] >= AGENT_OUTPUT_STDOUT && data[0] <= AGENT_OUTPUT_MISSED) {
        *ret = (struct agent_output){
            .kind = (enum agent_output_kind)data[0], .text = data + 1, .len = len - 1};
        sound = ret->kind == AGENT_OUTPUT_MISSED
                    ? missed_parse(ret->text, ret->len, &ret->missed_bytes) == 0
                    : ret->kind == AGENT_OUTPUT_TERMINAL || is_utf8(ret->text, ret->len);
    }
    return sound ? 0 : kg_error_set(err, KG_INTERNAL, 0, "a command's output is malformed");
}

// -1 where there is none of at most `max`.
static int64_t
number_within(const json_t *object, const char *key, int64_t max)
{
    const json_t *number = json_object_get(object, key);
    int64_t value = json_is_integer(number) ? json_integer_value(number) : -1;
    return value >= 0 && value <= max ? value : -1;
}

// NULL where it is not a type of entries.
static const char *
entry_type(const json_t *entry, const char *key)
{
    static const char *const types[] = {"file", "dir", "symlink", "other"};
    const char *type = json_string_value(json_object_get(entry, key));

    for (size_t i = 0; type && i < KG_ARRAY_LEN(types); i++)
        if (strcmp(type, types[i]) == 0)
            return types[i];
    return NULL;
}

int
agent_entry_parse(const json_t *entry, struct agent_entry *ret, struct kg_error *err)
{
    const json_t *size = json_object_get(entry, "size");
    const json_t *mtime_ms = json_object_get(entry, "mtime_ms");

    *ret = (struct agent_entry){
        .type = entry_type(entry, "type"),
        .size = json_integer_value(size),
        .mtime_ms = json_integer_value(mtime_ms),
        .mode = (int)number_within(entry, "mode", 07777),
        .uid = number_within(entry, "uid", UINT32_MAX),
        .gid = number_within(entry, "gid", UINT32_MAX),
        .target = json_string_value(json_object_get(entry, "target")),
        .target_type = entry_type(entry, "target_type"),
    };
    if (ret->type && json_is_integer(size) && ret->size >= 0 && json_is_integer(mtime_ms))
        return 0;
    return kg_error_set(err, KG_INTERNAL, 0, "the agent's answer about a file is malformed");
}

int
agent_number_parse(const json_t *result, struct kg_error *err)
{
    const json_t *number = json_object_get(result, "number");
    json_int_t value = json_integer_value(number);

    if (json_is_integer(number) && value >= 0 && value <= AGENT_NUMBER_MAX)
        return (int)value;
    return kg_error_set(err, KG_INTERNAL, 0, "the agent's answer about names is malformed");
}

int
agent_watch_start_parse(const json_t *head, struct kg_error *err)
{
    enum { MAX = 1 << 20 }; // more than an agent watches
    int64_t folders = number_within(head, "folders", MAX);

    if (folders >= 0)
        return (int)folders;
    return kg_error_set(err, KG_INTERNAL, 0, "the agent's answer about a watch is malformed");
}

// A member that is a path, or NULL.
static const char *
path_of(const json_t *object, const char *key)
{
    const char *path = json_string_value(json_object_get(object, key));
    return path && file_path_check(path, false, NULL) == 0 ? path : NULL;
}

json_t *
agent_watch_event_parse(const char *text, size_t len, struct agent_watch_event *ret,
                        struct kg_error *err)
{
    static const char *const events[] = {"overflow", "rename", "create",
                                         "write",    "remove", "chmod"};
    json_auto_t *event = len <= AGENT_WATCH_LINE_MAX ? agent_object_parse(text, len, err) : NULL;
    const char *name = json_string_value(json_object_get(event, "event"));
    size_t i = 0;

    while (i < KG_ARRAY_LEN(events) && (!name || strcmp(events[i], name) != 0))
        i++;
    *ret = (struct agent_watch_event){.is_folder = json_is_true(json_object_get(event, "folder"))};
    if (i < KG_ARRAY_LEN(events)) {
        ret->event = events[i];
        ret->path = i > 0 ? path_of(event, "path") : NULL;
        ret->from = i == 1 ? path_of(event, "from") : NULL;
        if ((i == 0 || ret->path) && (i != 1 || ret->from))
            return KG_STEAL(event);
    }
    (void)kg_error_set(err, KG_INTERNAL, 0, "an agent's report of a watch is malformed");
    return NULL;
}
