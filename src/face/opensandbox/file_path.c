// SPDX-License-Identifier: Apache-2.0
// Paths and properties of files, as OpenSandbox's clients have them.

#include <string.h>

#include "opensandbox_priv.h"

static const char home[] = "/mnt/data"; // where relative paths begin

// The name that begins at `*at`, without slashes and "."; NULL: there is none.
static const char *
next_name(const char **at, size_t *ret_len)
{
    for (;;) {
        *at += strspn(*at, "/");
        *ret_len = strcspn(*at, "/");
        const char *name = *at;
        *at += *ret_len;
        if (*ret_len == 0)
            return NULL;
        if (!(*ret_len == 1 && *name == '.'))
            return name;
    }
}

char *
sandbox_path(const char *path, bool is_new, struct kg_error *err)
{
    KG_AUTO_BUF text = {0};
    const char *at = path, *name;
    size_t len;
    buf_append_str(&text, "");
    while ((name = next_name(&at, &len))) {
        if (*path == '/' || text.len > 0)
            buf_append_str(&text, "/");
        buf_append(&text, name, len);
    }
    if (*path == '/' && text.len == 0)
        buf_append_str(&text, "/");
    size_t home_len = strlen(home);
    if (strncmp(text.data, home, home_len) == 0 && strchr("/", text.data[home_len]))
        buf_consume(&text, home_len + (text.data[home_len] == '/'));
    if (text.len > 0 && file_any_path_check(text.data, is_new, err) < 0)
        return NULL;
    return text.len > 0 ? buf_take(&text) : kg_strdup("");
}

char *
client_path(const char *path)
{
    return *path == '/' ? kg_strdup(path) : kg_asprintf("%s%s%s", home, *path ? "/" : "", path);
}

// ---- Properties -----------------------------------------------------------------------------

// 0755 is 755: OpenSandbox's modes are octal digits in a decimal number.
static json_int_t
digits_of(int mode)
{
    return (mode >> 6 & 7) * 100 + (mode >> 3 & 7) * 10 + (mode & 7);
}

static json_t *
name_of_user(const json_t *number)
{
    KG_AUTO_FREE char *text = kg_asprintf("%lld", (long long)json_integer_value(number));
    return json_string(json_is_integer(number) ? text : "");
}

json_t *
file_info(const json_t *entry, const char *path)
{
    const char *type = json_string_value(json_object_get(entry, "type"));
    const json_t *mode = json_object_get(entry, "mode");
    const json_t *mtime = json_object_get(entry, "mtime");
    KG_AUTO_FREE char *shown = client_path(path);
    return json_pack("{s:s, s:s, s:I, s:O, s:O, s:o, s:o, s:I}", "path", shown, "type",
                     type && strcmp(type, "dir") == 0 ? "directory"
                     : type                           ? type
                                                      : "other",
                     "size", json_integer_value(json_object_get(entry, "size")), "modified_at",
                     mtime, "created_at", mtime, "owner",
                     name_of_user(json_object_get(entry, "uid")), "group",
                     name_of_user(json_object_get(entry, "gid")), "mode",
                     digits_of((int)json_integer_value(mode)));
}

// A user or a group of its own.
static bool
names_another(const json_t *permission, const char *name)
{
    const json_t *value = json_object_get(permission, name);
    return value && !json_is_null(value) &&
           !(json_is_string(value) && json_string_length(value) == 0);
}

int
parse_mode(const json_t *permission, int fallback, int *ret, struct kg_error *err)
{
    const json_t *value = json_object_get(permission, "mode");
    json_int_t digits = json_integer_value(value);
    *ret = fallback;
    if (!json_is_object(permission))
        return kg_error_set(err, KG_INVALID, 0, "a permission must be an object with a mode");
    if (names_another(permission, "owner") || names_another(permission, "group"))
        return kg_error_set(err, KG_INVALID, 0,
                            "owner and group: a sandbox has one user, to whom all files belong; "
                            "leave them out");
    if (!value || json_is_null(value))
        return 0;
    bool is_octal = json_is_integer(value) && digits >= 0 && digits <= 777 && digits % 10 < 8 &&
                    digits / 10 % 10 < 8;
    if (!is_octal)
        return kg_error_set(err, KG_INVALID, 0,
                            "mode must be the octal digits of a permission, 0 to 777: 644 say");
    *ret = (int)(digits / 100 << 6 | digits / 10 % 10 << 3 | digits % 10);
    return 0;
}
