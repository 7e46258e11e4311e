// SPDX-License-Identifier: Apache-2.0
// Shell commands in a session's sandbox, beside its kernels.
#pragma once

#include "sandbox.h"

struct session;

// Runs a command; if the session is still waiting for its sandbox, the command waits too. Its
// environment is that of the session's kernels (what all kernels have, the session's own, the PATH
// of the kernelspecs), then the spec's. Counts as activity while it runs, which of one that is kept
// the agent reports. See sandbox_command_start() for spec and events; if the session ends, on_end
// reports KG_SESSION_NOT_FOUND.
struct session_command;
KG_MUST_CHECK struct session_command *
session_command_start(struct session *session, const struct sandbox_command_spec *spec,
                      const struct sandbox_command_events *events, void *arg, struct kg_error *err);
// Follows one that is known: sandbox_command_join(). Is not activity. KG_SESSION_BUSY: the session
// is still being created.
KG_MUST_CHECK struct session_command *
session_command_join(struct session *session, const char *id, bool holds,
                     const struct sandbox_command_events *events, void *arg, struct kg_error *err);
// Starts one that is kept, with the same environment: sandbox_command_detach().
struct sandbox_call *session_command_detach(struct session *session,
                                            const struct sandbox_command_spec *spec,
                                            sandbox_agent_fn fn, void *arg, struct kg_error *err);
// A client waits for this command: what it does is use of the session, as what a cell does.
void session_command_attend(struct session_command *command);
// Leaves the command, which is killed unless it is kept; no callback fires any more.
void session_command_cancel(struct session_command *command);
// See sandbox_command_pause().
void session_command_pause(struct session_command *command, bool paused);
// The sandbox in which commands are known by their ids, for the calls of sandbox.h: activity. NULL:
// the session is still being created (KG_SESSION_BUSY).
struct sandbox *session_commands_sandbox(struct session *session, struct kg_error *err);
