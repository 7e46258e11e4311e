// SPDX-License-Identifier: Apache-2.0
// The sandboxes' way out. No sandbox has a network; what runs in one that may go out speaks to its
// agent as to an HTTP proxy, and the agent hands the connection through the door to here. The
// gateway makes the connection to the other side, where the address policy allows it, and joins the
// two.
#pragma once

#include "address_policy.h"
#include "base.h"
#include "http_client.h"
#include "loop.h"

struct egress;
struct egress_user;

// The policy is borrowed.
struct egress *egress_new(struct loop *loop, struct http_client *http,
                          const struct address_policy *policy);
// Its users must be gone.
void egress_free(struct egress *egress);
KG_DEFINE_AUTO(egress, egress_free)

// One sandbox.
struct egress_user *egress_user_new(struct egress *egress);
// Closes its connections.
void egress_user_free(struct egress_user *user);
// Takes over a connection (non-blocking) on which the sandbox speaks first: the head of a proxy's
// request. It is answered where it cannot be served.
void egress_user_take(struct egress_user *user, int fd);
