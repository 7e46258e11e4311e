// SPDX-License-Identifier: Apache-2.0
// The text of displays.

#include "display.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { REPR_MAX = 200, TYPE_MAX = 80 };

#define PLOTLY                                                                                     \
    "a Plotly figure is interactive, and cannot be shown here: fig.write_html(\"figure.html\") "   \
    "saves it; a figure of matplotlib is shown"
#define VEGA                                                                                       \
    "an Altair or Vega chart is interactive, and cannot be shown here: "                           \
    "chart.save(\"chart.html\") saves it; a figure of matplotlib is shown"
#define BOKEH                                                                                      \
    "a Bokeh or HoloViews plot is interactive, and cannot be shown here: save it as HTML; a "      \
    "figure of matplotlib is shown"

// What needs a browser.
static const struct {
    const char *type;
    const char *said;
} interactive[] = {
    {"application/vnd.plotly.v1+json", PLOTLY},
    {"application/vnd.vegalite.v4+json", VEGA},
    {"application/vnd.vegalite.v5+json", VEGA},
    {"application/vnd.vegalite.v6+json", VEGA},
    {"application/vnd.vega.v5+json", VEGA},
    {"application/vnd.vega.v6+json", VEGA},
    {"application/vnd.bokehjs_exec.v0+json", BOKEH},
    {"application/vnd.holoviews_exec.v0+json", BOKEH},
    {"application/javascript", "JavaScript is not run here"},
};

const char *const display_types[] = {
    "text/markdown",
    "text/latex",
    "application/json",
    "application/vnd.plotly.v1+json",
    "application/vnd.vegalite.v4+json",
    "application/vnd.vegalite.v5+json",
    "application/vnd.vegalite.v6+json",
    "application/vnd.vega.v5+json",
    "application/vnd.vega.v6+json",
    "application/vnd.bokehjs_exec.v0+json",
    "application/vnd.holoviews_exec.v0+json",
    "application/javascript",
    "text/html",
    NULL,
};

// ---- HTML -----------------------------------------------------------------------------------

static bool
starts_with(const char *at, const char *end, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(end - at) >= len && strncasecmp(at, word, len) == 0;
}

// Skips an element whose text is not for readers; `at` is after its "<".
static const char *
skip_element(const char *at, const char *end, const char *name)
{
    for (; at < end; at++) {
        if (*at == '<' && starts_with(at + 1, end, "/") && starts_with(at + 2, end, name))
            return at;
    }
    return end;
}

static const char *
skip_tag(const char *at, const char *end)
{
    if (starts_with(at, end, "!--")) {
        const char *close = memmem(at, (size_t)(end - at), "-->", 3);
        return close ? close + 3 : end;
    }
    char quote = '\0';
    for (; at < end && (quote || *at != '>'); at++) {
        if (quote ? *at == quote : *at == '"' || *at == '\'')
            quote = quote ? '\0' : *at;
    }
    return at < end ? at + 1 : end;
}

static bool
is_block(const char *at, const char *end)
{
    static const char *const names[] = {"p",  "div", "br", "tr", "li",    "h1", "h2",     "h3",
                                        "h4", "pre", "ul", "ol", "table", "dt", "section"};
    at += at < end && *at == '/';
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        size_t len = strlen(names[i]);
        if (starts_with(at, end, names[i]) && (at + len == end || !isalnum((unsigned char)at[len])))
            return true;
    }
    return false;
}

// Appends what separates the text before a tag from that after it.
static void
append_gap(struct buf *ret, const char *tag, const char *end)
{
    bool block = is_block(tag, end);
    bool cell = starts_with(tag, end, "/td") || starts_with(tag, end, "/th");
    while (block && ret->len > 0 && strchr(" \t", ret->data[ret->len - 1]))
        ret->data[--ret->len] = '\0';
    if (ret->len > 0 && ret->data[ret->len - 1] != '\n' && (block || cell))
        buf_append_str(ret, block ? "\n" : "\t");
}

