// SPDX-License-Identifier: Apache-2.0
// A schema of a client, a newline, and arguments of code: as a tool of the client's, and as they
// are. However large either is, the answer comes, is the same again, and can be said.
#include <assert.h>
#include <string.h>

#include "json_schema.h"
#include "tool_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// As the gateway does, which bounds what it reads first.
static json_t *
parse(const char *text, size_t len)
{
    struct json_weight weight = json_weigh(text, len);
    if (weight.depth > 64 || weight.bytes > 4 << 20)
        return NULL;
    return json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
}

static void
check_message(const struct kg_error *err)
{
    json_auto_t *text = json_string(err->message);
    assert(err->code == KG_INVALID && err->message[0] && text);
}

static void
check_schema(const json_t *schema, const json_t *value)
{
    struct kg_error err = {0}, again = {0};
    int result = json_schema_check(schema, value, "arguments", &err);
    assert(json_schema_check(schema, value, "arguments", &again) == result);
    assert(json_schema_check(schema, value, "arguments", NULL) == result);
    assert(strcmp(err.message, again.message) == 0);
    if (result < 0)
        check_message(&err);
    else
        assert(result == 0 && err.code == KG_OK);
}

static void
check_tool(const json_t *schema, const json_t *value)
{
    struct kg_error err = {0};
    json_auto_t *described =
        json_pack("[{s:s, s:O}]", "name", "t", "input_schema", (json_t *)(uintptr_t)schema);
    KG_AUTO(tool_list) list = tool_list_new(described, &err);
    if (!list)
        check_message(&err);
    else if (tool_list_check(list, "t", value, &err) < 0)
        check_message(&err);
    else
        assert(json_is_object(value));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *end = size > 0 ? memchr(text, '\n', size) : NULL;
    if (!end)
        return 0;
    json_auto_t *schema = parse(text, (size_t)(end - text));
    json_auto_t *value = parse(end + 1, size - (size_t)(end + 1 - text));
    if (!schema || !value)
        return 0;
    check_schema(schema, value);
    check_tool(schema, value);
    return 0;
}
