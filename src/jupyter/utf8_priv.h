// SPDX-License-Identifier: Apache-2.0
// UTF-8 (Unicode 15, table 3-7).
#pragma once

#include <stddef.h>

// The length of the character at `p`, which is before `end`; 0 where there is no valid one.
size_t utf8_valid_len(const unsigned char *p, const unsigned char *end);
// How many bytes one U+FFFD replaces where there is no valid one: the longest start of a character,
// at least one byte, as Python's decoder does.
size_t utf8_invalid_len(const unsigned char *p, const unsigned char *end);
// Writes a code point, which is no surrogate, and returns its length.
size_t utf8_encode(unsigned code, char ret[4]);
