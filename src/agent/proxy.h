// SPDX-License-Identifier: Apache-2.0
// The way out, as what runs in the sandbox sees it: an HTTP proxy on loopback. The agent reads
// nothing of what is said there; it takes a link for each connection and splices the two.
#pragma once

#include "loop.h"

struct proxy;

// Returns a link on which the program speaks first, non-blocking and the proxy's; -1: none now.
typedef int (*proxy_link_fn)(void *arg);
// Listens on 127.0.0.1:`port`, and sets the environment variables (http_proxy, …) by which programs
// that are started from now on find it.
KG_MUST_CHECK struct proxy *proxy_new(struct loop *loop, int port, proxy_link_fn open_link,
                                      void *arg, struct kg_error *err);
void proxy_free(struct proxy *proxy);
