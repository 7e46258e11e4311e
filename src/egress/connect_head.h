// SPDX-License-Identifier: Apache-2.0
// What a client of the way out asks for: `CONNECT host:port`, or a request for an http:// URL. It
// comes from a tenant.
#pragma once

#include "base.h"

enum { CONNECT_HEAD_MAX = 8192, CONNECT_HOST_MAX = 253 };

struct connect_head {
    char host[CONNECT_HOST_MAX + 1]; // a name or an address, IPv6 without brackets
    int port;
    size_t len;         // of the head; what follows is for the other side
    struct buf request; // for the other side, before what follows; empty: a tunnel was asked for
};

// Reads the head of a proxy's request (RFC 9110, 7.6 and 9.3.6). Returns 1 where it is complete, 0
// where more has to come, -1 where it will never be one. `ret` is to be freed in any case.
KG_MUST_CHECK int connect_head_parse(const char *data, size_t len, struct connect_head *ret,
                                     struct kg_error *err);
void connect_head_fini(struct connect_head *head);
