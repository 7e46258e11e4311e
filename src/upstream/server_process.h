// SPDX-License-Identifier: Apache-2.0
// Starts the programs of MCP servers, each with its keeper (server_keeper.h). On the loop's thread.
#pragma once

#include <sys/types.h>

#include "base.h"
#include "loop.h"
#include "servers_file.h"

enum {
    SERVER_PROCESSES_MAX = 512,
    // Each program is a user of its own, if root starts it: this one and those above, in a range
    // that systemd leaves unused, below the gateway's own (PRIVILEGES_DEFAULT_ID).
    SERVER_USER_FIRST = 61100,
};

struct server_processes;
// `network`: a descriptor of the network namespace of the programs, borrowed; -1: this process's.
// `shows_errors`: what they write on stderr goes to this process's, else nowhere.
struct server_processes *server_processes_new(struct loop *loop, int network, bool shows_errors);
// Programs whose connection has been closed are awaited for a moment.
void server_processes_free(struct server_processes *processes);
KG_DEFINE_AUTO(server_processes, server_processes_free)

// Starts the program of a server, which has the number `number` in the file. Returns the socket
// that is its stdin and stdout; the program ends when it is closed. KG_INTERNAL, KG_SESSION_BUSY.
KG_MUST_CHECK int server_process_start(struct server_processes *processes,
                                       const struct server_spec *spec, size_t number,
                                       struct kg_error *err);
