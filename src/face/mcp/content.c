// SPDX-License-Identifier: Apache-2.0
// Builds the parts of results.

#include <string.h>

#include "mcp_priv.h"

enum { COMPLETION_VALUES_MAX = 100 };

// Invalid UTF-8 becomes U+FFFD.
static json_t *
repaired_string(const char *text, size_t len)
{
    KG_AUTO_BUF repaired = {0};
    utf8_append(&repaired, text, len, true);
    return json_stringn(repaired.data ? repaired.data : "", repaired.len);
}

json_t *
mcp_server_info(void)
{
    return json_pack("{s:s, s:s, s:s}", "name", "kernelgate", "title", "kernelgate", "version",
                     KG_VERSION);
}

json_t *
mcp_text(const char *text, size_t len)
{
    json_t *string = json_stringn(text, len);
    if (!string)
        string = repaired_string(text, len);
    return json_pack("{s:s, s:o}", "type", "text", "text", string);
}

json_t *
mcp_json_text(json_t *value)
{
    return json_pack("{s:s, s:o}", "type", "text", "text", value);
}

json_t *
mcp_image_string(json_t *base64, const char *mime)
{
    return json_pack("{s:s, s:o, s:s}", "type", "image", "data", base64, "mimeType", mime);
}

json_t *
mcp_resource_link(const char *uri, const char *name, const char *description, const char *mime,
                  int64_t size)
{
    json_t *block = json_pack("{s:s, s:s, s:s, s:s*, s:s*}", "type", "resource_link", "uri", uri,
                              "name", name, "description", description, "mimeType", mime);
    if (block && size >= 0)
        json_object_set_new(block, "size", json_integer(size));
    return block;
}

json_t *
mcp_tool_result(json_t *content, json_t *structured, bool is_error)
{
    json_t *result = json_pack("{s:o, s:o*}", "content", content, "structuredContent", structured);
    if (is_error)
        json_object_set_new(result, "isError", json_true());
    return result;
}

json_t *
mcp_completion(json_t *values)
{
    size_t total = json_array_size(values);
    while (json_array_size(values) > COMPLETION_VALUES_MAX)
        json_array_remove(values, json_array_size(values) - 1);
    return json_pack("{s:{s:o, s:I, s:b}}", "completion", "values", values, "total",
                     (json_int_t)total, "hasMore", total > COMPLETION_VALUES_MAX);
}
