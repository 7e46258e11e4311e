// SPDX-License-Identifier: Apache-2.0
// Gathers the lines of an execution in bounded memory.

#include <string.h>

#include "display.h"
#include "outcome.h"

enum {
    MAX_ITEMS = 200,
    MAX_ITEM_TEXT = 12 << 10,
    MAX_DISPLAY_ID = 256,
    MAX_FILES = 200,
    MAX_TRACEBACK_HEAD = 1 << 10,
    MAX_TRACEBACK_TAIL = 3 << 10,
    MAX_TRACEBACK_LINES = 200, // a longer one is kept as one text
    MAX_TRACEBACK_BYTES = 32 << 10,
    MAX_SAID = 4 << 10,
};

static const struct {
    const char *format;
    const char *mime;
} image_types[] = {
    {"png", "image/png"},
    {"jpeg", "image/jpeg"},
    {"gif", "image/gif"},
    {"webp", "image/webp"},
};
#define WEBP "image/webp" // is among the other types of a line

void
outcome_init(struct outcome *outcome, const struct outcome_limits *limits)
{
    *outcome = (struct outcome){.limits = *limits};
    text_init(&outcome->out, limits->max_text_head, limits->max_text_tail);
    text_init(&outcome->err, limits->max_text_head, limits->max_text_tail);
    outcome->files = json_array();
}

// Only notes it, since this may be a worker, and lines are released on the loop.
static void
let_go(struct outcome *outcome, void *held)
{
    if (!held)
        return;
    outcome->released =
        kg_realloc(outcome->released, (outcome->n_released + 1) * sizeof outcome->released[0]);
    outcome->released[outcome->n_released++] = held;
}

void
outcome_release(struct outcome *outcome)
{
    while (outcome->n_released > 0)
        outcome->release(outcome->released[--outcome->n_released]);
}

static void
item_fini(struct outcome *outcome, struct outcome_item *item)
{
    free(item->display_id);
    free(item->text);
    json_decref(item->image.string);
    let_go(outcome, item->image.held);
}

static void
error_fini(struct outcome_error *error)
{
    free(error->said);
    free(error->text);
    json_decref(error->traceback);
}

static void
clear_items(struct outcome *outcome)
{
    for (size_t i = 0; i < outcome->n_items; i++)
        item_fini(outcome, &outcome->items[i]);
    outcome->n_items = 0;
    outcome->item_bytes = 0;
}

void
outcome_fini(struct outcome *outcome)
{
    clear_items(outcome);
    outcome_release(outcome);
    free(outcome->released);
    free(outcome->items);
    text_fini(&outcome->out);
    text_fini(&outcome->err);
    for (size_t i = 0; i < outcome->n_errors; i++)
        error_fini(&outcome->errors[i]);
    json_decref(outcome->files);
    json_decref(outcome->done);
}

// clear_output() clears printed text, too.
static void
clear(struct outcome *outcome)
{
    clear_items(outcome);
    text_fini(&outcome->out);
    text_fini(&outcome->err);
    text_init(&outcome->out, outcome->limits.max_text_head, outcome->limits.max_text_tail);
    text_init(&outcome->err, outcome->limits.max_text_head, outcome->limits.max_text_tail);
    outcome->newest = OUTCOME_NEITHER;
}

// ---- Streams --------------------------------------------------------------------------------

void
outcome_add_text(struct outcome *outcome, enum outcome_stream stream, const char *text, size_t len)
{
    text_add(stream == OUTCOME_STDERR ? &outcome->err : &outcome->out, text, len);
    outcome->newest = stream;
}

const char *
outcome_newest_line(struct outcome *outcome)
{
    switch (outcome->newest) {
    case OUTCOME_NEITHER:
        break;
    case OUTCOME_STDOUT:
        return text_newest_line(&outcome->out);
    case OUTCOME_STDERR:
        return text_newest_line(&outcome->err);
    }
    return "";
}

static void
add_stream(struct outcome *outcome, enum outcome_stream stream, const json_t *line)
{
    const json_t *text = json_object_get(line, "text");
    if (json_is_string(text))
        outcome_add_text(outcome, stream, json_string_value(text), json_string_length(text));
}

// A part of a line, as JSON text; `at` NULL: absent.
struct slice {
    const char *at;
    size_t len;
};

// ---- Displays and results -------------------------------------------------------------------

