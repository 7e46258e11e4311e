// SPDX-License-Identifier: Apache-2.0
// Stands in for the sandbox module, as far as kernels use it: real kernels, as children of the test
// and without containers, in a folder of their own.
#pragma once

#include "loop.h"
#include "sandbox.h"

struct sandbox *child_sandbox_new(struct loop *loop);
// Kills what runs, and removes the folder.
void child_sandbox_free(struct sandbox *sandbox);
