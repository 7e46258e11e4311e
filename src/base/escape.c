// SPDX-License-Identifier: Apache-2.0
// Hexadecimal digits and percent escapes (RFC 3986, 2.1).

#include <string.h>

#include "base.h"

int
hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void
percent_append(struct buf *ret, const char *text, const char *also_plain)
{
    static const char unreserved[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (const char *c = text; *c; c++) {
        if (strchr(unreserved, *c) || strchr(also_plain, *c))
            buf_append(ret, c, 1);
        else
            buf_printf(ret, "%%%02X", (unsigned char)*c);
    }
}

int
percent_decode(char *data, size_t *len, enum percent_mode mode)
{
    size_t out = 0;
    for (size_t i = 0; i < *len; i++) {
        char c = data[i];
        int high = c == '%' && *len - i > 2 ? hex_value(data[i + 1]) : -1;
        int low = high >= 0 ? hex_value(data[i + 2]) : -1;
        if (low >= 0) {
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (mode != PERCENT_LENIENT && data[i] == '%' && low < 0)
            return -1;
        if (mode != PERCENT_LENIENT && low >= 0 && c == '\0')
            return -1;
        if (mode == PERCENT_FORM && low < 0 && c == '+')
            c = ' ';
        data[out++] = c;
    }
    *len = out;
    return 0;
}
