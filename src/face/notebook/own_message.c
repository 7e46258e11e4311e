// SPDX-License-Identifier: Apache-2.0
// Messages to a client that no kernel has sent.

#include <string.h>

#include "notebook_priv.h"

enum { INFO_HEADER_MAX = 4 << 10, ID_LEN = 32 };

void
own_message_init(struct own_message *ret, enum kernel_channel channel, const char *type,
                 const char *session, struct kernel_bytes parent_header, char *content)
{
    static const struct kernel_bytes empty = {"{}", 2};
    char id[ID_LEN + 1], now[CLOCK_RFC3339_LEN];
    id_random_hex(id, ID_LEN);
    clock_format_rfc3339(clock_wall_ms(), now);
    json_auto_t *header =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "msg_id", id, "msg_type", type, "username", "",
                  "session", session, "date", now, "version", "5.3");
    ret->header = json_dumps(header, JSON_COMPACT);
    ret->content = content;
    ret->message = (struct kernel_message){
        .channel = channel,
        .header = {ret->header, strlen(ret->header)},
        .parent_header = parent_header.len > 0 ? parent_header : empty,
        .metadata = empty,
        .content = {content, strlen(content)},
    };
}

void
own_message_fini(struct own_message *own)
{
    free(own->header);
    free(own->content);
}

char *
own_status(const char *state)
{
    return kg_asprintf("{\"execution_state\":\"%s\"}", state);
}

char *
own_stderr(const char *text)
{
    json_auto_t *content = json_pack("{s:s, s:s}", "name", "stderr", "text", text);
    return json_dumps(content, JSON_COMPACT);
}

bool
is_info_request(const struct kernel_message *message)
{
    const struct kernel_bytes *text = &message->header;
    const char *type, *id, *session;
    if (message->channel != KERNEL_SHELL || text->len > INFO_HEADER_MAX)
        return false;
    json_auto_t *header = json_loadb(text->data, text->len, JSON_REJECT_DUPLICATES, NULL);
    return json_unpack(header, "{s:s, s:s, s:s}", "msg_type", &type, "msg_id", &id, "session",
                       &session) == 0 &&
           strcmp(type, "kernel_info_request") == 0;
}