static void
take_text(struct outcome_item *item, const json_t *plain, const json_t *data)
{
    struct text text;
    KG_AUTO_BUF whole = {0};
    KG_AUTO_BUF clean = {0};
    display_append_text(&whole, plain, data);
    if (whole.len == 0)
        return;
    text_init(&text, MAX_ITEM_TEXT / 2, MAX_ITEM_TEXT / 2);
    text_add(&text, whole.data, whole.len);
    text_append_to(&text, &clean);
    text_fini(&text);
    item->text_len = clean.len;
    item->text = buf_take(&clean);
}

// The number of bytes of line ends at `at`; `escaped`: as in a JSON string.
static size_t
line_ends(const char *at, bool escaped)
{
    size_t n = 0;
    if (!escaped)
        return strspn(at, "\r\n");
    while (at[n] == '\\' && (at[n + 1] == 'n' || at[n + 1] == 'r'))
        n += 2;
    return n;
}

// Code can publish anything as an image, and clients refuse a whole answer if its base64 is
// invalid. A NUL or a quote follows the text.
static bool
is_base64(const char *text, size_t len, bool escaped)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = text;
    size_t n_digits = 0;
    for (size_t n; (n = strspn(at, digits)) > 0; at += line_ends(at, escaped)) {
        n_digits += n;
        at += n;
    }
    for (size_t n = 1; n > 0; at += n)
        n = strspn(at, "=") + line_ends(at + strspn(at, "="), escaped);
    return n_digits > 1 && n_digits % 4 != 1 && (size_t)(at - text) == len;
}

// The image of a display, from `held` (JSON text), else from the values of the line. None if it
// does not have its format.
static struct outcome_image
image_of(const json_t *line, const char *format, struct slice held)
{
    json_t *string = json_object_get(line, "image");
    if (!string && strcmp(format, "webp") == 0)
        string = json_object_get(json_object_get(line, "data"), WEBP);
    struct outcome_image image = {.text = held.at, .len = held.len};
    if (!held.at && json_is_string(string))
        image = (struct outcome_image){.string = string, .len = json_string_length(string)};
    const char *text = image.string ? json_string_value(string) : image.text;
    bool svg = strcmp(format, "svg") == 0; // is text
    if (!text || strlen(format) >= sizeof((struct outcome_item *)0)->format ||
        !(svg || is_base64(text, image.len, !image.string)))
        return (struct outcome_image){0};
    json_incref(image.string);
    return image;
}

static struct outcome_item
item_of(const json_t *line, struct slice held_image)
{
    struct outcome_item item = {0};
    const char *named = json_string_value(json_object_get(line, "format"));
    const char *format = named ? named : "webp";
    const json_t *text = json_object_get(line, "text");
    const json_t *data = json_object_get(line, "data");
    const char *id = json_string_value(json_object_get(line, "display_id"));
    item.is_result = strcmp(json_string_value(json_object_get(line, "type")), "result") == 0;
    item.display_id = id && strlen(id) <= MAX_DISPLAY_ID ? kg_strdup(id) : NULL;
    item.image = image_of(line, format, held_image);
    if (outcome_has_image(&item)) {
        const char *held = item.image.string ? NULL : item.image.text;
        memcpy(item.format, format, strlen(format));
        (void)image_size_read_base64(held ? held : json_string_value(item.image.string),
                                     item.image.len, held != NULL, &item.size);
    }
    if (text || !outcome_has_image(&item))
        take_text(&item, text, outcome_has_image(&item) ? NULL : data);
    return item;
}

static size_t
item_size(const struct outcome_item *item)
{
    return item->text_len + item->image.len;
}

static struct outcome_item *
find_item(struct outcome *outcome, const char *display_id)
{
    for (size_t i = 0; display_id && i < outcome->n_items; i++) {
        const char *id = outcome->items[i].display_id;
        if (id && strcmp(id, display_id) == 0)
            return &outcome->items[i];
    }
    return NULL;
}

// Returns whether the line is kept for its image.
static bool
add_item(struct outcome *outcome, const json_t *line, struct slice held_image, void *held)
{
    struct outcome_item item = item_of(line, held_image);
    bool update = json_is_true(json_object_get(line, "update"));
    struct outcome_item *old = update ? find_item(outcome, item.display_id) : NULL;
    size_t bytes = outcome->item_bytes + item_size(&item) - (old ? item_size(old) : 0);
    bool full = bytes > outcome->limits.max_image_bytes || (!old && outcome->n_items == MAX_ITEMS);
    if (full || (!item.text && !outcome_has_image(&item))) {
        outcome->n_items_left_out += full;
        item_fini(outcome, &item);
        return false;
    }
    if (item.image.text)
        item.image.held = held;
    outcome->item_bytes = bytes;
    if (old) {
        item.is_result = old->is_result;
        item_fini(outcome, old);
        *old = item;
        return item.image.held != NULL;
    }
    outcome->items = kg_realloc(outcome->items, (outcome->n_items + 1) * sizeof outcome->items[0]);
    outcome->items[outcome->n_items++] = item;
    return item.image.held != NULL;
}

