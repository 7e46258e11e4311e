// SPDX-License-Identifier: Apache-2.0
// GET /api/v1/sessions/{id}/terminal: a terminal as a WebSocket. Binary messages are bytes, both
// ways; text messages are JSON: {"resize": [cols, rows]} from the client, and what else there is to
// say to it.

#include "terminals.h"

#include <string.h>

#include "api_priv.h"
#include "session.h"

// ---- What is said ----------------------------------------------------------------------------

static int
read_resize(const char *text, size_t len, struct terminal_word *ret, struct kg_error *err)
{
    json_auto_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *size = json_object_get(root, "resize");
    json_auto_t *named = NULL;
    if (json_object_size(root) == 1 && json_array_size(size) == 2)
        named = json_pack("{s:O, s:O}", "cols", json_array_get(size, 0), "rows",
                          json_array_get(size, 1));
    ret->kind = TERMINAL_RESIZE;
    if (!named)
        return kg_error_set(err, KG_INVALID, 0, "text must be {\"resize\": [cols, rows]}");
    return terminal_size_parse(named, &ret->cols, &ret->rows, err);
}

static int
dialect_read(bool is_text, const void *data, size_t len, struct terminal_word *ret,
             struct kg_error *err)
{
    enum { TEXT_MAX = 256 };
    if (is_text && len > TEXT_MAX)
        return kg_error_set(err, KG_INVALID, 0, "text must be {\"resize\": [cols, rows]}");
    if (is_text)
        return read_resize(data, len, ret, err);
    *ret = (struct terminal_word){.kind = TERMINAL_INPUT, .data = data, .len = len};
    return 0;
}

// Takes `object`.
static void
write_json(struct websocket *ws, json_t *object)
{
    KG_AUTO_FREE char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    websocket_write_text(ws, text);
}

static void
dialect_write_start(struct websocket *ws, const struct sandbox_command_start *start)
{
    json_t *object = json_pack("{s:s, s:i, s:b, s:b}", "command_id", start->id, "pid", start->pid,
                               "terminal", (int)start->terminal, "running", (int)start->running);
    if (start->dropped_bytes)
        json_object_set_new(object, "dropped_bytes", json_integer(start->dropped_bytes));
    write_json(ws, object);
}

static void
dialect_write_output(struct websocket *ws, struct terminal_tail *tail, const char *data, size_t len)
{
    (void)tail;
    websocket_begin(ws, false, len);
    websocket_write(ws, data, len);
}

static void
dialect_write_missed(struct websocket *ws, int64_t bytes)
{
    write_json(ws, json_pack("{s:I}", "dropped_bytes", (json_int_t)bytes));
}

static void
dialect_write_end(struct websocket *ws, const struct sandbox_command_result *result,
                  const struct kg_error *err)
{
    json_t *end = result ? json_pack("{s:i}", "exit_code", result->exit_code)
                         : json_pack("{s:n, s:s}", "exit_code", "error", err->message);
    if (result && result->signal)
        json_object_set_new(end, "signal", api_signal_name(result->signal));
    write_json(ws, end);
}

const struct terminal_dialect api_terminal_dialect = {
    .subprotocol = "kernelgate.terminal",
    .read = dialect_read,
    .write_start = dialect_write_start,
    .write_output = dialect_write_output,
    .write_missed = dialect_write_missed,
    .write_end = dialect_write_end,
};

// ---- The request -----------------------------------------------------------------------------

static int
take_side(const struct http_request *request, const char *name, int *ret, struct kg_error *err)
{
    const char *text = http_request_query(request, name);
    size_t len = text ? strlen(text) : 0;
    if (!text)
        return 0;
    *ret = len > 0 && len < 6 && strspn(text, "0123456789") == len ? atoi(text) : 0;
    if (*ret < 1 || *ret > SANDBOX_TERMINAL_SIDE_MAX)
        return kg_error_set(err, KG_INVALID, 0, "%s must be a number from 1 to %d", name,
                            SANDBOX_TERMINAL_SIDE_MAX);
    return 0;
}

static int
read_wish(struct http_request *request, struct terminal_wish *wish, struct kg_error *err)
{
    wish->id = http_request_query(request, "id");
    wish->cwd = http_request_query(request, "cwd");
    // An id that the sandbox has made can be joined, but not given.
    wish->only_joins = wish->id && *wish->id == '_' && sandbox_command_id_valid(wish->id);
    if (wish->id && !wish->only_joins && command_id_parse(wish->id, err) < 0)
        return -1;
    if (take_side(request, "cols", &wish->cols, err) < 0)
        return -1;
    return take_side(request, "rows", &wish->rows, err);
}

void
handle_terminal(struct http_request *request, void *arg)
{
    const struct api_context *context = arg;
    struct kg_error err = {0};
    struct terminal_wish wish = {.cols = TERMINAL_COLS,
                                 .rows = TERMINAL_ROWS,
                                 .dialect = &api_terminal_dialect,
                                 .fail = http_reply_error};
    wish.session = api_find_session(request, context);
    if (!wish.session || !websocket_is_asked(request))
        return;
    if (read_wish(request, &wish, &err) < 0)
        http_reply_error(request, &err);
    else
        terminals_open(context->face->terminals, request, &wish);
}
