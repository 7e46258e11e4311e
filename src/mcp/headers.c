// SPDX-License-Identifier: Apache-2.0
// Revision 2026-07-28 says part of a request again in headers, so that proxies can route by them;
// what they say must be what the body says.

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "mcp_priv.h"

enum { HEADER_VALUE_MAX = 8192 };

// The header's value without blanks around it, base64 undone; to be freed. NULL: none, or broken.
static char *
header_value(const struct http_request *request, const char *name)
{
    static const char prefix[] = "=?base64?";
    const char *raw = http_request_header(request, name);
    if (!raw)
        return NULL;
    raw += strspn(raw, " \t");
    size_t len = strlen(raw);
    while (len > 0 && strchr(" \t", raw[len - 1]))
        len--;
    size_t prefix_len = sizeof prefix - 1;
    if (len > HEADER_VALUE_MAX)
        return NULL;
    if (len < prefix_len + 2 || memcmp(raw, prefix, prefix_len) != 0 ||
        memcmp(raw + len - 2, "?=", 2) != 0)
        return kg_strndup(raw, len);
    KG_AUTO_FREE char *decoded = kg_calloc(1, len);
    size_t decoded_len;
    if (sodium_base642bin((unsigned char *)decoded, len - 1, raw + prefix_len, len - prefix_len - 2,
                          NULL, &decoded_len, NULL, sodium_base64_VARIANT_ORIGINAL) != 0 ||
        memchr(decoded, '\0', decoded_len))
        return NULL;
    return KG_STEAL(decoded);
}

static bool
header_says(const struct http_request *request, const char *name, const char *expected)
{
    KG_AUTO_FREE char *value = header_value(request, name);
    return value && strcmp(value, expected) == 0;
}

static int
mismatch(struct http_request *request, const json_t *message, const char *header)
{
    mcp_http_answer_error(request, 400, json_object_get(message, "id"), MCP_HEADER_MISMATCH,
                          "the header %s is missing, or is not what the body says", header);
    return -1;
}

// What a header says for a parameter: text, a number, true or false. NULL where the parameter is
// not there, or of a type that no header can hold.
static char *
parameter_text(const json_t *value)
{
    if (json_is_string(value))
        return kg_strdup(json_string_value(value));
    if (json_is_boolean(value))
        return kg_strdup(json_is_true(value) ? "true" : "false");
    if (json_is_number(value))
        return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    return NULL;
}

static json_t *
properties_of(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *tool_name = rpc_string(tool, "name");
        if (tool_name && strcmp(tool_name, name) == 0)
            return json_object_get(json_object_get(tool, "inputSchema"), "properties");
    }
    return NULL;
}

static int
check_parameters(struct mcp *mcp, struct http_request *request, const json_t *message,
                 const char *profile)
{
    const json_t *params = json_object_get(message, "params");
    const char *name = rpc_string(params, "name");
    json_auto_t *tools = lists_join(mcp, profile, MCP_LIST_TOOLS, false);
    json_t *properties = properties_of(tools, name);
    const char *key;
    json_t *property;
    json_object_foreach(properties, key, property) {
        const char *suffix = rpc_string(property, "x-mcp-header");
        if (!suffix)
            continue;
        char header[128];
        snprintf(header, sizeof header, "Mcp-Param-%.100s", suffix);
        const json_t *argument = json_object_get(json_object_get(params, "arguments"), key);
        KG_AUTO_FREE char *text = parameter_text(argument);
        bool agrees = text ? header_says(request, header, text)
                           : http_request_header(request, header) == NULL;
        if (!agrees)
            return mismatch(request, message, header);
    }
    return 0;
}

int
mcp_headers_check(struct mcp *mcp, struct http_request *request, const json_t *message,
                  const char *profile)
{
    const char *method = rpc_string(message, "method");
    if (!header_says(request, "MCP-Protocol-Version", mcp_claimed_version(message)))
        return mismatch(request, message, "MCP-Protocol-Version");
    // A version that is not spoken here is refused for that, whatever its headers are.
    int revision = revision_find(mcp_claimed_version(message));
    if (revision < 0 || !revision_get((enum mcp_revision)revision)->stateless)
        return 0;
    if (!header_says(request, "Mcp-Method", method))
        return mismatch(request, message, "Mcp-Method");
    bool tool = strcmp(method, "tools/call") == 0;
    bool resource = strcmp(method, "resources/read") == 0;
    if (!tool && !resource && strcmp(method, "prompts/get") != 0)
        return 0;
    const char *name = rpc_string(json_object_get(message, "params"), resource ? "uri" : "name");
    if (!name)
        return 0; // an error of its own
    if (!header_says(request, "Mcp-Name", name))
        return mismatch(request, message, "Mcp-Name");
    return tool ? check_parameters(mcp, request, message, profile) : 0;
}
