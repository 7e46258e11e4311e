// SPDX-License-Identifier: Apache-2.0
// Shapes output for models while it arrives.

#include <string.h>

#include "text.h"

enum { MAX_LINE = 16 << 10, MAX_ESCAPE = 4 << 10, MAX_NEWEST = 200, NEAR_LINE_END = 200 };

enum escape {
    ESCAPE_NONE,
    ESCAPE_BEGUN,      // ESC
    ESCAPE_ONE_MORE,   // such as ESC (: one more byte
    ESCAPE_CSI,        // ESC [: up to a final byte
    ESCAPE_STRING,     // such as ESC ]: up to BEL or ESC backslash
    ESCAPE_STRING_ESC, // ESC within ESCAPE_STRING
};

void
text_init(struct text *text, size_t max_head, size_t max_tail)
{
    *text = (struct text){.max_head = max_head, .max_tail = max_tail};
}

void
text_fini(struct text *text)
{
    buf_fini(&text->line);
    buf_fini(&text->last_line);
    buf_fini(&text->head);
    buf_fini(&text->tail);
}

static bool
is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t
text_whole(const char *data, size_t len)
{
    const unsigned char *start = (const unsigned char *)data, *end = start + len;
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        if (!is_continuation(data[len - back]))
            return utf8_valid_len(end - back, end) ? len : len - back;
    }
    return len;
}

size_t
text_begin(const char *data, size_t len)
{
    size_t n = 0;
    while (n < 3 && n < len && is_continuation(data[n]))
        n++;
    return n;
}

bool
text_is_readable(const char *data, size_t len)
{
    const unsigned char *p = (const unsigned char *)data, *end = p + len;
    for (size_t n; p < end; p += n) {
        n = *p ? utf8_valid_len(p, end) : 0;
        if (n == 0)
            return false;
    }
    return true;
}

// ---- Head and tail --------------------------------------------------------------------------

// Keeps the last `max_tail` bytes.
static void
trim_tail(struct text *text)
{
    if (text->tail.len <= text->max_tail)
        return;
    size_t n = text->tail.len - text->max_tail;
    while (n < text->tail.len && is_continuation(text->tail.data[n]))
        n++;
    buf_consume(&text->tail, n);
    text->n_cut += n;
}

static void
emit(struct text *text, const char *data, size_t len)
{
    if (len == 0)
        return;
    if (text->tail.len == 0 && text->n_cut == 0 && text->head.len < text->max_head) {
        size_t n = utf8_cut(data, len, text->max_head - text->head.len);
        buf_append(&text->head, data, n);
        data += n;
        len -= n;
    }
    buf_append(&text->tail, data, len);
    if (text->tail.len > 2 * text->max_tail + MAX_LINE)
        trim_tail(text);
}

static void
note_newest_line(struct text *text)
{
    const struct buf *line = &text->line;
    if (line->len == 0 || strspn(line->data, " \t") >= line->len)
        return;
    text->last_line.len = 0;
    buf_append(&text->last_line, line->data, utf8_cut(line->data, line->len, MAX_NEWEST));
}

static void
end_line(struct text *text, const char *end)
{
    note_newest_line(text);
    emit(text, text->line.data, text->line.len);
    emit(text, end, strlen(end));
    text->line.len = 0;
}

// ---- Characters -----------------------------------------------------------------------------