bool
outcome_has_image(const struct outcome_item *item)
{
    return item->image.string || item->image.text;
}

const char *
outcome_image_mime(const struct outcome_item *item)
{
    for (size_t i = 0; outcome_has_image(item) && i < KG_ARRAY_LEN(image_types); i++) {
        if (strcmp(image_types[i].format, item->format) == 0)
            return image_types[i].mime;
    }
    return NULL;
}

// ---- Errors ---------------------------------------------------------------------------------

// IPython's tracebacks begin with a line of dashes, which is useless to a model.
static bool
is_rule(const char *line)
{
    return line && *line && strspn(line, "-") == strlen(line);
}

static void
add_traceback(struct text *text, const json_t *error)
{
    const json_t *traceback = json_object_get(error, "traceback");
    const json_t *said = json_object_get(error, "error");
    size_t i;
    json_t *line;
    json_array_foreach(traceback, i, line) {
        if (is_rule(json_string_value(line)))
            continue;
        text_add(text, json_string_value(line), json_string_length(line));
        text_add(text, "\n", 1);
    }
    if (json_array_size(traceback) == 0)
        text_add(text, json_string_value(said), json_string_length(said));
}

static bool
is_long(const json_t *traceback)
{
    size_t bytes = 0, i;
    json_t *line;
    json_array_foreach(traceback, i, line)
        bytes += json_string_length(line);
    return json_array_size(traceback) > MAX_TRACEBACK_LINES || bytes > MAX_TRACEBACK_BYTES;
}

static struct outcome_error
error_of(const json_t *line)
{
    struct text text;
    KG_AUTO_BUF shaped = {0};
    text_init(&text, MAX_TRACEBACK_HEAD, MAX_TRACEBACK_TAIL);
    add_traceback(&text, line);
    text_append_to(&text, &shaped);
    text_fini(&text);
    const json_t *said = json_object_get(line, "error");
    const json_t *traceback = json_object_get(line, "traceback");
    struct outcome_error error = {.text_len = shaped.len, .traceback = json_array()};
    if (is_long(traceback))
        json_array_append_new(error.traceback, json_stringn(shaped.data, shaped.len));
    else
        json_array_extend(error.traceback, (json_t *)(uintptr_t)traceback);
    size_t len = utf8_cut(json_string_value(said), json_string_length(said), MAX_SAID);
    error.said = kg_strndup(len ? json_string_value(said) : "", len);
    error.text = buf_take(&shaped);
    return error;
}

// If there are too many, the last one is replaced: it says why the execution ended.
static void
add_error(struct outcome *outcome, const json_t *line)
{
    if (outcome->n_errors == OUTCOME_MAX_ERRORS)
        error_fini(&outcome->errors[--outcome->n_errors]);
    outcome->errors[outcome->n_errors++] = error_of(line);
}

// ---- Lines ----------------------------------------------------------------------------------

static struct slice
find_member(struct slice object, const char *name)
{
    struct slice value;
    value.at = json_member(object.at, object.len, name, &value.len);
    return value;
}

