// SPDX-License-Identifier: Apache-2.0
// Reading the JSON of a kernel into jansson's values.
//
// jansson's own reader refuses what a kernel may legally produce (Python's json module writes lone
// surrogates, NaN and integers of any size), takes any number of values, and reads about 90 MB/s.
#pragma once

#include <jansson.h>

#include "base.h"

// Reads an object. Lone surrogates and bytes that are not UTF-8 become U+FFFD, and so does U+0000
// in a key; NaN and infinities become null, numbers out of range the nearest real: then `*repaired`
// (which may be NULL) is set; it is never cleared. `what` names the text in the error:
// KG_INVALID_CONTENT, or KG_ARTIFACT_TOO_LARGE where its values would take more than a bound.
//
// Where `ret_structured` is not NULL, arrays and objects that are members of the object's member
// "data" (a MIME bundle) are not made into values, which take many times as much as their text:
// they are members of `*ret_structured` instead, as strings that hold their JSON, repaired in the
// same way. NULL where there are none.
KG_MUST_CHECK json_t *kernel_json_load(const char *text, size_t len, const char *what,
                                       json_t **ret_structured, bool *repaired,
                                       struct kg_error *err);

// Reads an object as kernel_json_load() does, but takes only members that are strings: of each name
// the last one, NULL where there is none. They end at a NUL inside of them. What was taken is freed
// by the caller, also on failure.
struct kernel_json_string {
    const char *name;
    char *value;
};
KG_MUST_CHECK int kernel_json_strings(const char *text, size_t len, const char *what,
                                      struct kernel_json_string *strings, size_t n_strings,
                                      bool *repaired, struct kg_error *err);
