// SPDX-License-Identifier: Apache-2.0
// The result that pip prints, which code in the sandbox can replace.

#include "pip.h"

// The weight is that of some 10,000 packages, which are parsed in a few milliseconds.
enum { WEIGHT_MAX = 2 << 20, DEPTH_MAX = 8 };

json_t *
pip_result_parse(const char *text, size_t len, struct kg_error *err)
{
    const struct json_weight weight = json_weigh(text, len);
    if (weight.depth > DEPTH_MAX || weight.bytes > WEIGHT_MAX) {
        kg_error_set(err, KG_INTERNAL, 0, "pip's result has too many values");
        return NULL;
    }
    json_auto_t *root = len > 0 ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (json_is_object(root))
        return KG_STEAL(root);
    kg_error_set(err, KG_INTERNAL, 0, "pip's result is not a JSON object");
    return NULL;
}
