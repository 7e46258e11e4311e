// SPDX-License-Identifier: Apache-2.0
// Which command of a sandbox a message means, and what else several calls about commands say.
#include "envd_priv.h"

#include <string.h>

#include "message.h"
#include "session_commands.h"

static int
check_tag(const char *tag, struct kg_error *err)
{
    if (strlen(tag) <= SANDBOX_COMMAND_NOTE_MAX)
        return 0;
    return kg_error_set(err, KG_INVALID, 0, "tag must have at most %d bytes",
                        SANDBOX_COMMAND_NOTE_MAX);
}

int
process_tag_parse(const json_t *message, const char **ret, struct kg_error *err)
{
    if (message_string(message, "tag", ret, err) < 0)
        return -1;
    return *ret ? check_tag(*ret, err) : 0;
}

int
process_selector_parse(const json_t *message, struct process_selector *ret, struct kg_error *err)
{
    const json_t *process;
    const char *tag = NULL;
    *ret = (struct process_selector){0};
    if (message_object(message, "process", &process, err) < 0 ||
        message_uint(process, "pid", UINT32_MAX, &ret->pid, err) < 0 ||
        process_tag_parse(process, &tag, err) < 0)
        return -1;
    if (tag)
        memcpy(ret->tag, tag, strlen(tag) + 1);
    if (!ret->pid && !tag)
        return kg_error_set(err, KG_INVALID, 0, "process must have a pid or a tag");
    return 0;
}

int
process_size_parse(const json_t *message, int64_t *ret_cols, int64_t *ret_rows,
                   struct kg_error *err)
{
    const json_t *pty, *size = NULL;
    *ret_cols = *ret_rows = 0;
    if (message_object(message, "pty", &pty, err) < 0 ||
        message_object(pty, "size", &size, err) < 0 ||
        message_uint(size, "cols", SANDBOX_TERMINAL_SIDE_MAX, ret_cols, err) < 0 ||
        message_uint(size, "rows", SANDBOX_TERMINAL_SIDE_MAX, ret_rows, err) < 0)
        return -1;
    if (pty && (*ret_cols == 0 || *ret_rows == 0))
        return kg_error_set(err, KG_INVALID, 0, "pty.size must have cols and rows above 0");
    return 0;
}

int
process_input_check(const struct process_found *found, bool pty, struct kg_error *err)
{
    if (found->terminal && !pty)
        return kg_error_set(err, KG_INVALID, 0, "the process has a terminal: use pty, not stdin");
    if (!found->terminal && pty)
        return kg_error_set(err, KG_INVALID, 0, "the process has no terminal: use stdin, not pty");
    return 0;
}

// ---- Searching ------------------------------------------------------------------------------

struct process_search {
    struct process_selector selector;
    bool with_ended;
    struct sandbox_call *call;
    process_found_fn fn;
    void *arg;
};

static bool
is_meant(const struct process_selector *selector, const json_t *info)
{
    const char *note = json_string_value(json_object_get(info, "note"));
    if (selector->pid)
        return json_integer_value(json_object_get(info, "pid")) == selector->pid;
    return note && strcmp(note, selector->tag) == 0;
}

// One that runs, or the one that was started last: Linux uses the number of a process again.
static const json_t *
choose(const struct process_search *search, const json_t *list)
{
    const json_t *info, *ended = NULL;
    size_t i;
    json_array_foreach(list, i, info) {
        if (!is_meant(&search->selector, info))
            continue;
        if (json_is_true(json_object_get(info, "running")))
            return info;
        ended = info;
    }
    return search->with_ended ? ended : NULL;
}

static void
search_on_list(const json_t *result, const struct kg_error *call_err, void *arg)
{
    struct process_search *search = arg;
    struct kg_error err = {0};
    json_auto_t *list = result ? sandbox_command_list_parse(result, &err) : NULL;
    const json_t *info = list ? choose(search, list) : NULL;
    const struct process_found found = {
        .id = json_string_value(json_object_get(info, "id")),
        .terminal = json_is_true(json_object_get(info, "terminal")),
    };
    if (list && !info && search->selector.pid)
        (void)kg_error_set(&err, KG_NOT_FOUND, 0, "no process with pid %d runs",
                           (int)search->selector.pid);
    else if (list && !info)
        (void)kg_error_set(&err, KG_NOT_FOUND, 0, "no process with tag %.100s runs",
                           search->selector.tag);
    process_found_fn fn = search->fn;
    void *fn_arg = search->arg;
    free(search);
    fn(info ? &found : NULL, info ? NULL : result ? &err : call_err, fn_arg);
}

struct process_search *
process_search_start(struct session *session, const struct process_selector *selector,
                     bool with_ended, process_found_fn fn, void *arg, struct kg_error *err)
{
    struct sandbox *sandbox = session_commands_sandbox(session, err);
    if (!sandbox)
        return NULL;
    struct process_search *search = KG_NEW(struct process_search);
    *search = (struct process_search){
        .selector = *selector, .with_ended = with_ended, .fn = fn, .arg = arg};
    search->call = sandbox_command_list(sandbox, search_on_list, search, err);
    if (search->call)
        return search;
    free(search);
    return NULL;
}

void
process_search_cancel(struct process_search *search)
{
    if (!search)
        return;
    sandbox_call_cancel(search->call);
    free(search);
}
