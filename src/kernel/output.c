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
lines_add(struct output_lines *lines, struct buf *line, enum output_worth worth)
{
    struct output_entry *entry = line_end(line, worth);
    TAILQ_INSERT_TAIL(&lines->entries, entry, link);
    lines->bytes += entry->len;
}

static void
line_add_json_string(struct buf *line, const char *name, const json_t *value)
{
    line_add_string(line, name, json_string_value(value), json_string_length(value));
}

// ---- Streams --------------------------------------------------------------------------------

static void
add_text(struct output_lines *lines, const char *type, const char *text, size_t left)
{
    while (left > 0) {
        size_t len = utf8_cut(text, left, MAX_TEXT_BYTES);
        struct buf line;
        line_begin(&line, type);
        line_add_string(&line, "text", text, len);
        lines_add(lines, &line, OUTPUT_DROPPABLE);
        text += len;
        left -= len;
    }
}

static void
add_stream(struct output_lines *lines, const json_t *content)
{
    const char *name = json_string_value(json_object_get(content, "name"));
    const json_t *value = json_object_get(content, "text");
    if (!name || !json_is_string(value))
        return;
    add_text(lines, strcmp(name, "stderr") == 0 ? "stderr" : "stdout", json_string_value(value),
             json_string_length(value));
}

// ---- MIME bundles ---------------------------------------------------------------------------

// A bundle: what is text and numbers, and what is structured (struct jupyter_message).
struct bundle {
    const json_t *data;
    const json_t *structured;
    const char *text_type;  // shown as `text`; NULL: none
    const char *image_type; // shown as `image`; NULL: none
    const char *image_format;
};

static void
bundle_init(struct bundle *bundle, const json_t *data, const json_t *structured)
{
    *bundle = (struct bundle){.data = data, .structured = structured};
    for (size_t i = 0; i < KG_ARRAY_LEN(image_types) && !bundle->image_type; i++) {
        if (json_is_string(json_object_get(data, image_types[i].mime))) {
            bundle->image_type = image_types[i].mime;
            bundle->image_format = image_types[i].format;
        }
    }
    if (json_is_string(json_object_get(data, "text/plain")))
        bundle->text_type = "text/plain";
}

// Base64 as kernels send it may be broken into lines.
static void
line_add_image(struct buf *line, const struct bundle *bundle)
{
    const json_t *value = json_object_get(bundle->data, bundle->image_type);
    const char *text = json_string_value(value);
    if (strcmp(bundle->image_format, "svg") == 0 || !strpbrk(text, "\r\n\t ")) {
        line_add_json_string(line, "image", value);
    } else {
        KG_AUTO_BUF clean = {0};
        for (; *text; text++) {
            if (!isspace((unsigned char)*text))
                buf_append(&clean, text, 1);
        }
        line_add_string(line, "image", clean.data, clean.len);
    }
    line_add_string(line, "format", bundle->image_format, strlen(bundle->image_format));
}

static void
line_add_text(struct buf *line, const struct bundle *bundle)
{
    line_add_json_string(line, "text", json_object_get(bundle->data, bundle->text_type));
}

static bool
is_type(const char *type, const char *mime)
{
    return type && strcmp(type, mime) == 0;
}

static void
append_separator(struct buf *line, bool *is_first)
{
    if (!*is_first)
        buf_append(line, ",", 1);
    *is_first = false;
}

// Adds what is not shown by members of its own.
static void
line_add_data(struct buf *line, const struct bundle *bundle)
{
    bool is_first = true;
    const char *mime;
    json_t *value;
    line_add_name(line, "data");
    buf_append(line, "{", 1);
    json_object_foreach((json_t *)(uintptr_t)bundle->data, mime, value) {
        if (is_type(bundle->text_type, mime) || is_type(bundle->image_type, mime))
            continue;
        append_separator(line, &is_first);
        json_append_string(line, mime, strlen(mime));
        buf_append(line, ":", 1);
        if (json_is_string(value)) {
            json_append_string(line, json_string_value(value), json_string_length(value));
        } else {
            KG_AUTO_FREE char *text = json_line(value, JSON_ENCODE_ANY);
            buf_append_str(line, text);
        }
    }
    json_object_foreach((json_t *)(uintptr_t)bundle->structured, mime, value) {
        append_separator(line, &is_first);
        json_append_string(line, mime, strlen(mime));
        buf_append(line, ":", 1);
        buf_append(line, json_string_value(value), json_string_length(value));
    }
    buf_append(line, "}", 1);
}

