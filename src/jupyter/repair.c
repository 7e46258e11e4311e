// SPDX-License-Identifier: Apache-2.0
// Repair of JSON that Python's json module writes and jansson refuses. What no such writer makes is
// copied as it stands, for jansson to refuse again.

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jupyter.h"

#define REPLACEMENT "\xef\xbf\xbd" // U+FFFD
#define REPLACEMENT_ESCAPE "\\ufffd"

struct repair {
    const unsigned char *p; // next byte to read
    const unsigned char *end;
    struct buf out;
};

static size_t
left(const struct repair *repair)
{
    return (size_t)(repair->end - repair->p);
}

static void
copy(struct repair *repair, size_t n)
{
    buf_append(&repair->out, repair->p, n);
    repair->p += n;
}

static void
replace(struct repair *repair, size_t n, const char *with)
{
    buf_append_str(&repair->out, with);
    repair->p += n;
}

// ---- Strings --------------------------------------------------------------------------------

// The value of the \uXXXX at `offset`, or -1.
static int
unicode_escape(const struct repair *repair, size_t offset)
{
    int value = 0;

    if (left(repair) < offset + 6 || repair->p[offset] != '\\' || repair->p[offset + 1] != 'u')
        return -1;
    for (size_t i = offset + 2; i < offset + 6; i++) {
        int c = repair->p[i] | 0x20;
        if (repair->p[i] >= '0' && repair->p[i] <= '9')
            value = value * 16 + repair->p[i] - '0';
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + c - 'a' + 10;
        else
            return -1;
    }
    return value;
}

static bool
is_high_surrogate(int value)
{
    return value >= 0xd800 && value <= 0xdbff;
}

static bool
is_low_surrogate(int value)
{
    return value >= 0xdc00 && value <= 0xdfff;
}

// At a backslash. Returns whether it was the escape of U+0000.
static bool
repair_escape(struct repair *repair)
{
    int value = unicode_escape(repair, 0);

    if (value < 0)
        copy(repair, left(repair) < 2 ? left(repair) : 2);
    else if (is_high_surrogate(value) && is_low_surrogate(unicode_escape(repair, 6)))
        copy(repair, 12);
    else if (is_high_surrogate(value) || is_low_surrogate(value))
        replace(repair, 6, REPLACEMENT_ESCAPE);
    else
        copy(repair, 6);
    return value == 0;
}

// At a byte from 0x80 on: copies one character, or replaces the longest start of one, as Python's
// decoder does (Unicode 15, table 3-7).
static void
repair_utf8(struct repair *repair)
{
    const unsigned char *p = repair->p;
    size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    unsigned char low = 0x80, high = 0xbf;

    if (p[0] < 0xc2 || p[0] > 0xf4) {
        replace(repair, 1, REPLACEMENT);
        return;
    }
    switch (p[0]) {
    case 0xe0:
        low = 0xa0;
        break;
    case 0xed:
        high = 0x9f;
        break;
    case 0xf0:
        low = 0x90;
        break;
    case 0xf4:
        high = 0x8f;
        break;
    }
    for (size_t i = 1; i < n; i++) {
        if (i >= left(repair) || p[i] < low || p[i] > high) {
            replace(repair, i, REPLACEMENT);
            return;
        }
        low = 0x80;
        high = 0xbf;
    }
    copy(repair, n);
}

// jansson has no U+0000 in the keys of objects: there it is replaced too, in the output.
static void
repair_key(struct repair *repair, size_t start)
{
    char *text = repair->out.data;

    for (size_t i = start; i + 1 < repair->out.len; i++) {
        if (text[i] != '\\')
            continue;
        if (repair->out.len - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0)
            memcpy(text + i, REPLACEMENT_ESCAPE, 6);
        i++;
    }
}

static bool
colon_follows(const struct repair *repair)
{
    const unsigned char *p = repair->p;
    while (p < repair->end && strchr(" \t\r\n", *p) != NULL && *p != '\0')
        p++;
    return p < repair->end && *p == ':';
}

static void
repair_string(struct repair *repair)
{
    size_t start = repair->out.len;
    bool has_nul = false;

    copy(repair, 1);
    while (repair->p < repair->end && *repair->p != '"') {
        if (*repair->p == '\\') {
            has_nul |= repair_escape(repair);
        } else if (*repair->p >= 0x80) {
            repair_utf8(repair);
        } else {
            const unsigned char *stop = repair->p + 1;
            while (stop < repair->end && *stop != '"' && *stop != '\\' && *stop < 0x80)
                stop++;
            copy(repair, (size_t)(stop - repair->p));
        }
    }
    if (repair->p < repair->end)
        copy(repair, 1);
    if (has_nul && colon_follows(repair))
        repair_key(repair, start);
}

// ---- Numbers --------------------------------------------------------------------------------

// Python writes integers of any size: those that are no int64 become reals.
static void
repair_number(struct repair *repair)
{
    size_t len = 0;
    while (len < left(repair) && strchr("+-.0123456789Ee", repair->p[len]) != NULL &&
           repair->p[len] != '\0')
        len++;

    KG_AUTO_FREE char *text = kg_strndup((const char *)repair->p, len);
    char *end;
    if (strpbrk(text, ".eE") == NULL) {
        errno = 0;
        (void)strtoll(text, &end, 10);
        if (errno != ERANGE || *end != '\0') {
            copy(repair, len);
            return;
        }
    }
    double value = strtod(text, &end);
    bool is_legal = *end == '\0' && isfinite(value) && strpbrk(text, ".eE") != NULL;
    if (*end != '\0' || is_legal) {
        copy(repair, len);
        return;
    }
    if (!isfinite(value))
        value = value > 0 ? DBL_MAX : -DBL_MAX;
    buf_printf(&repair->out, "%.17e", value);
    repair->p += len;
}

static bool
repair_word(struct repair *repair, const char *word)
{
    size_t len = strlen(word);
    if (left(repair) < len || memcmp(repair->p, word, len) != 0)
        return false;
    replace(repair, len, "null");
    return true;
}

char *
jupyter_json_repair(const char *text, size_t len, size_t *ret_len)
{
    struct repair repair = {.p = (const unsigned char *)text,
                            .end = (const unsigned char *)text + len};

    buf_reserve(&repair.out, len + 1);
    while (repair.p < repair.end) {
        if (*repair.p == '"')
            repair_string(&repair);
        else if (repair_word(&repair, "NaN") || repair_word(&repair, "Infinity") ||
                 repair_word(&repair, "-Infinity"))
            continue;
        else if (*repair.p == '-' || (*repair.p >= '0' && *repair.p <= '9'))
            repair_number(&repair);
        else
            copy(&repair, 1);
    }
    *ret_len = repair.out.len;
    return buf_take(&repair.out);
}
