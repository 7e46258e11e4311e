// SPDX-License-Identifier: Apache-2.0
// YAML files of the operator, as JSON values.
#pragma once

#include <jansson.h>

#include "base.h"

enum { YAML_DEPTH_MAX = 64, YAML_VALUES_MAX = 100000 };

// The only document of `text`, a new reference. Scalars without quotes are those of the core schema
// (YAML 1.2.2, 10.3), except .inf and .nan. KG_INVALID, with the line: not YAML, anchors, aliases,
// tags, a key that is there twice or not a scalar, or more than the bounds above.
KG_MUST_CHECK json_t *json_of_yaml(const char *text, size_t len, struct kg_error *err);
