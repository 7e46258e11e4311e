// SPDX-License-Identifier: Apache-2.0
// Questions about what an execution has changed, over one link that stays open.
#pragma once

#include "sandbox.h"

struct changes;

struct changes *changes_new(struct sandbox *sandbox);
// No question may be left.
void changes_free(struct changes *changes);
// Closes the link.
void changes_close(struct changes *changes);
// Fails one question; false where none is left. Its callback may free the sandbox.
bool changes_fail_one(struct changes *changes, const struct kg_error *reason);
