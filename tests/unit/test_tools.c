// SPDX-License-Identifier: Apache-2.0
// Schemas, lists of tools and results, and the connections of code that calls tools.
#include "test_tools.h"

int
main(void)
{
    return test_json_schema() + test_tool_list() + test_tool_link();
}
