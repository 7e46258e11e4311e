// SPDX-License-Identifier: Apache-2.0
// A cell from its busy to its idle status, as Jupyter's messaging protocol has it ("Execute").
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "steps.h"

static int count;
static struct frame last_header;
static json_t *history;

const struct frame *
cell_last_header(void)
{
    return &last_header;
}

json_t *
cell_history(void)
{
    return history ? json_incref(history) : json_array();
}

void
cell_say(struct cell *cell, const char *type, json_t *content)
{
    wire_send(cell->request, IOPUB, type, content);
}

void
cell_say_state(const struct message *request, const char *state)
{
    wire_send(request, IOPUB, "status", json_pack("{s:s}", "execution_state", state));
}

void
cell_reply(struct cell *cell, json_t *content)
{
    json_object_set_new(content, "execution_count", json_integer(cell->count));
    if (cell->replied)
        json_decref(content);
    else
        wire_send(cell->request, cell->request->channel, "execute_reply", content);
    cell->replied = true;
}

void
cell_idle(struct cell *cell)
{
    if (!cell->idled)
        cell_say_state(cell->request, "idle");
    cell->idled = true;
}

void
cell_raise(struct cell *cell, const char *name, const char *value)
{
    json_t *content =
        json_pack("{s:s, s:s, s:[s, s++]}", "ename", name, "evalue", value, "traceback",
                  "Traceback (most recent call last)", name, ": ", value);
    cell_say(cell, "error", json_deep_copy(content));
    json_object_set_new(content, "status", json_string("error"));
    json_object_set_new(content, "payload", json_array());
    json_object_set_new(content, "user_expressions", json_object());
    cell_reply(cell, content);
    cell->ended = true;
    const json_t *stops = json_object_get(cell->request->content, "stop_on_error");
    if (!json_is_false(stops))
        shell_abort(cell->shell);
}

void
cell_set_parent(struct cell *cell, const struct frame *header)
{
    char *copy = malloc(header->len + 1);
    memcpy(copy, header->data, header->len);
    copy[header->len] = '\0';
    free(cell->request->parent.data);
    cell->request->parent = (struct frame){copy, header->len};
}

void
cell_end(struct cell *cell)
{
    cell_set_parent(cell, &cell->header);
    cell_reply(cell, json_pack("{s:s, s:{}, s:[]}", "status", "ok", "user_expressions", "payload"));
    cell_idle(cell);
    shell_free(cell->shell);
}

static void
count_it(struct cell *cell, const char *code)
{
    bool is_silent = json_is_true(json_object_get(cell->request->content, "silent"));
    bool is_kept = !json_is_false(json_object_get(cell->request->content, "store_history"));
    cell->count = is_silent ? count : count + 1;
    if (is_silent)
        return;
    cell_say(cell, "execute_input",
             json_pack("{s:s, s:i}", "code", code, "execution_count", cell->count));
    if (!is_kept)
        return;
    count++;
    if (!history)
        history = json_array();
    json_array_append_new(history, json_pack("[i, i, s]", 1, count, code));
}

void
cell_start(struct message *request, struct shell *shell)
{
    struct cell *cell = calloc(1, sizeof *cell);
    cell->request = request;
    cell->shell = shell;
    loop_start(cell);
}

void
cell_free(struct cell *cell)
{
    message_free(cell->request);
    free(cell);
}

void
cell_run(struct cell *cell)
{
    const char *code = message_text(cell->request, "code");
    char *save = NULL, *copy = strdup(code);
    cell->header = (struct frame){strdup(cell->request->parent.data), cell->request->parent.len};
    cell_say_state(cell->request, "busy");
    count_it(cell, code);
    for (char *line = strtok_r(copy, "\n", &save); line && !cell->ended;
         line = strtok_r(NULL, "\n", &save))
        step_run(cell, line);
    cell_end(cell);
    free(last_header.data);
    last_header = cell->header;
    free(copy);
}
