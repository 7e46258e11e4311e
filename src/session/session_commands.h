// SPDX-License-Identifier: Apache-2.0
// Shell commands in a session's sandbox, beside its kernels.
#pragma once

#include "base.h"

struct sandbox_command_events;
struct sandbox_command_spec;
struct session;

// Runs a command; if the session is still waiting for its sandbox, the command waits too. Its
// environment is that of the session's kernels (what all kernels have, the session's own, the PATH
// of the kernelspecs), then the spec's. Counts as activity while it runs. See
// sandbox_command_start() for spec and events; if the session ends, on_end reports
// KG_SESSION_NOT_FOUND.
struct session_command;
KG_MUST_CHECK struct session_command *
session_command_start(struct session *session, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err);
// A client waits for this command: what it does is use of the session, as what a cell does.
void session_command_attend(struct session_command *command);
// Kills the command; no callback fires any more.
void session_command_cancel(struct session_command *command);
// See sandbox_command_pause().
void session_command_pause(struct session_command *command, bool paused);
