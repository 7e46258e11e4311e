// SPDX-License-Identifier: Apache-2.0
// Parses JSON from clients, within bounds of depth and memory.

#include <string.h>

#include "http_priv.h"

static int
json_check(const char *body, size_t len, size_t max_value_bytes, struct kg_error *err)
{
    struct json_weight weight = json_weigh(body, len);
    if (weight.depth > HTTP_JSON_DEPTH_MAX)
        return kg_error_set(err, KG_INVALID, 0, "the JSON nests more than %d levels deep",
                            HTTP_JSON_DEPTH_MAX);
    if (weight.bytes > max_value_bytes)
        return kg_error_set(err, KG_INVALID, 0,
                            "the JSON has too many values: they would take %zu MiB of memory, and "
                            "the limit is %zu MiB; send large data as a file",
                            weight.bytes >> 20, max_value_bytes >> 20);
    return 0;
}

json_t *
http_json_parse_within(const char *body, size_t len, size_t max_value_bytes, bool *ret_beyond,
                       struct kg_error *err)
{
    json_error_t error;
    *ret_beyond = false;
    json_t *value = NULL;
    if (len == 0)
        kg_error_set(err, KG_INVALID, 0, "the body is empty, JSON was expected");
    else if (memchr(body, '\0', len)) // jansson overlooks it after a number
        kg_error_set(err, KG_INVALID, 0, "the body is not valid JSON: it has a NUL byte");
    else if (json_check(body, len, max_value_bytes, err) < 0)
        *ret_beyond = true;
    else if (!(value = json_loadb(body, len, JSON_REJECT_DUPLICATES, &error)))
        kg_error_set(err, KG_INVALID, 0, "the body is not valid JSON: line %d, column %d: %s",
                     error.line, error.column, error.text);
    return value;
}

json_t *
http_json_parse(const char *body, size_t len, struct kg_error *err)
{
    bool beyond;
    return http_json_parse_within(body, len, HTTP_JSON_VALUE_BYTES_MAX, &beyond, err);
}

void
parsed_free(void *arg)
{
    struct http_parsed *parsed = arg;
    if (!parsed)
        return;
    json_decref(parsed->value);
    free(parsed);
}
