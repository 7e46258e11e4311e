// SPDX-License-Identifier: Apache-2.0
// The process beside the program of an MCP server: it starts the program as a user who can do
// little, and ends it with all that it has started, when the gateway closes the connection, or the
// program itself ends. A program of its own (this binary, again), so that nothing of the gateway's
// memory is in it.
#pragma once

#include <sys/types.h>

#include "base.h"

// The first argument. The list of commands in --help does not have it.
#define SERVER_KEEPER_COMMAND "keep-mcp-server"

// The arguments after that. Descriptor 0 is the connection; 3 the network namespace for the
// program, if there is one. The environment is the program's.
struct server_keeper_spec {
    uid_t user; // whom the program becomes, with a group of that number; 0: it stays who it is
    bool has_network;
    char **argv;
};

// main() of the keeper. Returns the exit code.
int server_keeper_main(int argc, char **argv);
