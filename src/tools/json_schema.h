// SPDX-License-Identifier: Apache-2.0
// Checks a value against a JSON Schema (draft 2020-12; earlier drafts' `definitions` and list of
// `items`, too). Both come from strangers: the work is bounded, whatever refers to what.
//
// Checked are type, enum, const; the bounds of numbers, strings, arrays and objects; properties,
// required, additionalProperties, items, prefixItems, uniqueItems; allOf, anyOf, oneOf, not; $ref
// within the schema. Nothing else is, such as pattern and format: the client or server that gets the
// value has to check those.
#pragma once

#include <jansson.h>

#include "base.h"

// `name` is what messages call the value. KG_INVALID says where in it what is wrong, as
// `arguments.limit: must be an integer, not a string`.
KG_MUST_CHECK int json_schema_check(const json_t *schema, const json_t *value, const char *name,
                                    struct kg_error *err);
