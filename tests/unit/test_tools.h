// SPDX-License-Identifier: Apache-2.0
// The parts of test_tools.
#pragma once

// Each runs its tests and returns how many failed.
int test_json_schema(void);
int test_tool_list(void);
int test_tool_link(void);
