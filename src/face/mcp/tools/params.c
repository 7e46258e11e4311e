// SPDX-License-Identifier: Apache-2.0
// The parameters of tools: their schemas, and the check of arguments.

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "tools_priv.h"

static const struct {
    const char *schema;
    const char *said;
} types[] = {
    [PARAM_STRING] = {"string", "a string"},
    [PARAM_NUMBER] = {"number", "a number"},
    [PARAM_INTEGER] = {"integer", "an integer"},
    [PARAM_BOOLEAN] = {"boolean", "true or false"},
    [PARAM_STRINGS] = {"array", "an array of strings"},
    [PARAM_OBJECT] = {"object", "an object"},
    [PARAM_OBJECTS] = {"array", "an array of objects"},
};

// Arguments that n8n adds to those of a tool.
static const char *const foreign_names[] = {"sessionId", "action", "chatInput", "toolCallId"};

// ---- Descriptions ---------------------------------------------------------------------------

static char *
kernel_names(const struct kernelspecs *specs, const char *separator)
{
    KG_AUTO_BUF names = {0};
    for (size_t i = 0; i < kernelspecs_count(specs); i++)
        buf_printf(&names, "%s%s", i ? separator : "", kernelspecs_at(specs, i)->name);
    return buf_take(&names);
}

static char *
placeholder(const struct mcp_tools *tools, const char *name, size_t len)
{
    const struct mcp_tools_settings *settings = &tools->settings;
    if (strncmp(name, "timeout", len) == 0)
        return kg_asprintf("%lld", (long long)(settings->face->default_timeout_ms / 1000));
    if (strncmp(name, "max_timeout", len) == 0)
        return kg_asprintf("%lld", (long long)(settings->face->max_timeout_ms / 1000));
    if (strncmp(name, "network", len) == 0)
        return kg_strdup(settings->network ? "the network can be reached" : "there is no network");
    if (strncmp(name, "kernels", len) == 0)
        return kernel_names(settings->face->specs, ", ");
    return NULL;
}

char *
fill_in(const struct mcp_tools *tools, const char *text)
{
    KG_AUTO_BUF filled = {0};
    for (const char *end; *text; text = end) {
        end = text + strcspn(text + 1, "{") + 1;
        const char *close = *text == '{' ? memchr(text, '}', (size_t)(end - text)) : NULL;
        KG_AUTO_FREE char *value =
            close ? placeholder(tools, text + 1, (size_t)(close - text - 1)) : NULL;
        if (value) {
            buf_append_str(&filled, value);
            text = close + 1;
        }
        buf_append(&filled, text, (size_t)(end - text));
    }
    return buf_take(&filled);
}

// ---- Schemas --------------------------------------------------------------------------------

static json_t *
choices_of(const struct mcp_tools *tools, const struct param *param)
{
    KG_AUTO_FREE char *names = strcmp(param->choices, "{kernels}") == 0
                                   ? kernel_names(tools->settings.face->specs, "|")
                                   : kg_strdup(param->choices);
    json_t *choices = json_array();
    char *rest = NULL;
    for (char *name = strtok_r(names, "|", &rest); name; name = strtok_r(NULL, "|", &rest))
        json_array_append_new(choices, json_string(name));
    return choices;
}

static json_t *
param_schema(const struct mcp_tools *tools, const struct param *param)
{
    KG_AUTO_FREE char *description = fill_in(tools, param->description);
    json_t *schema =
        json_pack("{s:s, s:s}", "type", types[param->type].schema, "description", description);
    if (param->type == PARAM_STRINGS)
        json_object_set_new(schema, "items", json_pack("{s:s}", "type", "string"));
    if (param->type == PARAM_OBJECTS)
        json_object_set_new(schema, "items", json_pack("{s:s}", "type", "object"));
    if (param->type == PARAM_OBJECT)
        json_object_set_new(schema, "additionalProperties", json_true());
    if (param->choices)
        json_object_set_new(schema, "enum", choices_of(tools, param));
    if (param->fallback)
        json_object_set_new(schema, "default", json_loads(param->fallback, JSON_DECODE_ANY, NULL));
    return schema;
}

json_t *
tool_describe(const struct mcp_tools *tools, const struct tool *tool)
{
    json_t *properties = json_object();
    json_t *required = json_array();
    for (const struct param *param = tool->params; param->name; param++) {
        json_object_set_new(properties, param->name, param_schema(tools, param));
        if (param->required)
            json_array_append_new(required, json_string(param->name));
    }
    json_t *schema = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
    if (json_array_size(required) > 0)
        json_object_set(schema, "required", required);
    json_decref(required);
    KG_AUTO_FREE char *description = fill_in(tools, tool->description);
    return json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:b, s:b, s:b, s:b}}", "name", tool->name,
                     "title", tool->title, "description", description, "inputSchema", schema,
                     "annotations", "title", tool->title, "readOnlyHint",
                     (tool->hints & TOOL_READ_ONLY) != 0, "destructiveHint",
                     (tool->hints & TOOL_DESTRUCTIVE) != 0, "idempotentHint",
                     (tool->hints & TOOL_IDEMPOTENT) != 0, "openWorldHint",
                     tools->settings.network && (tool->hints & TOOL_RUNS));
}

// ---- The check ------------------------------------------------------------------------------

static bool
are_all(const json_t *list, json_type type)
{
    size_t i;
    json_t *value;
    json_array_foreach(list, i, value) {
        if (json_typeof(value) != type)
            return false;
    }
    return json_is_array(list);
}

