// SPDX-License-Identifier: Apache-2.0
// A copy of the client's list, with the names as its index.

#include "tool_list.h"

#include <string.h>

#include "json_schema.h"

struct tool_list {
    int refs;
    size_t weight;
    json_t *tools;  // an array
    json_t *byname; // of the same objects
};

static bool
name_is_valid(const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < len; i++) {
        if (name[i] <= ' ' || name[i] >= 0x7f)
            return false;
    }
    return len >= 1 && len <= TOOL_NAME_MAX;
}

static int
check_fields(const json_t *tool, size_t at, struct kg_error *err)
{
    static const char *const names[] = {"name", "description", "input_schema"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)tool, key, value) {
        size_t i = 0;
        while (i < KG_ARRAY_LEN(names) && strcmp(key, names[i]) != 0)
            i++;
        if (i == KG_ARRAY_LEN(names))
            return kg_error_set(err, KG_INVALID, 0,
                                "tools[%zu]: unknown field \"%.60s\"; a tool has name, description "
                                "and input_schema",
                                at, key);
    }
    return 0;
}

// Adds a tool of the client's list.
static int
add_tool(struct tool_list *list, const json_t *tool, size_t at, struct kg_error *err)
{
    const char *name = json_string_value(json_object_get(tool, "name"));
    const json_t *description = json_object_get(tool, "description");
    const json_t *schema = json_object_get(tool, "input_schema");
    if (check_fields(tool, at, err) < 0)
        return -1;
    if (!name || !name_is_valid(name))
        return kg_error_set(err, KG_INVALID, 0,
                            "tools[%zu].name must be 1 to %d printable ASCII characters, without "
                            "spaces",
                            at, TOOL_NAME_MAX);
    if (json_object_get(list->byname, name))
        return kg_error_set(err, KG_INVALID, 0, "tools[%zu]: there are two tools named \"%s\"", at,
                            name);
    if (description && !json_is_string(description) && !json_is_null(description))
        return kg_error_set(err, KG_INVALID, 0, "tools[%zu].description must be a string", at);
    if (schema && !json_is_object(schema) && !json_is_null(schema))
        return kg_error_set(err, KG_INVALID, 0,
                            "tools[%zu].input_schema must be a JSON Schema: an object", at);
    bool has_schema = json_is_object(schema);
    json_t *own =
        json_pack("{s:s, s:s, s:o}", "name", name, "description",
                  json_is_string(description) ? json_string_value(description) : "", "input_schema",
                  has_schema ? json_deep_copy(schema) : json_pack("{s:s}", "type", "object"));
    json_array_append_new(list->tools, own);
    json_object_set(list->byname, name, own);
    return 0;
}

struct tool_list *
tool_list_new(const json_t *tools, struct kg_error *err)
{
    size_t i;
    const json_t *tool;
    if (!json_is_array(tools) || json_array_size(tools) > TOOL_LIST_MAX) {
        (void)kg_error_set(err, KG_INVALID, 0, "tools must be a list of at most %d tools",
                           TOOL_LIST_MAX);
        return NULL;
    }
    if (json_dumpb(tools, NULL, 0, JSON_COMPACT) > TOOL_LIST_BYTES_MAX) {
        (void)kg_error_set(err, KG_INVALID, 0, "tools: their descriptions have more than %d KiB",
                           TOOL_LIST_BYTES_MAX >> 10);
        return NULL;
    }
    KG_AUTO(tool_list) list = KG_NEW(struct tool_list);
    list->refs = 1;
    list->tools = json_array();
    list->byname = json_object();
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        if (add_tool(list, tool, i, err) < 0)
            return NULL;
    }
    list->weight = json_value_weight(list->tools);
    if (list->weight > TOOL_LIST_VALUES_MAX) {
        (void)kg_error_set(err, KG_INVALID, 0,
                           "tools: their schemas have too many values: they would take %zu MiB of "
                           "memory, and the limit is %d MiB",
                           list->weight >> 20, TOOL_LIST_VALUES_MAX >> 20);
        return NULL;
    }
    return KG_STEAL(list);
}

struct tool_list *
tool_list_ref(struct tool_list *list)
{
    list->refs++;
    return list;
}

void
tool_list_unref(struct tool_list *list)
{
    if (!list || --list->refs > 0)
        return;
    json_decref(list->tools);
    json_decref(list->byname);
    free(list);
}

const json_t *
tool_list_describe(const struct tool_list *list)
{
    return list->tools;
}

bool
tool_list_has(const struct tool_list *list, const char *name)
{
    return json_object_get(list->byname, name) != NULL;
}

size_t
tool_list_weight(const struct tool_list *list)
{
    return list->weight;
}

int
tool_list_check(const struct tool_list *list, const char *name, const json_t *arguments,
                struct kg_error *err)
{
    const json_t *tool = json_object_get(list->byname, name);
    if (!tool)
        return kg_error_set(err, KG_NOT_FOUND, 0, "there is no tool \"%.60s\"", name);
    if (!json_is_object(arguments))
        return kg_error_set(err, KG_INVALID, 0, "the arguments of a tool must be an object");
    return json_schema_check(json_object_get(tool, "input_schema"), arguments, "arguments", err);
}
