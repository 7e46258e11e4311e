// SPDX-License-Identifier: Apache-2.0
// One server: its connections, the list of its tools, and the calls of them.
#pragma once

#include <sys/queue.h>

#include "connection.h"
#include "offer.h"
#include "upstream_call.h"

struct upstream;

struct upstream *upstream_new(const struct connection_context *context,
                              const struct server_spec *spec, size_t number, int64_t timeout_ms);
void upstream_free(struct upstream *upstream);
const struct server_spec *upstream_spec(const struct upstream *upstream);
const struct offer *upstream_offer(const struct upstream *upstream);
const struct connection *upstream_connection(const struct upstream *upstream);
// upstream_call_start() for a tool by its own name.
KG_MUST_CHECK struct upstream_call *upstream_call_tool(struct upstream *upstream, const char *tool,
                                                       const struct upstream_call_spec *spec,
                                                       upstream_fn fn, void *arg,
                                                       struct kg_error *err);
void upstream_end_session(struct upstream *upstream, const void *session);
