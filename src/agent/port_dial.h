// SPDX-License-Identifier: Apache-2.0
// Connecting to what listens on a port of the sandbox: on 127.0.0.1, or else on ::1.
#pragma once

#include "loop.h"

enum { PORT_DIAL_TIMEOUT_MS = 10 * 1000 };

struct port_dial;
// `fd` is non-blocking, and the callback's; -1 with `err`: KG_PORT_CLOSED if nothing listens,
// KG_PORT_TIMEOUT.
typedef void (*port_dial_fn)(int fd, const struct kg_error *err, void *arg);
// The callback fires once, never before this returns; the handle is then invalid.
struct port_dial *port_dial_start(struct loop *loop, int port, port_dial_fn fn, void *arg);
// NULL is fine.
void port_dial_cancel(struct port_dial *dial);
