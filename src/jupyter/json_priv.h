// SPDX-License-Identifier: Apache-2.0
// Reading the JSON of a kernel into jansson's values.
//
// jansson's own reader refuses what a kernel may produce (Python's json module writes lone
// surrogates, NaN and integers of any size), accepts any number of values, and reads only about 90
// MB/s.
#pragma once

#include <jansson.h>

#include "base.h"

// Reads an object. Lone surrogates and bytes that are not UTF-8 become U+FFFD, and so does U+0000
// in a key; NaN and infinities become null, numbers out of range the nearest real: then `*repaired`
// (which may be NULL) is set; it is never cleared. `what` names the text in the error:
// KG_INVALID_CONTENT, or KG_ARTIFACT_TOO_LARGE if its values would take too much memory.
//
// If `ret_structured` is not NULL, arrays and objects in the object's member "data" (a MIME bundle)
// do not become values, which take many times the memory of their text. They become members of
// `*ret_structured`: strings that hold their JSON, repaired in the same way. NULL if there are
// none.
KG_MUST_CHECK json_t *kernel_json_load(const char *text, size_t len, const char *what,
                                       json_t **ret_structured, bool *repaired,
                                       struct kg_error *err);

// Reads an object as kernel_json_load() does, but returns only members that are strings: the last
// one of each name, NULL if there is none. A NUL ends a string. The caller frees them, also on
// failure.
struct kernel_json_string {
    const char *name;
    char *value;
};
KG_MUST_CHECK int kernel_json_strings(const char *text, size_t len, const char *what,
                                      struct kernel_json_string *strings, size_t n_strings,
                                      bool *repaired, struct kg_error *err);
