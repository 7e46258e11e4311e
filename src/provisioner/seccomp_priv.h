// SPDX-License-Identifier: Apache-2.0
// Internals of the system call filter: its rules, and the calls of which it allows some arguments.
#pragma once

#include "provisioner_engine.h"

// Conditions on one argument of a call: that all of it has a value, or the bits in `mask`.
json_t *seccomp_equals(int index, json_int_t value);
json_t *seccomp_masked(int index, json_int_t mask, json_int_t value);
#define SECCOMP_IGNORED (-2)
// Adds a rule to `rules`: the call fails with `error`, or is allowed if that is 0, or returns 0 and
// does nothing if that is SECCOMP_IGNORED, if all `conditions` (stolen, may be NULL) hold.
void seccomp_add(json_t *rules, const char *name, int error, json_t *conditions);
// Adds the rules of all calls of which some arguments are allowed; `udp`: UDP sockets are.
void seccomp_add_arguments(json_t *rules, bool udp);
