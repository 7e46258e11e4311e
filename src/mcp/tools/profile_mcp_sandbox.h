// SPDX-License-Identifier: Apache-2.0
// The two halves of the profile `mcp-sandbox`.
#pragma once

#include "script.h"

// Goes on in the sandbox that a call names. `spec` NULL: no kernel needs to be ready.
void mcp_sandbox_find(struct job *job, const struct kernelspec *spec,
                      void (*fn)(struct job *job, struct session *session, struct kernel *kernel));

// A path as its clients know it: below /app/results, too.
KG_MUST_CHECK int mcp_sandbox_path(const char *path, const char **ret, struct kg_error *err);

// profile_mcp_sandbox_life.c
void mcp_sandbox_create(struct job *job);
void mcp_sandbox_list(struct job *job);
void mcp_sandbox_install(struct job *job);
void mcp_sandbox_check_package(struct job *job);
