// SPDX-License-Identifier: Apache-2.0
// The parts of test_api.
#pragma once

// Runs its tests and returns how many failed.
int test_api_stream(void);