// A `display` line's members: an image where there is one, else text; `data` has the rest.
static void
line_begin_display(struct buf *line, const json_t *data, const json_t *structured)
{
    struct bundle bundle;
    bundle_init(&bundle, data, structured);
    line_begin(line, "display");
    if (bundle.image_type) {
        bundle.text_type = NULL;
        line_add_image(line, &bundle);
    } else if (bundle.text_type) {
        line_add_text(line, &bundle);
    }
    line_add_data(line, &bundle);
}

static void
add_display(struct output_lines *lines, const struct jupyter_message *message, bool update)
{
    const json_t *content = message->content;
    json_t *id = json_object_get(json_object_get(content, "transient"), "display_id");
    struct buf line;
    line_begin_display(&line, json_object_get(content, "data"), message->structured);
    if (json_is_string(id))
        line_add_json_string(&line, "display_id", id);
    if (update)
        line_add_json(&line, "update", json_true());
    lines_add(lines, &line, OUTPUT_DROPPABLE);
}

static void
add_result(struct output_lines *lines, const struct jupyter_message *message)
{
    struct bundle bundle;
    struct buf line;
    bundle_init(&bundle, json_object_get(message->content, "data"), message->structured);
    line_begin(&line, "result");
    if (bundle.text_type)
        line_add_text(&line, &bundle);
    if (bundle.image_type)
        line_add_image(&line, &bundle);
    line_add_data(&line, &bundle);
    json_auto_t *count =
        json_integer(json_integer_value(json_object_get(message->content, "execution_count")));
    line_add_json(&line, "execution_count", count);
    lines_add(lines, &line, OUTPUT_DROPPABLE);
}

// What `obj?` shows. A tenant says how many there are.
static void
add_pages(struct output_lines *lines, const json_t *content)
{
    enum { MAX_PAGES = 100 };
    int n_pages = 0;
    size_t i;
    json_t *payload;
    json_array_foreach(json_object_get(content, "payload"), i, payload) {
        const char *source = json_string_value(json_object_get(payload, "source"));
        if (!source || strcmp(source, "page") != 0 || n_pages++ >= MAX_PAGES)
            continue;
        struct buf line;
        line_begin_display(&line, json_object_get(payload, "data"), NULL);
        lines_add(lines, &line, OUTPUT_DROPPABLE);
    }
}

// ---- Errors ---------------------------------------------------------------------------------

// Its strings: what a kernel says is untrusted, and clients print them.
static void
line_add_traceback(struct buf *line, const json_t *traceback)
{
    bool is_first = true;
    size_t i;
    json_t *entry;
    line_add_name(line, "traceback");
    buf_append(line, "[", 1);
    json_array_foreach(traceback, i, entry) {
        if (i == MAX_TRACEBACK)
            break;
        if (!json_is_string(entry))
            continue;
        append_separator(line, &is_first);
        json_append_string(line, json_string_value(entry), json_string_length(entry));
    }
    buf_append(line, "]", 1);
}

struct text {
    const char *data; // may hold NULs
    size_t len;
};

static struct text
text_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return (struct text){json_string_value(value), json_string_length(value)};
}

// Deno gives the same text as both where code could not be parsed.
static struct output_entry *
error_line(struct text ename, struct text evalue, const json_t *traceback)
{
    KG_AUTO_BUF error = {0};
    bool same = ename.len == evalue.len &&
                (ename.len == 0 || memcmp(ename.data, evalue.data, ename.len) == 0);
    buf_append(&error, ename.data, ename.len);
    if (evalue.len > 0 && !same) {
        buf_append_str(&error, ": ");
        buf_append(&error, evalue.data, evalue.len);
    }
    struct buf line;
    line_begin(&line, "error");
    line_add_string(&line, "error", error.data, error.len);
    line_add_string(&line, "ename", ename.data, ename.len);
    line_add_string(&line, "evalue", evalue.data, evalue.len);
    line_add_traceback(&line, traceback);
    return line_end(&line, OUTPUT_KEPT_IF_SMALL);
}

