// SPDX-License-Identifier: Apache-2.0
// YAML files of the operator: what is read is JSON within the bounds, or an error says why not.
#include <assert.h>

#include "yaml_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int depth_of(json_t *value);

static int
deeper(int deepest, json_t *value)
{
    int depth = depth_of(value);
    return depth > deepest ? depth : deepest;
}

static int
depth_of(json_t *value)
{
    int deepest = 0;
    size_t i;
    const char *key;
    json_t *inner;
    json_array_foreach(value, i, inner)
        deepest = deeper(deepest, inner);
    json_object_foreach(value, key, inner)
        deepest = deeper(deepest, inner);
    return deepest + 1;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kg_error err = {0};
    json_auto_t *value = json_of_yaml((const char *)data, size, &err);
    if (!value) {
        assert(err.code == KG_INVALID && err.message[0]);
        return 0;
    }
    assert(!err.code && depth_of(value) <= YAML_DEPTH_MAX + 1);
    KG_AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY);
    json_auto_t *again = json_loads(text, JSON_DECODE_ANY, NULL);
    assert(json_equal(again, value));
    return 0;
}
