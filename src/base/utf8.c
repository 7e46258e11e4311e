// SPDX-License-Identifier: Apache-2.0
// Validation, repair and encoding of UTF-8.

#include "base.h"

#include <string.h>

// The length that the first byte announces; 0 if no character begins with it.
static size_t
announced_len(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

// How many bytes at `p`, at most `len`, are the start of a character. The second byte's range
// excludes overlong forms, surrogates and values above U+10FFFF.
static size_t
well_formed(const unsigned char *p, const unsigned char *end, size_t len)
{
    unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    size_t n = 1;

    while (n < len && p + n < end && p[n] >= low && p[n] <= high) {
        low = 0x80;
        high = 0xbf;
        n++;
    }
    return n;
}

size_t
utf8_valid_len(const unsigned char *p, const unsigned char *end)
{
    size_t len = announced_len(p[0]);
    return len > 0 && well_formed(p, end, len) == len ? len : 0;
}

size_t
utf8_valid_prefix(const char *data, size_t len)
{
    const unsigned char *s = (const unsigned char *)data;
    size_t i = 0;
    for (size_t n; i < len && (n = utf8_valid_len(s + i, s + len)) > 0;)
        i += n;
    return i;
}

size_t
utf8_invalid_len(const unsigned char *p, const unsigned char *end)
{
    size_t len = announced_len(p[0]);
    return len > 0 ? well_formed(p, end, len) : 1;
}

size_t
utf8_put(unsigned code, char ret[4])
{
    size_t len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char first[5] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (size_t i = len - 1; i > 0; i--) {
        ret[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    ret[0] = (char)(first[len] | code);
    return len;
}

size_t
utf8_cut(const char *text, size_t len, size_t max)
{
    if (len <= max)
        return len;
    size_t cut = max;
    while (cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80)
        cut--;
    return cut;
}

static unsigned
decode(const unsigned char *p, size_t len)
{
    unsigned code = len == 1 ? p[0] : p[0] & (0x7fU >> len);
    for (size_t i = 1; i < len; i++)
        code = code << 6 | (p[i] & 0x3f);
    return code;
}

static bool
is_printable(unsigned code)
{
    return !(code < ' ' || (code >= 0x7f && code < 0xa0) || code == 0x061c ||
             (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
             (code >= 0x2060 && code <= 0x206f) || code == 0xfeff);
}

void
utf8_printable(const char *text, size_t len, char *ret, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = 0;
    for (size_t i = 0, step; i < len; i += step) {
        size_t valid = utf8_valid_len(s + i, s + len);
        bool kept = valid > 0 && is_printable(decode(s + i, valid));
        step = valid > 0 ? valid : utf8_invalid_len(s + i, s + len);
        if (n + (kept ? valid : 1) >= size)
            break;
        if (kept)
            memcpy(ret + n, s + i, valid);
        else
            ret[n] = '?';
        n += kept ? valid : 1;
    }
    ret[n] = '\0';
}

size_t
utf8_append(struct buf *ret, const void *data, size_t len, bool last)
{
    const unsigned char *p = data;
    const unsigned char *end = p + len;
    const unsigned char *good = p; // everything from here to `p` is valid

    while (p < end) {
        size_t n = utf8_valid_len(p, end);
        if (n > 0) {
            p += n;
            continue;
        }
        n = utf8_invalid_len(p, end);
        if (!last && p + n == end && n < announced_len(*p))
            break;
        buf_append(ret, good, (size_t)(p - good));
        buf_append_str(ret, "\xef\xbf\xbd");
        good = p += n;
    }
    buf_append(ret, good, (size_t)(p - good));
    return (size_t)(end - p);
}
