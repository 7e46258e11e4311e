// SPDX-License-Identifier: Apache-2.0
// JSON-RPC 2.0: classifies messages, and builds them.

#include <string.h>

#include "mcp_message.h"

#define CLAIM "io.modelcontextprotocol/protocolVersion"

enum { ID_MAX = 256 };

// json_string_value() is NULL for an absent key and for other types.
const char *
rpc_string(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool
id_is_valid(const json_t *id)
{
    if (json_is_string(id))
        return json_string_length(id) <= ID_MAX;
    return json_is_integer(id);
}

enum message_kind
rpc_kind(const json_t *message, const char **ret_why)
{
    const char *version = rpc_string(message, "jsonrpc");
    const json_t *method = json_object_get(message, "method");
    const json_t *id = json_object_get(message, "id");
    const json_t *params = json_object_get(message, "params");
    *ret_why = NULL;
    if (!json_is_object(message))
        *ret_why = "a message must be an object";
    else if (!version || strcmp(version, "2.0") != 0)
        *ret_why = "jsonrpc must be \"2.0\"";
    else if (id && !id_is_valid(id))
        *ret_why = "id must be a string of at most 256 bytes or an integer";
    else if (method && (!json_is_string(method) || json_string_length(method) > ID_MAX))
        *ret_why = "method must be a string of at most 256 bytes";
    else if (params && !json_is_object(params))
        *ret_why = "params must be an object";
    else if (!method &&
             !(id && (json_object_get(message, "result") || json_object_get(message, "error"))))
        *ret_why = "not a request, a notification or a response";
    if (*ret_why)
        return MESSAGE_INVALID;
    if (!method)
        return MESSAGE_RESPONSE;
    return id ? MESSAGE_REQUEST : MESSAGE_NOTIFICATION;
}

bool
rpc_is_request(const json_t *message)
{
    return json_object_get(message, "method") && json_object_get(message, "id");
}

json_t *
rpc_result(const json_t *id, json_t *result)
{
    return json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);
}

json_t *
rpc_error(const json_t *id, int code, const char *text, json_t *data)
{
    KG_AUTO_BUF valid = {0}; // `text` may have been cut within a character
    utf8_append(&valid, text, strlen(text), true);
    json_t *error =
        json_pack("{s:i, s:s%}", "code", code, "message", valid.data ? valid.data : "", valid.len);
    if (data)
        json_object_set_new(error, "data", data);
    json_t *message = json_pack("{s:s, s:o}", "jsonrpc", "2.0", "error", error);
    if (id)
        json_object_set(message, "id", (json_t *)(uintptr_t)id);
    else
        json_object_set_new(message, "id", json_null());
    return message;
}

json_t *
rpc_notification(const char *method, json_t *params)
{
    return json_pack("{s:s, s:s, s:o*}", "jsonrpc", "2.0", "method", method, "params", params);
}

static int
append_dumped(const char *text, size_t len, void *arg)
{
    buf_append(arg, text, len);
    return 0;
}

char *
rpc_dump(const json_t *message, size_t *ret_len)
{
    // json_dumps() would make two more copies. With 17 digits, jansson's default, 9.515 would
    // become 9.5150000000000006.
    KG_AUTO_BUF text = {0};
    *ret_len = 0;
    if (json_dump_callback(message, append_dumped, &text, JSON_COMPACT | JSON_REAL_PRECISION(15)) <
        0)
        return NULL;
    *ret_len = text.len;
    return buf_take(&text);
}

json_t *
mcp_message_parse(const char *data, size_t len, struct kg_error *err)
{
    return http_json_parse(data, len, err);
}

const char *
mcp_claimed_version(const json_t *message)
{
    const json_t *meta = json_object_get(json_object_get(message, "params"), "_meta");
    const json_t *claim = json_object_get(meta, CLAIM);
    if (!claim)
        return NULL;
    return json_is_string(claim) ? json_string_value(claim) : "";
}
