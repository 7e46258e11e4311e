// SPDX-License-Identifier: Apache-2.0
#include "offer.h"

#include <string.h>

static bool
is_read_only(const json_t *tool)
{
    return json_is_true(json_object_get(json_object_get(tool, "annotations"), "readOnlyHint"));
}

static bool
is_wanted(const struct server_spec *server, const json_t *tool, const char *name)
{
    if (server_pattern_fits((const char *const *)server->deny, name))
        return false;
    return is_read_only(tool) || server_pattern_fits((const char *const *)server->allow, name);
}

// As a client describes a tool of its own (tool_list.h); a new reference.
static json_t *
describe(const json_t *tool, const char *name)
{
    json_t *own = json_pack("{s:s}", "name", name);
    json_t *description = json_object_get(tool, "description");
    json_t *schema = json_object_get(tool, "inputSchema");
    if (json_is_string(description))
        json_object_set(own, "description", description);
    if (json_is_object(schema))
        json_object_set(own, "input_schema", schema);
    return own;
}

// Whether the tool can be in a list, after those that are there.
static bool
is_usable(const json_t *own, const json_t *chosen, const char *name)
{
    json_auto_t *alone = json_pack("[O]", (json_t *)(uintptr_t)own);
    struct tool_list *trial = tool_list_new(alone, NULL);
    size_t i;
    const json_t *other;
    bool usable = trial != NULL;
    tool_list_unref(trial);
    json_array_foreach((json_t *)(uintptr_t)chosen, i, other)
        usable = usable && strcmp(json_string_value(json_object_get(other, "name")), name) != 0;
    return usable;
}

static void
describe_all(struct offer *offer, const struct server_spec *server)
{
    const json_t *tools = tool_list_describe(offer->tools);
    size_t i;
    json_t *tool;
    offer->described = json_array();
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool) {
        json_t *described = json_copy(tool);
        KG_AUTO_FREE char *name =
            kg_asprintf("%s.%s", server->name, json_string_value(json_object_get(tool, "name")));
        json_object_set_new(described, "name", json_string(name));
        json_object_set_new(described, "server", json_string(server->name));
        json_array_append_new(offer->described, described);
    }
}

void
offer_init(struct offer *offer, const struct server_spec *server, const json_t *listed)
{
    json_auto_t *chosen = json_array();
    size_t bytes = 0, i;
    const json_t *tool;
    *offer = (struct offer){.n_listed = json_array_size(listed)};
    json_array_foreach((json_t *)(uintptr_t)listed, i, tool) {
        const char *name = json_string_value(json_object_get(tool, "name"));
        if (!name || !is_wanted(server, tool, name))
            continue;
        json_auto_t *own = describe(tool, name);
        size_t len = json_dumpb(own, NULL, 0, JSON_COMPACT) + 2 * SERVER_NAME_MAX;
        bool fits = json_array_size(chosen) < OFFER_TOOLS_MAX && len <= OFFER_BYTES_MAX - bytes;
        if (!fits || !is_usable(own, chosen, name)) {
            offer->n_left_out++;
            continue;
        }
        bytes += len;
        json_array_append(chosen, own);
    }
    offer->tools = tool_list_new(chosen, NULL);
    describe_all(offer, server);
}

void
offer_fini(struct offer *offer)
{
    tool_list_unref(offer->tools);
    json_decref(offer->described);
    *offer = (struct offer){0};
}
