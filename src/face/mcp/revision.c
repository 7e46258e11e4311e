// SPDX-License-Identifier: Apache-2.0
// How the revisions of the protocol differ, and how results are adapted to older ones.

#include <string.h>

#include "mcp_priv.h"

static const struct revision revisions[MCP_N_REVISIONS] = {
    [MCP_2024_11_05] = {.name = "2024-11-05", .not_found = MCP_RESOURCE_NOT_FOUND},
    [MCP_2025_03_26] = {.name = "2025-03-26",
                        .not_found = MCP_RESOURCE_NOT_FOUND,
                        .batches = true,
                        .completions = true,
                        .progress_text = true,
                        .audio = true},
    [MCP_2025_06_18] = {.name = "2025-06-18",
                        .not_found = MCP_RESOURCE_NOT_FOUND,
                        .completions = true,
                        .progress_text = true,
                        .audio = true,
                        .structured = true},
    [MCP_2025_11_25] = {.name = "2025-11-25",
                        .not_found = MCP_RESOURCE_NOT_FOUND,
                        .completions = true,
                        .progress_text = true,
                        .audio = true,
                        .structured = true,
                        .priming_event = true},
    [MCP_2026_07_28] = {.name = "2026-07-28",
                        .not_found = MCP_INVALID_PARAMS,
                        .stateless = true,
                        .completions = true,
                        .progress_text = true,
                        .audio = true,
                        .structured = true},
};

// Keys that were added to the elements of lists. "": in all lists.
static const struct {
    const char *method;
    const char *key;
    enum mcp_revision since;
} list_keys[] = {
    {"tools/list", "annotations", MCP_2025_03_26},
    {"tools/list", "outputSchema", MCP_2025_06_18},
    {"", "title", MCP_2025_06_18},
    {"", "_meta", MCP_2025_06_18},
    {"", "icons", MCP_2025_11_25},
    {"tools/list", "execution", MCP_2025_11_25},
};

const struct revision *
revision_get(enum mcp_revision revision)
{
    return &revisions[revision];
}

int
revision_find(const char *name)
{
    for (int i = 0; name && i < MCP_N_REVISIONS; i++) {
        if (strcmp(revisions[i].name, name) == 0)
            return i;
    }
    return -1;
}

static bool
element_needs_change(enum mcp_revision revision, const char *method, const json_t *element)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(list_keys); i++) {
        bool applies = !*list_keys[i].method || strcmp(list_keys[i].method, method) == 0;
        if (applies && revision < list_keys[i].since && json_object_get(element, list_keys[i].key))
            return true;
    }
    return false;
}

void
revision_strip(enum mcp_revision revision, const char *method, json_t *list)
{
    for (size_t at = 0; at < json_array_size(list); at++) {
        json_t *element = json_array_get(list, at);
        if (!element_needs_change(revision, method, element))
            continue;
        // The provider may use the element again.
        json_t *copy = json_copy(element);
        for (size_t i = 0; i < KG_ARRAY_LEN(list_keys); i++) {
            if ((!*list_keys[i].method || strcmp(list_keys[i].method, method) == 0) &&
                revision < list_keys[i].since)
                json_object_del(copy, list_keys[i].key);
        }
        json_array_set_new(list, at, copy);
    }
}

// The text block that replaces a type of block that the revision does not have.
static json_t *
block_as_text(const json_t *block)
{
    const char *type = rpc_string(block, "type");
    if (strcmp(type, "audio") == 0) {
        const char *mime = rpc_string(block, "mimeType");
        return json_pack("{s:s, s:o}", "type", "text", "text",
                         json_sprintf("[audio, %s]", mime ? mime : ""));
    }
    const char *name = rpc_string(block, "name");
    const char *uri = rpc_string(block, "uri");
    return json_pack("{s:s, s:o}", "type", "text", "text",
                     json_sprintf("%s: %s", name ? name : "resource", uri ? uri : ""));
}

static void
adapt_block(const struct revision *revision, json_t *holder, size_t at, const char *key)
{
    const json_t *block = key ? json_object_get(holder, key) : json_array_get(holder, at);
    const char *type = rpc_string(block, "type");
    if (!type)
        return;
    bool later = (strcmp(type, "audio") == 0 && !revision->audio) ||
                 (strcmp(type, "resource_link") == 0 && !revision->structured);
    if (!later)
        return;
    json_t *text = block_as_text(block);
    if (key)
        json_object_set_new(holder, key, text);
    else
        json_array_set_new(holder, at, text);
}

void
revision_adapt_result(enum mcp_revision which, json_t *result)
{
    const struct revision *revision = &revisions[which];
    if (revision->audio && revision->structured)
        return;
    json_t *content = json_object_get(result, "content");
    for (size_t i = 0; i < json_array_size(content); i++)
        adapt_block(revision, content, i, NULL);
    json_t *messages = json_object_get(result, "messages");
    for (size_t i = 0; i < json_array_size(messages); i++)
        adapt_block(revision, json_array_get(messages, i), 0, "content");
    if (!revision->structured) {
        json_object_del(result, "structuredContent");
        json_object_del(result, "_meta");
    }
}
