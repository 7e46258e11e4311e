// SPDX-License-Identifier: Apache-2.0
// Messages in the JSON form of Protocol Buffers (protobuf.dev/programming-guides/json): a field has
// its name in lowerCamelCase or as in the .proto file, with underscores; null is the same as
// absent, and unknown fields are ignored. Each function fails with KG_INVALID, whose message names
// the field.
#pragma once

#include <jansson.h>

#include "base.h"

// `name` in lowerCamelCase. Borrowed; NULL: it is absent.
const json_t *message_field(const json_t *message, const char *name);
// An object, borrowed; NULL without an error: it is absent.
KG_MUST_CHECK int message_object(const json_t *message, const char *name, const json_t **ret,
                                 struct kg_error *err);
// Borrowed; NULL: it is absent.
KG_MUST_CHECK int message_string(const json_t *message, const char *name, const char **ret,
                                 struct kg_error *err);
// `ret` stays as it is if it is absent.
KG_MUST_CHECK int message_bool(const json_t *message, const char *name, bool *ret,
                               struct kg_error *err);
// A whole number from 0 to `max`, or its decimal digits in a string. The same.
KG_MUST_CHECK int message_uint(const json_t *message, const char *name, int64_t max, int64_t *ret,
                               struct kg_error *err);
// Base64, standard or URL-safe, with padding or without. Appends to `ret`; `ret_has` (may be NULL):
// whether it is there.
KG_MUST_CHECK int message_bytes(const json_t *message, const char *name, struct buf *ret,
                                bool *ret_has, struct kg_error *err);
// Standard base64 with padding, a new reference.
json_t *message_of_bytes(const void *data, size_t len);