// A new reference. A string without escapes is copied without parsing.
static json_t *
load_slice(struct slice value)
{
    bool plain = value.len >= 2 && *value.at == '"' && !memchr(value.at, '\\', value.len);
    return plain ? json_stringn(value.at + 1, value.len - 2)
                 : json_loadb(value.at, value.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
}

// The first type that is used of a large display: {type: text}. The other types may have millions
// of values.
static json_t *
load_shown_data(struct slice data)
{
    struct slice value = find_member(data, WEBP);
    const char *type = WEBP;
    for (size_t i = 0; !value.at && display_types[i]; i++) {
        type = display_types[i];
        value = find_member(data, type);
    }
    if (value.at)
        return json_pack("{s:o}", type,
                         *value.at == '"' ? load_slice(value) : json_stringn(value.at, value.len));
    // Any type, to be named.
    const char *name = memchr(data.at, '"', data.len);
    const char *end = name ? memchr(name + 1, '"', data.len - (size_t)(name + 1 - data.at)) : NULL;
    return end ? json_pack("{s%:b}", name + 1, (size_t)(end - name - 1), 1) : NULL;
}

// Loads the members of a large line that are used. The image of a held line is not loaded:
// `ret_image` is its text without the quotes.
static json_t *
load_large_line(struct slice line, bool held, struct slice *ret_image)
{
    struct slice image = find_member(line, "image"), data = find_member(line, "data");
    struct slice cut[2] = {image, data};
    if (!image.at || (data.at && data.at < image.at))
        cut[0] = data, cut[1] = image;
    KG_AUTO_BUF rest = {0};
    const char *at = line.at;
    for (size_t i = 0; i < 2; i++) {
        if (!cut[i].at)
            continue;
        buf_append(&rest, at, (size_t)(cut[i].at - at));
        buf_append_str(&rest, "null");
        at = cut[i].at + cut[i].len;
    }
    buf_append(&rest, at, (size_t)(line.at + line.len - at));
    json_t *loaded = json_loadb(rest.data, rest.len, JSON_ALLOW_NUL, NULL);
    if (image.at && held && *image.at == '"')
        *ret_image = (struct slice){.at = image.at + 1, .len = image.len - 2};
    else if (image.at)
        json_object_set_new(loaded, "image", load_slice(image));
    else if (data.at)
        json_object_set_new(loaded, "data", load_shown_data(data));
    return loaded;
}

static json_t *
load_line(struct slice line, bool held, struct slice *ret_image)
{
    return line.len > OUTCOME_LARGE_LINE ? load_large_line(line, held, ret_image)
                                         : json_loadb(line.at, line.len, JSON_ALLOW_NUL, NULL);
}

static void
append_some(json_t *list, json_t *line, size_t max)
{
    if (json_array_size(list) < max)
        json_array_append(list, line);
}

// Returns whether the line is kept.
static bool
add_line(struct outcome *outcome, struct slice text, void *held)
{
    struct slice image = {0};
    json_auto_t *line = load_line(text, held != NULL, &image);
    const char *type = json_string_value(json_object_get(line, "type"));
    if (!type)
        return false;
    bool output = strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0 ||
                  strcmp(type, "display") == 0 || strcmp(type, "result") == 0;
    if (output && outcome->clear_pending) {
        clear(outcome);
        outcome->clear_pending = false;
    }
    if (strcmp(type, "stdout") == 0)
        add_stream(outcome, OUTCOME_STDOUT, line);
    else if (strcmp(type, "stderr") == 0)
        add_stream(outcome, OUTCOME_STDERR, line);
    else if (output)
        return add_item(outcome, line, image, held);
    else if (strcmp(type, "error") == 0)
        add_error(outcome, line);
    else if (strcmp(type, "file") == 0)
        append_some(outcome->files, line, MAX_FILES);
    else if (strcmp(type, "dropped") == 0)
        outcome->dropped_bytes += json_integer_value(json_object_get(line, "bytes"));
    else if (strcmp(type, "clear") == 0 && json_is_true(json_object_get(line, "wait")))
        outcome->clear_pending = true;
    else if (strcmp(type, "clear") == 0)
        clear(outcome);
    else if (strcmp(type, "done") == 0 && !outcome->done)
        outcome->done = json_incref(line);
    return false;
}

void
outcome_add_line(struct outcome *outcome, const char *text, size_t len)
{
    add_line(outcome, (struct slice){.at = text, .len = len}, NULL);
}

void
outcome_add_held_line(struct outcome *outcome, const char *text, size_t len, void *held)
{
    if (!add_line(outcome, (struct slice){.at = text, .len = len}, held))
        let_go(outcome, held);
}

const char *
outcome_status(const struct outcome *outcome)
{
    const char *status = json_string_value(json_object_get(outcome->done, "status"));
    return status ? status : "died";
}

bool
outcome_is_ok(const struct outcome *outcome)
{
    return strcmp(outcome_status(outcome), "ok") == 0;
}

const char *
outcome_error(const struct outcome *outcome)
{
    return outcome->n_errors > 0 ? outcome->errors[outcome->n_errors - 1].said : NULL;
}

void
outcome_append_errors(const struct outcome *outcome, struct buf *ret)
{
    for (size_t i = 0; i < outcome->n_errors; i++) {
        if (ret->len > 0 && ret->data[ret->len - 1] != '\n')
            buf_append_str(ret, "\n");
        buf_append(ret, outcome->errors[i].text, outcome->errors[i].text_len);
    }
}