// Takes a byte of an escape sequence (ECMA-48). Returns whether the byte belongs to it.
static bool
step_escape(struct text *text, char c)
{
    unsigned char byte = (unsigned char)c;
    if (++text->escape_len > MAX_ESCAPE)
        text->escape = ESCAPE_NONE;
    switch ((enum escape)text->escape) {
    case ESCAPE_NONE:
        return false;
    case ESCAPE_BEGUN:
        text->escape = c == '['                        ? ESCAPE_CSI
                       : byte && strchr("]PX^_", byte) ? ESCAPE_STRING
                       : byte >= 0x20 && byte <= 0x2f  ? ESCAPE_ONE_MORE
                                                       : ESCAPE_NONE;
        return byte >= 0x20 && byte < 0x7f;
    case ESCAPE_ONE_MORE:
        text->escape = ESCAPE_NONE;
        return byte >= 0x20 && byte < 0x7f;
    case ESCAPE_CSI:
        if (byte < 0x20 || byte > 0x3f)
            text->escape = ESCAPE_NONE;
        return byte >= 0x20 && byte < 0x7f;
    case ESCAPE_STRING:
        text->escape = c == '\a' ? ESCAPE_NONE : c == '\x1b' ? ESCAPE_STRING_ESC : ESCAPE_STRING;
        return true;
    case ESCAPE_STRING_ESC:
        text->escape = c == '\\' ? ESCAPE_NONE : ESCAPE_STRING;
        return true;
    }
    return false;
}

static void
back_one_character(struct buf *line)
{
    while (line->len > 0 && is_continuation(line->data[line->len - 1]))
        line->len--;
    if (line->len > 0)
        line->len--;
}

static void
control(struct text *text, char c)
{
    if (c == '\x1b') {
        text->escape = ESCAPE_BEGUN;
        text->escape_len = 0;
    } else if (c == '\n') {
        end_line(text, "\n");
        text->returned = false;
    } else if (c == '\r') {
        text->returned = true;
    } else if (c == '\b') {
        back_one_character(&text->line);
    } else if (c == '\t') {
        buf_append(&text->line, "\t", 1);
    }
}

static bool
is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

static void
plain(struct text *text, const char *data, size_t len)
{
    if (text->returned)
        text->line.len = 0;
    text->returned = false;
    buf_append(&text->line, data, len);
    if (text->line.len > MAX_LINE)
        end_line(text, "");
}

void
text_add(struct text *text, const char *data, size_t len)
{
    size_t i = 0;
    while (i < len) {
        if (text->escape != ESCAPE_NONE && step_escape(text, data[i])) {
            i++;
            continue;
        }
        if (is_control(data[i])) {
            control(text, data[i++]);
            continue;
        }
        size_t start = i;
        while (i < len && !is_control(data[i]))
            i++;
        plain(text, data + start, i - start);
    }
}

// ---- The shaped text ------------------------------------------------------------------------

bool
text_is_empty(const struct text *text)
{
    return text->head.len == 0 && text->line.len == 0;
}

const char *
text_newest_line(struct text *text)
{
    note_newest_line(text);
    return text->last_line.data ? text->last_line.data : "";
}

// How much of the head is shown: it ends at the end of a line, if one is near.
static size_t
head_end(const struct buf *head)
{
    for (size_t n = 0; n < NEAR_LINE_END && n < head->len; n++) {
        if (head->data[head->len - 1 - n] == '\n')
            return head->len - n;
    }
    return head->len;
}

static size_t
tail_start(const struct buf *tail)
{
    for (size_t n = 0; n < NEAR_LINE_END && n < tail->len; n++) {
        if (tail->data[n] == '\n')
            return n + 1;
    }
    return 0;
}

size_t
text_append_to(const struct text *text, struct buf *ret)
{
    // A copy, since an unfinished line can still be overwritten.
    struct text all = {
        .max_head = text->max_head, .max_tail = text->max_tail, .n_cut = text->n_cut};
    buf_append(&all.head, text->head.data, text->head.len);
    buf_append(&all.tail, text->tail.data, text->tail.len);
    emit(&all, text->line.data, text->line.len);
    trim_tail(&all);
    bool whole = all.n_cut == 0;
    size_t head = whole ? all.head.len : head_end(&all.head);
    size_t tail = whole ? 0 : tail_start(&all.tail);
    size_t n_cut = whole ? 0 : all.n_cut + all.head.len - head + tail;
    buf_append(ret, all.head.data, head);
    if (n_cut > 0)
        buf_printf(ret, "%s[... %zu bytes left out ...]\n",
                   head > 0 && all.head.data[head - 1] != '\n' ? "\n" : "", n_cut);
    buf_append(ret, all.tail.data + tail, all.tail.len - tail);
    text_fini(&all);
    return n_cut;
}
