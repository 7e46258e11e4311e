// SPDX-License-Identifier: Apache-2.0
// What code in a session's sandbox asks the gateway for: packages, so far. All on the loop's
// thread.
#pragma once

#include <stdbool.h>

struct sandbox_request;
struct session;

// Takes a request, or the news that its code has left (see on_request in sandbox.h; borrowed). It
// is answered with lines, the last of which is {"type": "result", …} or {"type": "error",
// "message", "code"}: unknown methods, malformed parameters, and whatever does not fit the bounds
// are refused so. False: the sandbox has passed on more than its agent does.
bool session_requests_take(struct session *session, const struct sandbox_request *request);
// Whether something runs or somebody is connected. Only then does code get what it asks for, since
// it must not keep its session alive by itself.
bool session_is_attended(const struct session *session);
// Forgets all requests of a session that ends. Their code ends with the sandbox, or where that is
// kept for the next gateway, hears from its agent that this one is gone.
void session_requests_end(struct session *session);
