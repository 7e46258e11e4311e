// SPDX-License-Identifier: Apache-2.0
// Lists of entity tags (RFC 9110, section 13.1).

#include <string.h>

#include "http.h"

bool
http_etag_list_has(const char *list, const char *etag)
{
    size_t len = strlen(etag);
    for (const char *at = list; *at;) {
        at += strspn(at, " \t,");
        if (*at == '*')
            return true;
        if (strncmp(at, "W/", 2) == 0)
            at += 2;
        if (strncmp(at, etag, len) == 0)
            return true;
        at += strcspn(at, ",");
    }
    return false;
}
