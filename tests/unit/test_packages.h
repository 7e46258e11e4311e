// SPDX-License-Identifier: Apache-2.0
// The tests of packages: those of test_packages.c, and of this file, which returns the number of
// failed ones.
#pragma once

int test_package_sets(void);
