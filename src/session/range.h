// SPDX-License-Identifier: Apache-2.0
// The range that a GET of a file may ask for (RFC 9110, section 14).
#pragma once

#include "base.h"

struct session_file_range;

// Parses a Range header with one range of bytes. False: the header must be ignored (another unit,
// several ranges, malformed). Does not set `if_etag` of `ret`.
bool range_parse(const char *text, struct session_file_range *ret);
