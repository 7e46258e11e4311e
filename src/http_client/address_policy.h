// SPDX-License-Identifier: Apache-2.0
// The addresses that outgoing connections may go to: not to loopback, link-local, private or
// multicast addresses, nor to this machine's own, in any notation, unless they are allowed
// explicitly. It is asked for the address that is about to be connected to, so host names,
// redirects and answers of name servers cannot get around it.
#pragma once

#include <sys/socket.h>

#include "base.h"

struct address_policy;

// `allow`: the exceptions, NULL-terminated: addresses, networks ("10.0.0.0/8"), and names of hosts,
// all of whose addresses are allowed. NULL: none.
KG_MUST_CHECK struct address_policy *address_policy_new(const char *const *allow,
                                                        struct kg_error *err);
void address_policy_free(struct address_policy *policy);
KG_DEFINE_AUTO(address_policy, address_policy_free)
// `host`: as in the URL (an IPv6 address with or without its brackets).
bool address_policy_allows(const struct address_policy *policy, const char *host,
                           const struct sockaddr *address);
