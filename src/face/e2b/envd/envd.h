// SPDX-License-Identifier: Apache-2.0
// What E2B's clients call envd, or port 49983: the files, commands, terminals and watches of a
// sandbox, over HTTP and the Connect protocol. Source: E2B's envd.yaml, filesystem.proto and
// process.proto. All on the loop's thread.
#pragma once

#include "base.h"

struct e2b;
struct envd;
struct http_server;

// `e2b` is borrowed.
struct envd *envd_new(const struct e2b *e2b);
// Ends the watchers. All requests must have ended.
void envd_free(struct envd *envd);
KG_DEFINE_AUTO(envd, envd_free)
// Adds the routes; `envd` must outlive the server.
void envd_serve_http(struct envd *envd, struct http_server *server);
// The server drains: ends the streams of commands, which may last for ever. The commands go on.
void envd_drain(struct envd *envd);
