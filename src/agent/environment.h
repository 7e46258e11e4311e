// SPDX-License-Identifier: Apache-2.0
// The environment of a child process.
#pragma once

#include <jansson.h>

#include "base.h"

// The agent's own, with the members of `env` (an object of strings, or NULL) in place of what has
// their names: NULL-terminated, to be freed with strings_free().
char **environment_make(json_t *env);
void strings_free(char **strings);
