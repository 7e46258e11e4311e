// SPDX-License-Identifier: Apache-2.0
// Lines of NDJSON, and the strings in them.

#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "base.h"

// The escape of the character at `c`, if JSON allows it unescaped but readers that split lines as
// Unicode does (Python's str.splitlines, httpx) would cut a line there.
static const char *
escape_of_separator(const char *c)
{
    if (strncmp(c, "\xc2\x85", 2) == 0)
        return "\\u0085";
    if (strncmp(c, "\xe2\x80\xa8", 3) == 0)
        return "\\u2028";
    if (strncmp(c, "\xe2\x80\xa9", 3) == 0)
        return "\\u2029";
    return NULL;
}

char *
json_line(const json_t *line, size_t flags)
{
    char *json = json_dumps(line, JSON_COMPACT | flags);
    assert(json); // jansson can write every value that it holds
    KG_AUTO_BUF escaped = {0};
    const char *rest = json;
    for (const char *c = json; (c = strpbrk(c, "\xc2\xe2")); c++) {
        const char *escape = escape_of_separator(c);
        if (!escape)
            continue;
        buf_append(&escaped, rest, (size_t)(c - rest));
        buf_append_str(&escaped, escape);
        rest = c + (*c == '\xc2' ? 2 : 3);
    }
    if (rest == json)
        return json;
    buf_append_str(&escaped, rest);
    free(json);
    return buf_take(&escaped);
}

size_t
json_plain_len(const char *text, size_t len)
{
    // Eight bytes at a time: each term has the high bit set in a byte that is the one looked for,
    // and perhaps in a byte after it.
    static const uint64_t ones = 0x0101010101010101, high = 0x8080808080808080;
    size_t at = 0;
    for (uint64_t word; len - at >= sizeof word; at += sizeof word) {
        memcpy(&word, text + at, sizeof word);
        uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
        uint64_t control = (word - ones * 0x20) & ~word;
        if (((word | control | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)) &
             high) != 0)
            break;
    }
    for (; at < len; at++) {
        unsigned char c = (unsigned char)text[at];
        if (c < 0x20 || c == '"' || c == '\\' || c >= 0x80)
            break;
    }
    return at;
}

// How many bytes from `at` on need no escape. 0x85 and 0xa8 are checked together with the byte
// before them, which begins a character; so a run may end before a character that needs no escape.
static size_t
plain_run(const char *at, const char *end)
{
    const char *p = at;
    for (;;) {
        p += json_plain_len(p, (size_t)(end - p));
        const char *others = p;
        while (p < end && (*p & 0x80) != 0 && *p != '\xc2' && *p != '\xe2')
            p++;
        if (p == others)
            return (size_t)(p - at);
    }
}

// A control character, a quote or a backslash.
static void
append_control(struct buf *ret, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char letters[0x20] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    char letter = c < 0x20 ? letters[c] : (char)c;
    const char escape[] = {'\\', letter ? letter : 'u', '0', '0', hex[c >> 4], hex[c & 0xf]};
    buf_append(ret, escape, letter ? 2 : sizeof escape);
}

static bool
drop_after(struct buf *ret, size_t len)
{
    ret->len = len;
    ret->data[len] = '\0';
    return false;
}

bool
json_append_string_within(struct buf *ret, const char *text, size_t len, size_t max)
{
    const char *end = text + len;
    size_t start = ret->len;
    buf_append(ret, "\"", 1);
    while (text < end) {
        size_t run = plain_run(text, end);
        size_t used = ret->len - start + 1; // with the quote at the end
        if (run > max || used > max - run)
            return drop_after(ret, start);
        buf_append(ret, text, run);
        text += run;
        if (text == end)
            break;
        bool multi = (*text & 0x80) != 0;
        size_t n = !multi ? 1 : *text == '\xc2' ? 2 : 3;
        const char *escape = multi ? escape_of_separator(text) : NULL;
        if (!multi)
            append_control(ret, (unsigned char)*text);
        else if (escape)
            buf_append_str(ret, escape);
        else
            buf_append(ret, text, n);
        text += n;
    }
    buf_append(ret, "\"", 1);
    return ret->len - start <= max || drop_after(ret, start);
}

void
json_append_string(struct buf *ret, const char *text, size_t len)
{
    buf_reserve(ret, len + 2);
    (void)!json_append_string_within(ret, text, len, SIZE_MAX);
}
