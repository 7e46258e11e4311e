// SPDX-License-Identifier: Apache-2.0
// Commands in the words of the agent, there and back.
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct sandbox_command_spec;

// The parameters of commands.run; NULL if a string is not UTF-8.
json_t *command_params(const struct sandbox_command_spec *spec);
// The command of an array of strings, which may be shortened. To be freed. `ret_is_argv`: it was
// given as such.
char *command_of_argv(const json_t *argv, bool *ret_is_argv);
