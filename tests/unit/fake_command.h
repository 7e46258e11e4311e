// SPDX-License-Identifier: Apache-2.0
// Stands in for the sandbox module's commands: they run as the test says.
#pragma once

#include "base.h"
#include "sandbox.h"

// The newest that was started and is still there; NULL: none.
struct sandbox_command *fake_command_last(void);
size_t fake_commands_count(void);
// What it was asked: {"command", "cwd", "timeout_ms", "env"}. Borrowed.
const json_t *fake_command_request(const struct sandbox_command *command);
bool fake_command_paused(const struct sandbox_command *command);
// The next start fails.
void fake_command_refuse(void);
void fake_command_start_and_print(struct sandbox_command *command, const char *text);
// A command whose start nobody waits for: its result.
void fake_command_print(struct sandbox_command *command, const char *text);
// `result` or `err`; the command is gone then.
void fake_command_end(struct sandbox_command *command, const struct sandbox_command_result *result,
                      const struct kg_error *err);
