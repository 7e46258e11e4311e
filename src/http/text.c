// SPDX-License-Identifier: Apache-2.0
// Checks and decodings of untrusted text: UTF-8, percent escapes, JSON nesting.

#include <string.h>

#include "http_priv.h"

// The length of the character at `s`, by table 3-7 of the Unicode standard; 0: not valid.
static size_t
utf8_char_len(const unsigned char *s, size_t len)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || len < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool surrogate = s[0] == 0xed && s[1] > 0x9f;
    bool too_high = s[0] == 0xf4 && s[1] > 0x8f;
    return overlong || surrogate || too_high ? 0 : n;
}

size_t
utf8_valid_prefix(const char *data, size_t len)
{
    const unsigned char *s = (const unsigned char *)data;
    size_t i = 0;
    while (i < len) {
        size_t n = utf8_char_len(s + i, len - i);
        if (n == 0)
            break;
        i += n;
    }
    return i;
}

static int
hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int
percent_decode(char *data, size_t *len, bool plus)
{
    size_t out = 0;
    for (size_t i = 0; i < *len; i++) {
        char c = data[i];
        if (c == '%') {
            int high = *len - i > 2 ? hex_value(data[i + 1]) : -1;
            int low = *len - i > 2 ? hex_value(data[i + 2]) : -1;
            if (high < 0 || low < 0 || high + low == 0)
                return -1;
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        data[out++] = c;
    }
    *len = out;
    return 0;
}

bool
json_depth_at_most(const char *data, size_t len, size_t max)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = data[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > max)
                return false;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return true;
}