static bool
has_type(const json_t *value, enum param_type type)
{
    switch (type) {
    case PARAM_STRING:
        return json_is_string(value);
    case PARAM_NUMBER:
        return json_is_number(value);
    case PARAM_INTEGER:
        return json_is_number(value) && fmod(json_number_value(value), 1) == 0; // accepts 5.0
    case PARAM_BOOLEAN:
        return json_is_boolean(value);
    case PARAM_STRINGS:
        return are_all(value, JSON_STRING);
    case PARAM_OBJECT:
        return json_is_object(value);
    case PARAM_OBJECTS:
        return are_all(value, JSON_OBJECT);
    }
    return false;
}

// "code (required), session_id, timeout"
static char *
param_names(const struct tool *tool)
{
    KG_AUTO_BUF names = {0};
    for (const struct param *param = tool->params; param->name; param++)
        buf_printf(&names, "%s%s%s", names.len ? ", " : "", param->name,
                   param->required ? " (required)" : "");
    return names.len ? buf_take(&names) : kg_strdup("nothing");
}

static bool
is_known(const struct tool *tool, const char *name)
{
    for (const struct param *param = tool->params; param->name; param++) {
        if (strcmp(param->name, name) == 0)
            return true;
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(foreign_names); i++) {
        if (strcmp(foreign_names[i], name) == 0)
            return true;
    }
    return false;
}

// Not for kernels, which have aliases, too: kernelspecs_find() checks the name.
static bool
is_choice(const char *choices, const char *value)
{
    size_t len = strlen(value);
    if (*choices == '{')
        return true;
    for (const char *at = choices; *at; at += strcspn(at, "|"), at += *at == '|') {
        if (strcspn(at, "|") == len && strncmp(at, value, len) == 0)
            return true;
    }
    return false;
}

static int
check_param(const struct tool *tool, const struct param *param, const json_t *value,
            struct kg_error *err)
{
    bool absent = !value || json_is_null(value);
    if (!absent && !has_type(value, param->type))
        return kg_error_set(err, KG_INVALID, 0, "%s must be %s", param->name,
                            types[param->type].said);
    if (!absent && json_is_string(value) &&
        strlen(json_string_value(value)) != json_string_length(value))
        return kg_error_set(err, KG_INVALID, 0, "%s must not contain a NUL character", param->name);
    if (!absent && param->choices && !is_choice(param->choices, json_string_value(value)))
        return kg_error_set(err, KG_INVALID, 0, "%s must be one of %s", param->name,
                            param->choices);
    if (absent && param->required) {
        KG_AUTO_FREE char *names = param_names(tool);
        return kg_error_set(err, KG_INVALID, 0, "%s is missing (%s). %s takes: %s", param->name,
                            types[param->type].said, tool->name, names);
    }
    return 0;
}

// ---- Values as text -------------------------------------------------------------------------

// The value that a string stands for: "20", "true", "[\"x\"]". A new reference, or NULL.
static json_t *
value_of_text(const struct param *param, const char *text)
{
    if (param->type == PARAM_BOOLEAN && strcasecmp(text, "true") == 0)
        return json_true();
    if (param->type == PARAM_BOOLEAN && strcasecmp(text, "false") == 0)
        return json_false();
    json_auto_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (value && has_type(value, param->type))
        return KG_STEAL(value);
    return param->type == PARAM_STRINGS ? json_pack("[s]", text) : NULL;
}

// The text of a number that stands for a name. A new reference, or NULL.
static json_t *
text_of_value(const json_t *value)
{
    KG_AUTO_FREE char *text = json_is_number(value) ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    return text ? json_string(text) : NULL;
}

// Some clients send every parameter, with "" for absent ones, and models write values of other
// types as text, or a name that consists of digits as a number.
static void
tidy(const struct tool *tool, json_t *args)
{
    for (const struct param *param = tool->params; param->name; param++) {
        const json_t *value = json_object_get(args, param->name);
        const char *text = json_string_value(value);
        json_t *meant = NULL;
        if (!value || (has_type(value, param->type) && (!text || *text || param->required)))
            continue;
        if (text && !*text && !param->required)
            json_object_del(args, param->name);
        else if (text)
            meant = value_of_text(param, text);
        else if (param->type == PARAM_STRING && !param->required)
            meant = text_of_value(value);
        if (meant)
            json_object_set_new(args, param->name, meant);
    }
}

// ---- All of them ----------------------------------------------------------------------------

int
tool_check(const struct mcp_tools *tools, const struct tool *tool, json_t *args,
           struct kg_error *err)
{
    const char *name;
    json_t *value;
    tidy(tool, args);
    json_object_foreach(args, name, value) {
        if (is_known(tool, name))
            continue;
        KG_AUTO_FREE char *names = param_names(tool);
        return kg_error_set(err, KG_INVALID, 0, "unknown argument \"%.40s\". %s takes: %s", name,
                            tool->name, names);
    }
    for (const struct param *param = tool->params; param->name; param++) {
        if (check_param(tool, param, json_object_get(args, param->name), err) < 0)
            return -1;
    }
    const char *code = json_string_value(json_object_get(args, "code"));
    size_t max = tools->settings.face->max_code_bytes;
    if (code && strlen(code) > max)
        return kg_error_set(err, KG_CODE_TOO_LARGE, 0,
                            "code has %zu bytes, the limit is %zu (setting max-code-bytes)",
                            strlen(code), max);
    return 0;
}
