// SPDX-License-Identifier: Apache-2.0
// What a model can read of a display that has no image: text, or at least a line that says what was
// not shown, and how to get it.
#pragma once

#include <jansson.h>

#include "base.h"

// The types that are used, the preferred first; the last one is NULL.
extern const char *const display_types[];

// Appends the text of a display, whose text/plain is `plain` (or NULL) and whose other types are
// `data` ({type: value}; or NULL). A type that only has to be named may have any value.
void display_append_text(struct buf *ret, const json_t *plain, const json_t *data);
// Appends the text between the tags of HTML, without scripts and styles.
void html_append_text(struct buf *ret, const char *html, size_t len);
