// SPDX-License-Identifier: Apache-2.0
// The calls of tools that the code of one execution makes, as the execution's kernel sees them.
#pragma once

#include "kernel.h"

// From now on its code may call `tools` (borrowed; NULL: none).
void tool_calls_begin(struct execution *execution, struct tool_list *tools);
// Ends the calls that wait, because of `reason`; it makes no further ones.
void tool_calls_stop(struct execution *execution, const char *reason);
// The same, and its tools are forgotten: it has ended.
void tool_calls_end(struct execution *execution, const char *reason);
