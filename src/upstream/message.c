// SPDX-License-Identifier: Apache-2.0
// What code gets of a tool's result ("Tool Result" in the specification's page about tools):
// structuredContent, if there is any; else the text of the only block; else a list of the blocks. A
// text stays a text, also where it looks like JSON: code knows what it has called, and what to
// expect.

#include "message.h"

#include <string.h>

enum {
    DEPTH_MAX = 128,
    VALUES_MAX = 64 << 20, // bytes
    BLOCKS_MAX = 10000,
};

// ---- Values ---------------------------------------------------------------------------------

static void
copy_members(json_t *to, const json_t *from, const char *const *names)
{
    for (; *names; names++) {
        json_t *member = json_object_get(from, *names);
        if (json_is_string(member))
            json_object_set(to, *names, member);
    }
}

// A text block as a string, others as {"type", "mimeType", "data"}; a new reference.
static json_t *
block_value(const json_t *block)
{
    static const char *const names[] = {"type", "mimeType", "data",        "uri",
                                        "name", "title",    "description", NULL};
    const char *type = json_string_value(json_object_get(block, "type"));
    json_t *text = json_object_get(block, "text");
    if (type && strcmp(type, "text") == 0 && json_is_string(text))
        return json_incref(text);
    json_t *value = json_object();
    copy_members(value, block, names);
    const json_t *resource = json_object_get(block, "resource");
    if (!json_is_object(resource))
        return value;
    static const char *const of_resource[] = {"mimeType", "uri", "text", NULL};
    copy_members(value, resource, of_resource);
    json_t *blob = json_object_get(resource, "blob");
    if (json_is_string(blob))
        json_object_set(value, "data", blob);
    return value;
}

static json_t *
content_value(const json_t *content)
{
    size_t n = json_array_size(content);
    if (n == 0)
        return json_null();
    if (n == 1)
        return block_value(json_array_get(content, 0));
    json_t *values = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(values, block_value(json_array_get(content, i)));
    return values;
}

// The texts of the blocks; a new reference.
static json_t *
error_value(const json_t *content)
{
    KG_AUTO_BUF text = {0};
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_object_get(json_array_get(content, i), "text");
        if (!json_is_string(part))
            continue;
        if (text.len > 0)
            buf_append_str(&text, "\n");
        buf_append(&text, json_string_value(part), json_string_length(part));
    }
    return text.len > 0 ? json_stringn(text.data, text.len)
                        : json_string("the tool has failed, and does not say why");
}

static void
take_result(struct message *message, const json_t *result)
{
    const json_t *content = json_object_get(result, "content");
    json_t *structured = json_object_get(result, "structuredContent");
    message->is_tool_error = json_is_true(json_object_get(result, "isError"));
    if (message->is_tool_error)
        message->value = error_value(content);
    else if (structured && !json_is_null(structured))
        message->value = json_incref(structured);
    else if (json_is_array(content))
        message->value = content_value(content);
}

// ---- Parsing --------------------------------------------------------------------------------

int
message_parse(struct message *ret, const char *text, size_t len, struct kg_error *err)
{
    json_error_t error = {0};
    *ret = (struct message){0};
    struct json_weight weight = json_weigh(text, len);
    if (len > MESSAGE_MAX || weight.bytes > VALUES_MAX)
        return kg_error_set(err, KG_INTERNAL, 0, "its answer is larger than %d MiB",
                            MESSAGE_MAX >> 20);
    if (weight.depth > DEPTH_MAX)
        return kg_error_set(err, KG_INTERNAL, 0, "its answer nests deeper than %d levels",
                            DEPTH_MAX);
    // A NUL after a number is overlooked by jansson.
    json_auto_t *json = memchr(text, '\0', len) ? NULL : json_loadb(text, len, 0, &error);
    if (!json_is_object(json))
        return kg_error_set(err, KG_INTERNAL, 0, "its answer is not a JSON-RPC message");
    const json_t *result = json_object_get(json, "result");
    if (json_array_size(json_object_get(result, "content")) > BLOCKS_MAX)
        return kg_error_set(err, KG_INTERNAL, 0, "its answer has more than %d blocks", BLOCKS_MAX);
    if (json_is_object(result))
        take_result(ret, result);
    if (ret->value && len > MESSAGE_INLINE_MAX)
        ret->text = json_dumps(ret->value, JSON_COMPACT | JSON_ENCODE_ANY);
    ret->json = KG_STEAL(json);
    return 0;
}

void
message_fini(struct message *message)
{
    json_decref(message->json);
    json_decref(message->value);
    free(message->text);
    *message = (struct message){0};
}