static struct output_entry *
error_line_of(const json_t *content)
{
    return error_line(text_of(content, "ename"), text_of(content, "evalue"),
                      json_object_get(content, "traceback"));
}

static void
append_text(struct buf *text, const json_t *value)
{
    buf_append(text, json_string_value(value), json_string_length(value));
}

// Where there is no traceback, the error's name and value.
static void
add_error(struct output_lines *lines, const json_t *content)
{
    KG_AUTO_BUF text = {0};
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(content, "traceback"), i, entry) {
        if (i < MAX_TRACEBACK && json_is_string(entry)) {
            append_text(&text, entry);
            buf_append_str(&text, "\n");
        }
    }
    if (text.len == 0) {
        append_text(&text, json_object_get(content, "ename"));
        buf_append_str(&text, ": ");
        append_text(&text, json_object_get(content, "evalue"));
        buf_append_str(&text, "\n");
    }
    add_text(lines, "stderr", text.data, text.len);
    lines->error = error_line_of(content);
}

static void
add_reply(struct output_lines *lines, const json_t *content)
{
    const char *status = json_string_value(json_object_get(content, "status"));
    add_pages(lines, content);
    if (status && strcmp(status, "error") == 0)
        lines->error = error_line_of(content);
}

static struct output_lines *
lines_new(void)
{
    struct output_lines *lines = KG_NEW(struct output_lines);
    TAILQ_INIT(&lines->entries);
    return lines;
}

struct output_entry *
output_error_line(const char *ename, const char *evalue, const json_t *traceback)
{
    return error_line((struct text){ename, strlen(ename)}, (struct text){evalue, strlen(evalue)},
                      traceback);
}

// ---- Messages -------------------------------------------------------------------------------

static void
add_clear(struct output_lines *lines, const json_t *content)
{
    struct buf line;
    line_begin(&line, "clear");
    line_add_json(&line, "wait", json_boolean(json_is_true(json_object_get(content, "wait"))));
    lines_add(lines, &line, OUTPUT_DROPPABLE);
}

static void
add_dropped(struct output_lines *lines, uint64_t bytes)
{
    json_auto_t *count = json_integer((json_int_t)bytes);
    json_auto_t *one = json_integer(1);
    struct buf line;
    line_begin(&line, "dropped");
    line_add_json(&line, "messages", one);
    line_add_json(&line, "bytes", count);
    lines_add(lines, &line, OUTPUT_DROPPABLE);
}

static void
add_message(struct output_lines *lines, const struct jupyter_message *message)
{
    const char *type = message->msg_type;
    if (message->cut_bytes > 0)
        add_dropped(lines, message->cut_bytes);
    else if (strcmp(type, "stream") == 0)
        add_stream(lines, message->content);
    else if (strcmp(type, "display_data") == 0)
        add_display(lines, message, false);
    else if (strcmp(type, "update_display_data") == 0)
        add_display(lines, message, true);
    else if (strcmp(type, "execute_result") == 0)
        add_result(lines, message);
    else if (strcmp(type, "error") == 0)
        add_error(lines, message->content);
    else if (strcmp(type, "clear_output") == 0)
        add_clear(lines, message->content);
    else if (strcmp(type, "execute_reply") == 0)
        add_reply(lines, message->content);
}

static bool
shows_something(const char *type)
{
    static const char *const types[] = {"stream",         "display_data", "update_display_data",
                                        "execute_result", "error",        "clear_output",
                                        "execute_reply"};
    for (size_t i = 0; i < KG_ARRAY_LEN(types); i++) {
        if (strcmp(types[i], type) == 0)
            return true;
    }
    return false;
}

struct output_lines *
output_lines_of(const struct jupyter_message *message)
{
    if (!shows_something(message->msg_type))
        return NULL;
    struct output_lines *lines = lines_new();
    add_message(lines, message);
    if (!TAILQ_EMPTY(&lines->entries) || lines->error)
        return lines;
    output_lines_free(lines);
    return NULL;
}

void
output_lines_free(struct output_lines *lines)
{
    if (!lines)
        return;
    for (struct output_entry *entry; (entry = TAILQ_FIRST(&lines->entries));) {
        TAILQ_REMOVE(&lines->entries, entry, link);
        free(entry);
    }
    free(lines->error);
    free(lines);
}
