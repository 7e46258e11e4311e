// SPDX-License-Identifier: Apache-2.0
// The URIs of files.

#include <string.h>

#include "tools_priv.h"

static const char file_scheme[] = "kernelgate://";

char *
file_uri(const char *session_id, const char *path)
{
    KG_AUTO_BUF uri = {0};
    buf_printf(&uri, "%s%s/", file_scheme, session_id);
    percent_append(&uri, path, "!$&'()*+,;=:@/"); // RFC 3986, pchar, and the slash
    return buf_take(&uri);
}

// NULL where it is malformed.
static char *
decode(const char *text)
{
    KG_AUTO_BUF decoded = {0};
    for (const char *c = text; *c; c++) {
        char byte = *c;
        if (byte == '%') {
            int high = hex_value(c[1]), low = high < 0 ? -1 : hex_value(c[2]);
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
