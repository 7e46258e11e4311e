// SPDX-License-Identifier: Apache-2.0
// Reads and checks the headers and the query of HTTP requests.

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "mcp_priv.h"

enum { HEADER_VALUE_MAX = 8192 };

void
mcp_http_answer_error(struct http_request *request, int status, const json_t *id, int code,
                      const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    http_reply_json(request, status, rpc_error(id, code, text, NULL));
}

char *
mcp_http_base_url(const struct http_request *request)
{
    const char *host = http_request_header(request, "Host");
    const char *scheme = http_request_is_https(request) ? "https" : "http";
    return host ? kg_asprintf("%s://%s", scheme, host) : NULL;
}

static bool
is_type(const char *text, size_t len, const char *type)
{
    return strlen(type) == len && strncasecmp(text, type, len) == 0;
}

struct accepted
mcp_http_accepted(const struct http_request *request)
{
    struct accepted accepted = {0};
    const char *at = http_request_header(request, "Accept");
    if (!at || !*at)
        return (struct accepted){.json = true, .stream = true};
    while (*at) {
        at += strspn(at, ", \t");
        size_t len = strcspn(at, ",; \t");
        bool any = is_type(at, len, "*/*");
        accepted.json |=
            any || is_type(at, len, "application/json") || is_type(at, len, "application/*");
        accepted.stream |=
            any || is_type(at, len, "text/event-stream") || is_type(at, len, "text/*");
        at += strcspn(at, ",");
    }
    return accepted;
}

bool
mcp_http_content_is_json(const struct http_request *request)
{
    const char *type = http_request_header(request, "Content-Type");
    return !type || is_type(type, strcspn(type, "; \t"), "application/json");
}

const char *
mcp_http_profile(struct mcp *mcp, struct http_request *request)
{
    const char *profile = http_request_query(request, "profile");
    if (!profile)
        return "";
    if (mcp_knows_profile(mcp, profile))
        return profile;
    KG_AUTO_BUF known = {0};
    for (char **name = mcp->profiles; *name; name++)
        buf_printf(&known, "%s%s", known.len ? ", " : "", *name);
    mcp_http_answer_error(request, 400, NULL, MCP_INVALID_PARAMS,
                          "unknown profile: must be one of %s", known.data ? known.data : "none");
    return NULL;
}

// ---- Headers of 2026-07-28 ------------------------------------------------------------------

// They repeat a part of the body, so that proxies can route by them, and must agree with it.

// The header's value without surrounding blanks, decoded if it is base64; to be freed. NULL: absent
// or malformed.
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
                          "the header %s is missing, or differs from the body", header);
    return -1;
}

// The value of a parameter as it is in a header; to be freed. NULL: the parameter is absent, or not
// a string, a number or a boolean.
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
    json_auto_t *tools = lists_join(mcp, profile, MCP_LIST_TOOLS);
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
    // An unsupported version is refused elsewhere; its headers do not matter.
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
        return 0; // refused elsewhere
    if (!header_says(request, "Mcp-Name", name))
        return mismatch(request, message, "Mcp-Name");
    return tool ? check_parameters(mcp, request, message, profile) : 0;
}
