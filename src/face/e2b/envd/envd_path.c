// SPDX-License-Identifier: Apache-2.0
// Paths of envd's clients, and of session_files.h.
#include "envd_path.h"

#include <string.h>

#include "e2b.h"

static const char *const home_names[] = {E2B_HOME, "/mnt/data"};

void
envd_path_fini(struct envd_path *path)
{
    free(path->client);
    free(path->session);
}

// Appends the names of `text`; "" is the root.
static void
append_names(struct buf *path, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "/");
        bool is_dot = len == 1 && text[0] == '.';
        if (len == 2 && text[0] == '.' && text[1] == '.') {
            while (path->len > 0 && path->data[--path->len] != '/')
                ;
        } else if (len > 0 && !is_dot) {
            buf_append(path, "/", 1);
            buf_append(path, text, len);
        }
        text += len + (text[len] == '/');
    }
    buf_append(path, "", 0);
}

// What follows the home folder's path, without a slash; NULL: it is another path.
static const char *
below_home(const char *path)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(home_names); i++) {
        size_t len = strlen(home_names[i]);
        if (strncmp(path, home_names[i], len) == 0 && (path[len] == '/' || !path[len]))
            return path + len + (path[len] == '/');
    }
    return NULL;
}

int
envd_path_parse(const char *text, struct envd_path *ret, struct kg_error *err)
{
    KG_AUTO_BUF path = {0};
    bool of_home = text[0] == '~' && (text[1] == '/' || !text[1]);
    *ret = (struct envd_path){0};
    if (strlen(text) > 2 * FILE_PATH_MAX)
        return kg_error_set(err, KG_INVALID_PATH, 0, "the path has more than %d bytes",
                            FILE_PATH_MAX);
    if (text[0] == '~' && !of_home)
        return kg_error_set(err, KG_INVALID_PATH, 0,
                            "the path must not begin with the home folder of another user");
    if (*text != '/')
        append_names(&path, E2B_HOME);
    append_names(&path, text + of_home);
    const char *rest = below_home(path.data);
    const char *in_session = rest ? rest : path.len > 0 ? path.data : "/";
    bool is_folder_of_all = !*in_session || strcmp(in_session, "/") == 0;
    if (!is_folder_of_all && file_any_path_check(in_session, false, err) < 0)
        return -1;
    ret->session = kg_strdup(in_session);
    ret->client = path.len ? buf_take(&path) : kg_strdup("/");
    return 0;
}

const char *
envd_path_name(const char *client_path)
{
    const char *slash = strrchr(client_path, '/');
    return slash && slash[1] ? slash + 1 : client_path;
}