static const char *
append_character(struct buf *ret, const char *at, const char *end)
{
    static const struct {
        const char *name;
        const char *text;
    } entities[] = {{"&lt;", "<"},  {"&gt;", ">"},   {"&amp;", "&"}, {"&quot;", "\""},
                    {"&#39;", "'"}, {"&#x27;", "'"}, {"&nbsp;", " "}};
    for (size_t i = 0; *at == '&' && i < KG_ARRAY_LEN(entities); i++) {
        if (starts_with(at, end, entities[i].name)) {
            buf_append_str(ret, entities[i].text);
            return at + strlen(entities[i].name);
        }
    }
    bool white = isspace((unsigned char)*at);
    bool again = white && (ret->len == 0 || isspace((unsigned char)ret->data[ret->len - 1]));
    if (!again)
        buf_append(ret, white ? " " : at, 1);
    return at + 1;
}

void
html_append_text(struct buf *ret, const char *html, size_t len)
{
    const char *at = html, *end = html + len;
    KG_AUTO_BUF text = {0};
    while (at < end) {
        if (*at != '<' || at + 1 == end || isspace((unsigned char)at[1])) {
            at = append_character(&text, at, end);
            continue;
        }
        at++;
        append_gap(&text, at, end);
        if (starts_with(at, end, "script"))
            at = skip_element(at, end, "script");
        else if (starts_with(at, end, "style"))
            at = skip_element(at, end, "style");
        else
            at = skip_tag(at, end);
    }
    while (text.len > 0 && isspace((unsigned char)text.data[text.len - 1]))
        text.len--;
    buf_append(ret, text.data ? text.data : "", text.len);
}

// ---- Displays -------------------------------------------------------------------------------

// Such as "<IPython.core.display.Markdown object>" and "alt.Chart(...)", which nobody learns from.
static bool
is_bare_repr(const char *text)
{
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        len--;
    if (len == 0)
        return true;
    bool short_line = len <= REPR_MAX && !memchr(text, '\n', len);
    bool is_object = text[0] == '<' && text[len - 1] == '>' &&
                     (memmem(text, len, " object", 7) || memmem(text, len, " at 0x", 6));
    return short_line && (is_object || (len > 5 && memcmp(text + len - 5, "(...)", 5) == 0));
}

static void
append_value(struct buf *ret, const char *type, const json_t *value)
{
    if (!json_is_string(value)) {
        KG_AUTO_FREE char *dumped = json_dumps(value, JSON_ENCODE_ANY);
        buf_append_str(ret, dumped ? dumped : "");
    } else if (strcmp(type, "text/html") == 0) {
        html_append_text(ret, json_string_value(value), json_string_length(value));
    } else {
        buf_append(ret, json_string_value(value), json_string_length(value));
    }
}

static const char *
interactive_remark(const json_t *data)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(interactive); i++) {
        if (json_object_get(data, interactive[i].type))
            return interactive[i].said;
    }
    return NULL;
}

static void
append_remark(struct buf *ret, const char *remark)
{
    if (ret->len > 0 && ret->data[ret->len - 1] != '\n')
        buf_append_str(ret, "\n");
    buf_printf(ret, "[%s]", remark);
}

// What kind of display it was, where it has nothing that can be read.
static void
append_type(struct buf *ret, const json_t *data)
{
    void *first = json_object_iter((json_t *)(uintptr_t)data);
    if (!first)
        return;
    char type[TYPE_MAX];
    const char *name = json_object_iter_key(first);
    utf8_printable(name, strlen(name), type, sizeof type);
    buf_printf(ret, "[a display of type %s cannot be shown here: save it to a file]", type);
}

void
display_append_text(struct buf *ret, const json_t *plain, const json_t *data)
{
    const char *text = json_string_value(plain);
    bool is_bare = !text || is_bare_repr(text);
    const char *remark = interactive_remark(data);
    size_t begin = ret->len;
    if (!is_bare)
        buf_append(ret, text, json_string_length(plain));
    for (size_t i = 0; is_bare && !remark && ret->len == begin && display_types[i]; i++) {
        const json_t *value = json_object_get(data, display_types[i]);
        if (value)
            append_value(ret, display_types[i], value);
    }
    if (remark)
        append_remark(ret, remark);
    if (ret->len == begin && text)
        buf_append(ret, text, json_string_length(plain));
    if (ret->len == begin)
        append_type(ret, data);
}
