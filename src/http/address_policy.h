// SPDX-License-Identifier: Apache-2.0
// Where outgoing connections may lead: to no loopback, link-local, private or multicast address and
// to none of this machine's own, in whatever form it is written, unless that is allowed by name.
// To be asked with the address that is about to be connected to: no name, no redirect and no answer
// of a name server gets around that.
#pragma once

#include <sys/socket.h>

#include "base.h"

struct address_policy;

// `allow`: NULL-terminated; each is an address, a network ("10.0.0.0/8") or the name of a host, of
// which any address is then fine. NULL: nothing is allowed beyond the rule.
KG_MUST_CHECK struct address_policy *address_policy_new(const char *const *allow,
                                                        struct kg_error *err);
void address_policy_free(struct address_policy *policy);
KG_DEFINE_AUTO(address_policy, address_policy_free)
// `host` as the URL names it (an IPv6 address with or without its brackets).
bool address_policy_allows(const struct address_policy *policy, const char *host,
                           const struct sockaddr *address);
