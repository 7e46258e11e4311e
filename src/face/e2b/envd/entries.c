// SPDX-License-Identifier: Apache-2.0
// Files and folders as envd's clients see them.
#include "envd_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "session_files.h"

// "-rw-r--r--"; of what is not known, question marks.
static void
format_permissions(const struct session_entry *entry, char ret[11])
{
    static const char letters[] = "rwxrwxrwx";
    const char *type = entry->type;
    ret[0] = strcmp(type, "dir") == 0 ? 'd' : strcmp(type, "symlink") == 0 ? 'L' : '-';
    for (size_t i = 0; i < 9; i++)
        ret[i + 1] = entry->mode < 0 ? '?' : entry->mode & (0400 >> i) ? letters[i] : '-';
    ret[10] = '\0';
}

static const char *
type_name(const char *type)
{
    static const struct {
        const char *type, *name;
    } names[] = {{"file", "FILE_TYPE_FILE"},
                 {"dir", "FILE_TYPE_DIRECTORY"},
                 {"symlink", "FILE_TYPE_SYMLINK"}};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++)
        if (strcmp(type, names[i].type) == 0)
            return names[i].name;
    return "FILE_TYPE_UNSPECIFIED";
}

// There is one user besides root.
static const char *
user_name(int64_t id)
{
    return id == 0 ? "root" : "user";
}

// A link is shown with the type of what it leads to. `target` is absolute in answers.
static void
add_link(json_t *message, const struct session_entry *entry, const char *client)
{
    bool is_whole = entry->target && *entry->target == '/';
    int folder_len = (int)(envd_path_name(client) - client);
    KG_AUTO_FREE char *target =
        entry->target ? kg_asprintf("%.*s%s", is_whole ? 0 : folder_len, client, entry->target)
                      : NULL;
    json_object_set_new(message, "isSymlink", json_true());
    if (target)
        json_object_set_new(message, "symlinkTarget", json_string(target));
    if (entry->target_type)
        json_object_set_new(message, "type", json_string(type_name(entry->target_type)));
}

static json_t *
describe(const struct session_entry *entry, const char *modified, const char *client)
{
    char permissions[11], size[24];
    snprintf(size, sizeof size, "%" PRId64, entry->size);
    format_permissions(entry, permissions);
    json_t *message =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "name", envd_path_name(client),
                  "type", type_name(entry->type), "path", client, "size", size, "mode",
                  entry->mode < 0 ? 0 : entry->mode, "permissions", permissions, "owner",
                  user_name(entry->uid), "group", user_name(entry->gid), "modifiedTime", modified);
    if (message && strcmp(entry->type, "symlink") == 0)
        add_link(message, entry, client);
    return message;
}

json_t *
entry_describe(const struct session_entry *entry, const char *client)
{
    char modified[CLOCK_RFC3339_LEN];
    clock_format_rfc3339(entry->mtime_ms, modified);
    return describe(entry, modified, client);
}

static int64_t
number_or(const json_t *listed, const char *key, int64_t fallback)
{
    const json_t *value = json_object_get(listed, key);
    return value ? json_integer_value(value) : fallback;
}

json_t *
entry_describe_listed(const json_t *listed, const char *client)
{
    const struct session_entry entry = {
        .type = json_string_value(json_object_get(listed, "type")),
        .size = number_or(listed, "size", 0),
        .mode = (int)number_or(listed, "mode", -1),
        .uid = number_or(listed, "uid", -1),
        .gid = number_or(listed, "gid", -1),
    };
    return describe(&entry, json_string_value(json_object_get(listed, "mtime")), client);
}
