// SPDX-License-Identifier: Apache-2.0
// The way out, as what runs in the sandbox sees it: an HTTP proxy on loopback. The agent reads
// nothing of what is said there; it dials the door for each connection and splices the two.
#pragma once

#include "loop.h"

struct proxy;

// Listens on 127.0.0.1:`port`, and sets the environment variables (http_proxy, …) by which programs
// that are started from now on find it. `door_path` is borrowed.
KG_MUST_CHECK struct proxy *proxy_new(struct loop *loop, const char *door_path, int port,
                                      struct kg_error *err);
void proxy_free(struct proxy *proxy);
