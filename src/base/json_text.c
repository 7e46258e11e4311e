// SPDX-License-Identifier: Apache-2.0
// Reads JSON text without creating values, which take many times as much memory; their size.

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base.h"

// Roughly what jansson allocates: for a value in an array or of a member; in addition for a string,
// for a member's key, for a container.
enum {
    VALUE_BYTES = 48,
    STRING_BYTES = 40,
    MEMBER_BYTES = 80,
    ARRAY_BYTES = 128,
    OBJECT_BYTES = 224
};

// The position after the string whose first character is at `at`; at most `len`.
static size_t
string_end(const char *text, size_t len, size_t at)
{
    for (; at < len && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at < len ? at + 1 : len;
}

struct json_weight
json_weigh(const char *text, size_t len)
{
    struct json_weight weight = {0};
    size_t depth = 0;
    for (size_t i = 0; i < len;) {
        char c = text[i++];
        if (c == '"') {
            weight.bytes += STRING_BYTES;
            i = string_end(text, len, i);
        } else if (c == ',') {
            weight.bytes += VALUE_BYTES;
        } else if (c == ':') {
            weight.bytes += MEMBER_BYTES;
        } else if (c == '[' || c == '{') {
            weight.bytes += c == '[' ? ARRAY_BYTES : OBJECT_BYTES;
            if (++depth > weight.depth)
                weight.depth = depth;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return weight;
}

size_t
json_value_weight(const json_t *value)
{
    size_t bytes = VALUE_BYTES, i;
    const char *key;
    json_t *part;
    if (json_is_string(value))
        bytes += STRING_BYTES + json_string_length(value);
    else if (json_is_array(value) || json_is_object(value))
        bytes += json_is_array(value) ? ARRAY_BYTES : OBJECT_BYTES;
    json_array_foreach(value, i, part)
        bytes += json_value_weight(part);
    json_object_foreach((json_t *)(uintptr_t)value, key, part)
        bytes += MEMBER_BYTES + strlen(key) + json_value_weight(part);
    return bytes;
}

static bool
is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static size_t
skip_blanks(const char *text, size_t len, size_t at)
{
    while (at < len && is_blank(text[at]))
        at++;
    return at;
}

// The position after the value that begins at `at`.
static size_t
value_end(const char *text, size_t len, size_t at)
{
    size_t depth = 0;
    while (at < len) {
        char c = text[at];
        if (depth == 0 && (c == ',' || c == ']' || c == '}' || is_blank(c)))
            break;
        at++;
        if (c == '"')
            at = string_end(text, len, at);
        else if (c == '[' || c == '{')
            depth++;
        else if (c == ']' || c == '}')
            depth--;
    }
    return at;
}

bool
json_next_member(const char *text, size_t len, size_t *at, struct json_text_member *ret)
{
    size_t here = skip_blanks(text, len, *at);
    if (here >= len || (text[here] != '{' && text[here] != ','))
        return false;
    size_t key = skip_blanks(text, len, here + 1) + 1;
    if (key > len || text[key - 1] != '"')
        return false;
    size_t key_end = string_end(text, len, key);
    size_t value = skip_blanks(text, len, skip_blanks(text, len, key_end) + 1); // after the colon
    if (value >= len)
        return false;
    *at = value_end(text, len, value);
    *ret = (struct json_text_member){text + key, key_end - key - 1, text + value, *at - value};
    return true;
}

const char *
json_member(const char *text, size_t len, const char *name, size_t *ret_len)
{
    size_t at = 0, name_len = strlen(name);
    struct json_text_member member;
    while (json_next_member(text, len, &at, &member)) {
        if (member.name_len == name_len && memcmp(member.name, name, name_len) == 0) {
            *ret_len = member.value_len;
            return member.value;
        }
    }
    *ret_len = 0;
    return NULL;
}

static void
append_escape(struct buf *out, const unsigned char *c, size_t len)
{
    unsigned code = len == 2 ? c[0] & 0x1fu : len == 3 ? c[0] & 0x0fu : c[0] & 0x07u;
    for (size_t i = 1; i < len; i++)
        code = code << 6 | (c[i] & 0x3fu);
    if (code < 0x10000)
        buf_printf(out, "\\u%04x", code);
    else
        buf_printf(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                   0xdc00 + (code & 0x3ff));
}

char *
json_ascii(const char *text, size_t len)
{
    KG_AUTO_BUF out = {0};
    const unsigned char *at = (const unsigned char *)text, *end = at + len;
    buf_reserve(&out, len);
    while (at < end) {
        const unsigned char *run = at;
        while (at < end && *at < 0x80)
            at++;
        buf_append(&out, run, (size_t)(at - run));
        if (at == end)
            break;
        size_t n = utf8_valid_len(at, end);
        if (n > 1)
            append_escape(&out, at, n);
        at += n > 1 ? n : 1; // invalid UTF-8 was not JSON
    }
    return buf_take(&out);
}
