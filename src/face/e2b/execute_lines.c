// SPDX-License-Identifier: Apache-2.0
// From the lines of an execution to those of E2B's code interpreter. Values are moved as the text
// that they are, so that a large picture costs one copy.

#include <inttypes.h>
#include <string.h>

#include "e2b_priv.h"

// What a MIME type is called in a result.
static const struct {
    const char *mime;
    const char *name;
} names[] = {
    {"text/html", "html"},
    {"text/markdown", "markdown"},
    {"image/svg+xml", "svg"},
    {"image/png", "png"},
    {"image/jpeg", "jpeg"},
    {"application/pdf", "pdf"},
    {"text/latex", "latex"},
    {"application/json", "json"},
    {"application/javascript", "javascript"},
    {"e2b/data", "data"},
    {"e2b/chart", "chart"},
};

static bool
is_text(const char *value, size_t len, const char *text)
{
    return len == strlen(text) + 2 && value[0] == '"' && memcmp(value + 1, text, len - 2) == 0;
}

static void
append_member(struct buf *ret, const char *name, const char *value, size_t len)
{
    buf_printf(ret, ",\"%s\":", name);
    buf_append(ret, value, len);
}

// A text without the quotes around the representation of a string, as the reference shows it.
static void
append_result_text(struct buf *ret, const char *value, size_t len)
{
    static const char *const quotes[] = {"'", "\\\""};
    size_t cut = 0;
    for (size_t i = 0; i < KG_ARRAY_LEN(quotes) && cut == 0; i++) {
        size_t n = strlen(quotes[i]);
        if (len >= 2 * n + 2 && memcmp(value + 1, quotes[i], n) == 0 &&
            memcmp(value + len - 1 - n, quotes[i], n) == 0)
            cut = n;
    }
    buf_append_str(ret, ",\"text\":\"");
    buf_append(ret, value + 1 + cut, len - 2 - 2 * cut);
    buf_append(ret, "\"", 1);
}

static const char *
name_of(const struct json_text_member *member)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        if (strlen(names[i].mime) == member->name_len &&
            memcmp(names[i].mime, member->name, member->name_len) == 0)
            return names[i].name;
    return NULL;
}

// What `data` holds: what has a name of its own, and the rest as `extra`. So is a GIF, or NULL.
static void
append_data(struct buf *ret, const char *data, size_t len, const char *gif, size_t gif_len)
{
    struct json_text_member member;
    KG_AUTO_BUF extra = {0};
    if (gif)
        buf_printf(&extra, "\"image/gif\":%.*s", (int)gif_len, gif);
    for (size_t at = 0; json_next_member(data, len, &at, &member);) {
        const char *name = name_of(&member);
        if (name) {
            append_member(ret, name, member.value, member.value_len);
        } else if (member.name_len == 10 && memcmp(member.name, "text/plain", 10) == 0 &&
                   member.value[0] == '"') {
            append_result_text(ret, member.value, member.value_len);
        } else {
            buf_printf(&extra, "%s\"%.*s\":", extra.len > 0 ? "," : "", (int)member.name_len,
                       member.name);
            buf_append(&extra, member.value, member.value_len);
        }
    }
    buf_append_str(ret, ",\"extra\":{");
    buf_append(ret, extra.data, extra.len);
    buf_append(ret, "}", 1);
}

// A display, a result. The picture of our line is not in its data.
static void
append_result(struct buf *ret, const char *line, size_t len, bool is_main)
{
    size_t text_len, image_len, format_len, data_len;
    const char *text = json_member(line, len, "text", &text_len);
    const char *image = json_member(line, len, "image", &image_len);
    const char *format = json_member(line, len, "format", &format_len);
    const char *data = json_member(line, len, "data", &data_len);
    buf_printf(ret, "{\"type\":\"result\",\"is_main_result\":%s", is_main ? "true" : "false");
    if (text)
        append_result_text(ret, text, text_len);
    bool is_gif = image && format && is_text(format, format_len, "gif");
    if (image && format && !is_gif) {
        KG_AUTO_FREE char *name = kg_strndup(format + 1, format_len - 2);
        append_member(ret, name, image, image_len);
    }
    append_data(ret, data ? data : "{}", data ? data_len : 2, is_gif ? image : NULL, image_len);
    buf_append_str(ret, "}\n");
}

// The traceback is one text.
static void
append_error(struct buf *ret, const char *line, size_t len)
{
    KG_AUTO_BUF text = {0};
    size_t i;
    json_t *frame;
    json_auto_t *error = json_loadb(line, len, 0, NULL);
    json_array_foreach(json_object_get(error, "traceback"), i, frame) {
        buf_append_str(&text, i > 0 ? "\n" : "");
        buf_append(&text, json_string_value(frame), json_string_length(frame));
    }
    json_auto_t *theirs =
        json_pack("{s:s, s:O*, s:O*, s:s%}", "type", "error", "name",
                  json_object_get(error, "ename"), "value", json_object_get(error, "evalue"),
                  "traceback", text.data ? text.data : "", text.len);
    KG_AUTO_FREE char *written = theirs ? json_line(theirs, 0) : NULL;
    if (written)
        buf_printf(ret, "%s\n", written);
}

static void
append_stream(struct buf *ret, const char *type, const char *text, size_t len, int64_t now_ms)
{
    buf_printf(ret, "{\"type\":\"%s\",\"text\":", type);
    buf_append(ret, text, len);
    buf_printf(ret, ",\"timestamp\":%" PRId64 "000000}\n", now_ms);
}

static void
append_dropped(struct buf *ret, const char *line, size_t len, int64_t now_ms)
{
    size_t n;
    const char *bytes = json_member(line, len, "bytes", &n);
    KG_AUTO_FREE char *text = kg_asprintf(
        "\"[%.*s bytes of output were lost: the client read too slowly, or one output was too "
        "large]\\n\"",
        bytes ? (int)n : 4, bytes ? bytes : "some");
    append_stream(ret, "stderr", text, strlen(text), now_ms);
}

void
execute_append_line(struct buf *ret, const char *line, size_t len, int64_t now_ms)
{
    size_t type_len, n, text_len;
    const char *type = json_member(line, len, "type", &type_len);
    const char *text = json_member(line, len, "text", &text_len);
    const char *count = json_member(line, len, "execution_count", &n);
    if (!type)
        return;
    if (is_text(type, type_len, "stdout") && text)
        append_stream(ret, "stdout", text, text_len, now_ms);
    else if (is_text(type, type_len, "stderr") && text)
        append_stream(ret, "stderr", text, text_len, now_ms);
    else if (is_text(type, type_len, "result"))
        append_result(ret, line, len, true);
    else if (is_text(type, type_len, "display") && !json_member(line, len, "update", &n))
        append_result(ret, line, len, false);
    else if (is_text(type, type_len, "error"))
        append_error(ret, line, len);
    else if (is_text(type, type_len, "dropped"))
        append_dropped(ret, line, len, now_ms);
    else if (is_text(type, type_len, "done")) {
        if (count)
            buf_printf(ret, "{\"type\":\"number_of_executions\",\"execution_count\":%.*s}\n",
                       (int)n, count);
        buf_append_str(ret, "{\"type\":\"end_of_execution\"}\n");
    }
}
