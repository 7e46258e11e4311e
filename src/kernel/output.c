// SPDX-License-Identifier: Apache-2.0
// What a kernel publishes, as lines.

#include <ctype.h>
#include <string.h>

#include "output_priv.h"

enum { MAX_TEXT_BYTES = 1 << 20, MAX_TRACEBACK = 1000 };

// The images that a line shows as `image` and `format`, the preferred first.
static const struct {
    const char *mime;
    const char *format;
} image_types[] = {
    {"image/png", "png"},
    {"image/jpeg", "jpeg"},
    {"image/gif", "gif"},
    {"image/svg+xml", "svg"},
};

static void
append_stream(struct output_log *log, const json_t *content)
{
    const char *name = json_string_value(json_object_get(content, "name"));
    const json_t *value = json_object_get(content, "text");
    if (!name || !json_is_string(value))
        return;
    const char *type = strcmp(name, "stderr") == 0 ? "stderr" : "stdout";
    const char *text = json_string_value(value);
    for (size_t left = json_string_length(value); left > 0;) {
        size_t len = utf8_cut(text, left, MAX_TEXT_BYTES);
        output_log_append(log, type, OUTPUT_DROPPABLE,
                          json_pack("{s:o}", "text", json_stringn(text, len)));
        text += len;
        left -= len;
    }
}

// Base64 as kernels send it may be broken into lines.
static json_t *
without_blanks(const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text || !strpbrk(text, "\r\n\t "))
        return json_deep_copy(value);
    KG_AUTO_BUF clean = {0};
    for (; *text; text++) {
        if (!isspace((unsigned char)*text))
            buf_append(&clean, text, 1);
    }
    return json_stringn(clean.data ? clean.data : "", clean.len);
}

// Moves the preferred image of `data` to `image` and `format`. Returns whether there was one.
static bool
take_image(json_t *line, json_t *data)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(image_types); i++) {
        json_t *value = json_object_get(data, image_types[i].mime);
        if (!json_is_string(value))
            continue;
        bool is_text = strcmp(image_types[i].format, "svg") == 0;
        json_object_set_new(line, "image", is_text ? json_incref(value) : without_blanks(value));
        json_object_set_new(line, "format", json_string(image_types[i].format));
        json_object_del(data, image_types[i].mime);
        return true;
    }
    return false;
}

static void
take_text(json_t *line, json_t *data)
{
    json_t *text = json_object_get(data, "text/plain");
    if (!json_is_string(text))
        return;
    json_object_set(line, "text", text);
    json_object_del(data, "text/plain");
}

static json_t *
copy_bundle(const json_t *bundle)
{
    return json_is_object(bundle) ? json_copy((json_t *)(uintptr_t)bundle) : json_object();
}

// A `display` line's members: an image where there is one, else text; `data` has the rest.
static json_t *
display_members(const json_t *bundle)
{
    json_t *line = json_object();
    json_t *data = copy_bundle(bundle);
    if (!take_image(line, data))
        take_text(line, data);
    json_object_set_new(line, "data", data);
    return line;
}

void
output_append_display(struct output_log *log, const json_t *bundle)
{
    output_log_append(log, "display", OUTPUT_DROPPABLE, display_members(bundle));
}

static void
append_display_message(struct output_log *log, const json_t *content, bool update)
{
    json_t *line = display_members(json_object_get(content, "data"));
    json_t *id = json_object_get(json_object_get(content, "transient"), "display_id");
    if (json_is_string(id))
        json_object_set(line, "display_id", id);
    if (update)
        json_object_set_new(line, "update", json_true());
    output_log_append(log, "display", OUTPUT_DROPPABLE, line);
}

static void
append_result(struct output_log *log, const json_t *content)
{
    json_t *line = json_object();
    json_t *data = copy_bundle(json_object_get(content, "data"));
    take_text(line, data);
    take_image(line, data);
    json_object_set_new(line, "data", data);
    json_t *count = json_object_get(content, "execution_count");
    json_object_set_new(line, "execution_count", json_integer(json_integer_value(count)));
    output_log_append(log, "result", OUTPUT_DROPPABLE, line);
}

// A string member; empty where there is none. A new reference.
static json_t *
string_or_empty(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_string(value) ? json_incref(value) : json_string("");
}

// Its strings: what a kernel says is untrusted, and clients print them.
static json_t *
copy_traceback(const json_t *traceback)
{
    json_t *lines = json_array();
    size_t i;
    json_t *line;
    json_array_foreach(traceback, i, line) {
        if (i == MAX_TRACEBACK)
            break;
        if (json_is_string(line))
            json_array_append(lines, line);
    }
    return lines;
}

// Takes `ename` and `evalue`, which may hold NULs. Deno gives the same text as both where code
// could not be parsed.
static void
append_error(struct output_log *log, json_t *ename, json_t *evalue, const json_t *traceback)
{
    KG_AUTO_BUF error = {0};
    buf_append(&error, json_string_value(ename), json_string_length(ename));
    if (json_string_length(evalue) > 0 && !json_equal(ename, evalue)) {
        buf_append_str(&error, ": ");
        buf_append(&error, json_string_value(evalue), json_string_length(evalue));
    }
    output_log_append(log, "error", OUTPUT_KEPT_IF_SMALL,
                      json_pack("{s:o, s:o, s:o, s:o}", "error",
                                json_stringn(error.data, error.len), "ename", ename, "evalue",
                                evalue, "traceback", copy_traceback(traceback)));
}

void
output_append_error(struct output_log *log, const char *ename, const char *evalue,
                    const json_t *traceback)
{
    append_error(log, json_string(ename), json_string(evalue), traceback);
}

void
output_append_message(struct output_log *log, const struct jupyter_message *message)
{
    const json_t *content = message->content;
    const char *type = message->msg_type;
    log->last_message++;
    if (strcmp(type, "stream") == 0)
        append_stream(log, content);
    else if (strcmp(type, "display_data") == 0)
        append_display_message(log, content, false);
    else if (strcmp(type, "update_display_data") == 0)
        append_display_message(log, content, true);
    else if (strcmp(type, "execute_result") == 0)
        append_result(log, content);
    else if (strcmp(type, "error") == 0)
        append_error(log, string_or_empty(content, "ename"), string_or_empty(content, "evalue"),
                     json_object_get(content, "traceback"));
    else if (strcmp(type, "clear_output") == 0)
        output_log_append(
            log, "clear", OUTPUT_DROPPABLE,
            json_pack("{s:b}", "wait", json_is_true(json_object_get(content, "wait"))));
}
