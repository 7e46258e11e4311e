// SPDX-License-Identifier: Apache-2.0
// Calls about commands, for the endpoints that start and follow them.
#pragma once

#include "base.h"

struct http_request;
struct sandbox_command_spec;
struct session;

// KG_NOT_FOUND where no command can have that id.
KG_MUST_CHECK int command_id_check(const char *id, struct kg_error *err);
// Starts a command that lives on, and answers 201 with its id.
KG_MUST_CHECK int command_call_detach(struct http_request *request, struct session *session,
                                      const struct sandbox_command_spec *spec,
                                      struct kg_error *err);
