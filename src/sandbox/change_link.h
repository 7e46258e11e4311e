// SPDX-License-Identifier: Apache-2.0
// Questions about what an execution has changed, over one link that stays open.
#pragma once

#include "sandbox.h"

struct change_link;

struct change_link *change_link_new(struct sandbox *sandbox);
// No question may be left.
void change_link_free(struct change_link *changes);
// Closes the link.
void change_link_close(struct change_link *changes);
// Fails one question; false where none is left. Its callback may free the sandbox.
bool change_link_fail_one(struct change_link *changes, const struct kg_error *reason);
