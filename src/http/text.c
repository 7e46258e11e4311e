// SPDX-License-Identifier: Apache-2.0
// Checks and decodings of untrusted text: UTF-8, percent escapes.

#include <string.h>

#include "http_priv.h"

size_t
utf8_valid_prefix(const char *data, size_t len)
{
    const unsigned char *s = (const unsigned char *)data;
    size_t i = 0;
    for (size_t n; i < len && (n = utf8_valid_len(s + i, s + len)) > 0;)
        i += n;
    return i;
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
