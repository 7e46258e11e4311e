// SPDX-License-Identifier: Apache-2.0
// Loading the JSON of a kernel: bounded, and repaired where that helps.
#pragma once

#include <jansson.h>

#include "base.h"

// Loads an object; sets `*repaired` (and never clears it) where the text had to be repaired first.
// `what` names it in the error (KG_INVALID_CONTENT).
KG_MUST_CHECK json_t *kernel_json_load(const char *text, size_t len, const char *what,
                                       bool *repaired, struct kg_error *err);
