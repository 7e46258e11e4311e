// SPDX-License-Identifier: Apache-2.0
// Steps that publish something.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steps.h"

// A content as text: numbers keep their spelling, and what is not JSON is sent nevertheless.
__attribute__((format(printf, 3, 4))) static void
say_text(struct cell *cell, const char *type, const char *format, ...)
{
    char *content;
    va_list args;
    va_start(args, format);
    if (vasprintf(&content, format, args) < 0)
        abort();
    va_end(args);
    wire_send_text(cell->request, IOPUB, type, content);
    free(content);
}

static void
stream(struct cell *cell, const char *name, const char *text, const char *end)
{
    char *literal = step_literal(text, end);
    say_text(cell, "stream", "{\"name\":\"%s\",\"text\":%s}", name, literal);
    free(literal);
}

void
print_text(struct cell *cell, const char *text)
{
    wire_send(cell->request, IOPUB, "stream",
              json_pack("{s:s, s:s}", "name", "stdout", "text", text));
}

static void
step_print(struct cell *cell, char *rest)
{
    stream(cell, "stdout", rest, "\n");
}

static void
step_stderr(struct cell *cell, char *rest)
{
    stream(cell, "stderr", rest, "\n");
}

// A MIME bundle: as it is, or of one MIME type.
static char *
bundle(const char *mime, const char *data)
{
    size_t len = strlen(mime);
    bool is_json = len >= 4 && strcmp(mime + len - 4, "json") == 0;
    char *literal = is_json ? strdup(data) : step_literal(data, ""), *ret;
    if (asprintf(&ret, "{\"%s\":%s}", mime, literal) < 0)
        abort();
    free(literal);
    return ret;
}

static void
step_result(struct cell *cell, char *rest)
{
    char *data = rest[0] == '{' ? strdup(rest) : bundle("text/plain", rest);
    say_text(cell, "execute_result", "{\"data\":%s,\"metadata\":{},\"execution_count\":%d}", data,
             cell->count);
    free(data);
}

static void
step_display(struct cell *cell, char *rest)
{
    const char *mime = rest[0] == '{' ? NULL : step_word(&rest);
    char *data = mime ? bundle(mime, rest) : strdup(rest);
    say_text(cell, "display_data", "{\"data\":%s,\"metadata\":{},\"transient\":{}}", data);
    free(data);
}

static void
display_id(struct cell *cell, const char *type, char *rest)
{
    const char *id = step_word(&rest);
    say_text(cell, type, "{\"data\":%s,\"metadata\":{},\"transient\":{\"display_id\":\"%s\"}}",
             rest, id);
}

static void
step_display_id(struct cell *cell, char *rest)
{
    display_id(cell, "display_data", rest);
}

static void
step_update_display(struct cell *cell, char *rest)
{
    display_id(cell, "update_display_data", rest);
}

static void
step_clear(struct cell *cell, char *rest)
{
    cell_say(cell, "clear_output", json_pack("{s:b}", "wait", strcmp(rest, "wait") == 0));
}

static void
step_error(struct cell *cell, char *rest)
{
    size_t len;
    const char *name = step_word(&rest);
    char *value = step_text(rest, "", &len);
    cell_raise(cell, name, value);
    free(value);
}

// Each message gives way to what comes in, so that an interrupt ends a long flood.
static void
step_flood(struct cell *cell, char *rest)
{
    double n = step_number(cell, &rest), size = step_number(cell, &rest);
    if (cell->ended)
        return;
    char *text = malloc((size_t)size + 1);
    memset(text, 'x', (size_t)size);
    text[(size_t)size] = '\0';
    for (bool goes_on = true; n > 0 && goes_on; n--) {
        print_text(cell, text);
        goes_on = cell_wait(cell, 0);
    }
    free(text);
}

const struct step steps_output[] = {
    {"print", step_print},           {"stderr", step_stderr},
    {"result", step_result},         {"display", step_display},
    {"display-id", step_display_id}, {"update-display", step_update_display},
    {"clear", step_clear},           {"error", step_error},
    {"flood", step_flood},           {NULL, NULL},
};
