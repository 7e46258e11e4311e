// SPDX-License-Identifier: Apache-2.0
// Schemas of tools.
#include "test_tools.h"

int
main(void)
{
    return test_json_schema();
}
