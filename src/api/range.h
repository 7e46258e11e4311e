// SPDX-License-Identifier: Apache-2.0
// The conditions that a GET of a file may carry (RFC 9110, sections 13 and 14).
#pragma once

#include "base.h"

struct session_file_range;

// One range of bytes; false where there is none that could be heeded (another unit, several ranges,
// nonsense), and the whole is to be sent. `if_etag` of `ret` is left alone.
bool range_parse(const char *text, struct session_file_range *ret);
// Whether an If-None-Match names `etag`, which comes with its quotes.
bool etag_list_has(const char *list, const char *etag);
