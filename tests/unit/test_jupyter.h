// SPDX-License-Identifier: Apache-2.0
// The parts of test_jupyter.
#pragma once

// Each runs its tests and returns how many failed; jupyter_init() was called before.
int test_jupyter_channels(void);
int test_jupyter_guard(void);
