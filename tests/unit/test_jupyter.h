// SPDX-License-Identifier: Apache-2.0
// The parts of test_jupyter.
#pragma once

// Runs the tests of the channels; returns how many failed.
int test_jupyter_channels(void);
