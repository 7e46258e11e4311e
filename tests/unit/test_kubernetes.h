// SPDX-License-Identifier: Apache-2.0
// The unit tests of the engine "kubernetes" are one program of four files.
#pragma once

#include "kubernetes_priv.h"

extern const struct CMUnitTest kubernetes_fault_tests[];
extern const size_t n_kubernetes_fault_tests;

extern const struct CMUnitTest kubernetes_file_tests[];
extern const size_t n_kubernetes_file_tests;

extern const struct CMUnitTest kubernetes_replica_tests[];
extern const size_t n_kubernetes_replica_tests;
