// SPDX-License-Identifier: Apache-2.0
// URIs of files.

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

bool
file_uri_parse(const char *uri, char **ret_session_id, char **ret_path)
{
    if (strncmp(uri, file_scheme, strlen(file_scheme)) != 0)
        return false;
    const char *id = uri + strlen(file_scheme), *slash = strchr(id, '/');
    if (!slash || slash == id || !slash[1])
        return false;
    KG_AUTO_FREE char *path = kg_strdup(slash + 1);
    size_t len = strlen(path);
    if (percent_decode(path, &len, PERCENT_PATH) < 0)
        return false;
    path[len] = '\0';
    *ret_session_id = kg_strndup(id, (size_t)(slash - id));
    *ret_path = KG_STEAL(path);
    return true;
}
