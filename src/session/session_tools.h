// SPDX-License-Identifier: Apache-2.0
// Calls of tools that code in a session makes, and who answers them: the client of the execution
// that runs, or an MCP server beside the gateway. All on the loop's thread.
#pragma once

struct session;

// Takes a connection (owned) of a process of the session that calls tools. It may call those of the
// execution that its kernel runs at the moment of the call; a process that descends from no kernel,
// those of the only execution that has any. And, while anything of the session runs, those of the
// MCP servers that the session's owner may use.
void session_tools_take(struct session *session, int fd);
// Ends the connections and their calls.
void session_tools_end(struct session *session);
