// SPDX-License-Identifier: Apache-2.0
// All that an execution wrote, from its log, as one text.

#include <string.h>

#include "tools_priv.h"

enum { MAX_OUTPUT_BYTES = 8 << 20 };

static const char scheme[] = "kernelgate-output://";

char *
output_uri(const struct execution *execution)
{
    return kg_asprintf("%s%s", scheme, execution_id(execution));
}

const char *
output_uri_id(const char *uri)
{
    return strncmp(uri, scheme, strlen(scheme)) == 0 ? uri + strlen(scheme) : NULL;
}

static void
add_string(struct text *text, const json_t *value)
{
    if (json_is_string(value))
        text_add(text, json_string_value(value), json_string_length(value));
}

static void
add_line(struct text *text, const char *data, size_t len)
{
    json_auto_t *line = json_loadb(data, len, JSON_ALLOW_NUL, NULL);
    const char *type = json_string_value(json_object_get(line, "type"));
    if (!type)
        return;
    add_string(text, json_object_get(line, "text"));
    if (strcmp(type, "result") == 0 || strcmp(type, "display") == 0)
        text_add(text, "\n", 1);
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(line, "traceback"), i, part) {
        add_string(text, part);
        text_add(text, "\n", 1);
    }
}

// One that only looks is never told of news.
static void
on_news(void *arg)
{
    (void)arg;
}

int
output_read(const struct mcp_tools *tools, const char *owner, const char *id, struct buf *ret,
            struct kg_error *err)
{
    struct execution *execution = executions_find(tools->settings.executions, id, owner, err);
    if (!execution)
        return -1;
    KG_AUTO(subscription) subscription = execution_subscribe(execution, 0, on_news, NULL);
    struct text text;
    size_t len;
    text_init(&text, MAX_OUTPUT_BYTES / 2, MAX_OUTPUT_BYTES / 2);
    for (const char *line; (line = subscription_next(subscription, &len));)
        add_line(&text, line, len);
    text_append_to(&text, ret);
    text_fini(&text);
    return 0;
}
