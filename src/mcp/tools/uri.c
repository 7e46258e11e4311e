// SPDX-License-Identifier: Apache-2.0
// The URIs of files.

#include <ctype.h>
#include <string.h>

#include "tools_priv.h"

static const char file_scheme[] = "kernelgate://";

// RFC 3986, pchar, and the slash.
static bool
is_plain(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("-._~!$&'()*+,;=:@/", c));
}

char *
file_uri(const char *session_id, const char *path)
{
    KG_AUTO_BUF uri = {0};
    buf_printf(&uri, "%s%s/", file_scheme, session_id);
    for (const char *c = path; *c; c++) {
        if (is_plain(*c))
            buf_append(&uri, c, 1);
        else
            buf_printf(&uri, "%%%02X", (unsigned char)*c);
    }
    return buf_take(&uri);
}

static int
hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

// NULL where it is malformed.
static char *
decode(const char *text)
{
    KG_AUTO_BUF decoded = {0};
    for (const char *c = text; *c; c++) {
        char byte = *c;
        if (byte == '%') {
            int high = hex_digit(c[1]), low = high < 0 ? -1 : hex_digit(c[2]);
            if (low < 0 || high * 16 + low == 0)
                return NULL;
            byte = (char)(high * 16 + low);
            c += 2;
        }
        buf_append(&decoded, &byte, 1);
    }
    return buf_take(&decoded);
}

bool
file_uri_parse(const char *uri, char **ret_session_id, char **ret_path)
{
    if (strncmp(uri, file_scheme, strlen(file_scheme)) != 0)
        return false;
    const char *id = uri + strlen(file_scheme), *slash = strchr(id, '/');
    char *path = slash && slash > id && slash[1] ? decode(slash + 1) : NULL;
    if (!path)
        return false;
    *ret_session_id = kg_strndup(id, (size_t)(slash - id));
    *ret_path = path;
    return true;
}
