// SPDX-License-Identifier: Apache-2.0
// The two halves of the profile `mcp-code-sandbox`.
#pragma once

#include "script.h"

// profile_mcp_code_sandbox.c
json_t *mcp_code_sandbox_error(const char *name, const char *message);
// Whether the argument `session_id` has the form of one, or is absent; else the job is answered.
bool mcp_code_sandbox_check_id(struct job *job);
void mcp_code_sandbox_fresh_id(char ret[SESSION_MAX_ID_LEN + 1]);

// profile_mcp_code_sandbox_files.c
void mcp_code_sandbox_upload(struct job *job);
void mcp_code_sandbox_read(struct job *job);
void mcp_code_sandbox_list(struct job *job);
json_t *mcp_code_sandbox_artifacts(const struct job *job); // that a run has left
