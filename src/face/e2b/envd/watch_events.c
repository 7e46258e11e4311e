// SPDX-License-Identifier: Apache-2.0
// What is reported of a folder, as messages FilesystemEvent.
#include "envd_priv.h"

#include <string.h>

#include "message.h"
#include "session_watch.h"

static json_t *
event_message(const char *type, const char *name)
{
    return json_pack("{s:s, s:s}", "name", name, "type", type);
}

// The path without the folder's.
static const char *
name_in_folder(const char *path, const struct envd_path *folder)
{
    size_t len = strlen(folder->session);
    const char *name = strncmp(path, folder->session, len) == 0 ? path + len : path;
    return name + strspn(name, "/");
}

int
watch_describe(const struct session_watch_event *event, const struct envd_path *folder,
               json_t *ret[WATCH_MESSAGES_MAX])
{
    static const struct {
        const char *event, *type;
    } types[] = {{"create", "EVENT_TYPE_CREATE"},
                 {"write", "EVENT_TYPE_WRITE"},
                 {"remove", "EVENT_TYPE_REMOVE"},
                 {"chmod", "EVENT_TYPE_CHMOD"}};
    if (strcmp(event->event, "rename") == 0) {
        ret[0] = event_message("EVENT_TYPE_RENAME", name_in_folder(event->from, folder));
        ret[1] = event_message("EVENT_TYPE_CREATE", name_in_folder(event->path, folder));
        return 2;
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(types); i++) {
        if (strcmp(event->event, types[i].event) == 0) {
            ret[0] = event_message(types[i].type, name_in_folder(event->path, folder));
            return 1;
        }
    }
    ret[0] = event_message("EVENT_TYPE_UNSPECIFIED", "");
    return 1;
}

int
watch_message_parse(const json_t *message, struct envd_path *ret, bool *ret_recursive,
                    struct kg_error *err)
{
    const char *text;
    *ret_recursive = false;
    if (message_string(message, "path", &text, err) < 0 ||
        message_bool(message, "recursive", ret_recursive, err) < 0)
        return -1;
    return envd_path_parse(text ? text : "", ret, err);
}
