// SPDX-License-Identifier: Apache-2.0
// Paths of a sandbox's files, as clients name them.

#include <string.h>

#include "base.h"

enum { NAME_LEN_MAX = 255 };

// The C0 and C1 controls and DEL, in UTF-8.
static bool
has_control_character(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c == 0x7f || (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0))
            return true;
    }
    return false;
}

static int
name_check(const char *name, size_t len, struct kg_error *err)
{
    if (len == 0)
        return kg_error_set(err, KG_INVALID_PATH, 0,
                            "the path must be relative and without empty names");
    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
        return kg_error_set(err, KG_INVALID_PATH, 0, "the path must not contain . or ..");
    if (len > NAME_LEN_MAX)
        return kg_error_set(err, KG_INVALID_PATH, 0, "a name has more than %d bytes", NAME_LEN_MAX);
    if (file_name_is_own(name))
        return kg_error_set(err, KG_INVALID_PATH, 0, "names that start with %s are reserved",
                            FILE_OWN_PREFIX);
    return 0;
}

bool
file_name_is_own(const char *name)
{
    return strncmp(name, FILE_OWN_PREFIX, strlen(FILE_OWN_PREFIX)) == 0;
}

int
file_path_check(const char *path, bool is_new, struct kg_error *err)
{
    if (strlen(path) > FILE_PATH_MAX)
        return kg_error_set(err, KG_INVALID_PATH, 0, "the path has more than %d bytes",
                            FILE_PATH_MAX);
    for (const char *name = path;; name++) {
        size_t len = strcspn(name, "/");
        if (name_check(name, len, err) < 0)
            return -1;
        name += len;
        if (!*name)
            break;
    }
    if (is_new && has_control_character(path))
        return kg_error_set(err, KG_INVALID_PATH, 0,
                            "the path of a new file must not contain control characters");
    return 0;
}

bool
file_is_reserved(const char *path)
{
    static const char *const reserved[] = {"proc", "sys", "run/kg", "run/kg-agent"};

    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        size_t len = strlen(reserved[i]);
        if (strncmp(path, reserved[i], len) == 0 && (path[len] == '/' || !path[len]))
            return true;
    }
    return false;
}

int
file_any_path_check(const char *path, bool is_new, struct kg_error *err)
{
    if (*path != '/')
        return file_path_check(path, is_new, err);
    path++;
    if (!*path)
        return 0;
    if (file_path_check(path, is_new, err) < 0)
        return -1;
    if (file_is_reserved(path))
        return kg_error_set(err, KG_INVALID_PATH, 0,
                            "/%.100s cannot be used: /proc and /sys are not files, and /run/kg and "
                            "/run/kg-agent are kernelgate's own",
                            path);
    return 0;
}
