// SPDX-License-Identifier: Apache-2.0
// The unit tests of the engine "docker" are one program of two files.
#pragma once

#include "docker_priv.h"

extern const struct CMUnitTest docker_fault_tests[];
extern const size_t n_docker_fault_tests;
