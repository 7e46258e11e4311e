// SPDX-License-Identifier: Apache-2.0
// JSON bodies of requests. Unknown members are ignored.

#include <string.h>

#include "notebook_priv.h"

json_t *
body_object(struct http_request *request, struct kg_error *err)
{
    json_t *body = http_request_json(request, err);
    if (!body || json_is_object(body))
        return body;
    json_decref(body);
    kg_error_set(err, KG_INVALID, 0, "the body must be a JSON object");
    return NULL;
}

int
body_string(const json_t *body, const char *name, size_t max, const char **ret,
            struct kg_error *err)
{
    const json_t *value = json_object_get(body, name);
    *ret = json_string_value(value);
    if (value && !json_is_null(value) && !*ret)
        return kg_error_set(err, KG_INVALID, 0, "%s must be a string", name);
    if (json_string_length(value) > max)
        return kg_error_set(err, KG_INVALID, 0, "%s has more than %zu bytes", name, max);
    return 0;
}
