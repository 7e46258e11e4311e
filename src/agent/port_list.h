// SPDX-License-Identifier: Apache-2.0
// Which TCP ports something in the sandbox listens on.
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "base.h"

enum { PORT_LIST_MAX = 128 };

// Whether a port is none of the tenant's.
typedef bool (*port_hidden_fn)(int port, void *arg);

// [{"port", "address"}], at most PORT_LIST_MAX, by port; one that listens on several addresses has
// an entry for each.
json_t *port_list(port_hidden_fn hidden, void *arg);
// Adds the ports of a file like /proc/net/tcp, or of /proc/net/tcp6.
void port_list_read(json_t *list, FILE *file, bool is_v6, port_hidden_fn hidden, void *arg);
